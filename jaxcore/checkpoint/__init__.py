"""Files to arrays: one module a format, all giving the same `Checkpoint`. None of them imports JAX."""
