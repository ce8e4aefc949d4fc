"""Fine-tunes the LoRA adapter of a bundle."""

import datetime
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from mobile_ft.api.auto_schedule import check_choosable, choose
from mobile_ft.api.files import check_output_path, locked
from mobile_ft.api.native import Event, KilledError, run_native
from mobile_ft.api.options import native_arguments, option_texts, runtime_errors, train_settings
from mobile_ft.api.progress import ProgressDisplay
from mobile_ft.api.reporting import open_reporters
from mobile_ft.api.results import TrainResult
from mobile_ft.api.run_file import RUN_FILE, read_run_file, write_run_file
from mobile_ft.api.schedule_report import schedule_report as write_schedule_report
from mobile_ft.api.tokens import (
    check_lengths,
    data_path,
    data_settings,
    forms_in_words,
    prepare_tokens,
    validation_data,
)
from mobile_ft.api.watcher import EventCallback, RunWatcher
from mobile_ft.bundle.description import Bundle, read_bundle, read_tokenizer
from mobile_ft.data.prepare import Loss
from mobile_ft.data.rows import DataSource
from mobile_ft.errors import UserError, check_installed
from mobile_ft.files.path_text import path_text
from mobile_ft.runtime import TrainConfig, data_options, resumed_options, run_training, train_options

_TOKENS = "tokens.safetensors"
_VALID_TOKENS = "valid.safetensors"
CHECKPOINT = "checkpoint.safetensors"
_VALIDATION = ("eval_every", "patience")


def train(
    bundle: str | os.PathLike[str],
    data: DataSource,
    out: str | os.PathLike[str] = "mobile-ft-out",
    *,
    valid: DataSource | None = None,
    adapter: str | os.PathLike[str] | None = None,
    resume: bool = False,
    in_process: bool = False,
    progress: bool = True,
    callbacks: Iterable[EventCallback] = (),
    report_to: str | Sequence[str] = (),
    schedule_report: str | os.PathLike[str] | None = None,
    auto_schedule: float | None = None,
    **options: Any,
) -> TrainResult:
    """Trains a LoRA adapter. Writes the adapter, the checkpoint and run.yaml to the folder `out`.

    Ctrl-C ends the run after the current step, with a checkpoint; `stopped` of the result is then "interrupted".

    Args:
        bundle: The bundle to train from.
        data: Training data: a path, a list of rows or a `datasets.Dataset`.
        out: Output folder.
        valid: Validation data. Default: the validation split of `data`.
        adapter: Folder of the adapter to start from. Default: the bundle's untrained adapter.
        resume: Resume from the checkpoint in `out`. Options that affect the result and are not given
            come from the checkpoint, and valid, eval_every and patience from run.yaml.
        in_process: Train in this process instead of a child process. The budget then counts this whole process.
        progress: Show progress.
        callbacks: Functions that are called with every event; see docs/reference/events.md. One that raises ends the
            run, with a checkpoint.
        report_to: Loggers: "jsonl", "tensorboard", "trackio" or "wandb".
        schedule_report: HTML file to write, with the layers that were trained at each step.
        auto_schedule: Time limit in minutes. Chooses the schedule and the number of steps within `budget`, and
            puts the reasons into the result's details.
        options: The step, run and data options of docs/reference/options.md.

    Raises:
        UserError: An input cannot be used, the budget is too small, or the run fails.
    """
    found, folder = read_bundle(Path(bundle)), Path(out)
    given = option_texts(train_options(), options)
    stored = read_run_file(folder / RUN_FILE) if resume and (folder / RUN_FILE).is_file() else {}
    if resume:
        given = _resumed(folder, stored, given)
    _set_date(found, given)
    settings = train_settings(given)
    if valid is None and int(settings["eval_every"]) > 0:
        valid = stored.get("valid")
    seq_len, seed = int(settings["seq_len"]), int(settings["seed"])
    if seed < 0:  # the data is shuffled before the runtime checks the seed
        raise UserError(f"seed {seed}: must not be negative")
    loss = cast(Loss, settings["loss"])
    check_lengths(found, seq_len, int(settings["batch_size"]))
    if auto_schedule is not None:
        if resume:
            raise UserError("auto_schedule: to resume such a run, use OUT/run.yaml as config instead")
        if in_process:
            raise UserError(
                "auto_schedule: cannot plan with in_process, because Python's own memory counts against the budget"
            )
        check_choosable(given, auto_schedule)
    held_out = validation_data(data, valid, int(settings["eval_every"]))
    if (folder / CHECKPOINT).exists() and not resume:
        raise UserError(f"{folder}: holds the checkpoint of an earlier run; resume it, or choose another out")
    reporters = open_reporters(report_to, folder, resume)
    if schedule_report is not None:
        check_output_path("schedule_report", Path(schedule_report))
        check_installed("matplotlib", "schedule_report")
        reporters.append(write_schedule_report(Path(schedule_report)))
    tokens = folder / _TOKENS  # written again when a run is resumed; the runtime compares it
    valid_tokens = None
    why: list[str] = []
    with ExitStack() as stack:
        with locked(folder):  # until the runtime locks it itself
            stats = prepare_tokens(found, data, "train", seq_len, seed, tokens, loss, settings)
            if auto_schedule is not None:
                choice = choose(found, given, auto_schedule, stats)
                given |= option_texts(train_options(), choice.options)
                settings, why = train_settings(given), choice.why
            if held_out is not None:
                valid_tokens = folder / _VALID_TOKENS
                prepare_tokens(found, held_out, "valid", seq_len, seed, valid_tokens, loss, settings)
            listeners = [stack.enter_context(reporter) for reporter in reporters]
        begun_from = stored.get("adapter") if adapter is None else adapter  # the checkpoint has what it became
        paths = {"bundle": bundle, "data": data_path(data), "adapter": begun_from}
        paths["valid"] = None if valid is None else data_path(valid)

        def save_configuration(event: Event) -> None:
            if event["event"] == "plan":
                write_run_file(folder, event, given, paths)

        display = stack.enter_context(ProgressDisplay("step", progress))
        for line in [*why, forms_in_words(stats)]:
            display.print(line)
        watcher = RunWatcher(display, [save_configuration, *listeners, *callbacks])
        run = _run_here if in_process else _run_in_child
        try:
            run(found, given, tokens, valid_tokens, adapter, folder, resume, watcher.on_event)
        except KilledError as error:
            reason = f"the training process was killed (signal {error.signal})"
            raise UserError(f"{reason}; {saved_in_words(folder)}") from error
        except KeyboardInterrupt:
            return watcher.result(folder, settings, "interrupted", why)
    return watcher.result(folder, settings, watcher.done["stopped"], why)


def saved_in_words(out: Path) -> str:
    """Describes what an unfinished run has saved in `out`."""
    if (out / CHECKPOINT).exists():
        return f"a checkpoint is in {out}; resume the run to continue"
    return "no checkpoint was written yet"


def _resumed(folder: Path, stored: dict[str, Any], given: dict[str, str]) -> dict[str, str]:
    """Returns the options of the run in `folder`, overridden by those that are given.

    Training options come from the checkpoint, and those of data and validation from run.yaml, which is `stored`.
    """
    of_data = option_texts(data_options(), data_settings(stored))
    validated = given.get("eval_every") != "0"
    of_validation = {name: str(stored[name]) for name in _VALIDATION if validated and name in stored}
    with runtime_errors():
        options: dict[str, str] = resumed_options(path_text(folder), of_data | of_validation | given)
    return options


def _set_date(bundle: Bundle, given: dict[str, str]) -> None:
    """Fixes the date that the chat template shows, so that run.yaml repeats the run on another day."""
    if not given.get("chat_template_date") and read_tokenizer(bundle).shows_date:
        given["chat_template_date"] = str(datetime.date.today())


def _run_in_child(
    bundle: Bundle,
    given: dict[str, str],
    tokens: Path,
    valid: Path | None,
    adapter: str | os.PathLike[str] | None,
    out: Path,
    resume: bool,
    on_event: Callable[[Event], None],
) -> None:
    arguments = ["train", str(bundle.folder), "--data", str(tokens), "--out", str(out), "--parent", str(os.getpid())]
    arguments += native_arguments(given)
    if valid is not None:
        arguments += ["--valid", str(valid)]
    if adapter is not None:
        arguments += ["--adapter", str(adapter)]
    if resume:
        arguments.append("--resume")
    run_native(arguments, on_event)


def _run_here(
    bundle: Bundle,
    given: dict[str, str],
    tokens: Path,
    valid: Path | None,
    adapter: str | os.PathLike[str] | None,
    out: Path,
    resume: bool,
    on_event: Callable[[Event], None],
) -> None:
    with runtime_errors():
        run_training(
            bundle=path_text(bundle.folder),
            config=TrainConfig(**given),
            data=path_text(tokens),
            valid=path_text(valid or ""),
            adapter=path_text(adapter or ""),
            out=path_text(out),
            resume=resume,
            on_event=on_event,
        )
