"""What GGUF calls a family and its tensors, and the order of rows that it wants."""

import numpy.typing as npt
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, get_tensor_name_map

from mobile_ft.errors import UserError
from mobile_ft.export.source.gguf_families import ARCHITECTURES
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import NO_ROPE, SLIDING

# {Hugging Face's model_type: GGUF's architecture}
_NAMES = {"mistral": "llama"} | {architecture.model_type: name for name, architecture in ARCHITECTURES.items()}
_NO_ROPE_INTERVAL = 4  # of llama.cpp's SmolLM3


class GgufNames:
    """The architecture of a model, and its tensors' names. Raises UserError where GGUF has no words for it."""

    def __init__(self, config: ModelConfig) -> None:
        if config.model_type not in _NAMES:
            raise UserError(f"GGUF of model_type {config.model_type}: supported are {', '.join(_NAMES)}")
        self.architecture = _NAMES[config.model_type]
        self._interleaved = ARCHITECTURES[self.architecture].interleaved
        _check_layers(config, self.architecture)
        self._config = config
        number: MODEL_ARCH = next(key for key, name in MODEL_ARCH_NAMES.items() if name == self.architecture)
        self._map = get_tensor_name_map(number, config.num_hidden_layers)

    def of(self, name: str) -> str:
        """GGUF's name for Hugging Face's."""
        found = self._map.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise UserError(f"GGUF of model_type {self._config.model_type}: {name} has no place in it")
        return str(found)

    def rows(self, name: str, rows: npt.NDArray) -> npt.NDArray:
        """The rows of a matrix [out, any], or a vector's elements, in GGUF's order.

        Llama's and SmolLM3's turn pairs of neighbours, where Hugging Face turns the two halves of a head.
        """
        part = name.split(".")[-2]
        if not self._interleaved or part not in ("q_proj", "k_proj"):
            return rows
        heads = self._config.num_attention_heads if part == "q_proj" else self._config.num_key_value_heads
        return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _check_layers(config: ModelConfig, architecture: str) -> None:
    if architecture == "llama" and SLIDING in config.layer_types:
        raise UserError("GGUF's llama has no words for layers with a sliding window")
    every_fourth = [(layer + 1) % _NO_ROPE_INTERVAL == 0 for layer in range(config.num_hidden_layers)]
    if architecture == "smollm3" and [kind == NO_ROPE for kind in config.layer_types] != every_fourth:
        raise UserError(f"GGUF's smollm3 has every layer of {_NO_ROPE_INTERVAL} without rotary embedding, and no other")


def utf8(text: str) -> str:
    """The text, with ? for halves of surrogate pairs, which JSON may hold and GGUF may not."""
    return text.encode("utf-8", "replace").decode()
