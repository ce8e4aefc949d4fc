"""Answers in int8, token by token: the logits of float32, with an adapter too."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

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


def scaled(adapter: Path, folder: Path, factor: float) -> str:
    """The adapter with B times `factor`; written over what is there."""
    tensors = load_file(adapter / "adapter_model.safetensors")
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_bytes((adapter / "adapter_config.json").read_bytes())
    changed = {name: x * np.float32(factor) if "lora_B" in name else x for name, x in tensors.items()}
    save_file(changed, folder / "new")
    (folder / "new").rename(folder / "adapter_model.safetensors")
    return str(folder)


def test_an_adapter_of_tiny_numbers(smollm2: Path, adapter: Path, tmp_path: Path) -> None:
    """Below float32's normal numbers: the power of two that would bring them to 1 is infinite. It adds nothing."""
    tiny = scaled(adapter, tmp_path / "tiny", 2.0**-135)
    b = [x for name, x in load_file(tmp_path / "tiny" / "adapter_model.safetensors").items() if "lora_B" in name]
    assert 0 < max(np.abs(x).max() for x in b) <= 2.0**-128
    assert np.abs(logits(smollm2, tiny, "int8") - logits(smollm2, "", "int8")).max() < 0.05


def test_adapters_in_turn(smollm2: Path, adapter: Path, tmp_path: Path) -> None:
    """More of them than stay in memory, in both arithmetics, and one that changes on disk."""
    folders = ["", *(scaled(adapter, tmp_path / str(i), i / 2) for i in range(1, 6))]
    model = Model(str(smollm2))
    model.prepare("", 64)
    generator = Generator(model)
    for compute in ("int8", "float32"):
        config = GenerateConfig(compute=compute)
        alone = []
        for folder in folders:
            own = Model(str(smollm2))
            own.prepare(folder, 64)
            alone.append(Generator(own).logits_after(TOKENS, config))
        assert all(np.abs(a - b).max() > 0.1 for a, b in pairwise(alone))
        for i in (0, 1, 0, 2, 3, 4, 5, 0, 1, 5, 4):
            generator.use_adapter(folders[i])
            assert np.array_equal(generator.logits_after(TOKENS, config), alone[i])
        generator.use_no_adapter()
        assert np.array_equal(generator.logits_after(TOKENS, config), alone[0])
        generator.use_adapter(folders[4])
        assert np.array_equal(generator.logits_after(TOKENS, config), alone[4])
        scaled(adapter, tmp_path / "4", 2.5)  # as folder 5
        generator.use_adapter(folders[4])
        assert np.array_equal(generator.logits_after(TOKENS, config), alone[5])
        (tmp_path / "4" / "adapter_config.json").write_text("{}")
        with pytest.raises(RuntimeFailure, match=r"4/adapter_config\.json"):
            generator.use_adapter(folders[4])
        again = generator.logits_after(TOKENS, config)  # computes the last token alone
        assert np.abs(again - alone[5]).max() < 0.05
        scaled(adapter, tmp_path / "4", 2)


@pytest.mark.parametrize(("kv_bits", "bound"), [(32, 1e-5), (16, 3e-3), (8, 0.2)])
def test_bits_of_the_cache(smollm2: Path, kv_bits: int, bound: float) -> None:
    """The error of the logits, of tokens one by one and behind a prompt, relative to their spread."""
    model = Model(str(smollm2))
    model.prepare("", 64)
    config = GenerateConfig(compute="float32", kv_bits=kv_bits)
    exact, generator = logits(smollm2, "", "float32"), Generator(model)
    found = [generator.logits_after(TOKENS[: i + 1], config) for i in range(len(TOKENS))]
    errors = np.std([*found, Generator(model).logits_after(TOKENS, config)] - exact, axis=1) / exact.std(axis=1)
    assert errors.max() < bound
    assert kv_bits == 32 or errors.max() > bound / 20
    with pytest.raises(RuntimeFailure, match="kv_bits 4: must be 32, 16, 8 or 0"):
        GenerateConfig(kv_bits=4)


@pytest.mark.parametrize(("compute", "temp"), [("int8", 0.0), ("int8", 0.3), ("float32", 0.0)])
def test_guessed_tokens_change_nothing(smollm2: Path, compute: str, temp: float) -> None:
    """An answer that repeats itself, as guesses expect, and each of its tokens computed alone."""
    model = Model(str(smollm2))
    model.prepare("", 64)
    prompt = TOKENS[:4] * 6
    config = GenerateConfig(compute=compute, temp=temp, seed=1, max_tokens=30)
    generator, alone = Generator(model), Generator(model)
    answer = generator.generate(prompt, config)
    assert len({tuple(answer[i : i + 3]) for i in range(28)}) < 20
    after = [alone.logits_after([*prompt, *answer[:i]], config) for i in range(31)]
    if temp == 0:
        assert [logits.argmax() for logits in after[:30]] == answer
    assert np.array_equal(generator.logits_after([*prompt, *answer], config), after[30])
