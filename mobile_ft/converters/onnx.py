"""`--to onnx`: the fine-tuned model for onnxruntime, with weights in the bundle's formats and a separate adapter."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto

from mobile_ft.converters import tokenizer_files
from mobile_ft.converters.fine_tuned import FineTuned
from mobile_ft.converters.onnx_graph import DATA_FILE, GRAPH_FILE, OnnxGraph
from mobile_ft.converters.onnx_matrix import add_matrix, product, rows_of
from mobile_ft.converters.plain_decoder import check_plain
from mobile_ft.model.families import CONV, FULL, SLIDING
from mobile_ft.model.shapes import TAPS

FILES = (GRAPH_FILE, DATA_FILE, *tokenizer_files.FILES)

_LOWEST = float(np.finfo(np.float32).min)


def write(model: FineTuned, out: Path) -> None:
    """Writes FILES into the folder `out`, tensor by tensor.

    Inputs are input_ids [batch, sequence], attention_mask [batch, total] and position_ids [batch, sequence], all int64,
    and for each layer past_key_values.N.key and .value, float32 [batch, kv_heads, past, head_dim], or past_conv.N,
    float32 [batch, taps - 1, hidden], with zeros at the beginning; total is past + sequence. The adapter's tensors are
    optional inputs with PEFT's names; their defaults are the adapter's values. Outputs are logits, float32 [batch,
    sequence, vocab], and present.N.key and .value of total tokens, or present_conv.N.
    """
    check_plain(model.config, "onnx")
    model.check()
    tokenizer_files.write_tokenizer_files(model.bundle, out)
    with (out / DATA_FILE).open("wb") as data:
        graph = OnnxGraph(data)
        _Decoder(graph, model).build()
    graph.save(out / GRAPH_FILE, "fine_tuned")


@dataclass(frozen=True)
class _Rotary:
    """Cosines and sines of the tokens: float32 [batch, 1, sequence, head_dim / 2]."""

    cos: str
    sin: str


class _Decoder:
    """Builds the graph. Activations are [batch * sequence, width]; only attention separates batch and sequence."""

    def __init__(self, graph: OnnxGraph, model: FineTuned) -> None:
        self.graph, self.model, self.config = graph, model, model.config
        self.present: dict[str, tuple[str, list[int | str]]] = {}  # value and shape

    def build(self) -> None:
        g, c = self.graph, self.config
        ids = g.input("input_ids", np.int64, ["batch", "sequence"])
        mask = g.input("attention_mask", np.int64, ["batch", "total"])
        positions = g.input("position_ids", np.int64, ["batch", "sequence"])
        self.batch_and_sequence = g.op("Shape", ids)
        visible = {sliding: self._visible(mask, sliding) for sliding in self._kinds()}
        layers = {c.layer_type(layer): layer for layer in range(c.num_hidden_layers)}  # one of each type
        rotary = {kind: self._rotary(positions, layer) for kind, layer in layers.items() if kind in (FULL, SLIDING)}
        table = add_matrix(g, self.model, c.embedding)
        x = rows_of(g, g.op("Reshape", ids, g.constant([-1])), table)
        if c.family.scaled_embedding:
            x = g.op("Mul", x, g.constant(math.sqrt(c.hidden_size), np.float32))
        for layer in range(c.num_hidden_layers):
            kind = c.layer_type(layer)
            if kind == CONV:
                x = self._conv(x, layer, mask)
            else:
                x = self._attention(x, layer, visible[kind == SLIDING], rotary.get(kind))
            x = self._mlp(x, layer)
        head = table if c.tie_word_embeddings else add_matrix(g, self.model, self.model.head)
        logits = product(g, self._norm(x, self.model.final_norm), head)
        g.output("logits", self._unflatten(logits, [c.vocab_size]), np.float32, ["batch", "sequence", c.vocab_size])
        for name, (value, shape) in self.present.items():
            g.output(name, value, np.float32, shape)

    def _kinds(self) -> set[bool]:
        return {self._slides(layer) for layer in range(self.config.num_hidden_layers)}

    def _slides(self, layer: int) -> bool:
        return self.config.layer_type(layer) == SLIDING

    def _visible(self, mask: str, sliding: bool) -> str:
        """Returns the attention mask: bool [batch, 1, 1, sequence, total], true if a token sees another one."""
        g = self.graph
        total = g.op("Gather", g.op("Shape", mask), g.constant(1))
        sequence = g.op("Gather", self.batch_and_sequence, g.constant(1))
        keys = g.op("Range", g.constant(0), total, g.constant(1))
        queries = g.op("Range", g.op("Sub", total, sequence), total, g.constant(1))
        ago = g.op("Sub", g.op("Unsqueeze", queries, g.constant([1])), keys)
        seen = g.op("GreaterOrEqual", ago, g.constant(0))
        if sliding:
            seen = g.op("And", seen, g.op("Less", ago, g.constant(self.config.sliding_window)))
        kept = g.op("Unsqueeze", g.op("Cast", mask, to=TensorProto.BOOL), g.constant([1, 2, 3]))
        return g.op("And", seen, kept)

    def _rotary(self, positions: str, layer: int) -> _Rotary:
        g = self.graph
        frequencies = g.constant(self.model.inv_freq(layer), np.float32)
        column = g.op("Unsqueeze", g.op("Cast", positions, to=TensorProto.FLOAT), g.constant([1, 3]))
        angles = g.op("Mul", column, frequencies)
        return _Rotary(g.op("Cos", angles), g.op("Sin", angles))

    def _attention(self, x: str, layer: int, visible: str, rotary: _Rotary | None) -> str:
        g, c = self.graph, self.config
        prefix, kv_heads, dim = f"model.layers.{layer}.", c.num_key_value_heads, c.head_dim
        linears = c.family.linears
        before, behind = c.family.norms["attn"]
        z = self._norm(x, f"{prefix}{before}.weight")
        q, k, v = (
            self._heads(self._linear(z, prefix + linears[role]), heads)
            for role, heads in (("q", c.num_attention_heads), ("k", kv_heads), ("v", kv_heads))
        )
        if c.family.qk_norms is not None:
            norms = zip(c.family.qk_norms, (q, k), strict=True)
            q, k = (self._norm(y, f"{prefix}{name}.weight") for name, y in norms)
        if rotary is not None:
            q, k = self._rotate(q, rotary), self._rotate(k, rotary)
        present = []
        for name, new in (("key", k), ("value", v)):
            past = g.input(f"past_key_values.{layer}.{name}", np.float32, ["batch", kv_heads, "past", dim])
            present.append(g.op("Concat", past, new, axis=2))
            self.present[f"present.{layer}.{name}"] = present[-1], ["batch", kv_heads, "total", dim]
        keys, values = (g.op("Unsqueeze", y, g.constant([2])) for y in present)
        # [batch, kv_heads, query heads of each, sequence, dim]
        grouped = g.op("Reshape", q, g.constant([0, kv_heads, c.num_attention_heads // kv_heads, -1, dim]))
        scores = g.op("MatMul", grouped, g.op("Transpose", keys, perm=[0, 1, 2, 4, 3]))
        scores = g.op("Mul", scores, g.constant(c.attention_scale, np.float32))
        weights = g.op("Softmax", g.op("Where", visible, scores, g.constant(_LOWEST, np.float32)), axis=-1)
        attended = g.op("Transpose", g.op("MatMul", weights, values), perm=[0, 3, 1, 2, 4])
        flat = g.op("Reshape", attended, g.constant([-1, c.num_attention_heads * dim]))
        return self._residual(x, self._linear(flat, prefix + linears["o"]), prefix, behind)

    def _conv(self, x: str, layer: int, mask: str) -> str:
        """Adds a gated short convolution of each channel."""
        g, c = self.graph, self.config
        prefix, earlier = f"model.layers.{layer}.", c.conv_L_cache - 1
        before, behind = c.family.norms["conv"]
        bcx = self._linear(self._norm(x, f"{prefix}{before}.weight"), prefix + c.family.linears["in"])
        b, gate, values = g.ops("Split", 3, self._unflatten(bcx, [3 * c.hidden_size]), axis=-1, num_outputs=3)
        sequence = g.op("Gather", self.batch_and_sequence, g.constant([1]))
        own = g.op("Slice", mask, g.op("Neg", sequence), g.constant([2**31]), g.constant([1]))
        kept = g.op("Unsqueeze", g.op("Cast", own, to=TensorProto.FLOAT), g.constant([2]))
        past = g.input(f"past_conv.{layer}", np.float32, ["batch", earlier, c.hidden_size])
        inputs = g.op("Concat", past, g.op("Mul", g.op("Mul", b, values), kept), axis=1)
        present = g.op("Slice", inputs, g.constant([-earlier]), g.constant([2**31]), g.constant([1]))
        self.present[f"present_conv.{layer}"] = present, ["batch", earlier, c.hidden_size]
        taps = g.weight(f"{prefix}{TAPS}", self.model.vector(f"{prefix}{TAPS}"))
        channels = g.op("Conv", g.op("Transpose", inputs, perm=[0, 2, 1]), taps, group=c.hidden_size)
        y = g.op("Mul", gate, g.op("Transpose", channels, perm=[0, 2, 1]))
        flat = g.op("Reshape", y, g.constant([-1, c.hidden_size]))
        return self._residual(x, self._linear(flat, prefix + c.family.linears["out"]), prefix, behind)

    def _mlp(self, x: str, layer: int) -> str:
        g, c = self.graph, self.config
        prefix = f"model.layers.{layer}."
        before, behind = c.family.norms["mlp"]
        z = self._norm(x, f"{prefix}{before}.weight")
        gate, up = (self._linear(z, prefix + c.family.linears[role]) for role in ("gate", "up"))
        if c.family.activation == "silu":
            active = g.op("Mul", gate, g.op("Sigmoid", gate))
        else:
            active = g.op("Gelu", gate, approximate="tanh")
        down = self._linear(g.op("Mul", active, up), prefix + c.family.linears["down"])
        return self._residual(x, down, prefix, behind)

    def _linear(self, x: str, module: str) -> str:
        g, name = self.graph, f"{module}.weight"
        matrix = add_matrix(g, self.model, name)
        y = product(g, x, matrix)
        low_rank = self.model.low_ranks.get(name)
        if low_rank is not None:
            a, b = map(g.optional_input, low_rank.keys, (low_rank.a[0], low_rank.b[0]))
            y = g.op("Add", y, g.op("Gemm", g.op("Gemm", x, a, transB=1), b, transB=1, alpha=low_rank.scale))
        bias = f"{module}.bias"
        return g.op("Add", y, g.weight(bias, self.model.vector(bias))) if bias in self.model.shapes else y

    def _norm(self, x: str, name: str) -> str:
        """Adds an RMS norm over the last axis."""
        g = self.graph
        mean = g.op("ReduceMean", g.op("Mul", x, x), g.constant([-1]))
        rms = g.op("Sqrt", g.op("Add", mean, g.constant(self.config.rms_norm_eps, np.float32)))
        return g.op("Mul", g.op("Div", x, rms), g.weight(name, self.model.vector(name)))

    def _residual(self, x: str, branch: str, prefix: str, behind: str | None) -> str:
        return self.graph.op("Add", x, branch if behind is None else self._norm(branch, f"{prefix}{behind}.weight"))

    def _heads(self, x: str, heads: int) -> str:
        """Reshapes to [batch, heads, sequence, head_dim]."""
        return self.graph.op("Transpose", self._unflatten(x, [heads, self.config.head_dim]), perm=[0, 2, 1, 3])

    def _unflatten(self, x: str, widths: list[int]) -> str:
        """Reshapes to [batch, sequence, *widths]."""
        g = self.graph
        return g.op("Reshape", x, g.op("Concat", self.batch_and_sequence, g.constant(widths), axis=0))

    def _rotate(self, x: str, rotary: _Rotary) -> str:
        """Applies the rotary embedding to the two halves of each head."""
        g = self.graph
        low, high = g.ops("Split", 2, x, axis=-1, num_outputs=2)
        turned = [
            g.op("Sub", g.op("Mul", low, rotary.cos), g.op("Mul", high, rotary.sin)),
            g.op("Add", g.op("Mul", high, rotary.cos), g.op("Mul", low, rotary.sin)),
        ]
        return g.op("Concat", *turned, axis=-1)
