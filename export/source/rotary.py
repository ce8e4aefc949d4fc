"""Computes rotary frequencies with Hugging Face's arithmetic, in float32."""

import math
from typing import Any

import numpy as np

from mobile_ft.model.config import ModelConfig
from mobile_ft.model.formats import F32


def inv_freq(config: ModelConfig, sliding: bool) -> F32:
    """Returns the frequencies [head_dim / 2] of the layers with sliding or with full attention."""
    theta = config.rope_local_base_freq if sliding else config.rope_theta
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    plain: F32 = (np.float32(1.0) / np.float32(theta) ** exponents).astype(np.float32)
    scaling = config.rope_scaling
    if sliding or scaling is None:
        return plain
    if scaling["rope_type"] == "linear":
        return plain / np.float32(scaling["factor"])
    return _llama3(plain, scaling)


def _llama3(plain: F32, scaling: dict[str, Any]) -> F32:
    """Scaling of Llama 3.1 and later: slows down waves that are longer than the original context, keeps short waves,
    and interpolates between them.
    """
    factor, low, high = (scaling[key] for key in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = scaling["original_max_position_embeddings"] * plain / np.float32(2 * math.pi)  # within the original context
    mix = np.clip((turns - low) / (high - low), 0, 1).astype(np.float32)
    return (1 - mix) * plain / np.float32(factor) + mix * plain
