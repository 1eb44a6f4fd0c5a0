"""The character transformer: pre-LayerNorm, learned positions, 28 symbols. `config` and `tensors` import no JAX."""
