"""Charts: functions from a record to an Altair chart, with no Streamlit and no computing."""
