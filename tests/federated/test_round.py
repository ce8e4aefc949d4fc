"""What one device does in a round."""

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import mobile_ft
from mobile_ft.bundle.description import read_bundle
from mobile_ft.errors import UserError
from mobile_ft.federated import round as rounds
from mobile_ft.federated.round import Round, frozen_digest, own_adapter, train_round, trained_tensors
from mobile_ft.federated.settings import Settings
from mobile_ft.federated.wire import decode, encode

WEIGHTS = "adapter_model.safetensors"


@pytest.fixture
def settings(config: dict[str, Any], tmp_path: Path) -> Settings:
    options = {"steps": "4", "seq_len": "48", "lr": "0.01", "save_every": "1", "seed": "5"}
    return Settings(Path(config["bundle"]), tmp_path / "rows0", tmp_path / "device", None, options)


def start(bundle: Path, lora_train: str = "both", seed: int = 0) -> dict[str, np.ndarray]:
    """An adapter that has learned something already."""
    rng = np.random.default_rng(seed)
    tensors = trained_tensors(own_adapter(read_bundle(bundle)), lora_train)
    return {name: x + (0.02 * rng.standard_normal(x.shape)).astype(np.float32) for name, x in tensors.items()}


@pytest.fixture
def wanted(bundle: Path) -> Round:
    return Round(3, encode(start(bundle), "float32"), "both", 0.0, "float32")


def shapes(tensors: dict[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: x.shape for name, x in tensors.items()}


@pytest.mark.parametrize("lora_train", ["both", "b"])
@pytest.mark.parametrize(
    ("proximal_mu", "lr_factor", "lr", "factored"),
    [(0.0, 1.0, "0.01", 0.01), (0.5, 0.25, "0.01", 0.0025), (0.0, 0.5, "auto", 1.25e-3)],
)
def test_the_update_is_that_of_train(
    settings: Settings,
    bundle: Path,
    tmp_path: Path,
    lora_train: str,
    proximal_mu: float,
    lr_factor: float,
    lr: str,
    factored: float,
) -> None:
    """Bit for bit, with the seed of the device plus the round."""
    settings.options["lr"] = lr
    begun = start(bundle, lora_train)
    frozen = frozen_digest(own_adapter(read_bundle(bundle)), lora_train)
    asked = Round(3, encode(begun, "float32"), lora_train, proximal_mu, "float32", lr_factor, frozen)
    reply = train_round(settings, asked)
    rounds.write_peft(tmp_path / "start", read_bundle(bundle), load_file(bundle / WEIGHTS) | begun)
    options: dict[str, Any] = {**settings.options, "seed": 8, "lora_train": lora_train, "proximal_mu": proximal_mu}
    options["lr"] = factored
    result = mobile_ft.train(
        bundle, settings.data, tmp_path / "alone", adapter=tmp_path / "start", progress=False, **options
    )
    change = decode(reply.change, shapes(begun))
    trained = load_file(tmp_path / "alone" / WEIGHTS)
    assert change.keys() == begun.keys()
    for name, tensor in change.items():
        assert np.array_equal(tensor, trained[name] - begun[name])
        assert tensor.any()
    assert reply.metrics["loss"] == result.losses[-1]
    assert reply.metrics["targets"] == result.details["targets_seen"] > 0
    assert reply.metrics["steps"] == 4


def test_other_rounds_see_other_rows_first(settings: Settings, wanted: Round) -> None:
    first = train_round(settings, wanted)
    assert train_round(settings, replace(wanted, number=4)).change != first.change


def child() -> int:
    """The training process of this one."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # gone by now
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if name == "mft-run" and int(rest.split()[1]) == os.getpid():
                return int(stat.parent.name)
    raise AssertionError("no mft-run")


def kill(times: int, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The training process dies after its first step, then after its second and so on; what was asked each time: to
    resume?"""
    asked: list[bool] = []
    real = mobile_ft.train

    def train(*args: Any, callbacks: Any, resume: bool, **options: Any) -> Any:
        asked.append(resume)
        if len(asked) > times:
            return real(*args, callbacks=callbacks, resume=resume, **options)

        def end(event: dict[str, Any]) -> None:
            if event["event"] == "saved" and event["step"] >= len(asked):
                os.kill(child(), signal.SIGKILL)

        return real(*args, callbacks=[*callbacks, end], resume=resume, **options)

    monkeypatch.setattr(rounds, "train", train)
    return asked


@pytest.fixture
def long(settings: Settings) -> Settings:
    """Of more steps than pass while a process is told to end."""
    return replace(settings, options=settings.options | {"steps": "60"})


def test_killed_within_a_round(long: Settings, wanted: Round, tmp_path: Path, monkeypatch: Any) -> None:
    """It goes on from the last checkpoint, to the same bits."""
    whole = train_round(replace(long, folder=tmp_path / "whole"), wanted)
    asked = kill(2, monkeypatch)
    reply = train_round(long, wanted)
    assert asked == [False, True, True]
    assert reply.change == whole.change
    assert {**reply.metrics, "seconds": 0, "peak_anon_mb": 0} == {**whole.metrics, "seconds": 0, "peak_anon_mb": 0}


def test_killed_too_often(long: Settings, wanted: Round, tmp_path: Path, monkeypatch: Any) -> None:
    """The round is missed; asked again, even by a server that started anew, the device goes on where it was."""
    whole = train_round(replace(long, folder=tmp_path / "whole"), wanted)
    asked = kill(3, monkeypatch)
    with pytest.raises(UserError, match="was killed"):
        train_round(long, wanted)
    assert train_round(long, wanted).change == whole.change
    assert asked == [False, True, True, True]


def test_what_was_begun_for_another_round_is_forgotten(long: Settings, wanted: Round, monkeypatch: Any) -> None:
    asked = kill(3, monkeypatch)
    with pytest.raises(UserError, match="was killed"):
        train_round(long, wanted)
    assert train_round(long, replace(wanted, number=4)).metrics["steps"] == 60
    assert asked == [False, True, True, False]


def test_the_same_question_gets_the_same_answer(settings: Settings, wanted: Round, monkeypatch: Any) -> None:
    """Without training again: else what rounding left out would be sent twice."""
    wanted = replace(wanted, wire="int8")
    reply = train_round(settings, wanted)
    asked = kill(0, monkeypatch)
    assert train_round(settings, wanted) == reply
    assert asked == []
    sent = settings.folder / "sent.safetensors"
    tensors = load_file(sent)
    save_file(tensors, sent, metadata={"metrics": "{}"})  # by no round
    assert train_round(settings, wanted).change == reply.change
    sent.write_bytes(b"damaged")
    assert train_round(settings, wanted).change == reply.change
    assert asked == [False, False]


def test_what_rounding_left_out_is_sent_later(settings: Settings, wanted: Round, bundle: Path, tmp_path: Path) -> None:
    """The sum of what int8 sends is the sum of the changes, but for the last rounding."""
    of = shapes(start(bundle))
    exact: dict[str, Any] = {}
    sent: dict[str, Any] = {}
    for number in range(1, 6):
        asked = Round(number, encode(start(bundle, seed=number), "float32"), "both", 0.0, "int8")
        plain = train_round(replace(settings, folder=tmp_path / "plain"), replace(asked, wire="float32"))
        rounded = train_round(settings, asked)
        for total, reply in ((exact, plain), (sent, rounded)):
            for name, x in decode(reply.change, of).items():
                total[name] = total.get(name, 0) + x
    residual = load_file(settings.folder / "sent.safetensors")
    for name, x in exact.items():
        np.testing.assert_allclose(sent[name] + residual[f"residual.{name}"], x, atol=1e-6)
        assert np.abs(residual[f"residual.{name}"]).max() > 1e-5  # which there is


def test_two_devices_in_one_folder(settings: Settings, wanted: Round, tmp_path: Path) -> None:
    """None sends what the other has learned."""
    first = train_round(settings, wanted)
    other = replace(settings, data=tmp_path / "rows1")
    assert train_round(other, wanted) != first
    alone = train_round(replace(other, folder=tmp_path / "alone"), wanted)
    assert train_round(replace(other, folder=settings.folder), wanted).change == alone.change


def test_a_frozen_matrix_that_is_not_the_server_s(settings: Settings, bundle: Path) -> None:
    own = own_adapter(read_bundle(bundle))
    other = {name: x + 1 for name, x in own.items()}
    asked = Round(1, encode(start(bundle, "b"), "float32"), "b", 0.0, "float32", frozen=frozen_digest(other, "b"))
    with pytest.raises(UserError, match="its LoRA A differs from the server's"):
        train_round(settings, asked)
    assert train_round(settings, replace(asked, frozen=frozen_digest(own, "b"))).metrics["steps"] == 4


def test_minutes(settings: Settings, wanted: Round) -> None:
    """As many steps as there is time for, and one at least; it counts for what it learned from."""
    reply = train_round(replace(settings, minutes=1e-6), wanted)
    assert 1 <= reply.metrics["steps"] < 4
    steps = settings.options | {"steps": str(int(reply.metrics["steps"]))}
    alone = replace(settings, options=steps, folder=settings.folder / "y")
    assert reply.metrics["targets"] == train_round(alone, wanted).metrics["targets"]
    assert train_round(replace(settings, minutes=10, folder=settings.folder / "x"), wanted).metrics["steps"] == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x | {"a": np.zeros(1, np.float32)}, "tensor a is not expected"),
        (lambda x: dict(list(x.items())[1:]), "is missing"),
        (lambda x: {name: y[:-1] for name, y in x.items()}, "expected: "),
    ],
)
def test_a_server_of_another_model(
    settings: Settings, wanted: Round, bundle: Path, change: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        train_round(settings, replace(wanted, adapter=encode(change(start(bundle)), "float32")))
    shutil.rmtree(settings.folder)
