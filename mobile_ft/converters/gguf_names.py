"""GGUF's names for a family and its tensors, and its order of rows."""

import math

import numpy.typing as npt
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, get_tensor_name_map

from mobile_ft.errors import UserError
from mobile_ft.export.source.gguf_families import ARCHITECTURES, GEMMA_27B_LAYERS
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import NO_ROPE, SLIDING
from mobile_ft.model.families.traits import every
from mobile_ft.model.rope import rope_factor

# {Hugging Face's model_type: GGUF's architecture}
_NAMES = {"mistral": "llama"} | {architecture.model_type: name for name, architecture in ARCHITECTURES.items()}
_NO_ROPE_INTERVAL = 4  # fixed in llama.cpp's SmolLM3


class GgufNames:
    """GGUF's architecture of a model and names of its tensors. Raises UserError if GGUF does not support the model."""

    def __init__(self, config: ModelConfig) -> None:
        if config.model_type not in _NAMES:
            raise UserError(f"GGUF does not support model_type {config.model_type}; supported: {', '.join(_NAMES)}")
        self.architecture = _NAMES[config.model_type]
        self._interleaved = ARCHITECTURES[self.architecture].interleaved
        _check_layers(config, self.architecture)
        _check_numbers(config, self.architecture)
        self._config = config
        number: MODEL_ARCH = next(key for key, name in MODEL_ARCH_NAMES.items() if name == self.architecture)
        self._map = get_tensor_name_map(number, config.num_hidden_layers)

    def of(self, name: str) -> str:
        """Converts Hugging Face's name to GGUF's."""
        found = self._map.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise UserError(
                f"GGUF of model_type {self._config.model_type} has no tensor for {name}; use another target"
            )
        return str(found)

    def rows(self, name: str, rows: npt.NDArray) -> npt.NDArray:
        """Reorders the rows of a matrix [out, any], or a vector's elements, to GGUF's order.

        llama and smollm3 rotate pairs of neighbours; Hugging Face rotates the two halves of a head.
        """
        part = name.split(".")[-2]
        if not self._interleaved or part not in ("q_proj", "k_proj"):
            return rows
        heads = self._config.num_attention_heads if part == "q_proj" else self._config.num_key_value_heads
        return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _check_layers(config: ModelConfig, architecture: str) -> None:
    known = ARCHITECTURES[architecture]
    if SLIDING in config.layer_types and not known.windows:
        raise UserError(
            f"GGUF's architecture {architecture} does not support layers with a sliding window; use another target"
        )
    if architecture == "gemma2" and list(config.layer_types) != every(2, config.num_hidden_layers):
        raise UserError(
            "GGUF's architecture gemma2 requires that exactly every second layer has full attention; use another target"
        )
    every_fourth = [(layer + 1) % _NO_ROPE_INTERVAL == 0 for layer in range(config.num_hidden_layers)]
    if architecture == "smollm3" and [kind == NO_ROPE for kind in config.layer_types] != every_fourth:
        raise UserError(
            f"GGUF's architecture smollm3 requires that exactly every {_NO_ROPE_INTERVAL}th layer has no rotary "
            "embedding; use another target"
        )


def _check_numbers(config: ModelConfig, architecture: str) -> None:
    """Raises UserError if llama.cpp would compute with other numbers than the model."""
    of_heads = config.hidden_size // config.num_attention_heads
    scalar = of_heads if config.num_hidden_layers in GEMMA_27B_LAYERS else config.head_dim
    if architecture in ("gemma2", "gemma3") and not math.isclose(config.attention_scale, scalar**-0.5, rel_tol=1e-6):
        raise UserError(
            f"GGUF's architecture {architecture} scales scores by 1 / sqrt({scalar}), and this model by "
            f"{config.attention_scale:g}; use another target"
        )
    if rope_factor(config.rope_scaling) != 1 and not ARCHITECTURES[architecture].long_factors:
        raise UserError(
            f"GGUF's architecture {architecture} does not support the model's factor of the rotary embedding; use "
            "another target"
        )
    if config.sliding_rope_scaling is not None and SLIDING in config.layer_types:
        raise UserError(
            f"GGUF's architecture {architecture} does not support rope scaling of layers with a sliding window; use "
            "another target"
        )


def utf8(text: str) -> str:
    """Replaces unpaired surrogates, which JSON allows and GGUF does not, by a question mark."""
    return text.encode("utf-8", "replace").decode()
