"""Apertus, text models of all sizes. `config` and `tensors` import no JAX, so that headers can be read at once."""
