"""Reads a Hugging Face `config.json`, as it is published or as Transformers 5 writes it."""

import os
from pathlib import Path
from typing import Any

from mobile_ft.config import MOST_LAYERS, MOST_TAPS, ModelConfig, check_config
from mobile_ft.errors import UserError
from mobile_ft.families import CONV, FAMILIES, FULL, SLIDING, Family
from mobile_ft.json_text import read_json_object
from mobile_ft.json_values import Values, json_object, positive_int, positive_number
from mobile_ft.lora import DECODER, INSIDE, BaseModel

# Settings that change the mathematics in ways that the training graph does not know.
_UNSUPPORTED = (
    "attention_bias",
    "mlp_bias",
    "conv_bias",
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
_CONFIGS = Path(__file__).parent / "configs"


def known_models() -> list[str]:
    """Names of the models whose config.json comes with the program."""
    return sorted(path.stem for path in _CONFIGS.glob("*.json"))


def known_config(name: str) -> Path | None:
    """The config.json of a known model, None for any other name."""
    return _CONFIGS / f"{name}.json" if name in known_models() else None


def read_hf_config(path: Path) -> ModelConfig:
    """Reads the `config.json` of a model of a known family. Raises UserError naming the file."""
    values = read_json_object(path, "give a Hugging Face config.json")
    try:
        return check_config(config_of(values, _name(path).rpartition("/")[2]), str(path))
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def base_model(path: Path) -> BaseModel:
    """What adapters say of the model whose `config.json` is read."""
    with_vision = [family.inside for family in FAMILIES.values() if family.inside is not None]
    model_type = read_json_object(path, "give a Hugging Face config.json").get("model_type")
    return BaseModel(_name(path), INSIDE if model_type in with_vision else DECODER)


def folder_name(folder: str | os.PathLike[str]) -> str:
    """What `from_pretrained` takes for a folder: the model's name on the Hub if it is of the Hub's cache."""
    path = Path(os.path.abspath(folder))
    cached = path.parent.parent.name
    if path.parent.name == "snapshots" and cached.startswith("models--"):
        return cached.removeprefix("models--").replace("--", "/")
    return str(path).encode("utf-8", "replace").decode()


def _name(path: Path) -> str:
    """Of the model; no published file is called by it, but its folder is."""
    return folder_name(path.parent) if path.name == "config.json" else path.stem


def config_of(values: Values, name: str) -> ModelConfig:
    """The decoder that the values of a config.json describe, by that name if they say none. Raises ValueError."""
    values = _text_model(values)
    family = FAMILIES[values["model_type"]]
    layers = positive_int(values, "num_hidden_layers", most=MOST_LAYERS)
    values |= family.usual(values, layers)
    activation = values.get(family.activation_key) or family.activation
    if activation != family.activation:
        raise ValueError(f"{family.activation_key} is {activation!r}; supported: {family.activation!r}")
    for key in _UNSUPPORTED:
        if values.get(key):
            raise ValueError(f"{key} is {values[key]!r}, which is not supported")
    hidden, heads = positive_int(values, "hidden_size"), positive_int(values, "num_attention_heads")
    head_dim = positive_int(values, "head_dim", max(hidden // heads, 1))
    if (values.get("query_pre_attn_scalar") or head_dim) != head_dim:
        raise ValueError(
            f"query_pre_attn_scalar is {values['query_pre_attn_scalar']!r}; it must be head_dim ({head_dim})"
        )
    types = _layer_types(values["layer_types"], family, layers)
    full, local = _rope_settings(values)
    special: Values = {}
    if SLIDING in types:
        if _rope_scaling(local) is not None:
            raise ValueError(f"rope type {local['rope_type']!r} of sliding attention is not supported")
        special = {
            "sliding_window": positive_int(values, "sliding_window"),
            "rope_local_base_freq": positive_number(local, "rope_theta"),
        }
    if CONV in types:
        special["conv_L_cache"] = positive_int(values, "conv_L_cache", most=MOST_TAPS)
    return ModelConfig(
        name=str(values.get("_name_or_path") or name),
        hidden_size=hidden,
        intermediate_size=positive_int(values, "intermediate_size"),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=positive_int(values, "num_key_value_heads", heads),
        head_dim=head_dim,
        vocab_size=positive_int(values, "vocab_size"),
        rms_norm_eps=positive_number(values, "rms_norm_eps"),
        rope_theta=positive_number(full, "rope_theta"),
        max_position_embeddings=positive_int(values, "max_position_embeddings"),
        tie_word_embeddings=bool(values["tie_word_embeddings"]),
        model_type=values["model_type"],
        rope_scaling=_rope_scaling(full),
        layer_types=() if set(types) == {FULL} else types,
        **special,
    )


def _text_model(values: Values) -> Values:
    """The file's values over Transformers' defaults; of a model with vision, those of its text model."""
    with_vision = {family.inside: name for name, family in FAMILIES.items() if family.inside is not None}
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise ValueError(f"model_type is {model_type!r}; it must be a string")
    if model_type in with_vision:
        text = values.get("text_config")
        if not isinstance(text, dict):
            raise ValueError(f"model_type is {model_type!r}, but text_config is {text!r}; it must be an object")
        model_type = with_vision[model_type]
        values = {"_name_or_path": values.get("_name_or_path")} | text | {"model_type": model_type}
    if model_type not in FAMILIES:
        supported = ", ".join(repr(name) for name in [*FAMILIES, *with_vision])
        raise ValueError(f"model_type is {model_type!r}; supported: {supported}")
    defaults = FAMILIES[model_type].defaults
    return defaults | {key: value for key, value in values.items() if value is not None or key not in defaults}


def _rope_settings(values: Values) -> tuple[Values, Values]:
    """Rotary settings of full and of sliding attention: of `rope_parameters`, or of the fields that came before it."""
    parameters = json_object(values, "rope_parameters")
    if FULL in parameters or SLIDING in parameters:
        full, local = json_object(parameters, FULL), json_object(parameters, SLIDING)
    else:
        full, local = parameters or json_object(values, "rope_scaling"), {}
    return (
        {"rope_theta": values["rope_theta"]} | full,
        {"rope_theta": values.get("rope_local_base_freq")} | local,
    )


def _rope_scaling(settings: Values) -> Values | None:
    """What scales the rotary frequencies, checked; None where nothing does."""
    rope_type = settings.get("rope_type", settings.get("type", "default"))
    if not isinstance(rope_type, str) or rope_type not in _ROPE_NUMBERS:
        supported = ", ".join(repr(name) for name in _ROPE_NUMBERS)
        raise ValueError(f"rope type {rope_type!r} is not supported; supported: {supported}")
    if settings.get("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError(f"partial_rotary_factor {settings['partial_rotary_factor']!r} is not supported")
    scaling = {key: positive_number(settings, key) for key in _ROPE_NUMBERS[rope_type]}
    if rope_type == "llama3" and scaling["high_freq_factor"] <= scaling["low_freq_factor"]:
        raise ValueError(
            f"high_freq_factor is {scaling['high_freq_factor']:g}; it must be above low_freq_factor "
            f"({scaling['low_freq_factor']:g})"
        )
    return {"rope_type": rope_type} | scaling if scaling else None


def _layer_types(types: Any, family: Family, layers: int) -> tuple[str, ...]:
    if not isinstance(types, list) or len(types) != layers or any(x not in family.layers for x in types):
        raise ValueError(f"layer_types must name one of {', '.join(family.layers)} for each of {layers} layers")
    return tuple(types)
