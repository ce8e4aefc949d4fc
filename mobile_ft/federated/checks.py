"""Checks the updates of a round and rejects those that the server must not aggregate."""

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

LARGEST_RATIO = 10.0  # of an update's norm, or its number of targets, to the round's median
FEWEST = 3  # fewest updates for which the median is compared


@dataclass(frozen=True)
class Update:
    """The update of one device, or the sum of several. `bytes` is the size of its file."""

    nodes: tuple[int, ...]  # several for a sum
    change: Tensors
    metrics: dict[str, float]
    bytes: int

    @property
    def name(self) -> str:
        """The name in records and logs."""
        return str(self.nodes[0]) if len(self.nodes) == 1 else f"sum of {len(self.nodes)}"

    @cached_property
    def norm(self) -> float:
        return math.sqrt(sum(float(np.square(x, dtype=np.float64).sum()) for x in self.change.values()))


def read_update(reply: Message, shapes: Shapes, one_sum: bool = False) -> Update:
    """Reads an update from a reply. `one_sum` means that it comes from `SumOfDevices` instead of a device.

    Raises UserError if the reply is damaged, has other tensors or shapes, or has values that are not finite.
    """
    if reply.has_error():
        raise UserError(reply.error.reason or "no reply")
    arrays, metrics = reply.content.get(ARRAYS), reply.content.get(METRICS)
    if not isinstance(arrays, ArrayRecord) or not isinstance(metrics, MetricRecord):
        raise UserError(f"the reply has no {ARRAYS} or no {METRICS}")
    try:
        values = {name: float(metrics[name]) for name in NAMES}  # type: ignore[arg-type]
        file = file_of(arrays)
    except (LookupError, ValueError, TypeError) as error:
        raise UserError(f"the reply is not from this program ({error})") from error
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0):
            raise UserError(f"{name} is {value}; it must be finite and not negative")
    if values["targets"] < 1:
        raise UserError("the update has no target tokens")
    nodes: tuple[int, ...] = (reply.metadata.src_node_id,)
    size = len(file)
    devices = reply.content.get(DEVICES)
    if isinstance(devices, ConfigRecord) and one_sum:
        nodes, size = tuple(cast(list[int], devices["nodes"])), cast(int, devices["bytes"])
    update = Update(nodes, decode(file, shapes), values, size)
    if update.norm == 0:  # it could not be clipped to a norm either
        raise UserError("the change is all zeros")
    return update


def usual(updates: list[Update], largest_ratio: float) -> tuple[list[Update], Mapping[str, str]]:
    """Returns the updates that are not far above the median, and the reason for each of the others, by name.

    Otherwise, one device that scales its update, or reports more targets than all others together, could determine the
    mean alone.
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
