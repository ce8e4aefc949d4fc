"""Secure aggregation: the same mean, of which the server sees the sum alone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.app.user_config import UserConfig
from safetensors.numpy import load_file

from mobile_ft.errors import UserError
from mobile_ft.federated.secure import add_to_sum
from tests.federated.fleet import Fleet, no_reply

WEIGHTS = "adapter_model.safetensors"
# 22 bits of -1 to 1, rounded by each of the devices, of changes that are multiplied by their share of the most targets.
ROUNDING = 3e-6


@pytest.fixture
def secure(fleet: Fleet) -> Fleet:
    fleet.config |= {
        "secure-aggregation": True,
        "secure.threshold": 0.5,
        "secure.clipping-range": 1.0,
        "secure.max-targets": 100,
    }
    return fleet


def adapter(fleet: Fleet) -> dict[str, np.ndarray]:
    return load_file(Path(fleet.config["out"]) / WEIGHTS)


@pytest.mark.parametrize("lora_train", ["both", "b"])
def test_it_is_the_mean(secure: Fleet, tmp_path: Path, lora_train: str) -> None:
    secure.config["lora-train"] = lora_train
    record = secure.run(rounds=1)[0]
    assert list(record["clients"]) == ["sum of 3"] and record["refused"] == {}
    plain = Fleet(secure.config | {"secure-aggregation": False, "folder": str(tmp_path / "plain{partition}")}, 3)
    expected = plain.run(rounds=1, out=str(tmp_path / "open"))[0]
    assert record["targets"] == expected["targets"]
    assert record["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    for name, x in load_file(tmp_path / "open" / WEIGHTS).items():
        np.testing.assert_allclose(adapter(secure)[name], x, atol=ROUNDING, err_msg=name)


def test_no_reply_holds_a_change(secure: Fleet, tmp_path: Path) -> None:
    """What is sent looks like noise: masked numbers use all of their 32 bits, whatever was learned."""
    seen: list[bytes] = []

    def watch(number: int, node: int, reply: Message) -> Message:
        for config in reply.content.config_records.values():
            masked = cast(list[bytes], config.get("masked_params", []))
            seen.extend(x for x in masked if len(x) > 1000)
        assert not any(len(record) for record in reply.content.array_records.values())
        return reply

    secure.tamper = watch
    secure.run(rounds=1)
    assert len(seen) > 30
    from flwr.common import bytes_to_ndarray

    for data in seen:
        values = bytes_to_ndarray(data).astype(np.float64) / 2**32
        # Of even noise 0.5 and 0.289, and of the 128 numbers of the smallest both are eight standard errors within.
        assert 0.3 < values.mean() < 0.7 and values.std() > 0.2


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_device_drops_out(secure: Fleet, tmp_path: Path, stage: int) -> None:
    """Before it sent its part, the others' mean is what is left; after that, its part stays in."""
    calls: dict[int, int] = {}

    def drop(number: int, node: int, reply: Message) -> Message:
        calls[node] = calls.get(node, 0) + 1
        return no_reply(reply) if node == 2 and calls[node] > stage else reply

    secure.tamper = drop
    record = secure.run(rounds=1)[0]
    left = 3 if stage == 3 else 2
    assert list(record["clients"]) == [f"sum of {left}"]
    assert list(record["refused"]) == ([] if stage == 3 else ["2"])
    others = Fleet(secure.config | {"secure-aggregation": False, "folder": str(tmp_path / "plain{partition}")}, left)
    others.run(rounds=1, out=str(tmp_path / "open"))
    for name, x in load_file(tmp_path / "open" / WEIGHTS).items():
        np.testing.assert_allclose(adapter(secure)[name], x, atol=ROUNDING, err_msg=name)


@pytest.mark.parametrize("exchanges", [0, 1, 2])
def test_too_few_stay(secure: Fleet, bundle: Path, exchanges: int) -> None:
    calls: dict[int, int] = {}

    def drop(number: int, node: int, reply: Message) -> Message:
        calls[node] = calls.get(node, 0) + 1
        return no_reply(reply) if node > 0 and calls[node] > exchanges else reply

    secure.tamper = drop
    record = secure.run(rounds=1)[0]
    assert record["clients"] == {} and len(record["refused"]) == 3
    for name, x in load_file(bundle / WEIGHTS).items():
        assert np.array_equal(adapter(secure)[name], x)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda values: values.clear(),
        lambda values: values.update({name: [x[0][:40]] for name, x in values.items() if name == "masked_params"}),
        lambda values: values.update({name: x[:1] for name, x in values.items() if name == "masked_params"}),
    ],
)
def test_a_reply_that_is_not_of_the_protocol(secure: Fleet, bundle: Path, spoil: Any) -> None:
    """The round is lost, since nobody can tell what the others' sum is, and the next one goes on."""

    def tamper(number: int, node: int, reply: Message) -> Message:
        config = reply.content.config_records["secaggplus_configs"]
        if node == 2 and rounds.count(1) < 3 and "masked_params" in config:
            spoil(config)
        rounds.append(int("masked_params" in config))
        return reply

    rounds: list[int] = []
    secure.tamper = tamper
    one, two = secure.run(rounds=2)
    assert one["clients"] == {} and two["clients"].keys() == {"sum of 3"}


def test_a_device_counts_for_no_more_than_it_may(secure: Fleet) -> None:
    record = secure.run(rounds=1, **{"secure.max-targets": 10})[0]
    assert record["targets"] == 30


@pytest.mark.parametrize(
    ("stage", "change", "message"),
    [
        ("setup", {"sample_num": 1}, "a sum of fewer than two devices"),
        ("setup", {"threshold": 1}, "a sum of fewer than two devices"),
        ("setup", {"share_num": 1}, "a sum of fewer than two devices"),
        ("share_keys", {}, "no other device"),
        ("unmask", {"active_nids": [1, 2], "dead_nids": [2]}, "both secrets of a device"),
    ],
)
def test_a_server_that_wants_one_change(stage: str, change: dict[str, Any], message: str) -> None:
    asked = {"sample_num": 3, "share_num": 3, "threshold": 2} if stage == "setup" else {}
    content = RecordDict({"secaggplus_configs": ConfigRecord({"stage": stage} | asked | change)})
    context = Context(run_id=1, node_id=1, node_config=UserConfig(), state=RecordDict(), run_config=UserConfig())
    message_of_it: Any = SimpleNamespace(content=content)
    with pytest.raises(UserError, match=message):
        add_to_sum(message_of_it, context, lambda wanted: pytest.fail("trained"))


def test_a_device_that_insists(secure: Fleet) -> None:
    """A server that asks for its change alone gets none."""
    record = secure.run(rounds=1, **{"secure-aggregation": False})[0]
    assert record["clients"] == {} and len(record["refused"]) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strategy.name": "fedsvd"}, "strategy.name fedsvd: not supported with secure-aggregation"),
        ({"strategy.name": "fedmedian"}, "strategy.name fedmedian: not supported with secure-aggregation"),
        ({"wire": "int8"}, "wire int8: not supported with secure-aggregation"),
        ({"largest-ratio": 5.0}, "largest-ratio: not supported with secure-aggregation"),
        (
            {
                "privacy.noise-multiplier": 1.0,
                "privacy.clipping-norm": 1.0,
                "privacy.devices": 3,
                "privacy.delta": 1e-3,
            },
            "privacy: not supported with secure-aggregation",
        ),
        ({"secure.shares": 3}, "secure.shares: unknown setting; known: threshold, clipping-range, max-targets"),
        ({"secure.threshold": 2.0}, "secure: .*threshold"),
    ],
)
def test_what_needs_single_changes(secure: Fleet, change: dict[str, Any], message: str) -> None:
    secure.config |= change
    with pytest.raises(UserError, match=message):
        secure.run()
