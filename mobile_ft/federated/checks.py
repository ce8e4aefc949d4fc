"""Which of a round's updates the server takes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord

from mobile_ft.api.adapter import Tensors
from mobile_ft.errors import UserError
from mobile_ft.federated.messages import ARRAYS, DEVICES, METRICS, file_of
from mobile_ft.federated.round import METRICS as NAMES
from mobile_ft.federated.wire import Shapes, decode

LARGEST_RATIO = 10.0  # of an update's norm, or its targets, to the median of the round's
FEWEST = 3  # updates whose median says what is usual


@dataclass(frozen=True)
class Update:
    """What one device sent, or several together. `bytes` of the file."""

    nodes: tuple[int, ...]  # more than one of a sum
    change: Tensors
    metrics: dict[str, float]
    bytes: int

    @property
    def name(self) -> str:
        """For records."""
        return str(self.nodes[0]) if len(self.nodes) == 1 else f"sum of {len(self.nodes)}"

    @cached_property
    def norm(self) -> float:
        return math.sqrt(sum(float(np.square(x, dtype=np.float64).sum()) for x in self.change.values()))


def read_update(reply: Message, shapes: Shapes, one_sum: bool = False) -> Update:
    """`one_sum`: it comes of `SumOfDevices`, not of a device.

    Raises UserError where the reply is not an update of such tensors: damaged, of other shapes, not finite.
    """
    if reply.has_error():
        raise UserError(reply.error.reason or "no reply")
    arrays, metrics = reply.content.get(ARRAYS), reply.content.get(METRICS)
    if not isinstance(arrays, ArrayRecord) or not isinstance(metrics, MetricRecord):
        raise UserError(f"the reply lacks {ARRAYS} or {METRICS}")
    try:
        values = {name: float(metrics[name]) for name in NAMES}  # type: ignore[arg-type]
        file = file_of(arrays)
    except (LookupError, ValueError, TypeError) as error:
        raise UserError(f"the reply is not one of this program ({error})") from error
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0):
            raise UserError(f"{name} is {value}")
    if values["targets"] < 1:
        raise UserError("nothing was learned from")
    nodes: tuple[int, ...] = (reply.metadata.src_node_id,)
    size = len(file)
    devices = reply.content.get(DEVICES)
    if isinstance(devices, ConfigRecord) and one_sum:
        nodes, size = tuple(cast(list[int], devices["nodes"])), cast(int, devices["bytes"])
    update = Update(nodes, decode(file, shapes), values, size)
    if update.norm == 0:  # nor could it be clipped to a norm
        raise UserError("the change is all zeros")
    return update


def usual(updates: list[Update], largest_ratio: float) -> tuple[list[Update], Mapping[str, str]]:
    """Those that are not far beyond the median, and of the others why, by name.

    One device that scales its update, or says that it has more targets than all others together, could otherwise make
    the mean its own.
    """
    if len(updates) < FEWEST:
        return updates, {}
    taken, refused = updates, {}
    for what, value in (("norm", lambda u: u.norm), ("targets", lambda u: u.metrics["targets"])):
        most = largest_ratio * median(value(u) for u in updates)
        for update in taken:
            if value(update) > most:
                refused[update.name] = f"{what} {value(update):.4g}, more than {largest_ratio:g} times the median"
        taken = [u for u in taken if u.name not in refused]
    return taken, refused
