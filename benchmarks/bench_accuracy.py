"""Compares accuracy with and without LowMemoryBP: `python benchmarks/bench_accuracy.py`.

Trains a small ViT on scikit-learn's handwritten digits and a small RoBERTa on the topics of chatterbot-corpus's
dialogues, from random weights for some hundred steps, with exact activations and norms, and with approx2bit and
memory_sharing. A seed defines weights, batches and held-out examples, the same for both sides. The table has means and
standard deviations over seeds, and the mean difference from exact with its standard error.
"""

import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
import transformers as tf
import yaml
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn

from mobile_ft.pytorch import apply

BATCH, LR, HELD_OUT = 32, 1e-3, 0.25  # HELD_OUT: fraction of the examples
WORDS, LENGTH = 2000, 24  # RoBERTa's vocabulary, and tokens of a text
EXACT = "exact"
SIDES = (EXACT, "approx2bit, memory_sharing")
Examples = tuple[dict[str, Tensor], Tensor]  # the model's inputs, and labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error("--seeds: must be at least 2, to compute the spread")
    console, table = Console(width=120), Table("model", "side", "accuracy, %", "from exact's")
    with Progress(console=console) as progress:
        task = progress.add_task("runs", total=2 * len(SIDES) * args.seeds)
        for name, examples, new_model in (("ViT", digits(), vit), ("RoBERTa", dialogues(), roberta)):
            accuracies: dict[str, list[float]] = {side: [] for side in SIDES}
            for seed in range(args.seeds):
                for side in SIDES:
                    accuracies[side].append(100 * accuracy(examples, new_model, side, seed, args.steps))
                    progress.advance(task)
            for side, found in accuracies.items():
                change = [x - exact for x, exact in zip(found, accuracies[EXACT], strict=True)]
                error = stdev(change) / len(change) ** 0.5
                difference = "" if side == EXACT else f"{mean(change):+.2f} ± {error:.2f}"
                table.add_row(name, side, f"{mean(found):.2f} ± {stdev(found):.2f}", difference)
    console.print(table)


def digits() -> Examples:
    images, labels = load_digits(return_X_y=True)
    pixels = torch.from_numpy(images).float().reshape(-1, 1, 8, 8) / 8 - 1
    return {"pixel_values": pixels}, torch.from_numpy(labels).long()


def dialogues() -> Examples:
    """Returns sentences, labelled by the first file that has them."""
    package = importlib.util.find_spec("chatterbot_corpus")
    assert package is not None and package.submodule_search_locations
    files = sorted((Path(package.submodule_search_locations[0]) / "data" / "english").glob("*.yml"))
    texts: list[str] = []
    labels: list[int] = []
    for label, file in enumerate(files):
        found = {
            str(text)
            for dialogue in yaml.safe_load(file.read_text(encoding="utf-8"))["conversations"]
            if isinstance(dialogue, list)
            for text in dialogue
        }
        new = sorted(found.difference(texts))
        texts += new
        labels += [label] * len(new)
    words, counts = np.unique([word for text in texts for word in text.lower().split()], return_counts=True)
    ids = {word: i + 3 for i, word in enumerate(words[np.argsort(-counts, kind="stable")][: WORDS - 3])}
    tokens = torch.ones(len(texts), LENGTH, dtype=torch.long)  # 1: padding, 0: the beginning, 2: an unknown word
    for row, text in zip(tokens, texts, strict=True):
        found_ids = [0, *(ids.get(word, 2) for word in text.lower().split())][:LENGTH]
        row[: len(found_ids)] = torch.tensor(found_ids)
    return {"input_ids": tokens, "attention_mask": (tokens != 1).long()}, torch.tensor(labels)


def sized(classes: int) -> dict[str, Any]:
    size = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}
    return size | {"num_labels": classes}


def vit(classes: int) -> nn.Module:
    return tf.ViTForImageClassification(tf.ViTConfig(**sized(classes), image_size=8, patch_size=2, num_channels=1))


def roberta(classes: int) -> nn.Module:
    return tf.RobertaForSequenceClassification(
        tf.RobertaConfig(**sized(classes), vocab_size=WORDS, max_position_embeddings=LENGTH + 4)
    )


def accuracy(examples: Examples, new_model: Callable[[int], nn.Module], side: str, seed: int, steps: int) -> float:
    """Trains and returns the accuracy on held-out examples. The seed defines all random choices."""
    torch.manual_seed(seed)
    inputs, labels = examples
    order = torch.randperm(len(labels))
    held_out, train = order.tensor_split([int(HELD_OUT * len(order))])
    model: Any = new_model(int(labels.max()) + 1)
    if side != EXACT:
        apply(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    generator = torch.Generator().manual_seed(seed)  # for batches; dropout may differ between the sides
    model.train()
    for _ in range(steps):
        chosen = train[torch.randint(len(train), (BATCH,), generator=generator)]
        optimizer.zero_grad()
        model(**{name: values[chosen] for name, values in inputs.items()}, labels=labels[chosen]).loss.backward()
        optimizer.step()
        decay.step()
    model.eval()
    with torch.no_grad():
        logits = model(**{name: values[held_out] for name, values in inputs.items()}).logits
    return (logits.argmax(-1) == labels[held_out]).float().mean().item()


if __name__ == "__main__":
    main()
