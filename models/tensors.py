"""How a family declares the arrays it needs: one entry an array drives loading, checking and placing it."""

from typing import NamedTuple


class TensorSpec(NamedTuple):
    """One array: the stored tensor's name (``{layer}`` where there is one a layer), its axes and their sizes.

    The stored tensor has the same entries in the same order, heads perhaps not yet split out.
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]

    def stacked(self, n_layers: int) -> "TensorSpec":
        """The whole parameter: tensors of layers on a leading ``layer`` axis, others as they are."""
        if "{layer}" not in self.name:
            return self
        return self._replace(axes=("layer", *self.axes), shape=(n_layers, *self.shape))
