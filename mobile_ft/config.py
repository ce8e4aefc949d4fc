"""What the exporter and the runtime know of a model: the shape of a Llama-family decoder."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mobile_ft.errors import UserError


@dataclass(frozen=True)
class ModelConfig:
    """A Llama-family decoder; field names are Hugging Face's."""

    name: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _positive_int(source: str, values: dict[str, Any], key: str, default: int | None = None) -> int:
    value = values.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise UserError(f"{source}: {key} is {value!r}; it must be a positive integer")
    return value


def check_config(config: ModelConfig, source: str) -> ModelConfig:
    """Raises UserError where the runtime could not run a model of this shape."""
    for key in ("hidden_size", "intermediate_size"):
        if getattr(config, key) % 32:
            raise UserError(f"{source}: {key} is {getattr(config, key)}; it must be a multiple of 32")
    if config.head_dim % 8 or config.head_dim > 256:
        raise UserError(f"{source}: head_dim is {config.head_dim}; it must be a multiple of 8, at most 256")
    if (config.num_attention_heads * config.head_dim) % 32:
        raise UserError(f"{source}: num_attention_heads x head_dim must be a multiple of 32")
    if config.num_attention_heads % config.num_key_value_heads:
        raise UserError(
            f"{source}: num_attention_heads ({config.num_attention_heads}) must be a multiple of "
            f"num_key_value_heads ({config.num_key_value_heads})"
        )
    return config


def read_hf_config(path: Path) -> ModelConfig:
    """Reads a Hugging Face `config.json` of a Llama-family model. Raises UserError naming the file."""
    source = str(path)
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{source}: no such file; give a Hugging Face config.json") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{source}: not a readable JSON file ({error})") from None
    if not isinstance(values, dict):
        raise UserError(f"{source}: not a JSON object; give a Hugging Face config.json")
    if values.get("model_type") != "llama":
        raise UserError(f"{source}: model_type is {values.get('model_type')!r}; supported: 'llama'")
    if values.get("attention_bias") or values.get("mlp_bias"):
        raise UserError(f"{source}: attention_bias and mlp_bias are not supported")
    if values.get("hidden_act", "silu") != "silu":
        raise UserError(f"{source}: hidden_act is {values['hidden_act']!r}; supported: 'silu'")
    rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if rope.get("rope_type", "default") != "default":
        raise UserError(f"{source}: rope type {rope['rope_type']!r} is not supported; supported: 'default'")
    hidden = _positive_int(source, values, "hidden_size")
    heads = _positive_int(source, values, "num_attention_heads")
    return check_config(
        ModelConfig(
            name=str(values.get("_name_or_path") or path.stem),
            hidden_size=hidden,
            intermediate_size=_positive_int(source, values, "intermediate_size"),
            num_hidden_layers=_positive_int(source, values, "num_hidden_layers"),
            num_attention_heads=heads,
            num_key_value_heads=_positive_int(source, values, "num_key_value_heads", heads),
            head_dim=_positive_int(source, values, "head_dim", max(hidden // heads, 1)),
            vocab_size=_positive_int(source, values, "vocab_size"),
            rms_norm_eps=float(values.get("rms_norm_eps", 1e-6)),
            rope_theta=float(rope.get("rope_theta") or values.get("rope_theta") or 10000.0),
            max_position_embeddings=_positive_int(source, values, "max_position_embeddings", 2048),
            tie_word_embeddings=bool(values.get("tie_word_embeddings", False)),
        ),
        source,
    )
