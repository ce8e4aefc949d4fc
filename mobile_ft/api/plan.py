"""Plans the memory of a training run."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from mobile_ft.api.device_estimate import estimate_device
from mobile_ft.api.export import bundle_to_plan
from mobile_ft.api.native import Event, run_native
from mobile_ft.api.options import native_arguments, option_texts, step_options, train_settings
from mobile_ft.api.results import PlanResult
from mobile_ft.api.tokens import check_lengths
from mobile_ft.bundle.description import Bundle

Change = dict[str, Any]

# Changes of options that save memory.
_SAVINGS: list[Change] = [
    {"optimizer": "adamw8bit"},
    {"max_grad_norm": 0},
    {"schedule": "suffix", "ratio": 0.5},
]
_SAVED = ("planned_mb", "step_seconds", "smallest_budget_mb", "longest_seq_len")


def plan(bundle: str | os.PathLike[str], *, device: str | None = None, **options: Any) -> PlanResult:
    """Plans the memory and the time of a training step, and finds options that would save memory.

    Args:
        bundle: A bundle, a model that `export_bundle` takes, a config.json or a known model's name.
        device: Estimate the time on this device, one of those that `mobile-ft plan --help` lists.
        options: The step options of docs/reference/options.md.

    Returns:
        The plan. Its `fits` is false if it exceeds the budget.

    Raises:
        UserError: An option is wrong.
    """
    given = option_texts(step_options(), options)
    there = None if device is None else estimate_device(device, given)
    if there is not None:
        given |= {"threads": str(there.threads), "compute": there.compute}
    settings = train_settings(given)
    seq_len, batch_size = int(settings["seq_len"]), int(settings["batch_size"])
    with bundle_to_plan(Path(bundle), seq_len * batch_size) as found:
        check_lengths(found, seq_len, batch_size)
        changes = _changes(settings)
        event, *saved = native_plans(found, given, changes, there.throughput if there else ())
    savings = [
        {"options": change} | {name: row[name] for name in _SAVED} for change, row in zip(changes, saved, strict=True)
    ]
    more = {"max_seq_len": found.max_seq_len, "options": settings, "savings": savings, "device": None}
    if there is not None:
        more |= {"arithmetic": there.arithmetic, "device": there.of_step(event["step_seconds"])}
    return PlanResult(**{entry.name: (event | more)[entry.name] for entry in fields(PlanResult)})


def native_plans(
    bundle: Bundle, given: Mapping[str, str], changes: Sequence[Change] = (), throughput: Sequence[int] = ()
) -> list[Event]:
    """Returns the plan event of mft-run for `given`, then one per change, for this machine or the given throughput."""
    events: list[Event] = []
    arguments = ["plan", str(bundle.folder), *native_arguments(given)]
    if throughput:
        arguments += ["--throughput", ",".join(map(str, throughput))]
    for change in changes:
        arguments += ["--variant", ",".join(f"{name.replace('_', '-')}={value}" for name, value in change.items())]
    run_native(arguments, events.append)
    return events


def _changes(settings: Mapping[str, str]) -> list[Change]:
    """Returns the changes of options that save memory, and their combination."""
    changes = []
    for change in _SAVINGS:
        if "max_grad_norm" in change and int(settings["grad_accum"]) > 1:
            continue  # gradients are accumulated over batches, so they are all kept anyway
        if "schedule" in change and settings["schedule"] != "full":
            continue
        if any(settings[name] != str(value) for name, value in change.items()):
            changes.append(change)
    if len(changes) > 1:
        changes.append({name: value for change in changes for name, value in change.items()})
    return changes
