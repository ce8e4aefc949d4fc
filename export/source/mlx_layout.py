"""What mlx-lm changes in a checkpoint's tensors, besides quantizing them (`sanitize` in its models)."""

from mobile_ft.export.quantizer.tensors import Tensors
from mobile_ft.model.families import Family


def has_mlx_convolutions(tensors: Tensors) -> bool:
    """Whether the taps of convolutions are [channels, taps, 1], as mlx-lm writes them, and not [channels, 1, taps]."""
    taps = next((name for name in tensors.names if name.endswith(".conv1d.weight")), None)
    shape = [] if taps is None else tensors.shape(taps)
    return len(shape) == 3 and shape[2] == 1 and shape[1] > 1


def adds_norm_offset(family: Family) -> bool:
    """Whether mlx-lm adds the offset of a family's norms to their weights: in models with delta nets."""
    return "delta" in family.norms


def multiplies_weights(family: Family) -> bool:
    """Whether mlx-lm multiplies a family's weights by the multipliers of config.json, which stay there: Falcon-H1's."""
    return "hybrid" in family.norms
