"""Transformers and PEFT on the same SmolLM2 weights: what the runtime is held against."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

# torch's worker threads spin between calls and would take the cores from the runtime's own.
torch.set_num_threads(1)

from mobile_ft.model.lora import BaseModel, LoraConfig, write_adapter  # noqa: E402
from tests.targets import ALL_LINEAR  # noqa: E402

TEXT = (
    "The lighthouse keeper climbed the stairs every evening at dusk, carrying a lamp and a book he never opened. "
    "In 1987 the old bulb was replaced, and for the first time in forty years the beam reached the far islands. "
    "def total(prices):\n    return sum(p for p in prices if p > 0)\n\n"
    "Q: Why is the sky blue? A: Air scatters short waves of light more than long ones, so blue comes from "
    "everywhere. Ships passed without a sound; the keeper wrote down each name, its flag and the hour. When the "
    "winter storms came he counted the seconds between lightning and thunder, as his father had taught him, and "
    "told the children that the storm was far away even when it was not. Years later they remembered the light "
    "first, then the smell of oil and salt, and only then his face. Nobody knew who had painted the door green, "
    "but everybody agreed that it had always been so, and that it should stay that way as long as there were ships "
    "to see it from the sea and people to come home to it."
)


@pytest.fixture(scope="session")
def text_tokens(smollm2: Path) -> np.ndarray:
    from mobile_ft.data.tokenizer import Tokenizer

    tokens = np.array(Tokenizer(smollm2).encode(TEXT * 2)[:257], np.int64)
    assert len(tokens) == 257
    return tokens


@pytest.fixture(scope="session")
def adapter(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter whose B is not zero, so that every gradient has something to say."""
    rng = np.random.default_rng(0)
    tensors = load_file(smollm2 / "adapter_model.safetensors")
    for name, tensor in tensors.items():
        if "lora_B" in name:
            tensors[name] = (0.02 * rng.standard_normal(tensor.shape)).astype(np.float32)
    folder = tmp_path_factory.mktemp("adapter")
    write_adapter(folder, LoraConfig(16, 32.0, ALL_LINEAR), BaseModel("smollm2"), tensors)
    return folder


@pytest.fixture(scope="session")
def load_base(smollm2_gguf: Path) -> Callable[[], Any]:
    """A float32 Transformers model of the GGUF, the caller's own; to decode one takes many times as long as a copy."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(smollm2_gguf.parent, gguf_file=smollm2_gguf.name, dtype=torch.float32)
    return lambda: deepcopy(model)


@pytest.fixture
def peft_model(load_base: Callable[[], Any], adapter: Path) -> Any:
    from peft import PeftModel

    return PeftModel.from_pretrained(load_base(), adapter, is_trainable=True)


def summed_loss(model: Any, tokens: np.ndarray, targets: np.ndarray) -> torch.Tensor:
    """Summed cross-entropy of one sequence, in float64."""
    logits = model(torch.from_numpy(tokens)[None]).logits[0].double()
    return torch.nn.functional.cross_entropy(logits, torch.from_numpy(targets), reduction="sum")


def gradients(model: Any) -> dict[str, np.ndarray]:
    """LoRA gradients of a PEFT model under the names of its files."""
    return {
        name.replace(".default", ""): parameter.grad.numpy().copy()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and parameter.grad is not None
    }


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))
