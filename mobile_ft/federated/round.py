"""A device's part of a round: trains from the round's adapter and computes the change.

In the device's folder, `training/` is the output folder of the current round's run, and `sent.safetensors` is the last
reply, with its rounding error. If the same round is requested again, the device sends the same reply. If the device is
killed during a round, it resumes from its last checkpoint. If another round is requested, it discards the unfinished
one.
"""

import hashlib
import json
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from mobile_ft.api.adapter import Tensors, read_tensors
from mobile_ft.api.files import write_text, writing
from mobile_ft.api.native import Event, KilledError
from mobile_ft.api.options import runtime_errors
from mobile_ft.api.train import CHECKPOINT, train
from mobile_ft.bundle.description import Bundle, read_bundle
from mobile_ft.errors import UserError
from mobile_ft.federated.settings import Settings
from mobile_ft.federated.wire import Wire, decode, encode
from mobile_ft.files.folder import make_folder, new_folder, replace_file
from mobile_ft.files.json_text import parse_json
from mobile_ft.model.lora import WEIGHTS_FILE, write_adapter
from mobile_ft.runtime import TrainConfig

_SENT, _TRAINING, _START, _KEY = "sent.safetensors", "training", "start", "round"
_RESIDUAL, _REPLY = "residual.", "reply"
METRICS = ("steps", "targets", "loss", "seconds", "peak_anon_mb")  # the loss is that of the last step
_RESTARTS = 2  # of a killed training process, per round


@dataclass(frozen=True)
class Round:
    """The server's request."""

    number: int  # from 1
    adapter: bytes  # the trained tensors, encoded by `wire.encode`
    lora_train: str
    proximal_mu: float
    wire: Wire
    lr_factor: float = 1.0  # factor of the device's learning rate
    frozen: str = ""  # `frozen_digest` of the server's adapter


@dataclass(frozen=True)
class Reply:
    """A device's reply: the change, and the METRICS of its training."""

    change: bytes
    metrics: dict[str, float]


def own_adapter(bundle: Bundle) -> Tensors:
    """Returns the adapter that was exported with the bundle."""
    return read_tensors(bundle.verified(WEIGHTS_FILE))


def trained_tensors(tensors: Tensors, lora_train: str) -> Tensors:
    """Returns the adapter's tensors that are trained. With `lora_train` b, A is the bundle's on all devices."""
    return {name: x for name, x in tensors.items() if lora_train == "both" or name.endswith(".lora_B.weight")}


def frozen_digest(own: Tensors, lora_train: str) -> str:
    """Returns the SHA-256 of the bundle adapter's frozen tensors, which must be the same on all devices, or "" if there
    are none."""
    frozen = sorted(own.keys() - trained_tensors(own, lora_train).keys())
    digest = hashlib.sha256()
    for name in frozen:
        digest.update(name.encode() + own[name].tobytes())
    return digest.hexdigest() if frozen else ""


def whole_adapter(bundle: Bundle, wanted: Round) -> Tensors:
    """Returns the bundle's adapter with the tensors of the server. Raises UserError if they do not fit."""
    own = own_adapter(bundle)
    if wanted.frozen != frozen_digest(own, wanted.lora_train):
        raise UserError(
            f"{bundle.folder}: its LoRA A differs from the server's; lora-train b requires the same bundle on all "
            "devices"
        )
    shapes = {name: x.shape for name, x in trained_tensors(own, wanted.lora_train).items()}
    return own | decode(wanted.adapter, shapes)


def write_peft(folder: Path, bundle: Bundle, tensors: Tensors) -> None:
    """Writes an adapter's folder and syncs it to disk. Raises UserError if it cannot be written."""
    with writing(folder), new_folder(folder) as scratch:
        write_adapter(scratch, bundle.lora, bundle.base, tensors)


def train_round(settings: Settings, wanted: Round) -> Reply:
    """Trains from the round's adapter on the device's rows. Raises UserError if training fails."""
    folder = settings.folder
    with writing(folder):
        make_folder(folder)
    key = _key(settings, wanted)
    sent = read_sent(folder / _SENT)
    if sent is not None and sent.key == key:
        return sent.reply
    bundle = read_bundle(settings.bundle)
    start = whole_adapter(bundle, wanted)
    metrics = _train(settings, wanted, bundle, start, key)
    trained = trained_tensors(read_tensors(folder / _TRAINING / WEIGHTS_FILE), wanted.lora_train)
    change = {name: x - start[name] for name, x in trained.items()}
    for name, left_out in sent.residual.items() if sent is not None else ():
        if name in change and change[name].shape == left_out.shape:
            change[name] += left_out
    encoded = encode(change, wanted.wire)
    received = decode(encoded, {name: x.shape for name, x in change.items()})
    residual = {name: change[name] - received[name] for name in change}
    reply = Reply(encoded, metrics)
    _write_sent(folder / _SENT, key, reply, residual)
    shutil.rmtree(folder / _TRAINING, ignore_errors=True)
    return reply


def _key(settings: Settings, wanted: Round) -> str:
    """Returns a key of all settings of a round's training, without the content of the files."""
    device = [str(settings.bundle), str(settings.data), settings.minutes, settings.options]
    parts = [wanted.number, wanted.lora_train, wanted.proximal_mu, wanted.wire, wanted.lr_factor, *device]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode() + b"\0" + wanted.adapter).hexdigest()


def _train(settings: Settings, wanted: Round, bundle: Bundle, start: Tensors, key: str) -> dict[str, float]:
    out = settings.folder / _TRAINING
    if _begun(out) != key:
        shutil.rmtree(out, ignore_errors=True)
        write_peft(out / _START, bundle, start)
        write_text(out / _KEY, key)  # written last; from here on, the folder belongs to this round
    options: dict[str, Any] = settings.options | {
        "seed": str(int(settings.options.get("seed", 0)) + wanted.number),  # another order of rows in every round
        "lora_train": wanted.lora_train,
        "proximal_mu": str(wanted.proximal_mu),
    }
    if wanted.lr_factor != 1:
        with runtime_errors():
            rate = TrainConfig(**settings.options).learning_rate(str(bundle.folder))
        options["lr"] = str(rate * wanted.lr_factor)
    begun, out_of_time = time.monotonic(), False

    def watch(event: Event) -> None:
        nonlocal out_of_time
        if event["event"] == "step" and settings.minutes is not None:
            out_of_time = time.monotonic() - begun > 60 * settings.minutes
            if out_of_time:
                raise KeyboardInterrupt  # ends the run after the current step, with a checkpoint

    for restarts in range(_RESTARTS + 1):
        try:
            result = train(
                bundle.folder,
                settings.data,
                out,
                adapter=out / _START,
                resume=(out / CHECKPOINT).exists(),
                progress=False,
                callbacks=[watch],
                **options,
            )
            break
        except UserError as error:
            if not isinstance(error.__cause__, KilledError) or restarts == _RESTARTS:
                raise
    if result.stopped == "interrupted" and not out_of_time:
        raise KeyboardInterrupt
    return {
        "steps": result.steps,
        "targets": result.details["targets_seen"],
        "loss": result.losses[-1],
        "seconds": time.monotonic() - begun,
        "peak_anon_mb": result.peak_anon_mb,
    }


def _begun(out: Path) -> str | None:
    """Returns the key of the round whose training is in the folder, or None."""
    with suppress(OSError, ValueError):
        return (out / _KEY).read_text()
    return None


@dataclass(frozen=True)
class Sent:
    """The last reply, and its rounding error."""

    key: str
    reply: Reply
    residual: Tensors


def read_sent(path: Path) -> Sent | None:
    """Reads the last reply. Returns None if there is none or it is damaged; then only its rounding error is lost."""
    try:
        with safe_open(path, framework="numpy") as file:
            values = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metrics = parse_json(values["metrics"])
        reply = Reply(tensors.pop(_REPLY).tobytes(), {name: float(metrics[name]) for name in METRICS})
        key = values["key"]
    except (OSError, SafetensorError, ValueError, TypeError, LookupError, AttributeError):
        return None
    usable = {name: x for name, x in tensors.items() if x.dtype == np.float32 and np.isfinite(x).all()}
    return Sent(key, reply, {name.removeprefix(_RESIDUAL): x for name, x in usable.items()})


def _write_sent(path: Path, key: str, reply: Reply, residual: Tensors) -> None:
    tensors = {_REPLY: np.frombuffer(reply.change, np.uint8)}
    partial = path.with_name(path.name + ".partial")
    with writing(path):
        save_file(
            tensors | {_RESIDUAL + name: x for name, x in residual.items()},
            partial,
            metadata={"key": key, "metrics": json.dumps(reply.metrics)},
        )
        replace_file(partial, path)
