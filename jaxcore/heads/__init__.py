"""What each head of a character transformer does, read from its weights alone, and checked against what it does."""
