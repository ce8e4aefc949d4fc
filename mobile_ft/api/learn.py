"""Learns night after night: trains on new rows, and adopts a version only if it is better."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mobile_ft.api.native import Event, run_native
from mobile_ft.api.options import native_arguments, option_texts
from mobile_ft.api.progress import ProgressDisplay
from mobile_ft.api.results import LearnResult, NightResult, VersionInfo
from mobile_ft.api.scratch import scratch_folder
from mobile_ft.api.watcher import EventCallback
from mobile_ft.bundle.description import read_bundle
from mobile_ft.data.rows import DataSource, FileRow, read_rows
from mobile_ft.errors import UserError
from mobile_ft.runtime import learn_options


def learn(
    state: str | os.PathLike[str],
    bundle: str | os.PathLike[str],
    data: DataSource,
    *,
    progress: bool = True,
    callbacks: Iterable[EventCallback] = (),
    **options: Any,
) -> LearnResult:
    """Learns from the rows of `data` that are new, and adopts the result if it is better.

    A share of every night's rows is held out, and the newest 40 of these rows are not trained on. The new version
    becomes the current one if the loss of the held-out rows fell by more than chance explains, and the perplexity of
    general text did not rise above a bound. `state` holds everything else, and is as before if the call fails.

    Args:
        state: The learner's folder. The first night makes it.
        bundle: The bundle of the model.
        data: Rows in any form that `train` takes, except plain text files. A row is known again by its "id", or else by
            its text.
        progress: Show progress.
        callbacks: Functions that are called with every event; see docs/reference/events.md.
        options: Options of a night, and the step, run and data options of docs/reference/options.md.

    Raises:
        UserError: An input cannot be used, the budget is too small, or the night fails.
    """
    given = option_texts(learn_options(), options)
    found = read_bundle(Path(bundle))
    with _rows_file(data) as rows:
        arguments = ["learn", str(found.folder), "--state", str(state), "--data", str(rows)]
        return _run([*arguments, *native_arguments(given)], progress, callbacks)


def forget(
    state: str | os.PathLike[str],
    bundle: str | os.PathLike[str],
    ids: Sequence[str],
    *,
    progress: bool = True,
    callbacks: Iterable[EventCallback] = (),
) -> LearnResult:
    """Forgets rows by their ids, as if they had never been there.

    They are removed from the learner's folder. If the current version was trained on them, the nights since the last
    version that was not are repeated without them. What remains is a hash of each id, so that a row that is still in
    the data is not learned again.

    Raises:
        UserError: An id is unknown, or the folder is not of this bundle.
    """
    if isinstance(ids, str) or not ids:
        raise UserError(f"ids {ids!r}: must be a list with at least one id")
    found = read_bundle(Path(bundle))
    arguments = ["learn", str(found.folder), "--state", str(state)]
    return _run([*arguments, *(text for row in ids for text in ("--forget", row))], progress, callbacks)


def versions(state: str | os.PathLike[str], *, roll_back: int | None = None) -> LearnResult:
    """Returns a learner's versions and nights. With `roll_back`, makes that version the current one first.

    Version 0 is the base model. Raises UserError if the version is not kept.
    """
    arguments = ["versions", str(state)]
    return _run(arguments if roll_back is None else [*arguments, "--rollback", str(roll_back)], False, ())


@contextmanager
def _rows_file(data: DataSource) -> Iterator[Path]:
    """Yields a file of JSON lines. Any other data is copied to one."""
    if isinstance(data, (str, os.PathLike)) and Path(data).suffix == ".jsonl" and Path(data).is_file():
        yield Path(data)
        return
    with scratch_folder() as folder:
        path = folder / "rows.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for row in read_rows(data, "train"):
                if isinstance(row, FileRow):
                    raise UserError(f"{row.where}: is plain text; learning takes rows")
                file.write(row.json + "\n")
        yield path


def _run(arguments: list[str], progress: bool, callbacks: Iterable[EventCallback]) -> LearnResult:
    done: Event = {}
    callbacks = list(callbacks)
    with ProgressDisplay("step", progress) as display:

        def on_event(event: Event) -> None:
            _show(event, display)
            if event["event"] == "done":
                done.update(event)
            for callback in callbacks:
                callback(event)

        run_native(arguments if arguments[0] == "versions" else [*arguments, "--parent", str(os.getpid())], on_event)
    return LearnResult(
        version=done["version"],
        adapter=_folder(done["adapter"]),
        rows=done["rows"],
        held_out=done["held_out"],
        versions=[
            VersionInfo(
                entry["version"], entry["parent"], entry["night"], Path(entry["folder"]) if entry["folder"] else None
            )
            for entry in done["versions"]
        ],
        nights=[NightResult(**night) for night in done["nights"]],
    )


def _folder(path: str) -> Path | None:
    return Path(path) if path else None


def _show(event: Event, display: ProgressDisplay) -> None:
    kind = event["event"]
    if kind == "rows":
        left_out = "".join(f", {event[name]} {name}" for name in ("known", "bad", "dropped") if event[name])
        display.print(f"rows: {event['added']} new{left_out}")
    elif kind == "forget":
        where = "the base model, on all rows that are left" if event["from_base"] else f"version {event['version']}"
        again = f"; {event['nights']} nights are repeated from {where}" if event["nights"] else ""
        display.print(f"forgotten: {event['rows']} rows{again}")
    elif kind == "night":
        display.print(
            f"night {event['night']}: {event['new']} new and {event['replayed']} older rows to train on, "
            f"{event['held_out']} held out"
        )
    elif kind == "rehearsal":
        display.count(event["text"], event["texts"], "the base model writes a text")
    elif kind == "plan":
        display.start(event["steps"])
    elif kind == "step":
        display.update(event["step"], f"loss {event['loss']:.4f}")
    elif kind == "verdict":
        display.print(f"{'adopted' if event['adopted'] else 'not adopted'}: {event['why']}")
