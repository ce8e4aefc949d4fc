"""Runs a few training steps under a hard memory limit and compares measured memory with the plan."""

import errno
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from mobile_ft.api.export import bundle_or_config
from mobile_ft.api.files import check_output_path, write_json, write_text
from mobile_ft.api.native import Event, run_native
from mobile_ft.api.options import native_arguments, option_texts, step_options, train_settings, value_of
from mobile_ft.api.plan import native_plans
from mobile_ft.api.results import ProfileResult, mix_in_words
from mobile_ft.api.scratch import scratch_folder
from mobile_ft.api.tokens import check_lengths
from mobile_ft.bundle.description import WEIGHTS_FILE, Bundle
from mobile_ft.data.packing import EncodedRow, pack, write_token_file
from mobile_ft.data.prepare import PAIR_LOSSES
from mobile_ft.errors import MobileFtWarning, UserError
from mobile_ft.profile.limit import Limit, memory_limit
from mobile_ft.profile.perfetto import perfetto_trace
from mobile_ft.profile.recording import Recording, Step, read_buffers, read_calls
from mobile_ft.profile.report import html_report
from mobile_ft.profile.result import result_fields
from mobile_ft.profile.sampler import Sampler

_ROWS = 8  # of random tokens; their number does not affect the memory or time of a step


def profile_run(
    bundle: str | os.PathLike[str],
    *,
    steps: int = 3,
    report: str | os.PathLike[str] | None = None,
    trace_out: str | os.PathLike[str] | None = None,
    **options: Any,
) -> ProfileResult:
    """Trains a few steps on random tokens under the budget as a hard limit, and compares measured with planned memory.

    Args:
        bundle: A bundle, a config.json or a known model's name. The latter two are exported with random weights first.
        steps: Number of steps.
        report: HTML file to write, with a timeline and a table.
        trace_out: Trace to write, for ui.perfetto.dev.
        options: The step options of docs/reference/options.md.

    Returns:
        Planned and measured memory. Its `survived` is false if the limit ended the run.

    Raises:
        UserError: An input is wrong.
    """
    if sys.platform != "linux":
        raise UserError("profile: needs Linux, whose kernel tells which pages are resident")
    report_file, trace_file = (None if path is None else Path(path) for path in (report, trace_out))
    check_output_path("report", report_file)
    check_output_path("trace_out", trace_file)
    if steps < 1:
        raise UserError(f"steps {steps}: must be at least 1")
    given = option_texts(step_options(), options)
    settings = train_settings(given)
    seq_len, batch_size = int(settings["seq_len"]), int(settings["batch_size"])
    with bundle_or_config(Path(bundle), seq_len * batch_size) as found:
        check_lengths(found, seq_len, batch_size)
        (plan,) = native_plans(found, given)
        budget_mb = plan["budget_mb"]
        if budget_mb is not None and plan["planned_mb"] > budget_mb:
            warnings.warn(
                f"budget {given['budget']}: the plan needs {plan['planned_mb']:.0f} MB; `mobile-ft train` would "
                "reject this run; profiling it anyway",
                MobileFtWarning,
                stacklevel=2,
            )
            # mft-run would reject it too, so it gets a budget that the smallest plan fits.
            given["budget"] = f"{plan['planned_mb'] + 1:.0f}MB"
        with memory_limit(None if budget_mb is None else round(budget_mb * 1e6)) as limit:
            if limit.enforced_by.startswith("cgroup"):
                _drop_cached(found)
            run = {"steps": str(steps), "save_every": str(steps)} | given
            recording, failure = _record(found, settings, native_arguments(run), plan, limit)
            fields = result_fields(recording, limit, budget_mb, failure is None)
    typed = {option.name: value_of(option, settings[option.name]) for option in step_options()}
    more: dict[str, Any] = {
        "model": found.model.name,
        "mix": mix_in_words(recording.plan),
        "failure": failure,
        "options": typed,
    }
    result = ProfileResult(**fields, **more)
    if trace_file is not None:
        write_json(trace_file, perfetto_trace(recording))
    if report_file is not None:
        write_text(report_file, html_report(recording, result.to_json()))
    return result


def _record(
    bundle: Bundle, settings: dict[str, str], options: list[str], plan: Event, limit: Limit
) -> tuple[Recording, str | None]:
    """Trains. Returns the recording, and the error if the limit caused one."""
    recording, failure = Recording(plan), None
    with scratch_folder() as folder:
        tokens, trace = folder / "tokens.safetensors", folder / "trace.jsonl"
        _write_random_tokens(tokens, bundle.model.vocab_size, int(settings["seq_len"]), settings["loss"])
        command = ["train", str(bundle.folder), "--data", str(tokens), "--out", str(folder / "out")]
        command += ["--parent", str(os.getpid()), "--trace", str(trace), *options]
        if int(settings["eval_every"]) > 0:
            command += ["--valid", str(tokens)]
        watcher = _Watcher(recording, bundle.folder, trace, limit)
        try:
            run_native(command, watcher.on_event, limit.confine, watcher.on_start)
        except (UserError, OSError) as error:
            no_memory = isinstance(error, OSError) and error.errno == errno.ENOMEM
            if not (no_memory or limit.explains(str(error))):
                raise
            failure = str(error)
        finally:
            watcher.stop()
        recording.calls = read_calls(trace)
    return recording, failure


class _Watcher:
    """Fills a recording while mft-run trains."""

    def __init__(self, recording: Recording, bundle: Path, trace: Path, limit: Limit) -> None:
        self._recording, self._bundle, self._trace, self._limit = recording, bundle, trace, limit
        self._pid = 0
        self._sampler: Sampler | None = None

    def on_start(self, pid: int) -> None:
        self._pid = pid

    def on_event(self, event: Event) -> None:
        recording = self._recording
        if event["event"] == "plan":  # by now, the trace lists the buffers
            recording.plan, recording.buffers = event, read_buffers(self._trace)
            try:
                self._sampler = Sampler(self._pid, recording.buffers, self._bundle, self._limit.usage)
            except OSError:  # the limit has already ended the process
                return
            recording.samples = self._sampler.samples
            self._sampler.start()
        elif event["event"] == "step":
            now = time.monotonic()
            recording.steps.append(Step(event["step"], now - event["seconds"], now))
            if self._sampler is not None:
                self._sampler.sample(whole=True)
        elif event["event"] == "done":
            recording.done = event
            self.stop()  # memory that the process frees while it ends is not part of the run

    def stop(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()
            self._sampler = None


def _write_random_tokens(path: Path, vocab_size: int, seq_len: int, loss: str) -> None:
    """Writes sequences of `seq_len` tokens, each of one row or one pair."""
    pairs = loss in PAIR_LOSSES
    rng, length = np.random.default_rng(0), seq_len // 2 if pairs else seq_len

    def row(index: int) -> EncodedRow:
        tokens = rng.integers(0, vocab_size, length + 1).astype(np.int32)
        return EncodedRow(tokens[:-1], tokens[1:], label=index % 2 == 0 if loss == "kto" else None)

    rows = [(row(i), row(i)) if pairs else row(i) for i in range(_ROWS)]
    write_token_file(path, pack(rows, seq_len, 0))


def _drop_cached(bundle: Bundle) -> None:
    """Drops the bundle's pages from the page cache, because a cgroup is charged only for pages that it reads itself."""
    for name in (WEIGHTS_FILE, *bundle.files):
        file = os.open(bundle.folder / name, os.O_RDONLY)
        os.fsync(file)  # pages that are not written yet would stay in the cache
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
