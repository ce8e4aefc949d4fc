"""Converts rounds to and from Flower's messages.

A request to train or evaluate has ARRAYS, the adapter as a safetensors file, and CONFIG, the training settings. A reply
has ARRAYS, the change, and METRICS; the reply of an evaluation has only METRICS. A reply that is the sum of several
devices lists them in DEVICES.
"""

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from mobile_ft.errors import UserError
from mobile_ft.federated.round import Round
from mobile_ft.federated.wire import wire_of

ARRAYS, CONFIG, METRICS, DEVICES = "arrays", "config", "metrics", "devices"
_FILE = "file"


def file_record(data: bytes) -> ArrayRecord:
    """Wraps a safetensors file for Flower, in chunks if it is large."""
    return ArrayRecord({_FILE: Array("uint8", (len(data),), "safetensors", data)})


def file_of(record: ArrayRecord) -> bytes:
    """Returns the safetensors file in a record. Raises LookupError if it has none."""
    array = record[_FILE]
    if array.stype != "safetensors":
        raise LookupError(f"{_FILE} is {array.stype}, not safetensors")
    return array.data


def read_round(content: RecordDict) -> Round:
    """Reads a server's request. Raises UserError if the message is not from this program's server."""
    config, arrays = content.get(CONFIG), content.get(ARRAYS)
    if not isinstance(config, ConfigRecord) or not isinstance(arrays, ArrayRecord):
        raise UserError(f"the server's message has no {CONFIG} or no {ARRAYS}")
    try:
        return Round(
            int(config["server-round"]),  # type: ignore[arg-type]
            file_of(arrays),
            str(config["lora-train"]),
            float(config["proximal-mu"]),  # type: ignore[arg-type]
            wire_of(str(config["wire"])),
            float(config["lr-factor"]),  # type: ignore[arg-type]
            str(config["frozen"]),
        )
    except (LookupError, ValueError, TypeError) as error:
        raise UserError(f"the server's message is not from this program ({error})") from error
