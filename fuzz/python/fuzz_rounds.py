"""What a federated run left on the server: rounds.jsonl, NUL, parts of strategy.safetensors; and on a device: the same
parts as its last reply."""

import functools
import json
import tempfile
from pathlib import Path

import numpy as np
from flwr.serverapp.strategy import FedAdam
from safetensors.numpy import save

from fuzz.python.safetensors_parts import put_together, take_apart
from mobile_ft.bundle.description import Bundle, read_bundle
from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.source.random_init import RandomModel
from mobile_ft.federated.history import ROUNDS_FILE, STATE_FILE, History
from mobile_ft.federated.round import METRICS, frozen_digest, own_adapter, read_sent, trained_tensors
from mobile_ft.federated.strategy import WEIGHT
from mobile_ft.model.lora import LoraConfig, write_adapter
from tests.small_bundle import CONFIG


@functools.cache
def _bundle() -> Bundle:
    folder = Path(tempfile.mkdtemp()) / "bundle"
    write_bundle(RandomModel(CONFIG, 0), LoraConfig(1, 2.0, ("k_proj",)), 64, 0, folder)
    return read_bundle(folder)


def seeds() -> list[bytes]:
    record = {
        "round": 1,
        "loss": 2.0,
        "targets": 5,
        "clients": {"1": {"loss": 2.0}},
        "refused": {"2": "no reply in time"},
    }
    rounds = json.dumps(record).encode() + b"\n"
    tensors = trained_tensors(own_adapter(_bundle()), "b")
    run = json.dumps({"lora_train": "b", "frozen": frozen_digest(own_adapter(_bundle()), "b"), "privacy": None})
    momenta = save({f"m_t.{name}": tensor for name, tensor in tensors.items()}, metadata={"run": run})
    sent = save(
        {"reply": np.arange(9, dtype=np.uint8)} | {f"residual.{name}": tensor for name, tensor in tensors.items()},
        metadata={"key": "k", "metrics": json.dumps(dict.fromkeys(METRICS, 2.0))},
    )
    return [rounds + b"\0" + take_apart(file) for file in (momenta, sent)]


def run(data: bytes, folder: Path) -> None:
    rounds, _, parts = data.partition(b"\0")
    bundle = _bundle()
    write_adapter(folder, bundle.lora, bundle.base, own_adapter(bundle))
    (folder / ROUNDS_FILE).write_bytes(rounds)
    (folder / STATE_FILE).write_bytes(put_together(parts))
    read_sent(folder / STATE_FILE)
    history = History(folder, bundle, "b")
    history.restore(FedAdam(weighted_by_key=WEIGHT))
