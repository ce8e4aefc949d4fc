"""Reads a Hugging Face `config.json`, as published or as written by Transformers 5."""

import os
from pathlib import Path
from typing import Any

from mobile_ft.errors import UserError
from mobile_ft.files.json_text import read_json_object
from mobile_ft.files.json_values import Values, boolean, json_object, positive_int, positive_number
from mobile_ft.files.path_text import path_text
from mobile_ft.model.config import MOST_LAYERS, MOST_TAPS, ModelConfig, check_config
from mobile_ft.model.families import CONV, FAMILIES, FULL, SLIDING, Family
from mobile_ft.model.hub_cache import cached_repository
from mobile_ft.model.lora import DECODER, INSIDE, BaseModel

# Settings of all families. `_KEYS` are implemented. `_ONLY` are accepted with the given values, which change nothing.
# `_UNREAD` are ignored, because they change nothing. Any other setting is rejected, because it may change the model.
_KEYS = (
    *("model_type", "_name_or_path", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "layer_types", "max_position_embeddings"),
    *("rms_norm_eps", "rope_theta", "rope_parameters", "rope_scaling", "tie_word_embeddings"),
)
_ONLY: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("attention_bias", "mlp_bias", "rope_interleaved"), (False,)),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), (None,)),
    "use_bidirectional_attention": (False, None),
    "is_causal": (True,),
    "partial_rotary_factor": (1.0, None),
    "attention_dropout": (0.0, None),  # Transformers applies it in training; the runtime does not
    **dict.fromkeys(("is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"), (False,)),
    "chunk_size_feed_forward": (0,),
    "pruned_heads": ({}, None),
}
_UNREAD = (
    # Origin of the file.
    *("architectures", "name_or_path", "_commit_hash", "transformers_version", "transformers.js_config"),
    *("unsloth_fixed", "unsloth_version", "model_name", "is_llama_config", "tokenizer_class", "model_max_length"),
    *("max_sequence_length", "task_specific_params", "prefix"),
    # Settings for storing, initializing and running a model in Transformers, and for its outputs.
    *("dtype", "torch_dtype", "use_bfloat16", "torchscript", "pretraining_tp", "initializer_range", "is_decoder"),
    *("attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "_flash_attn_2_enabled"),
    *("return_dict", "output_attentions", "output_hidden_states", "cross_attention_hidden_size", "tf_legacy_loss"),
    # Special tokens, which are read from the files of the tokenizer and of generation.
    *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id", "decoder_start_token_id"),
    # Classifiers.
    *("id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "classifier_dropout"),
    # Generation: older files have these settings, and Transformers 5 drops them.
    *("assistant_confidence_threshold", "assistant_lookbehind", "bad_words_ids", "begin_suppress_tokens"),
    *("cache_implementation", "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size"),
    *("encoder_repetition_penalty", "epsilon_cutoff", "eta_cutoff", "exponential_decay_length_penalty"),
    *("forced_bos_token_id", "forced_eos_token_id", "length_penalty", "max_length", "min_length"),
    *("no_repeat_ngram_size", "num_assistant_tokens", "num_assistant_tokens_schedule", "num_beam_groups"),
    *("num_beams", "num_return_sequences", "output_scores", "remove_invalid_values", "repetition_penalty"),
    *("return_dict_in_generate", "suppress_tokens", "target_lookbehind", "temperature", "top_k", "top_p"),
    *("typical_p", "use_cache"),
)
_QUANTIZATION = (
    "quantization",
    "quantization_config",
)  # outside of text_config; hf_checkpoint.py reads them
_ROPE_NUMBERS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
_CONFIGS = Path(__file__).parent / "configs"


def known_models() -> list[str]:
    """Returns the names of the models whose config.json is included in the package."""
    return sorted(path.stem for path in _CONFIGS.glob("*.json"))


def known_config(name: str) -> Path | None:
    """Returns the config.json of a known model, or None for another name."""
    return _CONFIGS / f"{name}.json" if name in known_models() else None


def read_hf_config(path: Path) -> ModelConfig:
    """Reads the `config.json` of a model. Raises UserError, with the file's name, if the model is not supported."""
    values = read_json_object(path, "use a Hugging Face config.json")
    try:
        return check_config(config_of(values, _name(path).rpartition("/")[2]), str(path))
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def base_model(path: Path) -> BaseModel:
    """Returns the description of the model for adapters, from its `config.json`."""
    with_vision = [family.inside for family in FAMILIES.values() if family.inside is not None]
    model_type = read_json_object(path, "use a Hugging Face config.json").get("model_type")
    return BaseModel(_name(path), INSIDE if model_type in with_vision else DECODER)


def folder_name(folder: str | os.PathLike[str]) -> str:
    """Returns the folder's name for `from_pretrained`: the model's name on the hub if the folder is in the hub's
    cache."""
    path = Path(os.path.abspath(folder))
    return cached_repository(path) or path_text(path).encode("utf-8", "replace").decode()


def _name(path: Path) -> str:
    """Returns the model's name: that of the folder, because the file is always named config.json."""
    return folder_name(path.parent) if path.name == "config.json" else path.stem


def config_of(values: Values, name: str) -> ModelConfig:
    """Returns the decoder of a config.json's values. `name` is used if they have none. Raises ValueError."""
    values, said = _text_model(values)
    family = FAMILIES[values["model_type"]]
    layers = positive_int(values, "num_hidden_layers", most=MOST_LAYERS)
    values |= family.usual(values, layers)
    activation = values.get(family.activation_key, family.activation)
    if activation != family.activation:
        raise ValueError(f"{family.activation_key} is {activation!r}; supported: {family.activation!r}")
    hidden, heads = positive_int(values, "hidden_size"), positive_int(values, "num_attention_heads")
    head_dim = positive_int(values, "head_dim", None if "head_dim" in family.defaults else max(hidden // heads, 1))
    types = _layer_types(values["layer_types"], family, layers)
    full, local = _rope_settings(values, family)
    scaling, local_scaling = _rope_scaling(full), _rope_scaling(local)
    _check_repeated(said, values | {"rope_theta": full["rope_theta"]}, family)
    special: Values = {}
    if SLIDING in types:
        if local_scaling is not None:
            raise ValueError(f"rope type {local_scaling['rope_type']!r} is not supported for sliding attention")
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
        tie_word_embeddings=boolean(values, "tie_word_embeddings"),
        model_type=values["model_type"],
        rope_scaling=scaling,
        layer_types=() if set(types) == {FULL} else types,
        **special,
    )


def _text_model(values: Values) -> tuple[Values, Values]:
    """Returns the file's values with Transformers' defaults, and without them. For a model with vision, these are the
    values of its text model. Raises ValueError for an unknown setting.
    """
    with_vision = {family.inside: name for name, family in FAMILIES.items() if family.inside is not None}
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise ValueError(f"model_type is {model_type!r}; it must be a string")
    if model_type in with_vision:
        model_type, values = with_vision[model_type], _inside(values, with_vision[model_type])
    elif model_type not in FAMILIES:
        supported = ", ".join(repr(name) for name in [*FAMILIES, *with_vision])
        raise ValueError(f"model_type is {model_type!r}; supported: {supported}")
    else:
        values = {key: value for key, value in values.items() if key not in _QUANTIZATION}
    family = FAMILIES[model_type]
    known = (*_KEYS, *_UNREAD, *family.keys, *family.unread, *family.repeats, family.activation_key)
    _check_known(values, known, _ONLY | family.only, model_type)
    return family.defaults | values, values


def _inside(values: Values, model_type: str) -> Values:
    """Returns the values of the text model in those of a model with vision. Only the outer values define whether
    embedding and head are tied.
    """
    family, outside = FAMILIES[model_type], values["model_type"]
    text = values.get("text_config")
    if not isinstance(text, dict):
        raise ValueError(f"model_type is {outside!r}, but text_config is {text!r}; it must be an object")
    known = ("model_type", "text_config", "_name_or_path", "tie_word_embeddings", *_QUANTIZATION, *_UNREAD)
    _check_known(values, (*known, *family.unread_outside), _ONLY, outside)
    if text.get("model_type", model_type) != model_type:
        raise ValueError(f"model_type of text_config is {text['model_type']!r}; it must be {model_type!r}")
    return text | {
        "model_type": model_type,
        "_name_or_path": text.get("_name_or_path") or values.get("_name_or_path"),
        "tie_word_embeddings": values.get("tie_word_embeddings", family.defaults["tie_word_embeddings"]),
    }


def _check_known(values: Values, known: tuple[str, ...], only: dict[str, tuple[Any, ...]], model_type: str) -> None:
    for key, value in values.items():
        if key in only:
            if value not in only[key]:
                supported = " or ".join(map(repr, only[key]))
                raise ValueError(f"{key} is {value!r}, which is not supported; supported: {supported}")
        elif key not in known:
            raise ValueError(
                f"{key} is {value!r}, which is not a known setting of model_type {model_type!r}; "
                "remove it if it does not change the model"
            )


def _check_repeated(said: Values, values: Values, family: Family) -> None:
    for key, other in family.repeats.items():
        if key in said and said[key] != values[other]:
            raise ValueError(f"{key} is {said[key]!r}; it must be {other} ({values[other]!r})")


def _rope_settings(values: Values, family: Family) -> tuple[Values, Values]:
    """Returns the rotary settings of full and of sliding attention, from `rope_parameters` or the older fields.

    The older fields are used for settings that `rope_parameters` leaves out.
    """
    parameters, scaling = json_object(values, "rope_parameters"), json_object(values, "rope_scaling")
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


def _rope_scaling(settings: Values) -> Values | None:
    """Returns the checked scaling of the rotary frequencies, or None."""
    rope_type = settings.get("rope_type", settings.get("type", "default"))
    if not isinstance(rope_type, str) or rope_type not in _ROPE_NUMBERS:
        supported = ", ".join(repr(name) for name in _ROPE_NUMBERS)
        raise ValueError(f"rope type {rope_type!r} is not supported; supported: {supported}")
    if settings.get("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError(f"partial_rotary_factor {settings['partial_rotary_factor']!r} is not supported")
    known = ("rope_type", "type", "rope_theta", "partial_rotary_factor", *_ROPE_NUMBERS[rope_type])
    for key, value in settings.items():
        if key not in known and value is not None:
            raise ValueError(f"{key} is {value!r}, which rope type {rope_type!r} does not have")
    scaling = {key: positive_number(settings, key) for key in _ROPE_NUMBERS[rope_type]}
    if rope_type == "llama3" and scaling["high_freq_factor"] <= scaling["low_freq_factor"]:
        raise ValueError(
            f"high_freq_factor is {scaling['high_freq_factor']:g}; it must be above low_freq_factor "
            f"({scaling['low_freq_factor']:g})"
        )
    return {"rope_type": rope_type} | scaling if scaling else None


def _layer_types(types: Any, family: Family, layers: int) -> tuple[str, ...]:
    if not isinstance(types, list) or len(types) != layers or any(x not in family.layers for x in types):
        raise ValueError(f"layer_types must have one of {', '.join(family.layers)} for each of {layers} layers")
    return tuple(types)
