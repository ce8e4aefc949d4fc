"""Results of the API: shown as text in a shell and as a table in a notebook, and converted to JSON for programs."""

import html
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from mobile_ft.model.families import CONV, NO_ROPE, SLIDING


class Result:
    """Base of all results. Its repr shows the rows of `summary`."""

    def summary(self) -> tuple[str, dict[str, str]]:
        """Returns a title, and names with their values as text."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON values, as `--json` of the command line writes them."""
        return {entry.name: _plain(getattr(self, entry.name)) for entry in fields(self)}  # type: ignore[arg-type]

    def __repr__(self) -> str:
        title, rows = self.summary()
        width = max(map(len, rows), default=0)
        return "\n".join([title, *(f"  {name:{width}}  {value}" for name, value in rows.items())])

    def _repr_html_(self) -> str:
        title, rows = self.summary()
        cells = (f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows.items())
        return f"<table><caption>{html.escape(title)}</caption>{''.join(cells)}</table>"


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


@dataclass(frozen=True, repr=False)
class TrainResult(Result):
    """A training run. Sizes are in MB of 10^6 bytes. An interrupted run has the values up to its last step."""

    adapter: Path  # the folder with the adapter and the checkpoint
    steps: int  # steps done, including those before a resume
    losses: list[float]  # of each step; for an interrupted run, of the steps since it was started or resumed
    stopped: str | None  # None if the run is complete, else "patience" or "interrupted"
    evals: list[list[float]]  # [step, validation loss]
    best_step: int | None  # the step with the lowest validation loss
    best_loss: float | None
    tokens: int
    tokens_per_second: float
    step_seconds_median: float | None
    budget_mb: float | None
    planned_mb: float
    planned_anon_mb: float
    peak_rss_mb: float
    peak_anon_mb: float
    memory_mb: dict[str, list[float]]  # "rss_mb" and "anon_mb" after each step since the run was started or resumed
    options: dict[str, str]  # every option with its value
    details: dict[str, Any]  # other fields of the event "done"; see docs/reference/events.md

    @property
    def best_adapter(self) -> Path | None:
        """The folder of the adapter with the lowest validation loss, or None if there was no validation."""
        return None if self.best_step is None else self.adapter / "best"

    def to_json(self) -> dict[str, Any]:
        values = super().to_json()
        ends = {"loss_first": self.losses[0], "loss_last": self.losses[-1]} if self.losses else {}
        return values.pop("details") | values | ends

    def summary(self) -> tuple[str, dict[str, str]]:
        rows = {}
        if self.losses:
            rows["loss, first and last step"] = f"{number(self.losses[0])} -> {number(self.losses[-1])}"
        if self.best_step is not None:
            rows["validation loss, best"] = f"{number(self.best_loss)} after step {self.best_step}"
        seconds = "-" if self.step_seconds_median is None else f"{self.step_seconds_median:.2f} s"
        rows |= {
            "speed": f"{self.tokens_per_second:.0f} tokens/s",
            "median step": seconds,
            "budget": _budget(self.budget_mb),
            "planned memory": f"{self.planned_mb:.0f} MB",
            "peak RSS": f"{self.peak_rss_mb:.0f} MB",
            "peak anonymous memory": f"{self.peak_anon_mb:.0f} MB",
            "adapter": str(self.adapter),
        }
        if self.best_adapter is not None:
            rows["best adapter"] = str(self.best_adapter)
        ended = {"patience": ", ended early", "interrupted": ", interrupted"}.get(self.stopped or "", "")
        return f"{self.steps} steps of {self.options['schedule']} at {self.options['seq_len']} tokens{ended}", rows


@dataclass(frozen=True, repr=False)
class EvalResult(Result):
    """Mean loss of the target tokens, and the perplexity, its exponential."""

    loss: float
    ppl: float
    tokens: int  # number of target tokens

    def summary(self) -> tuple[str, dict[str, str]]:
        rows = {"loss": f"{self.loss:.4f}", "perplexity": f"{self.ppl:.2f}", "tokens": str(self.tokens)}
        return "Held-out data", rows


@dataclass(frozen=True)
class ComparedRow:
    """A held-out row, and its mean loss with each side of a comparison."""

    where: str
    losses: dict[str, float]


@dataclass(frozen=True)
class Difference:
    """How the mean loss of a row changes from one side of a comparison to another."""

    one: str
    other: str
    change: float  # mean over rows; below 0, the other one is better
    low: float  # of its 95 % interval, by a paired t-test
    high: float
    better: int  # rows whose loss is lower with the other one
    worse: int

    @property
    def is_certain(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, repr=False)
class CompareResult(Result):
    """Adapters of a bundle on the same rows."""

    names: list[str]  # "base", and the adapters' folders
    losses: dict[str, float]  # mean over all targets
    differences: list[Difference]
    rows: list[ComparedRow]
    answers: dict[str, list[str]]  # of each prompt, in the order of names

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {
            "differences": [asdict(difference) for difference in self.differences],
            "rows": [asdict(row) for row in self.rows],
        }

    def summary(self) -> tuple[str, dict[str, str]]:
        rows = {name: f"loss {number(loss)}" for name, loss in self.losses.items()}
        for d in self.differences:
            verdict = "" if d.is_certain else ", which chance explains"
            rows[f"{d.one} -> {d.other}"] = (
                f"{d.change:+.4f} per row, 95 % interval {d.low:+.4f} to {d.high:+.4f}{verdict}; "
                f"{d.better} rows better, {d.worse} worse"
            )
        return f"{len(self.rows)} held-out rows", rows


@dataclass(frozen=True)
class VersionInfo:
    """An adopted version of a learner."""

    version: int
    parent: int  # the version that it went on from; 0 is the base model
    night: int  # that made it
    folder: Path | None  # of its adapter; None if it is not kept any more


@dataclass(frozen=True)
class NightResult:
    """What a night of a learner trained on, and what was decided."""

    night: int
    new: int  # rows
    replayed: int  # rows of earlier nights
    adopted: bool
    undecided: bool  # not adopted, but the next night goes on from it
    why: str
    rows: int  # held out
    gain: float  # their loss per token before the night, less that after it
    chance: float  # how likely chance alone makes that gain
    loss: float  # per token, after the night
    general: float  # perplexity of general text, relative to the base model's
    moved: float  # norm of the adapter's change, relative to the adapter before
    share: float  # of the distance to the base model that general text bore


@dataclass(frozen=True, repr=False)
class LearnResult(Result):
    """The state of a learner."""

    version: int  # the current one; 0 is the base model
    adapter: Path | None  # the folder of its adapter; None for the base model
    rows: int  # rows that are kept
    held_out: int  # of these, rows that no version was trained on
    versions: list[VersionInfo]
    nights: list[NightResult]

    def to_json(self) -> dict[str, Any]:
        versions = [{name: _plain(value) for name, value in asdict(entry).items()} for entry in self.versions]
        return super().to_json() | {"versions": versions, "nights": [asdict(night) for night in self.nights]}

    def summary(self) -> tuple[str, dict[str, str]]:
        made = {entry.night: entry for entry in self.versions}
        rows = {}
        for night in self.nights:
            version = "undecided" if night.undecided else "not adopted"
            if night.night in made:
                version = f"version {made[night.night].version}"
            rows[f"night {night.night}, {version}"] = (
                f"{night.new} new rows, {night.replayed} older; held-out loss {number(night.loss)} "
                f"({-night.gain:+.4f}, {night.rows} rows), general perplexity {night.general - 1:+.1%}"
            )
        rows["rows kept"] = f"{self.rows}, {self.held_out} of them held out"
        rows["adapter"] = "none, the base model" if self.adapter is None else str(self.adapter)
        return f"Version {self.version} is current", rows


@dataclass(frozen=True)
class BenchRow:
    """What was measured, with the median of its times in seconds."""

    what: str  # "prompt", "answer" or "step"
    tokens: int  # read, generated or trained on
    seconds: float
    fastest: float
    slowest: float
    tokens_per_second: float
    n_prompt: int | None = None  # tokens before an answer

    @property
    def name(self) -> str:
        behind = "" if self.n_prompt is None else f" behind {self.n_prompt}"
        return f"{self.what}, {self.tokens} tokens{behind}"


@dataclass(frozen=True, repr=False)
class BenchResult(Result):
    """Times of prompts, answers and training steps."""

    rows: list[BenchRow]

    def summary(self) -> tuple[str, dict[str, str]]:
        rows = {row.name: f"{row.tokens_per_second:.1f} tokens/s, {row.seconds:.3f} s" for row in self.rows}
        return "Speed on this machine", rows

    def to_json(self) -> dict[str, Any]:
        return {"rows": [asdict(row) for row in self.rows]}


@dataclass(frozen=True, repr=False)
class PlanResult(Result):
    """The memory and time of a step. Sizes are in MB of 10^6 bytes, times in seconds."""

    planned_mb: float
    planned_anon_mb: float
    budget_mb: float | None
    components_mb: dict[str, float]
    anonymous: list[str]  # the components in anonymous memory; the others are pages of files
    stored: dict[str, int]  # for each group: units that store their activations
    units: dict[str, int]  # for each group: the most units whose backward a step runs
    checkpoints: int  # units whose input is kept in memory
    offloaded: int  # units whose input is kept in a file
    resident_units: int  # units whose weights stay mapped
    arithmetic: str  # such as int8-avx512vnni
    step_seconds: float  # estimated time of a step, on this machine (by a short benchmark) or on `device`
    read_seconds: float  # of these, the time to read weights from storage that do not fit the budget
    relative_time: float  # relative to a step that stores everything, with all weights in memory
    smallest_budget_mb: float
    longest_seq_len: int  # the longest that fits the budget; 0 if none does
    max_seq_len: int  # the bundle's maximum
    options: dict[str, str]  # every option with its value
    savings: list[dict[str, Any]]  # changes of options that save memory, with their plans
    # For `plan(device=...)`: name, chip, threads, hot_step_seconds, and joules and battery_percent of a hot step.
    device: dict[str, Any] | None

    @property
    def fits(self) -> bool:
        return self.budget_mb is None or self.planned_mb <= self.budget_mb

    def _time(self) -> str:
        reading = f", of which {seconds(self.read_seconds)} reading weights" if self.read_seconds else ""
        relative = f"{self.relative_time:.2f} times the time with everything stored"
        return f"{seconds(self.step_seconds)} per step{reading}; {relative}"

    def summary(self) -> tuple[str, dict[str, str]]:
        longest, all_of_it = self.longest_seq_len, ", the maximum of the bundle"
        rows = {
            "planned": f"{self.planned_mb:.0f} MB, of which {self.planned_anon_mb:.0f} MB anonymous",
            "budget": _budget(self.budget_mb) + ("" if self.fits else ", too small"),
            "backward": mix_in_words(self.to_json()),
            "arithmetic": self.arithmetic,
            "estimated time": self._time(),
            "smallest budget": f"{whole_megabytes(self.smallest_budget_mb)} MB",
        }
        if self.device is not None:
            rows[f"on {self.device['name']}, estimated"] = _on_device(self.device, self.step_seconds)
        if self.budget_mb is not None:
            limit = all_of_it if longest == self.max_seq_len else ""
            rows["longest sequence"] = f"{longest} tokens{limit}" if longest else "none fits"
        return "Plan", rows


@dataclass(frozen=True, repr=False)
class ProfileResult(Result):
    """Planned and measured memory of a few steps. Sizes are in MB of 10^6 bytes, times in seconds.

    The value of a component is its maximum over all samples, so components may peak at different times. Totals are the
    kernel's own peaks.
    """

    model: str
    planned_mb: dict[str, float]
    measured_mb: dict[str, float]
    planned_total_mb: float
    planned_anon_mb: float
    peak_rss_mb: float
    peak_anon_mb: float
    files_mb: dict[str, float]
    budget_mb: float | None
    enforced_by: str  # "cgroup-v2", "cgroup-v1", "rlimit-data" or "sampling"
    cgroup_peak_mb: float | None
    survived: bool
    failure: str | None  # the error that the limit caused, or None
    steps: int
    step_seconds_median: float | None
    samples: int
    stored: dict[str, int]
    units: dict[str, int]
    checkpoints: int
    offloaded: int
    resident_units: int
    mix: str  # the five fields above as text
    options: dict[str, Any]  # the step options with their values

    _ENFORCED = {
        "cgroup-v2": "a memory cgroup",
        "cgroup-v1": "a memory cgroup (version 1)",
        "rlimit-data": "RLIMIT_DATA (limits mapped private memory)",
        "sampling": "nothing; memory was only measured",
    }

    def to_json(self) -> dict[str, Any]:
        values = super().to_json()
        return values.pop("options") | values

    def summary(self) -> tuple[str, dict[str, str]]:
        seconds = self.step_seconds_median
        return "Run", {
            "budget": _budget(self.budget_mb),
            "enforced by": self._ENFORCED[self.enforced_by],
            "survived": "yes" if self.survived else "no",
            "backward": self.mix,
            "median step": "-" if seconds is None else f"{seconds:.3f} s",
            "samples": str(self.samples),
        }


@dataclass(frozen=True, repr=False)
class GenerateResult(Result):
    """An answer; `str(result)` is its text."""

    text: str
    stopped: str  # "stop" (an end token or a stop string) or "length"
    prompt_tokens: int
    tokens: int  # tokens of the answer
    seconds: float

    def __str__(self) -> str:
        return self.text

    def summary(self) -> tuple[str, dict[str, str]]:
        return self.text, {
            "tokens": f"{self.tokens}, {self.tokens / self.seconds:.1f} per second",
            "prompt": f"{self.prompt_tokens} tokens",
            "stopped": self.stopped,
        }


@dataclass(frozen=True, repr=False)
class ConvertResult(Result):
    """A fine-tuned model that was converted for another program."""

    output: Path
    to: str
    model: str
    adapted: int  # number of matrices that the adapter changes
    size: int  # size of all files in bytes

    def summary(self) -> tuple[str, dict[str, str]]:
        rows = {"to": self.to, "model": self.model, "weights adapted": str(self.adapted), "size": megabytes(self.size)}
        return str(self.output), rows


@dataclass(frozen=True, repr=False)
class BundleInfo(Result):
    """The contents of a bundle."""

    bundle: Path
    model: dict[str, Any]
    parameters: int
    formats: list[str]
    conversions: list[
        dict[str, Any]
    ]  # fields of mobile_ft.bundle.description.Conversion: source, format, weights, error
    max_seq_len: int
    lora: dict[str, Any]
    files: dict[str, int]  # sizes in bytes

    def summary(self) -> tuple[str, dict[str, str]]:
        lora = self.lora
        scale = f"rank {lora['rank']}, alpha {lora['alpha']:g}" + (", rsLoRA" if lora["use_rslora"] else "")
        rows = _shape(self.model, self.parameters) | {
            "formats": ", ".join(self.formats),
            **{f"{c['source']} stored as {c['format']}": _kept(c) for c in self.conversions},
            "LoRA": f"{scale}, {lora['parameters'] / 1e6:.2f} M parameters",
            "LoRA on": ", ".join(lora["targets"]),
            "longest sequence": f"{self.max_seq_len} tokens",
        }
        return str(self.bundle), rows | {name: megabytes(size) for name, size in self.files.items()}


@dataclass(frozen=True, repr=False)
class CheckpointInfo(Result):
    """A model, and the bundle that `export_bundle` would make of it."""

    checkpoint: Path
    model: dict[str, Any]
    parameters: int
    # For each source type: source, format, weights, bits (per stored weight), error (of a part of the first matrix).
    # Empty if the model has no weights, such as a config.json.
    weights: list[dict[str, Any]]
    bundle_bytes: int  # size of weights.ptd
    memory: list[dict[str, Any]]  # seq_len, planned_mb, smallest_budget_mb of a step with the default options

    def summary(self) -> tuple[str, dict[str, str]]:
        bits = f"{8 * self.bundle_bytes / self.parameters:.2f} bits per parameter"
        return str(self.checkpoint), {
            "family": self.model["model_type"],
            **_shape(self.model, self.parameters),
            **{f"{c['source']} stored as {c['format']}": _kept(c) + f" at {c['bits']:g} bits" for c in self.weights},
            "weights.ptd": f"{megabytes(self.bundle_bytes)}, {bits}",
            **{
                f"memory at {plan['seq_len']} tokens": f"{plan['planned_mb']:.0f} MB; smallest budget "
                f"{whole_megabytes(plan['smallest_budget_mb'])} MB"
                for plan in self.memory
            },
        }


def _shape(model: dict[str, Any], parameters: int) -> dict[str, str]:
    """Returns the rows that describe the decoder of a bundle or checkpoint."""
    heads, key_heads = model["num_attention_heads"], model["num_key_value_heads"]
    types = list(model["layer_types"])
    of_them = {
        f"with a window of {model['sliding_window']} tokens": types.count(SLIDING),
        "without rotary embedding": types.count(NO_ROPE),
        "with a short convolution in place of attention": types.count(CONV),
    }
    special = "".join(f", {count} of them {what}" for what, count in of_them.items() if count)
    return {
        "model": f"{model['name']}, {parameters / 1e6:.1f} M parameters",
        "layers": f"{model['num_hidden_layers']} x (attention, MLP){special}",
        "hidden, MLP": f"{model['hidden_size']}, {model['intermediate_size']}",
        "heads": f"{heads} of {model['head_dim']}, {key_heads} for keys and values",
        "vocabulary": str(model["vocab_size"]),
    }


def _kept(conversion: dict[str, Any]) -> str:
    error, count = conversion["error"], conversion["weights"]
    how = f"relative error {100 * error:.2g} %" if error else "exact"
    return f"{how}, {count / 1e6:.1f} M weights"


def number(value: float | None) -> str:
    """Formats a loss. The runtime's JSON has null for a loss that is not finite."""
    return "nan" if value is None else f"{value:.4f}"


def seconds(time: float) -> str:
    """Formats an estimated time with two significant digits."""
    return f"{time:.2g} s"


def megabytes(size: float) -> str:
    """Formats a size in bytes as MB of 10^6 bytes, or as kB if it is small."""
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def whole_megabytes(size_mb: float) -> int:
    """Rounds up to a budget in whole MB, plus 1 MB, because code and heap vary by some pages between processes."""
    return math.ceil(size_mb) + 1


def mix_in_words(plan: dict[str, Any]) -> str:
    """Describes the activation policy of a plan."""
    parts = []
    if any(plan["stored"].values()):
        counts = " and ".join(f"{count} {_GROUPS.get(name, name)}" for name, count in plan["stored"].items())
        parts.append(f"activations of {counts} units stored")
    if plan["checkpoints"]:
        parts.append(f"inputs of {_units(plan['checkpoints'])} kept in memory")
    if plan["offloaded"]:
        parts.append(f"inputs of {_units(plan['offloaded'])} offloaded to a file")
    if plan["resident_units"]:
        parts.append(f"weights of {_units(plan['resident_units'])} kept mapped")
    return ", ".join(parts)


def _on_device(device: dict[str, Any], cold_seconds: float) -> str:
    """Formats the fields of DeviceEstimate.of_step."""
    parts = [f"{device['chip']}, {device['threads']} threads: {seconds(cold_seconds)} per step"]
    if device["hot_step_seconds"] > cold_seconds:
        parts.append(f"{seconds(device['hot_step_seconds'])} when hot")
    parts.append(f"{device['joules']:.1f} J per step")
    if device["battery_percent"] is not None:
        parts.append(f"{100 * device['battery_percent']:.1f} % of the battery per 100 steps")
    return ", ".join(parts)


def _units(count: int) -> str:
    return f"{count} unit{'s' * (count != 1)}"


_GROUPS = {"attn": "attention", "mlp": "MLP"}


def _budget(size_mb: float | None) -> str:
    return "none" if size_mb is None else f"{size_mb:.0f} MB"
