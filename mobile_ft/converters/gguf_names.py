"""What GGUF calls a family and its tensors, and the order of rows that it wants."""

import numpy.typing as npt
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, get_tensor_name_map

from mobile_ft.config import ModelConfig
from mobile_ft.errors import UserError

# By Hugging Face's model_type.
_ARCHITECTURES = {"llama": MODEL_ARCH.LLAMA, "qwen2": MODEL_ARCH.QWEN2, "gemma3_text": MODEL_ARCH.GEMMA3}


class GgufNames:
    """The architecture of a model, and its tensors' names. Raises UserError where GGUF's name is not known here."""

    def __init__(self, config: ModelConfig) -> None:
        if config.model_type not in _ARCHITECTURES:
            raise UserError(f"GGUF of model_type {config.model_type}: supported are {', '.join(_ARCHITECTURES)}")
        architecture = _ARCHITECTURES[config.model_type]
        self.architecture = MODEL_ARCH_NAMES[architecture]
        self._config = config
        self._map = get_tensor_name_map(architecture, config.num_hidden_layers)

    def of(self, name: str) -> str:
        """GGUF's name for Hugging Face's."""
        found = self._map.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise UserError(f"GGUF of model_type {self._config.model_type}: {name} has no place in it")
        return str(found)

    def rows(self, name: str, rows: npt.NDArray) -> npt.NDArray:
        """The rows of a matrix [out, any], or a vector's elements, in GGUF's order.

        Architecture llama turns pairs of neighbours, where Hugging Face turns the two halves of a head.
        """
        part = name.split(".")[-2]
        if self.architecture != "llama" or part not in ("q_proj", "k_proj"):
            return rows
        heads = self._config.num_attention_heads if part == "q_proj" else self._config.num_key_value_heads
        return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def utf8(text: str) -> str:
    """The text, with ? for halves of surrogate pairs, which JSON may hold and GGUF may not."""
    return text.encode("utf-8", "replace").decode()
