"""How the small models that ship with this repository are made."""
