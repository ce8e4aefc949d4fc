"""Reads the rotary settings of a Hugging Face `config.json`."""

from dataclasses import dataclass
from typing import Any

from mobile_ft.files.json_values import Values, json_object, positive_int, positive_number
from mobile_ft.model.families import FULL, SLIDING, Family
from mobile_ft.model.rope import Scaling, rotary_pairs

# Settings of each type: positive numbers that must be given, and those that may be left out.
_NUMBERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "default": ((), ()),
    "linear": (("factor",), ()),
    "dynamic": (("factor",), ()),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"), ()),
    "yarn": (
        ("factor", "original_max_position_embeddings"),
        ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"),
    ),
    "longrope": (("factor", "original_max_position_embeddings"), ("attention_factor",)),
    "proportional": ((), ("factor",)),
}
_FACTORS = ("short_factor", "long_factor")
# Where text and images have positions of their own. A text's are the same in all sections.
_SECTIONS = ("mrope_section", "mrope_interleaved")
_HUNYUAN = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim")  # without effect if there is an alpha


@dataclass(frozen=True)
class Rope:
    theta: float
    scaling: Scaling


def read_rope(values: Values, family: Family, head_dim: int) -> tuple[Rope, Rope]:
    """Returns the rotary settings of layers with full and with sliding attention. Raises ValueError."""
    full, sliding = (_rope(settings, values, family, head_dim) for settings in _settings(values, family))
    return full, sliding


def _settings(values: Values, family: Family) -> tuple[Values, Values]:
    """Returns the settings of full and of sliding attention, from `rope_parameters` or the older fields.

    The older fields are used for settings that `rope_parameters` leaves out.
    """
    parameters, scaling = json_object(values, "rope_parameters"), json_object(values, "rope_scaling")
    if scaling and "rope_scaling" not in family.defaults and parameters is family.defaults.get("rope_parameters"):
        parameters = {}
    if parameters and scaling:
        raise ValueError("rope_parameters and rope_scaling are both given; remove one of them")
    theta = {"rope_theta": values["rope_theta"]}
    if not family.rope_by_type:
        settings = theta | (parameters or scaling)
        return settings, settings
    for key, value in parameters.items():
        if key not in (FULL, SLIDING):
            raise ValueError(f"rope_parameters has {key} {value!r}; it must only have {FULL} and {SLIDING}")
    # Transformers reads the scaling's type only from `rope_type`.
    full = json_object(parameters, FULL) or {"rope_type": "default"} | scaling
    return theta | full, {"rope_theta": values["rope_local_base_freq"]} | json_object(parameters, SLIDING)


def _rope(settings: Values, values: Values, family: Family, head_dim: int) -> Rope:
    return Rope(positive_number(settings, "rope_theta"), read_scaling(settings, values, family, head_dim))


def read_scaling(settings: Values, values: Values, family: Family, head_dim: int) -> Scaling:
    """Returns the checked scaling in `settings`, one object of rotary settings. `values` are the other settings of the
    model. Raises ValueError."""
    rope_type = settings.get("rope_type", settings.get("type", "default"))
    if rope_type == "mrope" and "mrope_section" in family.rope_keys:
        rope_type = "default"
    if not isinstance(rope_type, str) or rope_type not in _NUMBERS:
        supported = ", ".join(repr(name) for name in _NUMBERS)
        raise ValueError(f"rope type {rope_type!r} is not supported; supported: {supported}")
    settings = _with_length(rope_type, settings, values)
    needed, optional = _NUMBERS[rope_type]
    _check_known(rope_type, settings, values, family)
    scaling: dict[str, Any] = {key: positive_number(settings, key) for key in needed}
    scaling |= {key: positive_number(settings, key) for key in optional if settings.get(key)}
    scaling |= {key: positive_number(settings, key) for key in _own_numbers(rope_type, family) if settings.get(key)}
    if rope_type == "yarn" and settings.get("truncate") is False:
        scaling["truncate"] = False
    if rope_type == "llama3" and scaling["high_freq_factor"] <= scaling["low_freq_factor"]:
        raise ValueError(
            f"high_freq_factor is {scaling['high_freq_factor']:g}; it must be above low_freq_factor "
            f"({scaling['low_freq_factor']:g})"
        )
    part = _part(rope_type, settings, values, family)
    if part != 1.0 or rope_type == "proportional":
        scaling["partial_rotary_factor"] = part
    if not scaling:
        return None
    scaling = {"rope_type": rope_type} | scaling
    pairs = rotary_pairs(head_dim, scaling)
    if not 0 < pairs <= head_dim // 2 or part > 1:
        raise ValueError(f"partial_rotary_factor is {part:g}; it must be at most 1, and give at least one pair")
    if rope_type == "dynamic" and "alpha" in scaling and pairs < 2:
        raise ValueError(f"rope type 'dynamic' with alpha requires more than {pairs} rotary pair")
    if rope_type == "longrope":
        scaling |= {key: _factors(settings, key, pairs) for key in _FACTORS}
    return scaling


def _with_length(rope_type: str, settings: Values, values: Values) -> Values:
    """Returns the settings with the context before scaling, which may be given beside them, and the factor that follows
    from both contexts."""
    if rope_type not in ("llama3", "yarn", "longrope"):
        return settings
    key, outside = "original_max_position_embeddings", values.get("original_max_position_embeddings")
    if outside is not None:
        settings = settings | {key: positive_int(values, key)}
    elif settings.get(key) is None and rope_type != "llama3":
        settings = settings | {key: positive_int(values, "max_position_embeddings")}
    if settings.get("factor") is None and rope_type != "llama3":
        length = positive_int(values, "max_position_embeddings")
        settings = settings | {"factor": length / positive_number(settings, key)}
    return settings


def _check_known(rope_type: str, settings: Values, values: Values, family: Family) -> None:
    needed, optional = _NUMBERS[rope_type]
    known = ["rope_type", "type", "rope_theta", "partial_rotary_factor", *needed, *optional]
    if rope_type == "longrope":
        known += _FACTORS
    elif rope_type == "yarn":
        known += [] if family.rope_by_type else ["truncate"]
        length = values["max_position_embeddings"]
        known += ["max_position_embeddings"] if settings.get("max_position_embeddings") == length else []
    known += _own_numbers(rope_type, family)
    if "alpha" in family.rope_keys and settings.get("alpha"):
        known += _HUNYUAN
    if "mrope_section" in family.rope_keys:
        known += _SECTIONS
    for key, value in settings.items():
        if key not in known and value is not None:
            raise ValueError(f"{key} is {value!r}, which rope type {rope_type!r} does not have")


def _own_numbers(rope_type: str, family: Family) -> list[str]:
    """Returns the names of numbers that only this family has for this type."""
    types = {"alpha": "dynamic", "llama_4_scaling_beta": "yarn"}
    return [key for key in family.rope_keys if types.get(key) == rope_type]


def _part(rope_type: str, settings: Values, values: Values, family: Family) -> float:
    """Returns the share of a head that is rotated, which only some families and types can have below 1."""
    key = "partial_rotary_factor"
    part = settings.get(key)
    if rope_type == "proportional":
        return positive_number(settings, key, 1.0)
    if key in family.keys:
        return positive_number({key: values.get(key) if part is None else part}, key, 1.0)
    if part not in (None, 1.0):
        raise ValueError(f"{key} {part!r} is not supported")
    return 1.0


def _factors(settings: Values, key: str, pairs: int) -> list[float]:
    factors = settings.get(key)
    if not isinstance(factors, list) or len(factors) != pairs:
        raise ValueError(f"{key} must be a list of {pairs} numbers")
    return [positive_number({key: factor}, key) for factor in factors]
