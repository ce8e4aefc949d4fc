"""What the library's functions return: readable in a shell, a table in a notebook, and JSON for programs."""

import html
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mobile_ft.model.families import CONV, NO_ROPE, SLIDING


class Result:
    """Shows the rows of `summary`; `to_json` gives the fields."""

    def summary(self) -> tuple[str, dict[str, str]]:
        """A title, and names with values."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """What `--json` writes."""
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
    """A run of training. Sizes in megabytes of 10^6 bytes; of an interrupted run, what is known of it."""

    adapter: Path  # the folder with the adapter and the checkpoint
    steps: int  # done, those before a `resume` among them
    losses: list[float]  # step by step; of an interrupted run, those of this call
    stopped: str | None  # None: it ran to its end; "patience", "interrupted"
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
    memory_mb: dict[str, list[float]]  # "rss_mb" and "anon_mb" after each step of this call
    options: dict[str, str]  # every option with its value
    details: dict[str, Any]  # what else the runtime tells at the end

    @property
    def best_adapter(self) -> Path | None:
        """The folder of the adapter with the lowest validation loss; None where there was no validation."""
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
    """Mean loss of the target tokens, and its exponential."""

    loss: float
    ppl: float
    tokens: int  # with a target

    def summary(self) -> tuple[str, dict[str, str]]:
        rows = {"loss": f"{self.loss:.4f}", "perplexity": f"{self.ppl:.2f}", "tokens": str(self.tokens)}
        return "Held-out data", rows


@dataclass(frozen=True, repr=False)
class PlanResult(Result):
    """The memory of a step, in megabytes of 10^6 bytes."""

    planned_mb: float
    planned_anon_mb: float
    budget_mb: float | None
    components_mb: dict[str, float]
    anonymous: list[str]  # the components that are not pages of files
    stored: dict[str, int]  # units of each group that store their activations
    units: dict[str, int]  # at most, of each group
    checkpoints: int  # units whose input is kept in memory
    offloaded: int  # or in a file
    resident_units: int  # whose weights stay mapped
    arithmetic: str  # such as int8-avx512vnni
    step_seconds: float  # that a step takes on this machine, as far as a short measurement tells, or on `device`
    read_seconds: float  # of these, to read weights from storage that the budget has no room for
    relative_time: float  # of a step that stores everything with all weights in memory
    smallest_budget_mb: float
    longest_seq_len: int  # within the budget; 0: none
    max_seq_len: int  # of the bundle
    options: dict[str, str]  # every option with its value
    savings: list[dict[str, Any]]  # changed options with the plan they would lead to
    # Of `plan(device=...)`: name, chip, threads, hot_step_seconds, and of such a step joules and battery_percent.
    device: dict[str, Any] | None

    @property
    def fits(self) -> bool:
        return self.budget_mb is None or self.planned_mb <= self.budget_mb

    def _time(self) -> str:
        reading = f", {seconds(self.read_seconds)} of it reading weights" if self.read_seconds else ""
        relative = f"{self.relative_time:.2f} times that of storing everything"
        return f"{seconds(self.step_seconds)} a step{reading}; {relative}"

    def summary(self) -> tuple[str, dict[str, str]]:
        longest, all_of_it = self.longest_seq_len, ", all that the bundle was made for"
        rows = {
            "planned": f"{self.planned_mb:.0f} MB, {self.planned_anon_mb:.0f} MB of it anonymous",
            "budget": _budget(self.budget_mb) + ("" if self.fits else ", too small"),
            "backward": mix_in_words(self.to_json()),
            "computes in": self.arithmetic,
            "expected time": self._time(),
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
    """A few steps, planned against measured. Sizes in megabytes of 10^6 bytes, times in seconds.

    Components are the most of any sample, and need not have had it at the same time; totals are the kernel's own.
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
    failure: str | None  # what the limit made of it
    steps: int
    step_seconds_median: float | None
    samples: int
    stored: dict[str, int]
    units: dict[str, int]
    checkpoints: int
    offloaded: int
    resident_units: int
    mix: str  # the last five in words
    options: dict[str, Any]  # those of a step, with their values

    _ENFORCED = {
        "cgroup-v2": "a memory cgroup",
        "cgroup-v1": "a memory cgroup (version 1)",
        "rlimit-data": "RLIMIT_DATA, on mapped private memory",
        "sampling": "nothing, memory was only watched",
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
    stopped: str  # "stop": at its end or a stop string; "length"
    prompt_tokens: int
    tokens: int  # of the answer
    seconds: float

    def __str__(self) -> str:
        return self.text

    def summary(self) -> tuple[str, dict[str, str]]:
        return self.text, {
            "tokens": f"{self.tokens}, {self.tokens / self.seconds:.1f} a second",
            "prompt": f"{self.prompt_tokens} tokens",
            "stopped": self.stopped,
        }


@dataclass(frozen=True, repr=False)
class ConvertResult(Result):
    """A fine-tuned model that was written for other programs."""

    output: Path
    to: str
    model: str
    adapted: int  # weights that the adapter changes
    size: int  # bytes of all files

    def summary(self) -> tuple[str, dict[str, str]]:
        rows = {"to": self.to, "model": self.model, "weights adapted": str(self.adapted), "size": megabytes(self.size)}
        return str(self.output), rows


@dataclass(frozen=True, repr=False)
class BundleInfo(Result):
    """What is in a bundle."""

    bundle: Path
    model: dict[str, Any]
    parameters: int
    formats: list[str]
    conversions: list[dict[str, Any]]  # source, format, weights, error of Conversion, of mobile_ft.bundle.description
    max_seq_len: int
    lora: dict[str, Any]
    files: dict[str, int]  # sizes in bytes

    def summary(self) -> tuple[str, dict[str, str]]:
        lora = self.lora
        scale = f"rank {lora['rank']}, alpha {lora['alpha']:g}" + (", rsLoRA" if lora["use_rslora"] else "")
        rows = _shape(self.model, self.parameters) | {
            "formats": ", ".join(self.formats),
            **{f"{c['source']} kept as {c['format']}": _kept(c) for c in self.conversions},
            "LoRA": f"{scale}, {lora['parameters'] / 1e6:.2f} M parameters",
            "LoRA on": ", ".join(lora["targets"]),
            "longest sequence": f"{self.max_seq_len} tokens",
        }
        return str(self.bundle), rows | {name: megabytes(size) for name, size in self.files.items()}


@dataclass(frozen=True, repr=False)
class CheckpointInfo(Result):
    """What a bundle of a model would be like."""

    checkpoint: Path
    model: dict[str, Any]
    parameters: int
    # Of each type of weights: source, format, weights, bits (a weight, kept), error (of a part of the first). Empty
    # where there are none, but a config.json.
    weights: list[dict[str, Any]]
    bundle_bytes: int  # of weights.ptd
    memory: list[dict[str, Any]]  # seq_len, planned_mb, smallest_budget_mb of a step of `train` with its defaults

    def summary(self) -> tuple[str, dict[str, str]]:
        bits = f"{8 * self.bundle_bytes / self.parameters:.2f} bits a parameter"
        return str(self.checkpoint), {
            "family": self.model["model_type"],
            **_shape(self.model, self.parameters),
            **{f"{c['source']} kept as {c['format']}": _kept(c) + f" at {c['bits']:g} bits" for c in self.weights},
            "weights.ptd": f"{megabytes(self.bundle_bytes)}, {bits}",
            **{
                f"memory at {plan['seq_len']} tokens": f"{plan['planned_mb']:.0f} MB, with a budget down to "
                f"{whole_megabytes(plan['smallest_budget_mb'])} MB"
                for plan in self.memory
            },
        }


def _shape(model: dict[str, Any], parameters: int) -> dict[str, str]:
    """Rows on the decoder of a bundle or checkpoint."""
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
    how = f"relative error {100 * error:.2g} %" if error else "exactly"
    return f"{how}, {count / 1e6:.1f} M weights"


def number(value: float | None) -> str:
    """A loss; the runtime's JSON has null where it is not finite."""
    return "nan" if value is None else f"{value:.4f}"


def seconds(time: float) -> str:
    """As an estimate deserves."""
    return f"{time:.2g} s"


def megabytes(size: float) -> str:
    """Bytes as megabytes, 10^6 bytes each; small files keep their kilobytes."""
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def whole_megabytes(size_mb: float) -> int:
    """A budget of whole megabytes; 1 MB on top, as code and heap are not the same to the page in every process."""
    return math.ceil(size_mb) + 1


def mix_in_words(plan: dict[str, Any]) -> str:
    """How the units that get a backward go about it."""
    parts = []
    if any(plan["stored"].values()):
        counts = " and ".join(f"{count} {_GROUPS.get(name, name)}" for name, count in plan["stored"].items())
        parts.append(f"activations of {counts} units stored")
    if plan["checkpoints"]:
        parts.append(f"inputs of {_units(plan['checkpoints'])} kept in memory")
    if plan["offloaded"]:
        parts.append(f"inputs of {_units(plan['offloaded'])} offloaded to a file")
    if plan["resident_units"]:
        parts.append(f"weights of {_units(plan['resident_units'])} stay mapped")
    return ", ".join(parts)


def _on_device(device: dict[str, Any], cold_seconds: float) -> str:
    """What DeviceEstimate.of_step says."""
    parts = [f"{device['chip']}, {device['threads']} threads: {seconds(cold_seconds)} a step"]
    if device["hot_step_seconds"] > cold_seconds:
        parts.append(f"{seconds(device['hot_step_seconds'])} once it is hot")
    parts.append(f"{device['joules']:.1f} J a step")
    if device["battery_percent"] is not None:
        parts.append(f"{100 * device['battery_percent']:.1f} % of the battery in 100 steps")
    return ", ".join(parts)


def _units(count: int) -> str:
    return f"{count} unit{'s' * (count != 1)}"


_GROUPS = {"attn": "attention", "mlp": "MLP"}


def _budget(size_mb: float | None) -> str:
    return "none" if size_mb is None else f"{size_mb:.0f} MB"
