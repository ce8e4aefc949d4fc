"""Shows the progress of a run: a bar on a terminal or in a notebook, else a plain line from time to time."""

import importlib.util

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

_LINES = 10  # printed per run if there is no bar


class ProgressDisplay:
    """Use it as a context manager, which restores the terminal's cursor. Shows nothing if `shown` is false."""

    def __init__(self, what: str, shown: bool = True) -> None:
        self._what, self._shown, self._total = what, shown, 0
        self._console = Console()
        self._bar: Progress | None = None
        if shown and _has_bars(self._console):
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[text]}"),
                console=self._console,
                refresh_per_second=2,  # the cores belong to the child
                expand=True,
            )
        self._task: TaskID | None = None

    def __enter__(self) -> "ProgressDisplay":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def start(self, total: int, done: int = 0) -> None:
        """Starts the display at `done` of `total`."""
        self._total = total
        if self._bar:
            self._task = self._bar.add_task(self._what, total=total, completed=done, text="")

    def update(self, done: int, text: str = "") -> None:
        """Updates the display to `done` of the total, followed by `text`."""
        where = f"{self._what} {done}/{self._total}"
        if self._bar and self._task is not None:
            self._bar.update(self._task, completed=done, description=where, text=text)
        elif self._shown and (done == 1 or done == self._total or done % -(-self._total // _LINES) == 0):
            print(f"{where}  {text}".rstrip(), flush=True)

    def count(self, done: int, total: int, text: str = "") -> None:
        """Updates the display, which the first of `total` starts."""
        if done == 1:
            self.start(total)
        self.update(done, text)

    def print(self, line: str) -> None:
        """Prints a permanent line above the bar."""
        if self._bar:
            self._bar.console.print(line, markup=False, highlight=False)
        elif self._shown:
            print(line, flush=True)


def _has_bars(console: Console) -> bool:
    if console.is_jupyter:  # rich draws with ipywidgets if they are installed
        return importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal


def duration(seconds: float) -> str:
    """Formats a time as minutes and seconds, with hours if there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
