"""A fleet in this process: Flower's messages and strategies without its network, for tests and benchmarks."""

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

from flwr.app import Context, Error, Message, RecordDict
from flwr.app.user_config import UserConfig
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from mobile_ft.federated import client_app
from mobile_ft.federated.server import run_rounds

UNAVAILABLE = 3  # of Flower's errors: a device is gone, as the SuperLink tells in its own name
SUPERLINK = -1


class Fleet:
    """What a strategy sees of Flower's grid.

    `tamper(round, node, reply)` may return another reply to training or none, or raise; `tamper_losses` another one to
    an evaluation.
    """

    def __init__(self, config: dict[str, Any], devices: int, jobs: int = 1) -> None:
        self.config, self.devices, self.jobs = config, devices, jobs
        self.tamper: Callable[[int, int, Message], Message | None] = lambda number, node, reply: reply
        self.tamper_losses: Callable[[int, int, Message], Message] = lambda number, node, reply: reply
        self.asked: list[tuple[int, str, int]] = []
        self._app = client_app()
        self._contexts: dict[int, Context] = {}
        for name in ("_task_id", "_run_id", "_node_id"):  # in whose name messages are made
            setattr(TaskIdentity, name, 1)

    def get_node_ids(self) -> Iterable[int]:
        return range(self.devices)

    def send_and_receive(self, messages: Iterable[Message], timeout: float | None = None) -> list[Message]:
        with ThreadPoolExecutor(self.jobs) as pool:
            return [reply for reply in pool.map(self._reply, messages) if reply is not None]

    def _reply(self, message: Message) -> Message | None:
        node = message.metadata.dst_node_id
        config = message.content.config_records.get("config")
        number = 0 if config is None else cast(int, config["server-round"])
        self.asked.append((number, message.metadata.message_type, node))
        given = self._act(message, node)
        reply: Message | None
        if message.metadata.message_type == "train":
            reply = self.tamper(number, node, given)
        else:
            reply = self.tamper_losses(number, node, given)
        if reply is not None:
            gone = reply.has_error() and reply.error.code == UNAVAILABLE
            reply.metadata.__dict__["_src_node_id"] = SUPERLINK if gone else node
        return reply

    def _act(self, message: Message, node: int) -> Message:
        message.content = deepcopy(message.content)  # as sent: devices may change theirs
        if node not in self._contexts:
            self._contexts[node] = Context(
                run_id=1,
                node_id=node,
                node_config=UserConfig({"partition-id": node}),
                state=RecordDict(),
                run_config=UserConfig(self.config),
            )
        try:
            return self._app(message, self._contexts[node])
        except Exception as error:  # as a SuperNode does
            return Message(Error(2, repr(error)), reply_to=message)

    def run(self, **more: Any) -> list[dict[str, Any]]:
        """The rounds of the config; their records."""
        config = self.config | {name.replace("_", "-"): value for name, value in more.items()}
        run_rounds(cast(Grid, self), config)
        return read_records(Path(config["out"]))


def read_records(out: Path) -> list[dict[str, Any]]:
    """Of the rounds that the server left there."""
    return [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]


def no_reply(message: Message) -> Message:
    """As Flower answers for a device that is gone."""
    return Message(Error(UNAVAILABLE, "node unavailable"), reply_to=message)
