"""Axis names used in every shape annotation, and the layout of every weight.

Axes: ``seq`` (tokens of one sequence; batches are made with ``vmap``), ``query`` and ``key`` (the two
sides of attention), ``layer``, ``vocab``, ``d_model`` (width of the residual stream), ``d_mlp``,
``n_heads``, ``n_kv_heads``, ``group`` (query heads that share one key/value head), ``head_dim``.

Weights keep the row order of the files they come from, (out, in), with heads split out:
``W_Q [n_heads head_dim d_model]``, ``W_O [d_model n_heads head_dim]``, ``W_up [d_mlp d_model]``,
``W_down [d_model d_mlp]``, ``W_E`` and ``W_U [vocab d_model]``. A float32 file can then be mapped into
memory and used where it lies, and a matrix-vector product reads every row once, in order. ``*layer``
in an annotation stands for the leading layer axis of stacked weights; inside a scan it is absent.
"""

from jaxtyping import Array, Bool, Float, Int

Resid = Float[Array, "seq d_model"]
Logits = Float[Array, "seq vocab"]
Positions = Int[Array, "seq"]
Mask = Bool[Array, "query key"]
