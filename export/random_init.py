"""Random weights for any Llama-family shape: memory and speed do not depend on what the weights say."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from mobile_ft.config import ModelConfig
from mobile_ft.export.source import ModelSource
from mobile_ft.formats import F32, GGUF_BLOCK_BYTES, GROUP, PackedWeight, pack_gguf

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
        blocks = out_features * in_features // GROUP
        raw = self.rng.integers(0, 256, (blocks, GGUF_BLOCK_BYTES[fmt]), dtype=np.uint8)
        spread = 0.02 / (4.6 if fmt == "q4_0" else 74.0)  # codes are uniform in 4 or 8 bits
        scales = (spread * self.rng.uniform(0.8, 1.2, blocks)).astype(np.float16)
        raw[:, :2] = scales.view(np.uint8).reshape(blocks, 2)
        return pack_gguf(raw, fmt, out_features, in_features)

    def vector(self, name: str, size: int) -> F32:
        return np.ones(size, np.float32)

    def tokenizer_fields(self) -> Iterator[tuple[str, Any]]:
        return iter(())
