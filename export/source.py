"""Where a model's tensors come from: the interface of a GGUF file and of random weights."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from mobile_ft.config import ModelConfig
from mobile_ft.formats import F32, PackedWeight


class ModelSource(ABC):
    """Gives a model's tensors one by one, under Hugging Face's names."""

    config: ModelConfig

    @abstractmethod
    def format_of(self, name: str) -> str:
        """Packed format of the linear or embedding `name`."""

    @abstractmethod
    def packed(self, name: str, in_features: int, out_features: int) -> PackedWeight:
        """The packed weight W [out_features, in_features] of `name`."""

    @abstractmethod
    def vector(self, name: str, size: int) -> F32:
        """A norm's weight, float32 [size]."""

    @abstractmethod
    def tokenizer_fields(self) -> Iterator[tuple[str, Any]]:
        """GGUF's tokenizer metadata; nothing where there is no tokenizer."""

    def inv_freq(self) -> F32:
        """Rotary frequencies [head_dim / 2], in the arithmetic of Hugging Face."""
        exponents = np.arange(0, self.config.head_dim, 2, dtype=np.float32) / np.float32(self.config.head_dim)
        return (np.float32(1.0) / np.float32(self.config.rope_theta) ** exponents).astype(np.float32)
