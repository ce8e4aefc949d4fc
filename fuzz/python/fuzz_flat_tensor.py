"""The index of weights.ptd, through `mobile-ft info --verify`; checksums are those of what is there."""

import hashlib
import json
from pathlib import Path

from fuzz.python.fuzz_bundle_json import NO_TENSORS, NO_TENSORS_SUM, description
from mobile_ft.api.info import info
from mobile_ft.bundle.flat_tensor import tensor_places
from mobile_ft.model.lora import WEIGHTS_FILE as ADAPTER
from tests.small_index import index


def seeds() -> list[bytes]:
    return [index(names, places).ljust(4112, b"\0") for names, places in (("a", [(0, 8)]), ("ab", [(0, 3), (4, 8)]))]


def run(data: bytes, folder: Path) -> None:
    (folder / "weights.ptd").write_bytes(data)
    (folder / ADAPTER).write_bytes(NO_TENSORS)
    try:
        places = tensor_places(data)
    except ValueError:
        places = {}
    sums = {name: hashlib.sha256(data[start : start + size]).hexdigest() for name, (start, size) in places.items()}
    weights = {"size": len(data), "index_size": len(data), "index_sha256": hashlib.sha256(data).hexdigest()}
    checked = {"checksums": {ADAPTER: NO_TENSORS_SUM}, "weights": weights | {"sha256": sums}}
    values = description() | checked
    (folder / "bundle.json").write_text(json.dumps(values))
    info(folder, verify=True)
