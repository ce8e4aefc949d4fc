"""Federated LoRA with any of Flower's strategies."""

import math
from collections.abc import Callable, Iterable
from logging import INFO, WARNING

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from mobile_ft.api.adapter import Tensors
from mobile_ft.errors import UserError
from mobile_ft.federated.checks import LARGEST_RATIO, Update, read_update, usual
from mobile_ft.federated.history import History
from mobile_ft.federated.messages import ARRAYS, METRICS, file_record
from mobile_ft.federated.wire import Wire, encode

WEIGHT = "weight"  # metric with an update's weight in the mean, which the inner strategy must use


class LoraStrategy(Strategy):
    """Sends the adapter, checks the updates, and passes them to `inner` for aggregation.

    `inner` is a strategy of flwr.serverapp.strategy, or FedSvd, with `weighted_by_key=WEIGHT`. It receives the trained
    tensors of each device in float32. Updates that are damaged, have other shapes, are not finite, or are far above the
    median are rejected before. Devices are weighted by their number of targets, or equally with `equal_weights`, which
    differential privacy requires. `one_sum` means that the grid is `SumOfDevices`. `lr_factor` returns the factor of
    the devices' learning rates for a round. The result of a round is saved before the next one starts.
    """

    def __init__(
        self,
        inner: Strategy,
        history: History,
        *,
        lora_train: str = "both",
        wire: Wire = "float32",
        proximal_mu: float = 0.0,
        equal_weights: bool = False,
        largest_ratio: float = LARGEST_RATIO,
        one_sum: bool = False,
        lr_factor: Callable[[int], float] = lambda number: 1.0,
    ) -> None:
        self._inner, self._history = inner, history
        self._config: dict[str, str | float] = {
            "lora-train": lora_train,
            "wire": wire,
            "proximal-mu": float(proximal_mu),
        }
        self._equal_weights, self._largest_ratio, self._one_sum = equal_weights, largest_ratio, one_sum
        self._lr_factor = lr_factor
        self._before = history.rounds  # rounds of earlier runs, after which this one continues
        self._arrays: Tensors = {}  # tensors at the start of the current round
        self._asked: set[int] = set()  # devices of the current request
        history.restore(inner)

    def run(self, grid: Grid, rounds: int, timeout: float) -> Result:
        """Runs up to round `rounds`, including those of earlier runs. Devices have `timeout` seconds per round."""
        left = rounds - self._before
        if left < 1:
            raise UserError(f"{self._history.folder}: already has {self._before} rounds; raise rounds to continue")
        return self.start(grid, _record(self._history.adapter), left, timeout)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._arrays = {name: array.numpy() for name, array in arrays.items()}
        return self._with_file(self._inner.configure_train, server_round, arrays, config, grid)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self._with_file(self._inner.configure_evaluate, server_round, arrays, config, grid)

    def _with_file(
        self,
        configure: Callable[[int, ArrayRecord, ConfigRecord, Grid], Iterable[Message]],
        server_round: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        grid: Grid,
    ) -> list[Message]:
        """Returns the messages of `inner`, with the adapter as a file."""
        number = self._before + server_round
        for name, value in self._config.items():
            config[name] = value
        config["lr-factor"] = self._lr_factor(number)
        config["frozen"] = self._history.frozen
        messages = list(configure(number, arrays, config, grid))
        file = encode({name: array.numpy() for name, array in arrays.items()}, "float32")
        record = file_record(file)
        for message in messages:
            message.content[ARRAYS] = record
        self._asked = {message.metadata.dst_node_id for message in messages}
        self._history.sent(number, len(file) * len(messages))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        number = self._before + server_round
        taken = self._checked(list(replies))
        arrays: ArrayRecord | None = None
        if taken:
            arrays, _ = self._inner.aggregate_train(number, [self._decoded(reply, update) for reply, update in taken])
        for _, update in taken:
            if arrays is None:
                self._history.refused(update.name, f"too few updates for {type(self._inner).__name__}")
            else:
                self._history.taken(update)
        if arrays is None:
            log(WARNING, "round %d: no update; the adapter stays as it is", number)
        else:
            tensors = {name: np.asarray(array.numpy(), np.float32) for name, array in arrays.items()}
            if not all(np.isfinite(x).all() for x in tensors.values()):
                raise UserError(f"round {number}: {type(self._inner).__name__} returned values that are not finite")
            self._history.adapter, arrays = tensors, _record(tensors)
        self._history.end_round(number, self._inner)
        return arrays, None

    def _checked(self, replies: list[Message]) -> list[tuple[Message, Update]]:
        shapes = {name: x.shape for name, x in self._arrays.items()}
        updates: dict[str, tuple[Message, Update]] = {}
        missing = set(self._asked)
        for reply in replies:
            node = reply.metadata.src_node_id
            if node not in self._asked:  # the SuperLink, for a device that has disconnected
                continue
            try:
                update = read_update(reply, shapes, self._one_sum)
                updates[update.name] = (reply, update)
                missing -= set(update.nodes)
            except UserError as error:
                missing.discard(node)
                self._history.refused(str(node), str(error))
        for node in missing:
            self._history.refused(str(node), "no reply in time")
        taken, refused = usual([update for _, update in updates.values()], self._largest_ratio)
        for name, reason in refused.items():
            self._history.refused(name, reason)
        # In a fixed order, because sums of floats depend on it.
        return [updates[update.name] for update in sorted(taken, key=lambda update: update.nodes)]

    def _decoded(self, reply: Message, update: Update) -> Message:
        tensors = {name: x + update.change[name] for name, x in self._arrays.items()}
        weight = 1.0 if self._equal_weights else update.metrics["targets"]
        reply.content = RecordDict({ARRAYS: _record(tensors), METRICS: MetricRecord({WEIGHT: weight})})
        return reply

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Returns the mean loss over all targets, and records each device's loss in the history."""
        losses: dict[int, tuple[float, float]] = {}
        for reply in replies:
            found = None if reply.has_error() else reply.content.get(METRICS)
            try:
                loss, targets = float(found["loss"]), float(found["targets"])  # type: ignore[index,arg-type]
                if math.isfinite(loss) and 0 < targets < math.inf:
                    losses[reply.metadata.src_node_id] = (loss, targets)
            except (LookupError, ValueError, TypeError):
                pass
        for node in self._asked - set(losses):
            log(WARNING, "device %d: no held-out loss", node)
        mean = self._history.end_evaluation(losses, self._inner)
        return None if mean is None else MetricRecord({"loss": mean})

    def summary(self) -> None:
        for name, value in self._config.items():
            log(INFO, "\t├── %s: %s", name, value)
        self._inner.summary()


def _record(tensors: Tensors) -> ArrayRecord:
    return ArrayRecord({name: Array(x) for name, x in tensors.items()})
