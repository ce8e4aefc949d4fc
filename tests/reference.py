"""The decoder of `mobile_ft.model.units` in PyTorch, in float64: logits without an export."""

import numpy as np
import torch
from torch import Tensor

from mobile_ft.export.source.source import ModelSource
from mobile_ft.model import units
from mobile_ft.model.formats import packed_shape, unpack
from mobile_ft.model.lora import LoraConfig
from mobile_ft.model.shapes import PER_LAYER_LINEAR, PER_LAYER_NORM, PER_LAYER_TABLE, unit_types
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

    embedding = c.embedding
    table, fmt = packed(embedding, c.hidden_size, c.vocab_size), source.format_of(embedding)
    positions = torch.arange(len(tokens))
    x = embedded = units.embed(c, fmt, tokens, table).double()
    given: dict[int, list[Tensor]] = {}
    for layer, spec in unit_specs(source, LoraConfig(1, 1.0, ()), "exact"):
        prefix = f"model.layers.{layer}."
        weights = [vector(prefix + name, shape) for name, shape in spec.vectors.items()]
        weights += [packed(f"{prefix}{y.name}.weight", y.in_features, y.out_features) for y in spec.linears]
        inv_freq = torch.from_numpy(source.inv_freq(layer)) if spec.rotary_pairs else None
        side = given.get(c.kv_layer(layer), []) if spec.side == "takes" else []
        if spec.side == "per_layer":
            side = [_per_layer(source, layer, tokens, embedded)]
        x, *new = units.forward(spec, x, positions, side, inv_freq, weights, [])
        if new:
            given[layer] = new
        if c.family.layer_scale is not None and spec.type == unit_types(c, layer)[-1]:
            x = x * vector(prefix + c.family.layer_scale, (1,))
    norm = vector(f"{c.family.final_norm}.weight", (c.hidden_size,))
    if not c.tie_word_embeddings:
        table, fmt = packed("lm_head.weight", c.hidden_size, c.vocab_size), source.format_of("lm_head.weight")
    return units.logits(c, fmt, x, norm, table)


def _per_layer(source: ModelSource, layer: int, tokens: Tensor, x: Tensor) -> Tensor:
    """Tokens and their embeddings -> a layer's per-layer embeddings [T, width], by Transformers' formula."""
    c, width = source.config, source.config.hidden_size_per_layer_input
    layers = c.num_hidden_layers
    table = source.packed(PER_LAYER_TABLE, width, c.vocab_size * layers)
    linear = source.packed(PER_LAYER_LINEAR, c.hidden_size, layers * width)
    rows = torch.from_numpy(unpack(table.data, table.format, c.vocab_size * layers)).double()
    weight = torch.from_numpy(unpack(linear.data, linear.format, layers * width)).double()
    norm = torch.from_numpy(source.vector(PER_LAYER_NORM, width)).double()
    y = x @ weight[layer * width : (layer + 1) * width].T / c.hidden_size**0.5
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + c.rms_norm_eps) * norm
    return (y + width**0.5 * rows[tokens * layers + layer]) / 2**0.5
