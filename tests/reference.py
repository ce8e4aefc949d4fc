"""The decoder of `mobile_ft.model.units` in PyTorch, in float64: logits without an export."""

import numpy as np
import torch
from torch import Tensor

from mobile_ft.export.source.source import ModelSource
from mobile_ft.model import units
from mobile_ft.model.formats import packed_shape
from mobile_ft.model.lora import LoraConfig
from mobile_ft.model.unit_spec import unit_specs


def reference_logits(source: ModelSource, tokens: Tensor) -> Tensor:
    """tokens [T] -> logits [T, vocab]."""
    c = source.config

    def packed(name: str, in_features: int, out_features: int) -> Tensor:
        data = source.packed(name, in_features, out_features).data
        assert data.shape == packed_shape(source.format_of(name), out_features, in_features)
        return torch.from_numpy(data)

    def vector(name: str, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(np.asarray(source.prepared(name, shape), np.float64))

    embedding = "model.embed_tokens.weight"
    table, fmt = packed(embedding, c.hidden_size, c.vocab_size), source.format_of(embedding)
    positions = torch.arange(len(tokens))
    x = units.embed(c, fmt, tokens, table).double()
    for layer, spec in unit_specs(source, LoraConfig(1, 1.0, ()), "exact"):
        prefix = f"model.layers.{layer}."
        weights = [vector(prefix + name, shape) for name, shape in spec.vectors.items()]
        weights += [packed(f"{prefix}{y.name}.weight", y.in_features, y.out_features) for y in spec.linears]
        inv_freq = torch.from_numpy(source.inv_freq(layer)) if spec.rotary_pairs else None
        x = units.forward(spec, x, positions, inv_freq, weights, [])
    norm = vector(f"{c.family.final_norm}.weight", (c.hidden_size,))
    if not c.tie_word_embeddings:
        table, fmt = packed("lm_head.weight", c.hidden_size, c.vocab_size), source.format_of("lm_head.weight")
    return units.logits(c, fmt, x, norm, table)
