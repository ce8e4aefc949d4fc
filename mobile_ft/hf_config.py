"""Reads a Hugging Face `config.json`, as it is published or as Transformers 5 writes it."""

import sys
from pathlib import Path
from typing import Any

from mobile_ft.config import FULL, MOST_LAYERS, SLIDING, ModelConfig, check_config
from mobile_ft.errors import UserError
from mobile_ft.families import FAMILIES
from mobile_ft.json_text import read_json_object

Values = dict[str, Any]

# Settings that change the mathematics in ways that the training graph does not know.
_UNSUPPORTED = (
    "attention_bias",
    "mlp_bias",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "use_bidirectional_attention",
    "use_sliding_window",
)
_ROPE_NUMBERS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
_MOST = (1 << 31) - 1  # of a count
_CONFIGS = Path(__file__).parent / "configs"


def known_models() -> list[str]:
    """Names of the models whose config.json comes with the program."""
    return sorted(path.stem for path in _CONFIGS.glob("*.json"))


def known_config(name: str) -> Path | None:
    """The config.json of a known model, None for any other name."""
    return _CONFIGS / f"{name}.json" if name in known_models() else None


def read_hf_config(path: Path) -> ModelConfig:
    """Reads the `config.json` of a model of a known family. Raises UserError naming the file."""
    source = str(path)
    values = _read_values(path)
    family = FAMILIES[values["model_type"]]
    activation = values.get(family.activation_key, family.activation)
    if activation != family.activation:
        raise UserError(f"{source}: {family.activation_key} is {activation!r}; supported: {family.activation!r}")
    for key in _UNSUPPORTED:
        if values.get(key):
            raise UserError(f"{source}: {key} is {values[key]!r}, which is not supported")
    hidden = _positive_int(source, values, "hidden_size")
    layers = _positive_int(source, values, "num_hidden_layers", most=MOST_LAYERS)
    heads = _positive_int(source, values, "num_attention_heads")
    head_dim = _positive_int(source, values, "head_dim", max(hidden // heads, 1))
    if values.get("query_pre_attn_scalar", head_dim) != head_dim:
        raise UserError(
            f"{source}: query_pre_attn_scalar is {values['query_pre_attn_scalar']!r}; it must be head_dim ({head_dim})"
        )
    full, local = _rope_settings(source, values)
    sliding: Values = {}
    if family.sliding:
        if _rope_scaling(source, local) is not None:
            raise UserError(f"{source}: rope type {local['rope_type']!r} of sliding attention is not supported")
        sliding = {
            "layer_types": _layer_types(source, values, layers),
            "sliding_window": _positive_int(source, values, "sliding_window"),
            "rope_local_base_freq": _positive(source, local, "rope_theta"),
        }
    return check_config(
        ModelConfig(
            name=str(values.get("_name_or_path") or path.stem),
            hidden_size=hidden,
            intermediate_size=_positive_int(source, values, "intermediate_size"),
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=_positive_int(source, values, "num_key_value_heads", heads),
            head_dim=head_dim,
            vocab_size=_positive_int(source, values, "vocab_size"),
            rms_norm_eps=_positive(source, values, "rms_norm_eps"),
            rope_theta=_positive(source, full, "rope_theta"),
            max_position_embeddings=_positive_int(source, values, "max_position_embeddings"),
            tie_word_embeddings=bool(values["tie_word_embeddings"]),
            model_type=values["model_type"],
            rope_scaling=_rope_scaling(source, full),
            **sliding,
        ),
        source,
    )


def _read_values(path: Path) -> Values:
    """The file's values over Transformers' defaults; of a model with vision, those of its text model."""
    values = read_json_object(path, "give a Hugging Face config.json")
    with_vision = {family.inside: name for name, family in FAMILIES.items() if family.inside is not None}
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise UserError(f"{path}: model_type is {model_type!r}; it must be a string")
    if model_type in with_vision:
        text = values.get("text_config")
        if not isinstance(text, dict):
            raise UserError(f"{path}: model_type is {model_type!r}, but text_config is {text!r}; it must be an object")
        model_type = with_vision[model_type]
        values = {"_name_or_path": values.get("_name_or_path")} | text | {"model_type": model_type}
    if model_type not in FAMILIES:
        supported = ", ".join(repr(name) for name in [*FAMILIES, *with_vision])
        raise UserError(f"{path}: model_type is {model_type!r}; supported: {supported}")
    return FAMILIES[model_type].defaults | {key: value for key, value in values.items() if value is not None}


def _positive_int(source: str, values: Values, key: str, default: int | None = None, most: int = _MOST) -> int:
    value = values.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
        raise UserError(f"{source}: {key} is {value!r}; it must be a positive integer, at most {most}")
    return value


def _positive(source: str, values: Values, key: str) -> float:
    value = values.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= sys.float_info.max:
        raise UserError(f"{source}: {key} is {value!r}; it must be a positive number")
    return float(value)


def _object(source: str, values: Values, key: str) -> Values:
    value = values.get(key, {})
    if not isinstance(value, dict):
        raise UserError(f"{source}: {key} is {value!r}; it must be an object")
    return value


def _rope_settings(source: str, values: Values) -> tuple[Values, Values]:
    """Rotary settings of full and of sliding attention: of `rope_parameters`, or of the fields that came before it."""
    parameters = _object(source, values, "rope_parameters")
    if FULL in parameters or SLIDING in parameters:
        full, local = _object(source, parameters, FULL), _object(source, parameters, SLIDING)
    else:
        full, local = parameters or _object(source, values, "rope_scaling"), {}
    return (
        {"rope_theta": values["rope_theta"]} | full,
        {"rope_theta": values.get("rope_local_base_freq")} | local,
    )


def _rope_scaling(source: str, settings: Values) -> Values | None:
    """What scales the rotary frequencies, checked; None where nothing does."""
    rope_type = settings.get("rope_type", settings.get("type", "default"))
    if not isinstance(rope_type, str) or rope_type not in _ROPE_NUMBERS:
        supported = ", ".join(repr(name) for name in _ROPE_NUMBERS)
        raise UserError(f"{source}: rope type {rope_type!r} is not supported; supported: {supported}")
    if settings.get("partial_rotary_factor", 1.0) != 1.0:
        raise UserError(f"{source}: partial_rotary_factor {settings['partial_rotary_factor']!r} is not supported")
    scaling = {key: _positive(source, settings, key) for key in _ROPE_NUMBERS[rope_type]}
    if rope_type == "llama3" and scaling["high_freq_factor"] <= scaling["low_freq_factor"]:
        raise UserError(
            f"{source}: high_freq_factor is {scaling['high_freq_factor']:g}; it must be above low_freq_factor "
            f"({scaling['low_freq_factor']:g})"
        )
    return {"rope_type": rope_type} | scaling if scaling else None


def _layer_types(source: str, values: Values, layers: int) -> tuple[str, ...]:
    types = values.get("layer_types")
    if types is None:
        pattern = _positive_int(source, values, "sliding_window_pattern")
        return tuple(SLIDING if (layer + 1) % pattern else FULL for layer in range(layers))
    if not isinstance(types, list) or len(types) != layers or any(x not in (FULL, SLIDING) for x in types):
        raise UserError(f"{source}: layer_types must name one of {FULL}, {SLIDING} for each of {layers} layers")
    return tuple(types)
