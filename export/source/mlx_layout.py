"""What mlx-lm changes in a checkpoint's tensors, besides quantizing them (`sanitize` in its models)."""

from mobile_ft.export.quantizer.tensors import Tensors
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import Family

# Linear layers outside of experts that mlx-lm renames or splits: LFM2-8B-A1B's, and those of Granite 4 without experts.
_BESIDE_EXPERTS = {
    "feed_forward.w1": ("feed_forward.gate_proj",),
    "feed_forward.w2": ("feed_forward.down_proj",),
    "feed_forward.w3": ("feed_forward.up_proj",),
}
_WITHOUT_EXPERTS = {
    "shared_mlp.input_linear": ("mlp.gate_proj", "mlp.up_proj"),
    "shared_mlp.output_linear": ("mlp.down_proj",),
}


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


def mlx_parts(config: ModelConfig, module: str) -> tuple[str, ...]:
    """Returns mlx-lm's names of the parts of a linear layer, or () if it has the same name there.

    Those of experts are [experts, rows, columns], and their rows follow each other expert by expert.
    """
    family = config.family
    if module not in family.expert_files:
        return (_BESIDE_EXPERTS if config.num_experts else _WITHOUT_EXPERTS).get(module, ())
    first = family.expert_files[module][0]
    parent = first.partition(".experts.")[0] if ".experts." in first else first.rpartition(".")[0]
    parts = ("gate_proj", "up_proj") if module == family.linears["experts_in"] else ("down_proj",)
    return tuple(f"{parent}.switch_mlp.{part}" for part in parts)
