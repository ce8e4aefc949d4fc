"""Rotary frequencies and their scaling, with Hugging Face's arithmetic in float32."""

import math
from typing import Any

import numpy as np

from mobile_ft.model.formats import F32

Scaling = dict[str, Any] | None  # rope_type and its settings, as checked by `hf_rope`; None: no scaling


def rotary_pairs(head_dim: int, scaling: Scaling) -> int:
    """Returns the number of pairs of a head that have a frequency. The numbers of a head after them are not rotated."""
    if scaling is None or scaling["rope_type"] == "proportional":
        return head_dim // 2
    return int(head_dim * scaling.get("partial_rotary_factor", 1.0)) // 2


def rope_factor(scaling: Scaling) -> float:
    """Returns the factor of rotated pairs, the attention factor of YaRN (arXiv 2309.00071) and LongRoPE (arXiv
    2402.13753)."""
    if scaling is None or scaling["rope_type"] not in ("yarn", "longrope"):
        return 1.0
    if "attention_factor" in scaling:
        return float(scaling["attention_factor"])
    factor = scaling["factor"]
    if scaling["rope_type"] == "longrope":
        context = scaling["original_max_position_embeddings"]
        return math.sqrt(1 + math.log(factor) / math.log(context)) if factor > 1 else 1.0

    def magnitude(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0

    mscale, all_dim = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return magnitude(mscale) / magnitude(all_dim) if mscale and all_dim else magnitude(1.0)


def most_tokens(scaling: Scaling) -> float:
    """Returns the length up to which the frequencies hold. Beyond it, those of some types depend on the length."""
    if scaling is None:
        return math.inf
    if scaling["rope_type"] == "longrope" or "llama_4_scaling_beta" in scaling:
        return float(scaling["original_max_position_embeddings"])
    return math.inf


def frequencies(head_dim: int, theta: float, scaling: Scaling) -> F32:
    """Returns the frequencies [rotary_pairs] in radians per token."""
    pairs = rotary_pairs(head_dim, scaling)
    if scaling is None:
        return _plain(theta, pairs, 2 * pairs)
    factor = np.float32(scaling.get("factor", 1.0))
    match scaling["rope_type"]:
        case "linear":
            return _plain(theta, pairs, 2 * pairs) / factor
        case "llama3":
            return _llama3(_plain(theta, pairs, 2 * pairs), scaling)
        case "yarn":
            return _yarn(theta, pairs, scaling)
        case "longrope":
            exponents = np.arange(0, 2 * pairs, 2, dtype=np.float32) / np.float32(2 * pairs)
            factors = np.array(scaling["short_factor"], np.float32)
            return (1 / (factors * np.float32(theta) ** exponents)).astype(np.float32)
        case "proportional":
            rotated = int(scaling["partial_rotary_factor"] * head_dim // 2)
            found: F32 = np.zeros(pairs, np.float32)
            found[:rotated] = _plain(theta, rotated, head_dim) / factor
            return found
        case "dynamic" if "alpha" in scaling:  # Hunyuan's form
            stretch = scaling["alpha"] ** (2 * pairs / (2 * pairs - 2))
            return _plain(theta * stretch, pairs, 2 * pairs)
    return _plain(theta, pairs, 2 * pairs)  # "dynamic" within max_position_embeddings, or only partial


def _plain(theta: float, pairs: int, dim: int) -> F32:
    exponents = np.arange(0, 2 * pairs, 2, dtype=np.float32) / np.float32(dim)
    return (np.float32(1.0) / np.float32(theta) ** exponents).astype(np.float32)


def _llama3(plain: F32, scaling: dict[str, Any]) -> F32:
    """Scaling of Llama 3.1 and later: slows down waves that are longer than the original context, keeps short waves,
    and interpolates between them.
    """
    factor, low, high = (scaling[key] for key in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = scaling["original_max_position_embeddings"] * plain / np.float32(2 * math.pi)  # within the original context
    mix = np.clip((turns - low) / (high - low), 0, 1).astype(np.float32)
    return (1 - mix) * plain / np.float32(factor) + mix * plain


def _yarn(theta: float, pairs: int, scaling: dict[str, Any]) -> F32:
    """YaRN: keeps waves with more than `beta_fast` turns in the original context, divides the frequencies of those with
    fewer than `beta_slow`, and mixes linearly, by index, between them."""
    dim, context = 2 * pairs, scaling["original_max_position_embeddings"]

    def index(turns: float) -> float:
        """The index of the wave with so many turns."""
        return dim * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = index(scaling.get("beta_fast", 32)), index(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = (np.arange(pairs, dtype=np.float32) - np.float32(low)) / np.float32(high - low or 0.001)
    divided = np.clip(ramp, 0, 1).astype(np.float32)
    waves = np.float32(theta) ** (np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim))
    return ((1 / (np.float32(scaling["factor"]) * waves)) * divided + (1 / waves) * (1 - divided)).astype(np.float32)
