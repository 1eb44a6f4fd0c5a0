"""One self-contained HTML file with what the pages show of a model and a prompt: ``python -m dashboard.report``."""
