"""The models that can be exported: those known by name, and the families of all others."""

from dataclasses import dataclass

from mobile_ft.errors import UserError
from mobile_ft.model.families import FAMILIES
from mobile_ft.model.families.refused import MISSING
from mobile_ft.model.hf_config import known_config, known_models, read_hf_config
from mobile_ft.model.shapes import base_parameters


@dataclass(frozen=True)
class KnownModel:
    """A model whose config.json is included: `plan` and `export --random-init` take its name."""

    name: str
    model_type: str  # a key of `Models.families`
    parameters: int  # of the text model
    max_tokens: int  # its context


@dataclass(frozen=True)
class Models:
    """What `mobile-ft models` shows."""

    known: list[KnownModel]
    families: dict[str, list[str]]  # model_type -> model_types of models with vision that may contain it
    missing: dict[str, str]  # model_type that is refused -> what it needs


def models() -> Models:
    """Returns the models known by name, the supported families, and families that are refused with the reason."""
    families = {name: list(family.inside) for name, family in FAMILIES.items()}
    return Models([_known(name) for name in known_models()], families, MISSING)


def _known(name: str) -> KnownModel:
    path = known_config(name)
    if path is None:
        raise UserError(f"{name}: not a known model")
    config = read_hf_config(path)
    return KnownModel(name, config.model_type, base_parameters(config), config.max_position_embeddings)
