"""Where a model's tensors come from: the interface of a GGUF file, a Hugging Face folder and random weights."""

from abc import ABC, abstractmethod
from pathlib import Path

from mobile_ft.config import ModelConfig
from mobile_ft.export.rotary import inv_freq
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
        """A norm's weight, a bias or a convolution's taps, flat, as Hugging Face's model holds it, float32 [size]."""

    @abstractmethod
    def write_tokenizer(self, folder: Path) -> None:
        """Writes tokenizer.json and tokenizer_config.json; nothing where there is no tokenizer."""

    def inv_freq(self, sliding: bool) -> F32:
        """Rotary frequencies [head_dim / 2] of the layers with sliding or with full attention."""
        return inv_freq(self.config, sliding)
