"""What units store for their backward: approximate activations, f16, and sequences longer than one call takes."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.program import trace
from mobile_ft.export.program.program import MLP_TOKENS
from mobile_ft.export.source.random_init import RandomModel
from mobile_ft.model.lora import LoraConfig
from mobile_ft.runtime import Model, TrainConfig, Trainer
from tests.runtime.conftest import relative_error
from tests.small_bundle import CONFIG
from tests.targets import ALL_LINEAR

TOKENS = 61
Export = Callable[..., Path]


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Exports once what the tests share: (activation, most tokens that MLP and head take at once) -> bundle."""

    @cache
    def write(activation: str, most: int = MLP_TOKENS) -> Path:
        folder = tmp_path_factory.mktemp("bundles") / "bundle"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trace, "MLP_TOKENS", most)
            patch.setattr(trace, "HEAD_TOKENS", most)
            write_bundle(RandomModel(CONFIG, 0), LoraConfig(4, 8.0, ALL_LINEAR), 64, 0, folder, activation)
        return folder

    return write


def step(bundle: Path, **options: Any) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients of one batch, after a first step that makes B more than zero."""
    rng = np.random.default_rng(0)
    tokens, targets = rng.integers(0, CONFIG.vocab_size, (2, TOKENS))
    trainer = Trainer(Model(str(bundle)), TrainConfig(seq_len=64, **options))
    loss = trainer.accumulate(tokens, targets, np.arange(TOKENS), [True] * CONFIG.num_hidden_layers)
    return loss, trainer.gradients()


def largest_error(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> float:
    assert set(ours) == set(theirs)
    return max(relative_error(ours[name], theirs[name]) for name in ours if "lora_B" in name)


def test_approximate_activations(export: Export) -> None:
    """The forward stays exact, the gradient does not, and storing in f16 costs it about f16's precision."""
    exact_loss, exact = step(export("exact"))
    loss, recomputed = step(export("approx2bit"))
    assert loss == exact_loss
    assert largest_error(recomputed, exact) > 0.001
    loss, stored = step(export("approx2bit"), backward="store")
    assert loss == exact_loss
    assert 0 < largest_error(stored, recomputed) < 2e-3


def test_activations_in_int8(export: Export) -> None:
    """Forward and recomputed gradients are exact; the stored ones are off by the rounding to 8 bits."""
    exact_loss, exact = step(export("exact"))
    bundle = export("int8")
    loss, recomputed = step(bundle)
    assert loss == exact_loss
    assert all(np.array_equal(recomputed[name], exact[name]) for name in exact)
    loss, stored = step(bundle, backward="store")
    assert loss == exact_loss
    assert 0 < largest_error(stored, exact) < 0.05


def test_factors_in_int4(export: Export) -> None:
    """Coarser than 8 bits, and in less memory."""
    loss, exact = step(export("exact"))
    in_8_bits, in_4_bits = (step(export(bits), backward="store") for bits in ("int8", "int4"))
    assert in_8_bits[0] == in_4_bits[0] == loss
    assert largest_error(in_8_bits[1], exact) < largest_error(in_4_bits[1], exact) < 0.2
    plans = [
        Trainer(Model(str(export(bits))), TrainConfig(seq_len=64, backward="store")).plan for bits in ("int8", "int4")
    ]
    assert plans[1]["saved_activations"] < 0.9 * plans[0]["saved_activations"]


@pytest.mark.parametrize("activation", ["exact", "int8", "int4", "approx2bit"])
@pytest.mark.parametrize("backward", ["store", "recompute"])
def test_sequences_longer_than_a_call(export: Export, activation: str, backward: str) -> None:
    """MLP and head in calls of 12 tokens, the last one of 1, give the gradients of one call.

    Calls of 12 cut rows into the same tiles and stored activations into the same blocks as one call does: in others the
    sums are rounded otherwise, and then the codes.
    """
    whole_loss, whole = step(export(activation), backward=backward)
    loss, pieces = step(export(activation, 12), backward=backward)
    assert loss == pytest.approx(whole_loss, rel=1e-6)
    assert largest_error(pieces, whole) < 1e-5


def test_gradients_may_be_added_over_long_sequences(export: Export) -> None:
    bundle = export("exact", 12)
    rng = np.random.default_rng(0)
    trainer = Trainer(Model(str(bundle)), TrainConfig(seq_len=64, grad_accum=2))
    rows = [rng.integers(0, CONFIG.vocab_size, (2, TOKENS)) for _ in range(2)]
    batches = [(tokens, targets, np.arange(TOKENS)) for tokens, targets in rows]
    layers = [True] * CONFIG.num_hidden_layers
    each = []
    for batch in batches:
        trainer.accumulate(*batch, layers)
        each.append(trainer.gradients())
    trainer.accumulate(*batches[0], layers)
    trainer.accumulate(*batches[1], layers, first=False)
    total = {name: each[0][name] + each[1][name] for name in each[0]}
    assert largest_error(trainer.gradients(), total) < 1e-6


def test_updates_at_once_are_the_same_updates(export: Export, token_file: Callable[..., Path], tmp_path: Path) -> None:
    """Without clipping nothing needs all gradients together: a huge norm and none train alike."""
    from mobile_ft.runtime import TokenFile

    bundle = export("exact")
    data = TokenFile(str(token_file(tmp_path / "tokens.safetensors", CONFIG.vocab_size, 32, 4)), CONFIG.vocab_size)
    results = []
    for norm in (0.0, 1e30):
        model = Model(str(bundle))
        trainer = Trainer(model, TrainConfig(steps=4, seq_len=32, max_grad_norm=norm, schedule="lcsb"))
        norms = [trainer.step(data)["grad_norm"] for _ in range(4)]
        results.append((norms, trainer.plan["gradients"], model.parameters()))
    (norms, gradients, at_once), (same_norms, all_gradients, together) = results
    assert norms == pytest.approx(same_norms, rel=1e-12)
    assert gradients < all_gradients
    assert all(np.array_equal(at_once[name], together[name]) for name in together)
