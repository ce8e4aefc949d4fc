"""Follows the events of a training run in a child process, in this process or on a device."""

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from mobile_ft.api.native import Event
from mobile_ft.api.progress import ProgressDisplay, duration
from mobile_ft.api.results import TrainResult, number

EventCallback = Callable[[Event], object]

_RECENT = 20  # steps over which speed and remaining time are averaged
_KEPT = ("loss", "seconds", "rss_mb", "anon_mb")  # of every step, 8 bytes each; a run in this process counts them too


class RunWatcher:
    """Shows a run's events, passes them to listeners, and collects the fields of the result."""

    def __init__(self, display: ProgressDisplay, listeners: Sequence[EventCallback]) -> None:
        self._display, self._listeners = display, listeners
        self._plan: Event = {}
        self._kept = {name: array("d") for name in _KEPT}
        self._tokens = 0
        self._last: Event = {}  # the last step
        self._evals: list[Event] = []
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RECENT)  # seconds and tokens
        self.done: Event = {}

    def on_event(self, event: Event) -> None:
        kind = event["event"]
        if kind == "plan":
            self._plan = event
            self._display.start(event["steps"], event["steps_done"])
            self._display.print(f"arithmetic: {event['resolved']['arithmetic']}")
        elif kind == "moved":
            self._display.print(
                f"resumed with other arithmetic than {event['from']}; results may differ in the last bits"
            )
        elif kind == "step":
            for name, values in self._kept.items():
                values.append(event[name])
            self._tokens += event["tokens"]
            self._last = event
            self._recent.append((event["seconds"], event["tokens"]))
            self._display.update(event["step"], self._text(event))
        elif kind == "eval":
            self._evals.append(event)
            self._display.print(_eval_text(event))
        elif kind == "done":
            self.done = event
        listeners, self._listeners = self._listeners, ()  # if a listener raises, none is called again
        for listener in listeners:
            listener(event)
        self._listeners = listeners

    def _text(self, event: Event) -> str:
        seconds = sum(step_seconds for step_seconds, _ in self._recent)
        speed = sum(tokens for _, tokens in self._recent) / seconds
        left = (self._plan["steps"] - event["step"]) * seconds / len(self._recent)
        return (
            f"loss {number(event['loss'])}  {speed:.0f} tokens/s  RSS {event['rss_mb']:.0f} MB  "
            f"anon {event['anon_mb']:.0f} MB  {duration(left)} left"
        )

    def result(self, out: Path, settings: dict[str, str], stopped: str | None, why: list[str]) -> TrainResult:
        """Returns the result of the run. For an interrupted run, it is computed from the events so far.

        `why` is the explanation of auto_schedule.
        """
        values = (
            self._seen()
            | {name: value for name, value in self.done.items() if name != "event"}
            | {
                "adapter": out,
                "stopped": stopped,
                "options": self._plan.get("options", settings),
                "memory_mb": {name: self._kept[name].tolist() for name in ("rss_mb", "anon_mb")},
            }
        )
        own = {name: values.pop(name) for name in TrainResult.__dataclass_fields__ if name != "details"}
        details = {name: value for name, value in values.items() if name not in ("loss_first", "loss_last")}
        if why:
            details["auto_schedule"] = why
        return TrainResult(**own, details=details)

    def _seen(self) -> Event:
        seconds = self._kept["seconds"]
        best = next((event for event in reversed(self._evals) if event["best"]), None)
        return (
            {
                "steps": self._last.get("step", self._plan.get("steps_done", 0)),
                "losses": self._kept["loss"].tolist(),
                "evals": [[event["step"], event["loss"]] for event in self._evals],
                "best_step": best and best["step"],
                "best_loss": best and best["loss"],
                "tokens": self._tokens,
                "targets_seen": self._last.get("targets_seen", 0),
                "tokens_per_second": self._tokens / sum(seconds) if seconds else 0.0,
                "step_seconds_median": median(seconds) if seconds else None,
                "peak_rss_mb": max(self._kept["rss_mb"], default=0.0),
                "peak_anon_mb": max(self._kept["anon_mb"], default=0.0),
            }
            | {name: self._plan.get(name, 0.0) for name in ("planned_mb", "planned_anon_mb")}
            | {"budget_mb": self._plan.get("budget_mb")}
        )


def _eval_text(event: Event) -> str:
    best = ", the best so far" if event["best"] else ""
    more = f"perplexity {event['ppl']:.2f}" if event.get("ppl") is not None else ""
    if "reward_accuracy" in event:
        more = f"reward accuracy {event['reward_accuracy']:.2f}"
    return f"step {event['step']}  validation loss {number(event['loss'])}  {more}{best}"
