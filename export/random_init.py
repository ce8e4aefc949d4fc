"""Random weights for any Llama-family shape: memory and speed do not depend on what the weights say."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from mobile_ft.config import ModelConfig
from mobile_ft.export.source import ModelSource
from mobile_ft.formats import F32, PackedWeight, pack, packed_shape

_LINEAR_FORMAT = "q4_0"
_EMBEDDING_FORMAT = "q8_0"


class RandomModel(ModelSource):
    """Weights of standard deviation about 0.02 in 4 bits, embedding and head in 8. The same seed, the same model."""

    def __init__(self, config: ModelConfig, seed: int):
        self.config = config
        self.rng = np.random.default_rng(seed)

    def format_of(self, name: str) -> str:
        return _EMBEDDING_FORMAT if "embed_tokens" in name or "lm_head" in name else _LINEAR_FORMAT

    def packed(self, name: str, in_features: int, out_features: int) -> PackedWeight:
        fmt = self.format_of(name)
        codes, deviation = (16, 4.6) if fmt == _LINEAR_FORMAT else (256, 74.0)  # of codes drawn uniformly
        groups = packed_shape(fmt, out_features, in_features)[1]
        scales = 0.02 / deviation * self.rng.uniform(0.8, 1.2, (out_features, groups, 1))
        drawn = self.rng.integers(0, codes, (out_features, in_features), dtype=np.uint8)
        return pack(fmt, drawn, scales.astype(np.float16).view(np.uint8))

    def vector(self, name: str, size: int) -> F32:
        return np.ones(size, np.float32)

    def tokenizer_fields(self) -> Iterator[tuple[str, Any]]:
        return iter(())
