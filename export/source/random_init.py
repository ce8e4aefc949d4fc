"""Random weights for any shape, to measure memory and speed, which do not depend on the weights."""

from pathlib import Path

import numpy as np

from mobile_ft.export.source.source import ModelSource
from mobile_ft.files.json_values import Values
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import norm_offset
from mobile_ft.model.formats import F32, PANEL_ROWS, PackedWeight, packed_shape, parse_format
from mobile_ft.model.lora import BaseModel

_LINEAR_FORMAT = "q4_0"
_EMBEDDING_FORMAT = "q8_0"


class RandomModel(ModelSource):
    """Weights with a standard deviation of about 0.02, in 4 bits, and in 8 bits for embedding and head. The same seed
    gives the same weights."""

    def __init__(
        self, config: ModelConfig, seed: int, base: BaseModel | None = None, hf_settings: Values | None = None
    ):
        self.config = config
        self.hf_settings = hf_settings or {}
        self.rng = np.random.default_rng(seed)
        self._base = base or super().base

    @property
    def base(self) -> BaseModel:
        return self._base

    def format_of(self, name: str) -> str:
        return _EMBEDDING_FORMAT if name in (self.config.embedding, "lm_head.weight") else _LINEAR_FORMAT

    def packed(self, name: str, in_features: int, out_features: int) -> PackedWeight:
        """Draws packed bytes, so that codes are uniform, and then sets the scales."""
        fmt = self.format_of(name)
        deviation = 4.6 if fmt == _LINEAR_FORMAT else 74.0  # standard deviation of uniform codes
        shape = packed_shape(fmt, out_features, in_features)
        data = self.rng.integers(0, 256, shape, dtype=np.uint8)
        scales = self.rng.random((*shape[:2], PANEL_ROWS), dtype=np.float32)
        scales *= 0.4 * 0.02 / deviation
        scales += 0.8 * 0.02 / deviation
        scales[-1, :, (out_features - 1) % PANEL_ROWS + 1 :] = 0  # padding rows of the last panel
        data[..., : parse_format(fmt).header_bytes] = scales.astype(np.float16).view(np.uint8)
        return PackedWeight(data, fmt, out_features, in_features)

    def vector(self, name: str, size: int) -> F32:
        if name.endswith(".bias"):
            return self.rng.normal(0, 0.02, size).astype(np.float32)
        return np.full(size, 1 - norm_offset(self.config.family, name), np.float32)

    def write_tokenizer(self, folder: Path) -> None:
        pass
