"""Speed and memory, beside `transformers` in the same process: ``python -m tests.bench``."""
