"""Answers on the page: the base model and adapters side by side, and thumbs."""

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mobile_ft.api.compare import BASE, compare
from mobile_ft.api.model import LoadedModel, load
from mobile_ft.api.options import option_texts
from mobile_ft.errors import BusyError, UserError
from mobile_ft.runtime import generate_options
from mobile_ft.studio.data import add_row
from mobile_ft.studio.runs import is_trained
from mobile_ft.studio.workspace import Workspace

THUMBS = "thumbs.jsonl"


class Answers:
    """The model that answered last stays loaded. It gives one answer at a time."""

    def __init__(self, studio: Workspace) -> None:
        self._studio = studio
        self._lock = threading.Lock()
        self._bundle: Path | None = None
        self._model: LoadedModel | None = None

    def stream(self, model: str, sides: Sequence[str], prompt: str, options: dict[str, Any]) -> Iterator[bytes]:
        """Yields lines of JSON: pieces of the answer of each side, one side after the other. A side is "base" or the
        name of a run. An error is the last line."""
        try:
            bundle = self._studio.model(model)
            adapters = {side: None if side == BASE else adapter_of(self._studio, side) for side in sides}
            option_texts(generate_options(), options)  # before names that `stream` uses otherwise
            if not prompt.strip():
                raise UserError("prompt: is empty; ask something")
            if not self._lock.acquire(blocking=False):
                raise BusyError("another answer is being written; wait for its end, or stop it")
            try:
                loaded = self._loaded(bundle)
                for side, adapter in adapters.items():
                    loaded.use_adapter(adapter)
                    yield _line(side=side, text="")
                    for piece in loaded.stream(prompt, **options):
                        yield _line(side=side, text=piece)
                    yield _line(side=side, end=True)
            finally:
                self._lock.release()
        except (UserError, BusyError) as error:
            yield _line(error=str(error))

    def _loaded(self, bundle: Path) -> LoadedModel:
        if self._model is None or self._bundle != bundle:
            self._model = None  # two at once would need the memory of both
            self._model, self._bundle = load(bundle), bundle
        return self._model


def adapter_of(studio: Workspace, run: str) -> Path:
    folder = studio.run(run)
    if not is_trained(folder):
        raise UserError(f"run {run}: has no adapter yet")
    return folder


def thumb(studio: Workspace, prompt: str, answer: str, label: bool) -> dict[str, Any]:
    """Appends an answer with its thumb to the file that `--loss kto` trains on."""
    messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
    return add_row(studio, THUMBS, {"messages": messages, "label": bool(label)})


def compare_runs(studio: Workspace, model: str, runs: Sequence[str], data: str) -> dict[str, Any]:
    """The table of `mobile-ft compare`, with runs by their names."""
    folders = {run: adapter_of(studio, run) for run in runs}
    found = compare(studio.model(model), studio.rows(data), list(folders.values()), progress=False)
    title, rows = found.summary()
    for run, folder in folders.items():
        rows = {name.replace(str(folder), run): value for name, value in rows.items()}
    return {"title": title, "rows": rows}


def _line(**values: Any) -> bytes:
    return json.dumps(values).encode() + b"\n"
