"""Measures how much LowMemoryBP reduces the memory that autograd keeps for the backward:
`python benchmarks/bench_saved.py`.

Models have their usual shapes and random weights, in float32 and under autocast to bfloat16, with full fine-tuning and
LoRA. The figures are sums of the storages that the forward keeps, without parameters and autocast's copies of them, so
they do not depend on an allocator or a machine.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers as tf
from peft import LoraConfig, get_peft_model
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from mobile_ft.pytorch import SavedTensors, apply

Inputs = dict[str, Tensor]
NO_DROPOUT: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
LLAMA: dict[str, Any] = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12}
LLAMA["num_attention_heads"] = 12
TOKENS = {"input_ids": torch.randint(5, 30000, (4, 128))}
IMAGES = {"pixel_values": torch.randn(4, 3, 224, 224)}
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "ViT-B, 4 x 197": (lambda: tf.ViTModel(tf.ViTConfig(**NO_DROPOUT)), IMAGES),
    "Swin-T, 4 images": (lambda: tf.SwinModel(tf.SwinConfig(drop_path_rate=0.0)), IMAGES),
    "BERT-base, 4 x 128": (lambda: tf.BertModel(tf.BertConfig(**NO_DROPOUT)), TOKENS),
    "RoBERTa-base, 4 x 128": (lambda: tf.RobertaModel(tf.RobertaConfig(**NO_DROPOUT)), TOKENS),
    "LLaMA-style, 12 x 768, 4 x 128": (lambda: tf.LlamaModel(tf.LlamaConfig(**LLAMA)), TOKENS),
}
SIDES: list[dict[str, Any]] = [{"norm": "exact"}, {"activation": "exact"}, {}]


def main() -> None:
    table = Table("model", "trained", "type", "kept, MB", "less with 2-bit activations", "with norms", "with both")
    for name, (make, inputs) in MODELS.items():
        for trained in ("all", "LoRA, rank 16"):
            torch.manual_seed(0)
            model: Any = make()
            if trained != "all":
                model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
            for autocast in (False, True):
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    before, *after = kept(model.train(), inputs, autocast)
                less = (f"{100 * (1 - b / before):.1f} %" for b in after)
                table.add_row(name, trained, "bfloat16" if autocast else "float32", f"{before / 1e6:.0f}", *less)
    Console().print(table)


def kept(model: nn.Module, inputs: Inputs, autocast: bool) -> Iterator[int]:
    """Yields the bytes without and then with each side's options."""
    linears = (module for module in model.modules() if type(module) is nn.Linear)
    copies = sum(2 * linear.weight.numel() for linear in linears) if autocast else 0
    with SavedTensors(model) as saved:
        model(**inputs)
    yield saved.bytes - copies
    for options in SIDES:
        applied = apply(model, **options)
        with SavedTensors(model) as saved:
            model(**inputs)
        yield saved.bytes - copies
        applied.undo()


if __name__ == "__main__":
    main()
