"""How far back a layer sees, in tokens, the current one included. Imports no JAX."""

UNLIMITED = 2**30
"""The window of a layer that sees every earlier token."""
