"""How a family declares the arrays it needs: one entry an array drives loading, checking and placing it."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple


class TensorSpec(NamedTuple):
    """One array: the stored tensor's name (``{layer}`` where there is one a layer), its axes and their sizes.

    The stored tensor has the same entries in the same order, heads perhaps not yet split out. One without axes is a
    number, which is kept in float32. One that is ``optional`` is a constant: it does not count as a parameter, and a
    checkpoint may leave it out, for all layers at once.
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    optional: bool = False

    def stacked(self, n_layers: int) -> "TensorSpec":
        """The whole parameter: tensors of layers on a leading ``layer`` axis, others as they are."""
        if "{layer}" not in self.name:
            return self
        return self._replace(axes=("layer", *self.axes), shape=(n_layers, *self.shape))


def specs(cfg: Any) -> tuple[Callable[..., TensorSpec], Callable[..., TensorSpec]]:
    """Makers of entries for a weight of the whole model and for one of each layer.

    Both take the stored name without its ending, and the axes, which ``cfg`` has as fields.
    """

    def spec(prefix: str, name: str, *axes: str) -> TensorSpec:
        return TensorSpec(f"{prefix}{name}.weight", axes, tuple(getattr(cfg, axis) for axis in axes))

    return partial(spec, ""), partial(spec, "layers.{layer}.")
