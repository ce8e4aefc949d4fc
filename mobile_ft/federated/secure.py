"""Secure aggregation: the server learns the weighted mean of a round's changes, but no single change.

It uses Flower's SecAgg+ (Bell et al., eprint 2020/704). Devices add masks to their changes, in fixed point, which
cancel out in the sum. If a device drops out, its masks are reconstructed from shares that other devices have. The
server still sees each device's metrics, such as time, loss and number of targets. The protocol protects against a
server that follows it and inspects all messages. It does not protect against a server that adds devices of its own,
because the server distributes the keys. Keys of the run config:

    secure-aggregation        true or false; a device with true in its node config never sends an individual change
    secure.threshold          fraction of the devices that must complete a round
    secure.max-targets        maximum number of targets of a device; precision is lost if it is far too high
    secure.clipping-range     values of a change, times targets / max-targets, are clipped to this range (plus and
                              minus) and rounded to 22 bits
"""

from collections.abc import Callable, Iterable, Mapping
from logging import WARNING
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict, UserConfig
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Parameters, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, RECORD_KEY_STATE, Key, Stage
from flwr.compat.common import recorddict_compat as compat
from flwr.server import LegacyContext
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.server.workflow.secure_aggregation.secaggplus_workflow import WorkflowState
from flwr.serverapp import Grid
from flwr.supercore import log
from safetensors.numpy import load

from mobile_ft.errors import UserError
from mobile_ft.federated.messages import ARRAYS, CONFIG, DEVICES, METRICS, file_of, file_record, read_round
from mobile_ft.federated.round import Reply, Round
from mobile_ft.federated.wire import encode

_DEFAULTS = {"threshold": 0.5, "clipping-range": 0.5, "max-targets": 10_000.0}


# --- The device's side -------------------------------------------------------------------------


def asks_for_sum(message: Message) -> bool:
    """Whether a message is one of the protocol's four messages per round."""
    return RECORD_KEY_CONFIGS in message.content


def add_to_sum(message: Message, context: Context, train: Callable[[Round], Reply]) -> RecordDict:
    """Answers a message of the protocol. `train` is called for one of a round's messages. Raises UserError if the
    server's sum would consist of this device's change alone."""
    _check_asked(message.content.config_records[RECORD_KEY_CONFIGS])

    def masked(message: Message, context: Context) -> Message:
        asked = compat.recorddict_to_fitins(message.content, keep_input=True)
        config = ConfigRecord({**asked.config})
        wanted = read_round(RecordDict({ARRAYS: file_record(asked.parameters.tensors[0]), CONFIG: config}))
        if wanted.wire != "float32":
            raise UserError(
                f"wire is {wanted.wire}; secure aggregation requires float32, because it has its own fixed-point format"
            )
        reply = train(wanted)
        change = load(reply.change)
        arrays = [change[name].astype(np.float64) for name in sorted(change)]
        most = int(cast(float, context.state.config_records[RECORD_KEY_STATE][Key.MAX_WEIGHT]))
        targets = min(round(reply.metrics["targets"]), most)
        metrics = reply.metrics | {"targets": targets}
        result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(arrays), targets, {**metrics})
        return Message(compat.fitres_to_recorddict(result, keep_input=True), reply_to=message)

    return secaggplus_mod(message, context, masked).content


def _check_asked(asked: ConfigRecord) -> None:
    """Raises UserError if the request would reveal this device's change."""
    of = cast(dict[str, Any], asked)
    if asked[Key.STAGE] == Stage.SETUP and min(of[Key.SAMPLE_NUMBER], of[Key.SHARE_NUMBER], of[Key.THRESHOLD]) < 2:
        raise UserError("the server requests a sum of fewer than two devices")
    if asked[Key.STAGE] == Stage.SHARE_KEYS and len(of) < 3:  # the stage, and a pair of keys per device
        raise UserError("the server lists no other device to share secrets with")
    if asked[Key.STAGE] == Stage.UNMASK and set(of[Key.ACTIVE_NODE_ID_LIST]) & set(of[Key.DEAD_NODE_ID_LIST]):
        raise UserError("the server requests both secrets of a device")


# --- The server's side ------------------------------------------------------------------------------


class SumOfDevices:
    """A grid that replaces the replies to training by one: the weighted mean of the changes."""

    def __init__(self, grid: Grid, names: Iterable[str], config: Mapping[str, Any]) -> None:
        """`names` are those of the trained tensors. Raises UserError if a setting is unknown."""
        given = {k.removeprefix("secure."): v for k, v in config.items() if k.startswith("secure.")}
        for key in given:
            if key not in _DEFAULTS:
                raise UserError(f"secure.{key}: unknown setting; known: {', '.join(_DEFAULTS)}")
        self._grid, self._names, self._settings = grid, sorted(names), _DEFAULTS | given
        self._bytes = 0

    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        asked = list(messages)
        if not asked or asked[0].metadata.message_type != MessageType.TRAIN:
            return self._grid.send_and_receive(asked, timeout=timeout)
        try:
            workflow = _Workflow(
                1.0,  # each device's secrets are shared among all devices
                float(self._settings["threshold"]),
                max_weight=float(self._settings["max-targets"]),
                clipping_range=float(self._settings["clipping-range"]),
                timeout=timeout,
            )
        except ValueError as error:
            raise UserError(f"secure: {error}") from error
        strategy = _OneRound(asked)
        number = cast(int, asked[0].content.config_records[CONFIG]["server-round"])
        context = LegacyContext(Context(0, 0, UserConfig(), RecordDict(), UserConfig()), strategy=strategy)
        context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: number})
        context.state.array_records[MAIN_PARAMS_RECORD] = file_record(b"")
        self._bytes = 0
        try:
            workflow(cast(Grid, SimpleNamespace(send_and_receive=self._counted)), context)
            return [self._mean(asked[0], strategy.results)] if strategy.results else []
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
            # A reply violated the protocol. Its device, and the sum of the others, cannot be determined.
            log(WARNING, "the round is lost: %s: %s", type(error).__name__, error)
            return []

    def _counted(self, messages: Iterable[Message], timeout: float | None = None) -> list[Message]:
        replies = list(self._grid.send_and_receive(messages, timeout=timeout))
        for reply in replies:
            if reply.has_content():
                masked = reply.content.config_records[RECORD_KEY_CONFIGS].get(Key.MASKED_PARAMETERS, [])
                self._bytes += sum(map(len, cast(list[bytes], masked)))
        return replies

    def _mean(self, message: Message, results: list[tuple[Any, FitRes]]) -> Message:
        """Returns the mean in the form of one device's reply."""
        arrays = parameters_to_ndarrays(results[0][1].parameters)  # the same for all: the unmasked sum
        mean = {name: x.astype(np.float32) for name, x in zip(self._names, arrays, strict=True)}
        of = [cast(dict[str, float], result.metrics) for _, result in results]
        targets = sum(x["targets"] for x in of)
        metrics = {
            "steps": sum(x["steps"] for x in of),
            "targets": targets,
            "loss": sum(x["targets"] * x["loss"] for x in of) / targets,
            "seconds": max(x["seconds"] for x in of),
            "peak_anon_mb": max(x["peak_anon_mb"] for x in of),
        }
        devices = ConfigRecord({"nodes": [proxy.node_id for proxy, _ in results], "bytes": self._bytes})
        change = file_record(encode(mean, "float32"))
        content = RecordDict({ARRAYS: change, METRICS: MetricRecord({**metrics}), DEVICES: devices})
        return Message(content, reply_to=message)


class _Workflow(SecAggPlusWorkflow):
    """Flower's workflow, changed so that a round survives a device that never shared its secrets.

    Flower removes the masks of all requested devices. Devices that did not answer one of the first two messages have no
    masks in the sum, and no secrets with which to remove them.
    """

    def share_keys_stage(self, grid: Grid, context: LegacyContext, state: WorkflowState) -> bool:
        enough = super().share_keys_stage(grid, context, state)
        there = set(state.active_node_ids)
        state.sampled_node_ids = there
        state.nid_to_neighbours = {node: state.nid_to_neighbours[node] & there for node in there}
        return enough


class _OneRound(LegacyFedAvg):
    """The strategy that SecAggPlusWorkflow calls: it defines the messages, and collects the result."""

    def __init__(self, messages: list[Message]) -> None:
        super().__init__()
        self._messages = messages
        self.results: list[tuple[Any, FitRes]] = []

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: Any) -> list[tuple[Any, FitIns]]:
        return [
            (
                SimpleNamespace(node_id=message.metadata.dst_node_id),
                FitIns(
                    Parameters([file_of(message.content.array_records[ARRAYS])], "safetensors"),
                    cast(dict[str, Any], {**message.content.config_records[CONFIG]}),
                ),
            )
            for message in self._messages
        ]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> tuple[None, dict[str, Any]]:
        self.results = results
        return None, {}
