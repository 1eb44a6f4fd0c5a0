"""Analyses of language models, and the command line that runs them headless."""

__version__ = "0.1.0"
