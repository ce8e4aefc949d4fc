"""Reads a Hugging Face `config.json`, as published or as written by Transformers 5."""

import math
import os
from pathlib import Path
from typing import Any

from mobile_ft.errors import UserError
from mobile_ft.files.json_text import read_json_object
from mobile_ft.files.json_values import Values, boolean, positive_int, positive_number
from mobile_ft.files.path_text import path_text
from mobile_ft.model.config import MOST_LAYERS, MOST_TAPS, ModelConfig, check_config
from mobile_ft.model.families import CONV, DELTA, FAMILIES, FULL, HYBRID, MAMBA, SLIDING, Family
from mobile_ft.model.families.refused import MISSING
from mobile_ft.model.hf_rope import read_rope
from mobile_ft.model.hub_cache import cached_repository
from mobile_ft.model.lora import DECODER, BaseModel

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
# Numbers that some families have. A family names those that it reads in its `keys`.
_NUMBERS = (
    *("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"),
    *("attn_logit_softcapping", "final_logit_softcapping"),
    *("mamba_gate_multiplier", "mamba_x_multiplier", "mamba_b_multiplier", "mamba_c_multiplier"),
    *("mamba_dt_multiplier", "mamba_out_multiplier", "attention_out_multiplier", "mlp_gate_multiplier"),
    *("mlp_down_multiplier", "delta_beta_scale", "delta_norm_eps"),
)
_DELTA = (
    *("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"),
    "linear_conv_kernel_dim",
)
_MAMBA = ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")
_EXPERTS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
_SHARED = ("global_head_dim", "num_kv_shared_layers", "hidden_size_per_layer_input")
_WANTED = "use a Hugging Face config.json"
_CONFIGS = Path(__file__).parent / "configs"
_MEMORY = Path(__file__).parent / "known_memory.json"  # by tools/known_memory.py


def known_models() -> list[str]:
    """Returns the names of the models whose config.json is included in the package."""
    return sorted(path.stem for path in _CONFIGS.glob("*.json"))


def known_config(name: str) -> Path | None:
    """Returns the config.json of a known model, or None for another name."""
    return _CONFIGS / f"{name}.json" if name in known_models() else None


def known_memory(name: str) -> dict[str, int]:
    """Returns `planned_mb` and `smallest_budget_mb` of a known model, for 256 tokens with the default options."""
    memory: dict[str, int] = read_json_object(_MEMORY, "install mobile-ft again")[name]
    return memory


def read_hf_config(path: Path) -> ModelConfig:
    """Reads the `config.json` of a model. Raises UserError, with the file's name, if the model is not supported."""
    values = read_json_object(path, _WANTED)
    try:
        return check_config(config_of(values, _name(path).rpartition("/")[2]), str(path))
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    except (TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise UserError(f"{path}: has a setting of a wrong type or size ({error!r}); {_WANTED}") from error


def text_settings(values: Values) -> Values:
    """Returns the settings of the text model in a config.json's values, without those that change nothing. Raises
    ValueError.

    Infinite numbers, which JSON does not have, are only in settings that change nothing, such as time_step_limit.
    """
    _, said = _text_model(values)
    dropped = (*_UNREAD, "_name_or_path", "auto_map")
    return {key: value for key, value in said.items() if key not in dropped and _finite(value)}


def _finite(value: Any) -> bool:
    if isinstance(value, list | dict):
        return all(map(_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


def base_model(path: Path) -> BaseModel:
    """Returns the description of the model for adapters, from its `config.json`."""
    model_type = read_json_object(path, _WANTED).get("model_type")
    wrapper = next((family.inside[model_type] for family in FAMILIES.values() if model_type in family.inside), None)
    return BaseModel(_name(path), DECODER if wrapper is None else wrapper.modules)


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
    listed = values.get("layers_block_type")  # Transformers writes no number of layers beside it
    counted = len(listed) if isinstance(listed, list) else None
    layers = positive_int(values, "num_hidden_layers", counted, most=MOST_LAYERS)
    values |= family.usual(values, layers)
    activation = values.get(family.activation_key, family.activation)
    if activation != family.activation:
        raise ValueError(f"{family.activation_key} is {activation!r}; supported: {family.activation!r}")
    hidden, heads = positive_int(values, "hidden_size"), positive_int(values, "num_attention_heads")
    head_dim = positive_int(values, "head_dim", None if "head_dim" in family.defaults else max(hidden // heads, 1))
    types = _layer_types(values["layer_types"], family, layers)
    full, sliding = read_rope(values, family, head_dim)
    _check_repeated(said, values | {"rope_theta": full.theta}, family)
    special: Values = {key: positive_number(values, key) for key in _NUMBERS if values.get(key) is not None}
    if SLIDING in types:
        special |= {
            "sliding_window": positive_int(values, "sliding_window"),
            "rope_local_base_freq": sliding.theta,
            "sliding_rope_scaling": sliding.scaling,
        }
    if {MAMBA, HYBRID} & set(types):
        special |= {key: positive_int(values, key, most=1 << 16) for key in _MAMBA}
    if DELTA in types:
        special |= {key: positive_int(values, key, most=1 << 16) for key in _DELTA}
    special |= {key: positive_int(values, key) for key in _SHARED if key in family.keys and values.get(key)}
    if "router" in family.linears and values["num_experts"] != 0:
        special |= {key: positive_int(values, key) for key in _EXPERTS}
        special["norm_topk_prob"] = boolean(values, "norm_topk_prob")
        special["routed_scaling_factor"] = positive_number(values, "routed_scaling_factor", 1.0)
        if values.get("shared_expert_intermediate_size"):
            special["shared_expert_intermediate_size"] = positive_int(values, "shared_expert_intermediate_size")
        if values.get("num_dense_layers"):
            special["num_dense_layers"] = positive_int(values, "num_dense_layers", most=layers)
    if "use_double_wide_mlp" in family.keys:
        special["use_double_wide_mlp"] = boolean(values, "use_double_wide_mlp")
    if CONV in types:
        special["conv_L_cache"] = positive_int(values, "conv_L_cache", most=MOST_TAPS)
    if values.get("layer_rope_theta") is not None:
        special["layer_rope_theta"] = tuple(float(theta) for theta in values["layer_rope_theta"])
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
        rope_theta=full.theta,
        max_position_embeddings=positive_int(values, "max_position_embeddings"),
        tie_word_embeddings=boolean(values, "tie_word_embeddings"),
        model_type=values["model_type"],
        rope_scaling=full.scaling,
        layer_types=() if set(types) == {FULL} else types,
        **special,
    )


def _text_model(values: Values) -> tuple[Values, Values]:
    """Returns the file's values with Transformers' defaults, and without them. For a model with vision, these are the
    values of its text model. Raises ValueError for an unknown setting.
    """
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise ValueError(f"model_type is {model_type!r}; it must be a string")
    inner = {name: family for name, family in FAMILIES.items() if model_type in family.inside}
    if inner:
        model_type, values = _inside(values, inner)
    elif model_type not in FAMILIES:
        needs = f", which needs {MISSING[model_type]}" if model_type in MISSING else ""
        raise ValueError(f"model_type is {model_type!r}{needs}; `mobile-ft models` lists what is supported")
    else:
        values = {key: value for key, value in values.items() if key not in _QUANTIZATION}
    family = FAMILIES[model_type]
    known = (*_KEYS, *_UNREAD, *family.keys, *family.unread, *family.repeats, family.activation_key)
    only = {key: accepted for key, accepted in (_ONLY | family.only).items() if key not in family.keys}
    _check_known(values, known, only, model_type)
    return family.defaults | values, values


def _inside(values: Values, families: dict[str, Family]) -> tuple[str, Values]:
    """Returns the model_type and the values of the text model in those of a model with vision. Only the outer values
    define whether embedding and head are tied, except in files of some types that leave it out there.

    `families` are those that the text model may be of. Older files of Qwen2.5-VL have the text model's settings beside
    those of the vision model.
    """
    outside, text = values["model_type"], values.get("text_config")
    first = next(iter(families))
    wrapper = families[first].inside[outside]
    known = ("model_type", "text_config", "_name_or_path", "tie_word_embeddings", *_QUANTIZATION, *_UNREAD)
    if text is None and "hidden_size" in values:
        text = {key: value for key, value in values.items() if key not in (*wrapper.unread, "model_type")}
        text = {key: value for key, value in text.items() if key not in _QUANTIZATION}
    else:
        _check_known(values, (*known, *wrapper.unread), _ONLY, outside)
    if not isinstance(text, dict):
        raise ValueError(f"model_type is {outside!r}, but text_config is {text!r}; it must be an object")
    model_type = text.get("model_type", first)
    if not isinstance(model_type, str) or model_type not in families:
        supported = " or ".join(map(repr, families))
        raise ValueError(f"model_type of text_config is {model_type!r}; it must be {supported}")
    tied = families[model_type].defaults["tie_word_embeddings"]
    if wrapper.tied_inside:
        tied = text.get("tie_word_embeddings", tied)
    return model_type, text | {
        "model_type": model_type,
        "_name_or_path": text.get("_name_or_path") or values.get("_name_or_path"),
        "tie_word_embeddings": values.get("tie_word_embeddings", tied),
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
        if key in said and said[key] != values.get(other):
            raise ValueError(f"{key} is {said[key]!r}; it must be {other} ({values.get(other)!r})")


def _layer_types(types: Any, family: Family, layers: int) -> tuple[str, ...]:
    if not isinstance(types, list) or len(types) != layers or any(x not in family.layers for x in types):
        raise ValueError(f"layer_types must have one of {', '.join(family.layers)} for each of {layers} layers")
    return tuple(types)
