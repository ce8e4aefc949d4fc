"""A merged model in plain PyTorch, in float32, with a key-value cache of fixed length, for torch.export."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from mobile_ft.converters.fine_tuned import FineTuned
from mobile_ft.model.families import NO_ROPE, SLIDING
from mobile_ft.model.shapes import TAPS, unit_types

_LOWEST = torch.finfo(torch.float32).min


def _gelu(x: Tensor) -> Tensor:
    """The tanh approximation of GELU (arXiv 1606.08415), written out because XNNPACK treats torch's as the exact
    GELU."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"silu": functional.silu, "gelu_pytorch_tanh": _gelu}


class Decoder(nn.Module):
    """tokens int64 [1, sequence], start int64 [1] -> logits of the last token, float32 [1, vocab].

    `start` is the number of tokens in earlier calls. All tokens together are at most the bundle's max_seq_len.
    """

    def __init__(self, model: FineTuned) -> None:
        super().__init__()
        c = model.config
        self.config, self.length = c, model.bundle.max_seq_len
        self.embedding = _parameter(model, model.config.embedding)
        self.layers = nn.ModuleList(_Layer(model, layer) for layer in range(c.num_hidden_layers))
        self.norm = _Norm(model, model.final_norm)
        self.head = self.embedding if c.tie_word_embeddings else _parameter(model, model.head)
        self.scale = math.sqrt(c.hidden_size) if c.family.scaled_embedding else None

    def forward(self, tokens: Tensor, start: Tensor) -> Tensor:
        x = functional.embedding(tokens, self.embedding).view(tokens.shape[1], self.config.hidden_size)
        if self.scale is not None:
            x = x * self.scale
        positions = start + torch.arange(tokens.shape[1])
        for layer in self.layers:
            x = layer(x, positions)
        return functional.linear(self.norm(x[-1:]), self.head)


class _Layer(nn.Module):
    """Both units of a layer; activations are [sequence, hidden]."""

    def __init__(self, model: FineTuned, layer: int) -> None:
        super().__init__()
        c, prefix = model.config, f"model.layers.{layer}."
        linears = c.family.linears
        first, second = unit_types(c, layer)
        self.mixer = _Convolution(model, layer) if first == "conv" else _Attention(model, layer)
        self.gate, self.up, self.down = (_Linear(model, prefix + linears[role]) for role in ("gate", "up", "down"))
        self.activation = _ACTIVATIONS[c.family.activation]
        self.norms = nn.ModuleDict()
        for unit, (before, behind) in (("mixer", c.family.norms[first]), ("mlp", c.family.norms[second])):
            self.norms[f"{unit}_before"] = _Norm(model, f"{prefix}{before}.weight")
            self.norms[f"{unit}_behind"] = nn.Identity() if behind is None else _Norm(model, f"{prefix}{behind}.weight")

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        x = x + self.norms["mixer_behind"](self.mixer(self.norms["mixer_before"](x), positions))
        z = self.norms["mlp_before"](x)
        return x + self.norms["mlp_behind"](self.down(self.activation(self.gate(z)) * self.up(z)))


class _Attention(nn.Module):
    keys: Tensor
    values: Tensor
    inv_freq: Tensor

    def __init__(self, model: FineTuned, layer: int) -> None:
        super().__init__()
        c, prefix, linears = model.config, f"model.layers.{layer}.", model.config.family.linears
        self.config, self.length = c, model.bundle.max_seq_len
        sliding = c.layer_type(layer) == SLIDING
        self.window = c.sliding_window if sliding else None
        self.q, self.k, self.v, self.o = (_Linear(model, prefix + linears[role]) for role in "qkvo")
        self.q_norm, self.k_norm = (
            nn.Identity() if name is None else _Norm(model, f"{prefix}{name}.weight")
            for name in c.family.qk_norms or (None, None)
        )
        # Frequencies of zero rotate nothing.
        none = torch.zeros(c.head_dim // 2)
        rotary = c.layer_type(layer) != NO_ROPE
        self.register_buffer("inv_freq", torch.tensor(model.inv_freq(layer)) if rotary else none)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(c.num_key_value_heads, self.length, c.head_dim))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        c, count = self.config, x.shape[0]
        heads, kv_heads, dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        q = self._rotate(self.q_norm(self.q(x).view(count, heads, dim)), positions)
        k = self._rotate(self.k_norm(self.k(x).view(count, kv_heads, dim)), positions)
        self.keys.index_copy_(1, positions, k.transpose(0, 1))
        self.values.index_copy_(1, positions, self.v(x).view(count, kv_heads, dim).transpose(0, 1))
        ago = positions[:, None] - torch.arange(self.length)
        seen = ago >= 0 if self.window is None else (ago >= 0) & (ago < self.window)
        # Unwritten entries may have any value, because ExecuTorch does not define a cache's initial content.
        written = torch.arange(self.length)[:, None] <= positions[-1]
        values = torch.where(written, self.values, 0.0)
        grouped = q.view(count, kv_heads, heads // kv_heads, dim).permute(1, 2, 0, 3)
        scores = (grouped @ self.keys[:, None].transpose(2, 3)) * c.attention_scale
        attended = torch.where(seen, scores, _LOWEST).softmax(-1) @ values[:, None]
        return self.o(attended.permute(2, 0, 1, 3).reshape(count, heads * dim))

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Applies the rotary embedding to the two halves of each head; x [sequence, heads, head_dim]."""
        angles = (positions[:, None] * self.inv_freq)[:, None]
        cos, sin = angles.cos(), angles.sin()
        half = self.config.head_dim // 2  # with `chunk`, XNNPACK's lowering would fix the length to the example's
        low, high = x[..., :half], x[..., half:]
        return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


class _Convolution(nn.Module):
    """LFM2's gated short convolution, with a cache of the inputs of earlier tokens."""

    state: Tensor

    def __init__(self, model: FineTuned, layer: int) -> None:
        super().__init__()
        c, prefix = model.config, f"model.layers.{layer}."
        self.input, self.output = (_Linear(model, prefix + c.family.linears[role]) for role in ("in", "out"))
        taps = model.vector(f"{prefix}{TAPS}")[:, 0].T  # [taps, hidden], oldest token first
        self.taps = nn.Parameter(torch.tensor(taps), False)
        self.register_buffer("state", torch.zeros(c.conv_L_cache - 1, c.hidden_size))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        count, hidden = x.shape[0], self.taps.shape[1]
        bcx = self.input(x)
        b, c, values = bcx[:, :hidden], bcx[:, hidden : 2 * hidden], bcx[:, 2 * hidden :]
        earlier = self.state.shape[0]
        known = positions[0] - earlier + torch.arange(earlier)[:, None] >= 0
        inputs = torch.cat([torch.where(known, self.state, 0.0), b * values])
        y = c * sum(self.taps[j] * inputs[j : j + count] for j in range(earlier + 1))
        self.state.copy_(inputs[count:])
        return self.output(y)


class _Linear(nn.Module):
    def __init__(self, model: FineTuned, name: str) -> None:
        super().__init__()
        self.weight, bias = _parameter(model, f"{name}.weight"), f"{name}.bias"
        self.bias = nn.Parameter(torch.tensor(model.vector(bias)), False) if bias in model.shapes else None

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


class _Norm(nn.Module):
    """RMS norm over the last axis."""

    def __init__(self, model: FineTuned, name: str) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.tensor(model.vector(name)), False), model.config.rms_norm_eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def _parameter(model: FineTuned, name: str) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(model.merged(name)), False)
