"""The state of a federated run, saved on the server's disk after every round.

The folder is a PEFT adapter, that of the last round, with two more files. `rounds.jsonl` has a line per round.
`strategy.safetensors` has the momenta of the strategy, if any, and as metadata `run` which matrices were trained and
the privacy spent. The folder is replaced as a whole, so a killed server resumes after the last complete round.
"""

import json
import time
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.serverapp.strategy import Strategy
from flwr.supercore import log
from flwr.supercore.privacy_accounting import PrivacyAccountant
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from mobile_ft.api.adapter import Tensors, read_matching_tensors
from mobile_ft.api.files import writing
from mobile_ft.bundle.description import Bundle
from mobile_ft.errors import UserError
from mobile_ft.federated.checks import Update
from mobile_ft.federated.round import frozen_digest, own_adapter, trained_tensors
from mobile_ft.files.folder import new_folder
from mobile_ft.files.json_text import parse_json
from mobile_ft.model.lora import write_adapter

ROUNDS_FILE, STATE_FILE = "rounds.jsonl", "strategy.safetensors"
_WANTED = "use the folder of a federated run"
_MOMENTA = ("m_t", "v_t")  # attributes of FedAdam, FedYogi and FedAdagrad


class History:
    """The adapter's trained tensors, and a record of each round."""

    def __init__(self, folder: Path, bundle: Bundle, lora_train: str) -> None:
        """Reads the state of an earlier run from `folder` if there is one, else starts with the bundle's own adapter.

        Raises UserError if the state belongs to another bundle or to other trained matrices.
        """
        self.folder, self._bundle, self._lora_train = folder, bundle, lora_train
        self._own = own_adapter(bundle)
        self.frozen = frozen_digest(self._own, lora_train)
        self.adapter = trained_tensors(self._own, lora_train)
        self.records: list[dict[str, Any]] = []
        self._privacy: dict[str, Any] | None = None
        self._momenta: Tensors = {}
        if folder.exists():
            self.records = _read_rounds(folder / ROUNDS_FILE)
            values, self._momenta = _read_state(folder / STATE_FILE)
            if values["lora_train"] != lora_train:
                raise UserError(
                    f"{folder}: its run has lora-train {values['lora_train']!r}, not {lora_train!r}; choose another "
                    "folder"
                )
            if values["frozen"] != self.frozen:
                raise UserError(f"{folder}: its run used a bundle with another LoRA A; choose another folder")
            self._privacy = values["privacy"]
            self.adapter = trained_tensors(read_matching_tensors(folder, bundle), lora_train)
        self._began = time.monotonic()
        self._begin_round()

    @property
    def rounds(self) -> int:
        """The number of complete rounds."""
        return len(self.records)

    def _begin_round(self) -> None:
        self._devices = 0
        self._current: dict[str, Any] = {"clients": {}, "refused": {}, "bytes_down": 0, "bytes_up": 0}

    def sent(self, number: int, size: int) -> None:
        """Records `size` bytes sent to all devices in a round, for training or for evaluation."""
        if number > self.rounds:
            self._began = time.monotonic()
            self._current["bytes_down"] += size
        else:
            self.records[-1]["bytes_down"] += size

    def refused(self, name: str, reason: str) -> None:
        """Records that a device's update was rejected, or that it sent none."""
        log(WARNING, "device %s: rejected: %s", name, reason)
        self._current["refused"][name] = reason

    def taken(self, update: Update) -> None:
        """Records that a device's update is aggregated."""
        self._current["bytes_up"] += update.bytes
        self._current["clients"][update.name] = update.metrics | {"norm": update.norm, "bytes": update.bytes}
        self._devices += len(update.nodes)

    def end_round(self, number: int, inner: Strategy) -> None:
        """Ends the training of a round and saves the state. The held-out loss of the new adapter is recorded later."""
        clients = self._current["clients"].values()
        targets = sum(c["targets"] for c in clients)
        loss = sum(c["targets"] * c["loss"] for c in clients) / targets if targets else None
        seconds = time.monotonic() - self._began
        record = {"round": number, "loss": loss, "targets": targets, "seconds": seconds} | self._current
        record |= getattr(inner, "round_metrics", {})
        accountant = _accountant(inner)
        if accountant is not None:
            record["epsilon"] = accountant.get_privacy_spent().epsilon
        self.records.append(record)
        shown = "no loss" if loss is None else f"loss {loss:.4f}"
        log(
            INFO,
            "round %d: %d devices, %d rejected, %s, %d targets, %.2f MB down, %.2f MB up, %.1f s",
            number,
            self._devices,
            len(self._current["refused"]),
            shown,
            targets,
            self._current["bytes_down"] / 1e6,
            self._current["bytes_up"] / 1e6,
            seconds,
        )
        self._begin_round()
        self._save(inner)

    def end_evaluation(self, losses: dict[int, tuple[float, float]], inner: Strategy) -> float | None:
        """Records (loss, targets) by device. Returns the mean over all targets, or None if no device answered."""
        if not losses:
            return None
        targets = sum(n for _, n in losses.values())
        mean = sum(loss * n for loss, n in losses.values()) / targets
        self.records[-1]["eval_loss"] = mean
        self.records[-1]["eval_clients"] = {str(node): loss for node, (loss, _) in losses.items()}
        log(INFO, "round %d: held-out loss %.4f on %d devices", self.records[-1]["round"], mean, len(losses))
        self._save(inner)
        return mean

    def _save(self, inner: Strategy) -> None:
        accountant = _accountant(inner)
        privacy = None if accountant is None else accountant.state_dict()
        run = json.dumps({"lora_train": self._lora_train, "frozen": self.frozen, "privacy": privacy})
        with writing(self.folder), new_folder(self.folder) as scratch:
            write_adapter(scratch, self._bundle.lora, self._bundle.base, self._own | self.adapter)
            (scratch / ROUNDS_FILE).write_text("".join(json.dumps(record) + "\n" for record in self.records))
            save_file(_momenta(inner), scratch / STATE_FILE, metadata={"run": run})

    def restore(self, inner: Strategy) -> None:
        """Restores the saved momenta and the privacy spent. Raises UserError if they do not fit `inner`."""
        path = self.folder / STATE_FILE
        for attribute in _MOMENTA:
            mark = attribute + "."
            found = {name.removeprefix(mark): x for name, x in self._momenta.items() if name.startswith(mark)}
            if not found:
                continue
            fits = found.keys() == self.adapter.keys() and all(
                x.shape == self.adapter[name].shape and np.isfinite(x).all() for name, x in found.items()
            )
            if not hasattr(inner, attribute) or not fits:
                raise UserError(f"{path}: {attribute} does not fit this strategy and bundle; choose another folder")
            setattr(inner, attribute, found)
        accountant = _accountant(inner)
        if self.records and (accountant is None) != (self._privacy is None):
            raise UserError(
                f"{self.folder}: its rounds were {'not ' if accountant else ''}differentially private; choose another "
                "folder"
            )
        if accountant is not None and self._privacy is not None:
            try:
                accountant.load_state_dict(self._privacy)
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise UserError(f"{path}: privacy: {error}") from error


def _accountant(inner: Strategy) -> PrivacyAccountant | None:
    return getattr(inner, "accountant", None)


def _momenta(inner: Strategy) -> Tensors:
    found: Tensors = {}
    for attribute in _MOMENTA:
        for name, tensor in (getattr(inner, attribute, None) or {}).items():
            found[f"{attribute}.{name}"] = np.ascontiguousarray(tensor)
    return found


def _read_rounds(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            lines = [line.decode() for line in file]
        records = [parse_json(line) for line in lines]
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not readable ({error}); {_WANTED}") from error
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict) or record.get("round") != number:
            raise UserError(f"{path}: line {number} is not the record of round {number}; {_WANTED}")
    return records


def _read_state(path: Path) -> tuple[dict[str, Any], Tensors]:
    """Returns `lora_train`, `frozen` and `privacy`, and the momenta."""
    try:
        with safe_open(path, framework="numpy") as file:
            values = parse_json((file.metadata() or {})["run"])
            momenta = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return {name: values[name] for name in ("lora_train", "frozen", "privacy")}, momenta
    except (OSError, SafetensorError, ValueError, TypeError, AttributeError, LookupError) as error:
        raise UserError(f"{path}: not readable ({error}); {_WANTED}") from error
