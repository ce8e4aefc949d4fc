"""The models that can be exported: those known by name, and the families of all others."""

from dataclasses import dataclass

from mobile_ft.errors import UserError
from mobile_ft.export.source.gguf_families import architecture_names
from mobile_ft.model.families import FAMILIES
from mobile_ft.model.families.refused import MISSING
from mobile_ft.model.hf_config import known_config, known_memory, known_models, read_hf_config
from mobile_ft.model.shapes import base_parameters


@dataclass(frozen=True)
class KnownModel:
    """A model whose config.json is included: `plan` and `export --random-init` take its name."""

    name: str
    model_type: str  # a key of `Models.families`
    parameters: int  # of the text model
    max_tokens: int  # its context
    planned_mb: int  # memory of a training step of 256 tokens with the default options, as `plan` says
    smallest_budget_mb: int  # the smallest budget in which the same step works


@dataclass(frozen=True)
class Models:
    """What `mobile-ft models` shows."""

    known: list[KnownModel]
    families: dict[str, list[str]]  # model_type -> model_types of models with vision that may contain it
    gguf: dict[str, list[str]]  # model_type -> GGUF architectures from which it is read
    missing: dict[str, str]  # model_type that is refused -> what it needs


def models() -> Models:
    """Returns the models known by name, the supported families, and families that are refused with the reason."""
    families = {name: list(family.inside) for name, family in FAMILIES.items()}
    gguf = {name: architecture_names(name) for name in FAMILIES}
    return Models([_known(name) for name in known_models()], families, gguf, MISSING)


def _known(name: str) -> KnownModel:
    path = known_config(name)
    if path is None:
        raise UserError(f"{name}: not a known model")
    config = read_hf_config(path)
    memory = known_memory(name)
    return KnownModel(name, config.model_type, base_parameters(config), config.max_position_embeddings, **memory)
