"""Answers in int8, token by token: the logits of float32, with an adapter too."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mobile_ft.runtime import GenerateConfig, Generator, Model, RuntimeFailure, TokenFile, TrainConfig, Trainer

TOKENS = np.random.default_rng(0).integers(5, 40000, 24).tolist()


def logits(bundle: Path, adapter: str, compute: str) -> np.ndarray:
    """Of each place of TOKENS, whose tokens are computed one by one, and of the last one of a prompt."""
    model = Model(str(bundle))
    model.prepare(adapter, 64)
    generator, config = Generator(model), GenerateConfig(compute=compute)
    found = [generator.logits_after(TOKENS[: i + 1], config) for i in range(len(TOKENS))]
    return np.array([*found, Generator(model).logits_after(TOKENS, config)])


@pytest.mark.parametrize("adapted", [False, True])
def test_logits(smollm2: Path, adapter: Path, adapted: bool) -> None:
    folder = str(adapter) if adapted else ""
    int8, float32 = (logits(smollm2, folder, compute) for compute in ("int8", "float32"))
    assert float32.std() > 1
    assert np.abs(int8 - float32).max() < 0.05
    if adapted:
        assert np.abs(float32 - logits(smollm2, "", "float32")).max() > 0.5


def test_a_trainer_computes_as_before(smollm2: Path, token_file: Callable[..., Path], tmp_path: Path) -> None:
    """An answer between two steps changes neither the arithmetic of the second nor what the adapter does in it."""
    losses = []
    data = TokenFile(str(token_file(tmp_path / "tokens.safetensors", 49152, 64, 3)), 49152)
    for answers in (False, True):
        model = Model(str(smollm2))
        trainer = Trainer(model, TrainConfig(seq_len=64, compute="float32", steps=3, lr=1e-2), "")
        found = []
        for _ in range(3):
            found.append(trainer.step(data)["loss"])
            if answers:
                assert len(Generator(model).generate(TOKENS, GenerateConfig(max_tokens=3))) == 3
        losses.append(found)
    assert losses[0] == losses[1]
    with pytest.raises(RuntimeFailure, match="compute int8: a trainer prepared this model for float32 alone"):
        Generator(model).generate(TOKENS, GenerateConfig(compute="int8"))
