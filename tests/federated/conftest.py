"""A fleet in this process: Flower's messages and strategies, without its network."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.app.user_config import UserConfig
from flwr.supercore.task_identity import TaskIdentity

from mobile_ft.federated import client_app
from mobile_ft.federated.server import run_rounds
from tests.small_bundle import TalkingModel, write_small_bundle

DEVICES = 3


class Fleet:
    """What a strategy sees of Flower's grid. `tamper(round, node, reply)` may return another reply, or raise."""

    def __init__(self, config: dict[str, Any], devices: int = DEVICES) -> None:
        self.config, self.devices = config, devices
        self.tamper: Callable[[int, int, Message], Message] = lambda number, node, reply: reply
        self.asked: list[tuple[int, str, int]] = []
        self._app = client_app()

    def get_node_ids(self) -> Iterable[int]:
        return range(self.devices)

    def send_and_receive(self, messages: Iterable[Message], timeout: float | None = None) -> list[Message]:
        replies = []
        for message in messages:
            node, number = message.metadata.dst_node_id, message.content["config"]["server-round"]
            self.asked.append((number, message.metadata.message_type, node))
            reply = self.act(message, node)
            if message.metadata.message_type == "train":
                reply = self.tamper(number, node, reply)
            reply.metadata.__dict__["_src_node_id"] = node
            replies.append(reply)
        return replies

    def act(self, message: Message, node: int) -> Message:
        context = Context(
            run_id=1,
            node_id=node,
            node_config=UserConfig({"partition-id": node}),
            state=RecordDict(),
            run_config=UserConfig(self.config),
        )
        return self._app(message, context)

    def run(self, **more: Any) -> list[dict[str, Any]]:
        """The rounds of the config; their records."""
        config = self.config | {name.replace("_", "-"): value for name, value in more.items()}
        run_rounds(self, config)  # type: ignore[arg-type]
        return json.loads((Path(config["out"]) / "rounds.json").read_text())["rounds"]


def no_reply(message: Message) -> Message:
    """As Flower answers for a device that is gone."""
    return Message(Error(3, "node unavailable"), reply_to=message)


@pytest.fixture(autouse=True)
def _identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's messages ask in whose name they are."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bundle(tmp_path_factory.mktemp("federated") / "bundle", TalkingModel)


@pytest.fixture
def config(bundle: Path, tmp_path: Path) -> dict[str, Any]:
    """Of three devices, the first of which has more to say than the others."""
    for device in range(DEVICES):
        folder = tmp_path / f"rows{device}"
        folder.mkdir()
        answer = "hello " * (4 if device == 0 else 2) + "abc"[device] * 4
        rows = [json.dumps({"prompt": f"say {i} {device}", "completion": f"{i} {answer}"}) for i in range(8)]
        (folder / "train.jsonl").write_text("\n".join(rows) + "\n")
        (folder / "valid.jsonl").write_text("\n".join(rows[:3]) + "\n")
    return {
        "bundle": str(bundle),
        "data": str(tmp_path / "rows{partition}"),
        "folder": str(tmp_path / "device{partition}"),
        "out": str(tmp_path / "server"),
        "rounds": 2,
        "train.steps": 4,
        "train.seq-len": 48,
        "train.lr": 1e-2,
    }


@pytest.fixture
def fleet(config: dict[str, Any]) -> Fleet:
    return Fleet(config)
