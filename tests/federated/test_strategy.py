"""Rounds of a fleet: what is aggregated, what is refused, and what is left on the server's disk."""

import json
import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.app.user_config import UserConfig
from flwr.serverapp import Grid
from safetensors import safe_open
from safetensors.numpy import load, load_file, save, save_file

import mobile_ft
from mobile_ft.errors import UserError
from mobile_ft.federated.messages import file_of, file_record
from mobile_ft.federated.server import run_rounds
from mobile_ft.federated.settings import settings_of
from tests.federated.fleet import Fleet, no_reply, read_records

WEIGHTS = "adapter_model.safetensors"


def adapter(fleet: Fleet, out: str = "out") -> dict[str, np.ndarray]:
    return load_file(Path(fleet.config[out]) / WEIGHTS)


def test_rounds_learn(fleet: Fleet, bundle: Path, tmp_path: Path) -> None:
    """What they leave is an adapter like any other, a record, and a picture."""
    first, *_, last = fleet.run(rounds=4)
    assert last["eval_loss"] < first["eval_loss"]
    assert last["round"] == 4 and len(last["clients"]) == 3 and last["refused"] == {}
    counts = {node: c["targets"] for node, c in last["clients"].items()}
    assert counts["0"] > counts["1"]
    found = mobile_ft.evaluate(bundle, tmp_path / "rows1", adapter=fleet.config["out"], seq_len=48, progress=False)
    assert found.loss == pytest.approx(last["eval_clients"]["1"], abs=1e-6)
    up = [c["bytes"] for c in last["clients"].values()]
    assert last["bytes_up"] == sum(up) and last["bytes_down"] == 6 * up[0]  # the adapter to train, and to evaluate
    assert (tmp_path / "server-rounds.svg").stat().st_size > 1000


def replies_of(fleet: Fleet) -> list[tuple[dict[str, np.ndarray], float]]:
    """Every device's change and targets, as they come."""
    seen: list[tuple[dict[str, np.ndarray], float]] = []

    def watch(number: int, node: int, reply: Message) -> Message:
        targets = reply.content.metric_records["metrics"]["targets"]
        assert isinstance(targets, int | float)
        seen.append((load(file_of(reply.content.array_records["arrays"])), float(targets)))
        return reply

    fleet.tamper = watch
    return seen


def products(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name: tensors[name.replace("lora_A", "lora_B")].astype(np.float64) @ a
        for name, a in tensors.items()
        if "lora_A" in name
    }


def far_from_the_mean_product(fleet: Fleet, bundle: Path) -> float:
    """Of the first round's adapter, as a share of the mean's norm."""
    seen = replies_of(fleet)
    fleet.run(rounds=1)
    start, total = load_file(bundle / WEIGHTS), sum(targets for _, targets in seen)
    mean: dict[str, Any] = {}
    for change, targets in seen:
        whole = {name: x + change.get(name, 0) for name, x in start.items()}
        for name, x in products(whole).items():
            mean[name] = mean.get(name, 0) + targets / total * x
    aggregated = products(adapter(fleet))
    squares = sum(np.square(aggregated[name] - x).sum() for name, x in mean.items())
    return float(np.sqrt(squares / sum(np.square(x).sum() for x in mean.values())))


def test_ffa_is_the_mean_product(fleet: Fleet, bundle: Path) -> None:
    """A is the same everywhere, so the mean of B is all there is to average."""
    fleet.config["lora-train"] = "b"
    assert far_from_the_mean_product(fleet, bundle) < 1e-6
    start = load_file(bundle / WEIGHTS)
    for name, x in adapter(fleet).items():
        assert np.array_equal(x, start[name]) == ("lora_A" in name), name


def test_svd_is_nearer_to_the_mean_product(fleet: Fleet, bundle: Path) -> None:
    fedavg = far_from_the_mean_product(fleet, bundle)
    shutil.rmtree(fleet.config["out"])
    fleet.config["strategy.name"] = "fedsvd"
    fedsvd = far_from_the_mean_product(fleet, bundle)
    assert 1e-4 < fedsvd < 0.95 * fedavg
    record = read_records(Path(fleet.config["out"]))[0]
    assert record["left_out"] == pytest.approx(fedsvd, rel=1e-3)


def with_arrays(reply: Message, change: Any) -> Message:
    reply.content["arrays"] = file_record(save(change(load(file_of(reply.content.array_records["arrays"])))))
    return reply


def with_metric(reply: Message, **values: float) -> Message:
    reply.content["metrics"] = MetricRecord({**reply.content.metric_records["metrics"], **values})
    return reply


def without(reply: Message, name: str) -> Message:
    del reply.content[name]
    return reply


def first(tensors: dict[str, np.ndarray], change: Any) -> dict[str, np.ndarray]:
    name = next(iter(tensors))
    return tensors | {name: change(tensors[name])}


BAD = {
    "dropped out": (no_reply, "no reply in time"),
    "silent": (lambda r: None, "no reply in time"),
    "not finite": (lambda r: with_arrays(r, lambda t: first(t, lambda x: x * np.float32("nan"))), "not finite"),
    "another shape": (lambda r: with_arrays(r, lambda t: first(t, lambda x: x[1:].copy())), "expected: "),
    "scaled": (lambda r: with_arrays(r, lambda t: {n: 100 * x for n, x in t.items()}), "10 times the median"),
    "many targets": (lambda r: with_metric(r, targets=1e9), "targets 1e+09, more than 10 times the median"),
    "no targets": (lambda r: with_metric(r, targets=0), "the update has no target tokens"),
    "negative": (lambda r: with_metric(r, targets=-5.0), "targets is -5.0"),
    "no metrics": (lambda r: without(r, "metrics"), "the reply has no arrays or no metrics"),
    "no arrays": (lambda r: without(r, "arrays"), "the reply has no arrays or no metrics"),
    "empty": (lambda r: (r.content.update({"arrays": ArrayRecord()}), r)[1], "not from this program"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_device_is_left_out(fleet: Fleet, bad: str, tmp_path: Path) -> None:
    """The others' round is what it would be without that device."""
    spoil, reason = BAD[bad]
    fleet.tamper = lambda number, node, reply: spoil(reply) if node == 2 else reply
    record = fleet.run(rounds=1, out=str(tmp_path / "spoilt"))[0]
    assert reason in record["refused"]["2"]
    assert sorted(record["clients"]) == ["0", "1"]
    two = Fleet(fleet.config, 2)
    two.run(rounds=1)
    spoilt, expected = load_file(tmp_path / "spoilt" / WEIGHTS), adapter(two)
    for name, x in spoilt.items():
        np.testing.assert_allclose(x, expected[name], atol=1e-7)


@pytest.mark.parametrize(
    "spoil",
    [
        no_reply,
        lambda r: without(r, "metrics"),
        lambda r: with_metric(r, loss=float("nan")),
        lambda r: with_metric(r, targets=0),
        lambda r: with_metric(r, targets=float("inf")),
    ],
)
def test_a_bad_loss_is_left_out(fleet: Fleet, spoil: Any) -> None:
    fleet.tamper_losses = lambda number, node, reply: spoil(reply) if node == 2 else reply
    record = fleet.run(rounds=1)[0]
    assert sorted(record["eval_clients"]) == ["0", "1"]
    low, high = sorted(record["eval_clients"].values())
    assert low < record["eval_loss"] < high


def test_two_updates_have_no_median(fleet: Fleet) -> None:
    """Nobody can tell which of them lies."""
    fleet.tamper = lambda number, node, reply: (
        no_reply(reply) if node == 1 else with_metric(reply, targets=1e6) if node == 2 else reply
    )
    assert sorted(fleet.run(rounds=1)[0]["clients"]) == ["0", "2"]


def test_adam_on_the_server(fleet: Fleet, bundle: Path, tmp_path: Path) -> None:
    """FedAdam's first step (arXiv 2003.00295), d the mean change: x + e (1 - beta1) d / (sqrt((1 - beta2) d^2) + tau),
    with eta as e, as Flower corrects it for moments that begin at 0."""
    fleet.run(rounds=1, out=str(tmp_path / "mean"))
    shutil.rmtree(tmp_path / "device0")
    fleet.run(rounds=1, **{"strategy.name": "fedadam", "strategy.tau": 1e-3})
    start, mean = load_file(bundle / WEIGHTS), load_file(tmp_path / "mean" / WEIGHTS)
    for name, x in adapter(fleet).items():
        d = (mean[name] - start[name]).astype(np.float64)
        eta = 0.01 * np.sqrt(1 - 0.99**2) / (1 - 0.9**2)
        expected = start[name] + eta * 0.1 * d / (np.sqrt(0.01 * d**2) + 1e-3)
        np.testing.assert_allclose(x, expected, atol=1e-6, err_msg=name)


def test_nobody_answers(fleet: Fleet, bundle: Path) -> None:
    """The adapter stays as it is, and the rounds go on."""
    fleet.tamper = lambda number, node, reply: no_reply(reply) if number == 1 else reply
    one, two = fleet.run()
    assert one["loss"] is None and len(one["refused"]) == 3 and len(two["clients"]) == 3
    assert one["eval_loss"] > two["eval_loss"]


def test_a_device_that_cannot_is_silent_about_why(fleet: Fleet, tmp_path: Path) -> None:
    """An error may quote a row."""
    (tmp_path / "rows1" / "train.jsonl").write_text('{"prompt": "secret", "wrong": "secret"}\n')
    record = fleet.run(rounds=1)[0]
    assert record["refused"] == {"1": "the device failed; see the device's own log"}


def test_robust_means(fleet: Fleet, tmp_path: Path) -> None:
    """A lie within what the checks let pass moves the median little, and the mean much."""
    far = {}
    for strategy in ("fedavg", "fedmedian"):
        honest, lied = (tmp_path / f"{strategy}-{x}" for x in ("honest", "lied"))
        fleet.tamper = lambda number, node, reply: reply
        fleet.run(rounds=1, **{"strategy.name": strategy}, out=str(honest))
        fleet.tamper = lambda number, node, reply: (
            with_arrays(reply, lambda t: {n: -9 * x for n, x in t.items()}) if node == 2 else reply
        )
        record = fleet.run(rounds=1, **{"strategy.name": strategy}, out=str(lied))[0]
        assert record["refused"] == {}
        a, b = load_file(honest / WEIGHTS), load_file(lied / WEIGHTS)
        far[strategy] = sum(float(np.square(a[name] - b[name]).sum()) for name in a)
    assert far["fedmedian"] < 0.1 * far["fedavg"]


@pytest.mark.parametrize("strategy", [{}, {"strategy.name": "fedadam", "strategy.eta": 0.01}])
def test_a_killed_server_goes_on(fleet: Fleet, tmp_path: Path, strategy: dict[str, Any]) -> None:
    """From the last round that ended, momenta too: the adapter is that of a run that was not killed."""
    fleet.config |= strategy
    fleet.run(rounds=3, out=str(tmp_path / "whole"))

    def kill(number: int, node: int, reply: Message) -> Message:
        if (number, node) == (3, 1):
            raise KeyboardInterrupt
        return reply

    fleet.tamper = kill
    with pytest.raises(KeyboardInterrupt):
        fleet.run(rounds=3)
    fleet.tamper, fleet.asked = lambda number, node, reply: reply, []
    records = fleet.run(rounds=3)
    assert [record["round"] for record in records] == [1, 2, 3]
    assert {number for number, _, _ in fleet.asked} == {3}
    whole = load_file(tmp_path / "whole" / WEIGHTS)
    for name, x in adapter(fleet).items():
        assert np.array_equal(x, whole[name]), name
    with pytest.raises(UserError, match="already has 3 rounds"):
        fleet.run(rounds=3)


@pytest.mark.parametrize("wire", ["float16", "int8"])
def test_smaller_updates(fleet: Fleet, tmp_path: Path, wire: str) -> None:
    exact = fleet.run(rounds=3, out=str(tmp_path / "exact"))[-1]
    small = fleet.run(rounds=3, wire=wire)[-1]
    assert small["bytes_up"] < {"float16": 0.57, "int8": 0.45}[wire] * exact["bytes_up"]
    assert small["eval_loss"] == pytest.approx(exact["eval_loss"], rel=5e-3)


PRIVACY = {
    "privacy.clipping-norm": 0.05,
    "privacy.noise-multiplier": 2.0,
    "privacy.devices": 3,
    "privacy.delta": 1e-3,
}


def test_learning_rates_decay_with_the_rounds(fleet: Fleet) -> None:
    """So devices move less and less."""
    records = fleet.run(rounds=4, **{"lr-scheduler": "cosine"})
    norms = [sum(c["norm"] for c in record["clients"].values()) for record in records]
    assert norms[3] < 0.4 * norms[0] and norms[0] > norms[1] > norms[2] > norms[3]


def test_privacy(fleet: Fleet, bundle: Path) -> None:
    """One device's change is cut to the norm, and the mean has noise of the stated size."""
    fleet.config |= PRIVACY
    record = fleet.run(rounds=1)[0]
    start, now = load_file(bundle / WEIGHTS), adapter(fleet)
    change = np.concatenate([(now[name] - x).ravel() for name, x in start.items()])
    assert np.std(change) == pytest.approx(2.0 * 0.05 / 3, rel=0.05)  # next to which the clipped mean is nothing
    assert record["epsilon"] == pytest.approx(1.8, rel=0.2)
    assert fleet.run(rounds=2)[-1]["epsilon"] > 1.3 * record["epsilon"]  # goes on counting after a restart


def test_privacy_ends_with_its_budget(fleet: Fleet, tmp_path: Path) -> None:
    """As a run does whose rounds are over."""
    fleet.config |= PRIVACY | {"privacy.max-epsilon": 2.0}
    assert 1 <= len(fleet.run(rounds=9)) < 9
    assert (tmp_path / "server-rounds.svg").exists()


@pytest.mark.parametrize("spoil", [no_reply, lambda r: with_arrays(r, lambda t: {n: 0 * x for n, x in t.items()})])
def test_privacy_needs_all_its_devices(fleet: Fleet, bundle: Path, spoil: Any) -> None:
    """A round with fewer changes nothing and costs nothing; the next one goes on."""
    fleet.config |= PRIVACY
    fleet.tamper = lambda number, node, reply: spoil(reply) if (number, node) == (1, 2) else reply
    one, two = fleet.run(rounds=2)
    assert one["clients"] == {} and one["epsilon"] == 0
    assert one["refused"]["0"] == "too few updates for DifferentialPrivacyServerSideFixedClipping"
    assert sorted(two["clients"]) == ["0", "1", "2"] and two["epsilon"] > 0


def test_privacy_takes_so_many_of_more_devices(fleet: Fleet) -> None:
    fleet.config |= PRIVACY | {"privacy.devices": 2}
    assert [len(record["clients"]) for record in fleet.run(rounds=2)] == [2, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strategy.name": "fedmagic"}, "strategy.name 'fedmagic': must be one of fedavg, fedsvd"),
        ({"strategy.beta": 1}, "strategy.beta: unknown argument; fedavg has fraction_train"),
        ({"lora-train": "a"}, "lora-train 'a': must be both or b"),
        ({"wire": "int4"}, "wire 'int4'"),
        ({"lr-scheduler": "linear"}, "lr-scheduler 'linear': must be constant or cosine"),
        ({"bundle": "/nowhere"}, "/nowhere"),
        ({"secure-aggregation": "true"}, "secure-aggregation is 'true'; it must be true or false, without quotes"),
        ({"strategy.name": "fedsvd", "lora-train": "b"}, "use fedavg, whose mean is exact"),
        ({"strategy.name": "fedsvd"} | PRIVACY, "must be fedavg, not FedSvd"),
        ({"privacy.noise-multiplier": 1.0}, "privacy.clipping-norm is not set"),
        (PRIVACY | {"privacy.epsilon": 1}, "privacy.epsilon: unknown setting; known:"),
        (PRIVACY | {"privacy.noise-multiplier": -1.0}, "should be a non-negative value"),
    ],
)
def test_settings_that_do_not_go(fleet: Fleet, change: dict[str, Any], message: str) -> None:
    fleet.config |= change
    with pytest.raises(UserError, match=message):
        fleet.run()


def test_a_folder_of_another_run(fleet: Fleet, bundle: Path) -> None:
    fleet.run(rounds=1)
    fleet.config["lora-train"] = "b"
    with pytest.raises(UserError, match="its run has lora-train 'both', not 'b'; choose another folder"):
        fleet.run()
    with pytest.raises(UserError, match=r"rounds\.jsonl: not readable"):
        fleet.run(out=str(bundle))
    fleet.config["lora-train"] = "both"
    with pytest.raises(UserError, match="its rounds were not differentially private"):
        fleet.run(**PRIVACY)
    rounds = Path(fleet.config["out"]) / "rounds.jsonl"
    whole = rounds.read_text()
    for text, message in (
        ("{", "not readable"),
        (whole + whole, "line 2 is not the record of round 2"),
        ("[]\n", "line 1 is not"),
    ):
        rounds.write_text(text)
        with pytest.raises(UserError, match=message):
            fleet.run()
    rounds.write_text(whole)
    (rounds.parent / "strategy.safetensors").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"strategy\.safetensors: not readable"):
        fleet.run()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bundle": None}, "bundle is not set"),
        ({"data": None}, "data is not set"),
        ({"folder": None}, "folder is not set"),
        ({"partition-id": None}, "only simulated devices have a {partition}; set bundle with --node-config"),
        ({"minutes": -1}, "minutes is -1"),
        ({"secure-aggregation": 1}, "secure-aggregation is 1; it must be true or false"),
        ({"train.lora-train": "b"}, "train.lora-train: is set by the server"),
        ({"train.resume": True}, "resume"),
        ({"train.seed": "x"}, "seed"),
    ],
)
def test_settings_of_a_device_that_do_not_go(config: dict[str, Any], change: dict[str, Any], message: str) -> None:
    values = config | {"bundle": "b{partition}", "partition-id": 1} | change
    context = Context(
        run_id=1,
        node_id=1,
        node_config=UserConfig({name: x for name, x in values.items() if x is not None}),
        state=RecordDict(),
        run_config=UserConfig(),
    )
    with pytest.raises(UserError, match=message):
        settings_of(context)


def test_a_device_without_settings(fleet: Fleet) -> None:
    """It says that it cannot, and the rounds go on without it."""
    config, fleet.config = fleet.config, {k: v for k, v in fleet.config.items() if k != "data"}
    run_rounds(cast(Grid, fleet), config | {"rounds": 1})
    assert len(read_records(Path(config["out"]))[0]["refused"]) == 3


def test_a_folder_of_another_frozen_matrix(fleet: Fleet) -> None:
    """B's that were learned with one A are of no use with another."""
    fleet.run(rounds=1, **{"lora-train": "b"})
    state = Path(fleet.config["out"]) / "strategy.safetensors"
    with safe_open(state, framework="numpy") as file:
        run = json.loads(file.metadata()["run"])
    save_file({}, state, metadata={"run": json.dumps(run | {"frozen": "0" * 64})})
    with pytest.raises(UserError, match="its run used a bundle with another LoRA A"):
        fleet.run(rounds=2, **{"lora-train": "b"})
