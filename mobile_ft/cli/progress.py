"""Shows how far a run is: a bar on a terminal, a plain line now and then anywhere else."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

_LINES = 10  # printed over a whole run where there is no terminal


class ProgressDisplay:
    """Use as a context manager, so that the terminal's cursor comes back."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._console = Console()
        self._bar: Progress | None = None
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[text]}"),
                console=self._console,
                refresh_per_second=2,  # the cores belong to the child
                expand=True,
            )
            self._task = self._bar.add_task(what, total=total, text="")

    def __enter__(self) -> "ProgressDisplay":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def update(self, done: int, text: str = "") -> None:
        """`done` of the total are done; `text` says more."""
        where = f"{self._what} {done}/{self._total}"
        if self._bar:
            self._bar.update(self._task, completed=done, description=where, text=text)
        elif done == 1 or done == self._total or done % -(-self._total // _LINES) == 0:
            print(f"{where}  {text}".rstrip(), flush=True)


def duration(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
