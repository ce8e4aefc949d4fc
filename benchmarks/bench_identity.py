"""Tests replacements for the layers that LCSB skips: `python benchmarks/bench_identity.py --data DIR`.

LCSB passes the gradient on unchanged: it replaces g (I + J), with the Jacobian J of a layer's branches, by g. Here J is
replaced by a cheap approximation: a multiple of g, a factor per channel, or a matrix of full or low rank, fitted by
ridge regression to g and g J of other texts (stale). The model is SmolLM2-135M in float32, with LoRA of rank 16 that
was trained for some steps; gradients are computed by autograd. DIR has gsm8k/.

The table has the explained fraction of g J on texts that were not used in the fit, and the cosine between the LoRA
gradients of all selected layers and the exact ones, with half of the layers selected at random.
"""

import argparse
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from off_grid import float_model
from peft import PeftModel
from rich.console import Console
from rich.progress import track
from rich.table import Table
from safetensors.torch import load_file
from torch import Tensor, nn

import mobile_ft
from mobile_ft.api.tokens import prepare_tokens
from mobile_ft.bundle.description import read_bundle
from mobile_ft.runtime import TrainConfig

SEQ_LEN, ROWS, STEPS, LR = 256, 1500, 50, 5e-4
FIT, TEST, SELECTIONS = 40, 6, 3  # sequences for fitting and for testing, and selections per test sequence
RIDGE, FORGET = 1e-3, 0.95
RANKS = (16, 64)

Batch = tuple[Tensor, Tensor, Tensor]  # tokens, targets (-100: none) and positions, int64 [1, T]
StandIn = Callable[[Tensor], Tensor]  # gradient [T, D] -> term to add to it


class Fit:
    """Moments of g and g J of a layer over tokens [.., D]."""

    def __init__(self, dim: int) -> None:
        self.gg, self.gj = torch.zeros(dim, dim), torch.zeros(dim, dim)

    def see(self, g: Tensor, gj: Tensor) -> None:
        self.gg = FORGET * self.gg + g.T @ g
        self.gj = FORGET * self.gj + g.T @ gj

    def matrix(self) -> Tensor:
        """Returns M [D, D], for which g M is the best estimate of g J."""
        dim = len(self.gg)
        return torch.linalg.solve(self.gg + RIDGE * self.gg.trace() / dim * torch.eye(dim), self.gj)

    def low_rank(self, rank: int) -> tuple[Tensor, Tensor]:
        """Returns the two factors of the best M of that rank, by reduced-rank regression."""
        matrix = self.matrix()
        values, vectors = torch.linalg.eigh(matrix.T @ self.gg @ matrix)
        top = vectors[:, values.argsort(descending=True)[:rank]]
        return matrix @ top, top.T


def rescaled(fit: Fit) -> StandIn:
    scale = fit.gj.trace() / fit.gg.trace()
    return lambda g: scale * g


def by_channel(fit: Fit) -> StandIn:
    factors = fit.gj.diag() / fit.gg.diag().clamp_min(1e-30)
    return lambda g: factors * g


def stale(fit: Fit) -> StandIn:
    matrix = fit.matrix()
    return lambda g: g @ matrix


def stale_low_rank(rank: int) -> Callable[[Fit], StandIn]:
    def stand_in(fit: Fit) -> StandIn:
        left, right = fit.low_rank(rank)
        return lambda g: g @ left @ right

    return stand_in


WAYS: dict[str, Callable[[Fit], StandIn]] = {
    "identity": lambda fit: torch.zeros_like,
    "rescaled": rescaled,
    "a factor a channel": by_channel,
    **{f"stale, rank {rank}": stale_low_rank(rank) for rank in RANKS},
    "stale, whole": stale,
}


class _PassOn(torch.autograd.Function):
    """Returns the output of a layer that ran without gradients, and the gradient with a replacement."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, stand_in: StandIn) -> Tensor:
        ctx.stand_in = stand_in
        return y.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        return g + ctx.stand_in(g[0])[None], None, None


class Layers:
    """The model's layers. Some are skipped; the others record g and g J."""

    def __init__(self, model: nn.Module) -> None:
        self.layers = [m for m in model.modules() if type(m).__name__ == "LlamaDecoderLayer"]
        self.passed: dict[int, StandIn] = {}
        self.seen: dict[int, tuple[Tensor, Tensor]] = {}
        for index, layer in enumerate(self.layers):
            layer.forward = self._wrapped(index, layer.forward)

    def _wrapped(self, index: int, forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled():
                return forward(hidden_states, *args, **kwargs)
            if index in self.passed:
                with torch.no_grad():
                    y = forward(hidden_states, *args, **kwargs)
                return _PassOn.apply(hidden_states, y, self.passed[index])
            # A separate view, so that its gradient is only that of this layer's input.
            x = hidden_states.view_as(hidden_states) if hidden_states.requires_grad else hidden_states.requires_grad_()
            y = forward(x, *args, **kwargs)
            if x.requires_grad:
                after: list[Tensor] = []
                y.register_hook(lambda g: after.append(g[0]))
                x.register_hook(lambda g: self.seen.__setitem__(index, (after[0], g[0] - after[0])))
            return y

        return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with gsm8k/")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sequences, adapter = prepared(args.data, folder)
        base = float_model(folder)
        model = PeftModel.from_pretrained(base, adapter, is_trainable=True)
        layers = Layers(model)
        gradients(model, layers, sequences, Console())


def prepared(data: Path, folder: Path) -> tuple[list[Batch], Path]:
    """Returns sequences, and an adapter trained for some steps."""
    options: dict[str, Any] = {"max_seq_len": SEQ_LEN, "activation": "exact", "progress": False}
    bundle = mobile_ft.export_bundle("smollm2-135m", folder / "bundle", **options)
    rows = (data / "gsm8k" / "train.jsonl").read_text().splitlines()
    (folder / "train.jsonl").write_text("\n".join(rows[:ROWS]))
    path = folder / "train.safetensors"
    prepare_tokens(read_bundle(bundle.bundle), folder / "train.jsonl", "train", SEQ_LEN, 1, path)
    training: dict[str, Any] = {"steps": STEPS, "lr": LR, "warmup_steps": 0, "seed": 2, "progress": False}
    result = mobile_ft.train(folder / "bundle", folder / "train.jsonl", folder / "out", **training)
    return batches(path), result.adapter


def batches(path: Path) -> list[Batch]:
    found = load_file(path)
    ends = found["offsets"].tolist()
    tokens, targets, positions = (found[name].long()[None] for name in ("tokens", "targets", "positions"))
    places = [slice(begin, end) for begin, end in pairwise(ends)]
    return [(tokens[:, place], targets[:, place], positions[:, place]) for place in places]


def loss_of(model: Any, batch: Batch) -> Tensor:
    tokens, targets, positions = batch
    logits = model(input_ids=tokens, position_ids=positions, attention_mask=mask_of(positions)).logits
    return nn.functional.cross_entropy(logits[0], targets[0])


def mask_of(positions: Tensor) -> Tensor:
    """Returns the mask, bool [1, 1, T, T]. A token sees its own row up to itself; a position of 0 begins a row."""
    row = (positions[0] == 0).cumsum(0)
    return ((row[:, None] == row[None]) & torch.ones(len(row), len(row)).tril().bool())[None, None]


def gradient(model: nn.Module, batch: Batch) -> dict[str, Tensor]:
    model.zero_grad()
    loss_of(model, batch).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def gradients(model: nn.Module, layers: Layers, sequences: list[Batch], console: Console) -> None:
    fits = [Fit(576) for _ in layers.layers]
    for batch in track(sequences[:FIT], "fitting"):
        gradient(model, batch)
        for index, (g, gj) in layers.seen.items():
            fits[index].see(g, gj)
    stand_ins = {name: {i: way(fits[i]) for i in layers.seen} for name, way in WAYS.items()}
    errors: dict[str, list[float]] = {name: [] for name in WAYS}
    cosines: dict[str, list[float]] = {name: [] for name in WAYS}
    config = TrainConfig(schedule="lcsb", ratio="0.5", seed="1")
    for step, batch in enumerate(track(sequences[FIT : FIT + TEST], "trying")):
        exact = gradient(model, batch)
        for name in errors:
            for index, (g, gj) in layers.seen.items():
                errors[name].append(((gj - stand_ins[name][index](g)).square().sum() / gj.square().sum()).item())
        for draw in range(SELECTIONS):
            selected = config.select(SELECTIONS * step + draw, len(layers.layers))
            for name in errors:
                layers.passed = {
                    i: stand_ins[name].get(i, torch.zeros_like) for i, flag in enumerate(selected) if not flag
                }
                cosines[name].append(cosine(gradient(model, batch), exact))
        layers.passed = {}
    table = Table("stand-in", "explained fraction of g J", "cosine of LoRA gradients")
    for name in errors:
        table.add_row(name, f"{1 - mean(errors[name]):.3f}", f"{mean(cosines[name]):.3f}")
    console.print(table)


def cosine(some: dict[str, Tensor], exact: dict[str, Tensor]) -> float:
    """Returns the cosine over the parameters that have a gradient in `some`."""
    a, b = (torch.cat([each[name].flatten() for name in some]) for each in (some, exact))
    return torch.nn.functional.cosine_similarity(a, b, dim=0).item()


if __name__ == "__main__":
    main()
