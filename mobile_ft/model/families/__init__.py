"""The model families: one entry per family, in a file per maker. No code checks for a family's name.

A family with known traits is a new entry (docs/internals/adding_a_family.md). A new trait is a field of `Family` and
changes the code that uses it (`shapes`, `units`).
"""

from mobile_ft.model.families import falcon, gemma, glm, granite, lfm, llama, nvidia, olmo, phi, qwen
from mobile_ft.model.families.traits import CONV, DELTA, FULL, HYBRID, MAMBA, MLP, NO_ROPE, SLIDING, Family, norm_offset

__all__ = ["CONV", "DELTA", "FAMILIES", "FULL", "HYBRID", "MAMBA", "MLP", "NO_ROPE", "SLIDING", "Family", "norm_offset"]

_FILES = (llama, qwen, gemma, lfm, granite, phi, olmo, glm, falcon, nvidia)
# By Hugging Face's model_type.
FAMILIES: dict[str, Family] = {name: family for file in _FILES for name, family in file.FAMILIES.items()}
