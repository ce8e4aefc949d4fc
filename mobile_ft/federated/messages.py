"""What rounds are as Flower's messages.

To train or to evaluate: ARRAYS, the adapter as a safetensors file, and CONFIG, how to train. Back come ARRAYS, the
change, and METRICS; of an evaluation METRICS alone. A reply that is the sum of several devices' names them in DEVICES.
"""

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from mobile_ft.errors import UserError
from mobile_ft.federated.round import Round
from mobile_ft.federated.wire import wire_of

ARRAYS, CONFIG, METRICS, DEVICES = "arrays", "config", "metrics", "devices"
_FILE = "file"


def file_record(data: bytes) -> ArrayRecord:
    """A safetensors file as Flower carries it, in chunks where it is large."""
    return ArrayRecord({_FILE: Array("uint8", (len(data),), "safetensors", data)})


def file_of(record: ArrayRecord) -> bytes:
    """Raises LookupError where the record holds none."""
    array = record[_FILE]
    if array.stype != "safetensors":
        raise LookupError(f"{_FILE} is {array.stype}, not safetensors")
    return array.data


def read_round(content: RecordDict) -> Round:
    """What a server asks for. Raises UserError where the message is not one of this program's server."""
    config, arrays = content.get(CONFIG), content.get(ARRAYS)
    if not isinstance(config, ConfigRecord) or not isinstance(arrays, ArrayRecord):
        raise UserError(f"the server's message lacks {CONFIG} or {ARRAYS}")
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
        raise UserError(f"the server's message is not one of this program ({error})") from error
