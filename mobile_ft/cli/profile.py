"""`mobile-ft profile`: a few training steps under a hard limit, planned memory against measured."""

import argparse
import errno
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from mobile_ft.bundle import Bundle
from mobile_ft.cli.arguments import (
    STEP_OPTIONS,
    Subparsers,
    add_bundle_or_config,
    add_json,
    add_step_options,
    integer,
    native_arguments,
)
from mobile_ft.cli.export import bundle_or_config
from mobile_ft.cli.native import Event, run_native
from mobile_ft.cli.output import check_json_path, check_output_path, print_table, warn, write_json, writing
from mobile_ft.cli.plan import fits, mix_in_words, native_plan
from mobile_ft.cli.scratch import scratch_folder
from mobile_ft.cli.tokens import check_lengths
from mobile_ft.errors import UserError
from mobile_ft.packing import EncodedRow, pack, write_token_file
from mobile_ft.profile.limit import Limit, memory_limit
from mobile_ft.profile.perfetto import perfetto_trace
from mobile_ft.profile.recording import Recording, Step, read_buffers, read_calls
from mobile_ft.profile.report import html_report
from mobile_ft.profile.result import result_fields
from mobile_ft.profile.sampler import Sampler

_ROWS = 8  # of random tokens; their number has no part in what a step takes
_ENFORCED = {
    "cgroup-v2": "a memory cgroup",
    "cgroup-v1": "a memory cgroup (version 1)",
    "rlimit-data": "RLIMIT_DATA, on mapped private memory",
    "sampling": "nothing, memory was only watched",
}


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "profile",
        help="run a few steps under a hard limit, and hold measured memory against the plan",
        description="Trains a few steps on random tokens in a process that the kernel holds to --budget: by a memory "
        "cgroup where one can be made, else by RLIMIT_DATA. Without --budget memory is only watched.",
    )
    add_bundle_or_config(parser)
    parser.add_argument("--steps", metavar="N", type=integer(1), default=3, help="optimizer steps (default: 3)")
    add_step_options(parser)
    parser.add_argument("--report", metavar="FILE", type=Path, help="write a timeline and table there, as HTML")
    parser.add_argument("--trace-out", metavar="FILE", type=Path, help="write a trace for ui.perfetto.dev there")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    check_json_path(args.json)
    check_output_path("--report", args.report)
    check_output_path("--trace-out", args.trace_out)
    with bundle_or_config(args.bundle, args.seq_len * args.batch_size) as bundle:
        check_lengths(bundle, args.seq_len, args.batch_size)
        options = native_arguments(args, STEP_OPTIONS)
        plan = native_plan(bundle, options)
        budget_mb = plan["budget_mb"]
        if not fits(plan):
            warn(
                f"--budget {args.budget}: the plan needs {plan['planned_mb']:.0f} MB, `mobile-ft train` would refuse; "
                "running all the same"
            )
            # mft-run would refuse too, so it is told of a budget that the smallest plan fits.
            options += ["--budget", f"{plan['planned_mb'] + 1:.0f}MB"]
        with memory_limit(None if budget_mb is None else round(budget_mb * 1e6)) as limit:
            if limit.enforced_by.startswith("cgroup"):
                _drop_cached(bundle)
            command = ["--steps", str(args.steps), "--save-every", str(args.steps), *options]
            recording, failure = _record(bundle, args.seq_len, command, plan, limit)
            result = result_fields(recording, limit, budget_mb, failure is None)
    names = ("seq_len", "batch_size", "grad_accum", "schedule", "ratio", "backward", "optimizer", "max_grad_norm")
    result |= {"model": bundle.model.name, "mix": mix_in_words(recording.plan)}
    result |= {name: getattr(args, name) for name in names}
    write_json(args.json, result)
    write_json(args.trace_out, perfetto_trace(recording) if args.trace_out else {})
    if args.report is not None:
        with writing(args.report):
            args.report.write_text(html_report(recording, result), encoding="utf-8")
    _print(result)
    if failure is not None:
        raise UserError(
            f"the limit of {budget_mb:.0f} MB ended the training process in step {len(recording.steps) + 1}; by plan "
            f"it needs {result['planned_total_mb']:.0f} MB ({failure})"
        )


def _record(
    bundle: Bundle, seq_len: int, options: list[str], plan: dict[str, Any], limit: Limit
) -> tuple[Recording, str | None]:
    """Trains; the second value is what went wrong, where that was the limit's doing."""
    recording, failure = Recording(plan), None
    with scratch_folder() as folder:
        tokens, trace = folder / "tokens.safetensors", folder / "trace.jsonl"
        _write_random_tokens(tokens, bundle.model.vocab_size, seq_len)
        command = ["train", str(bundle.folder), "--data", str(tokens), "--out", str(folder / "out")]
        command += ["--trace", str(trace), *options]
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
        if event["event"] == "plan":  # the trace names the buffers by now
            recording.plan, recording.buffers = event, read_buffers(self._trace)
            try:
                self._sampler = Sampler(self._pid, recording.buffers, self._bundle, self._limit.usage)
            except OSError:  # the limit has ended it already
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

    def stop(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()


def _write_random_tokens(path: Path, vocab_size: int, seq_len: int) -> None:
    """Sequences of `seq_len` tokens each."""
    tokens = np.random.default_rng(0).integers(0, vocab_size, (_ROWS, seq_len + 1)).astype(np.int32)
    write_token_file(path, pack([EncodedRow(row[:-1], row[1:]) for row in tokens], seq_len, 0))


def _drop_cached(bundle: Bundle) -> None:
    """Puts the bundle's pages out of the page cache: only what a cgroup reads in itself counts in it."""
    for name in bundle.files:
        file = os.open(bundle.folder / name, os.O_RDONLY)
        os.fsync(file)  # what is not on disk yet stays
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def _print(result: dict[str, Any]) -> None:
    table = Table(title="Planned against measured, MB", title_justify="left")
    table.add_column("component")
    for column in ("planned", "measured"):
        table.add_column(column, justify="right")
    for name, planned in result["planned_mb"].items():
        measured = result["measured_mb"][name]
        if planned or measured:
            table.add_row(name, f"{planned:.1f}", f"{measured:.1f}", style="yellow" if measured > planned else "")
    table.add_section()
    table.add_row("anonymous", f"{result['planned_anon_mb']:.1f}", f"{result['peak_anon_mb']:.1f}")
    table.add_row("total", f"{result['planned_total_mb']:.1f}", f"{result['peak_rss_mb']:.1f}", style="bold")
    Console().print(table)
    seconds = result["step_seconds_median"]
    print_table(
        "Run",
        {
            "budget": "none" if result["budget_mb"] is None else f"{result['budget_mb']:.0f} MB",
            "enforced by": _ENFORCED[result["enforced_by"]],
            "survived": "yes" if result["survived"] else "no",
            "backward": result["mix"],
            "median step": "-" if seconds is None else f"{seconds:.3f} s",
            "samples": str(result["samples"]),
        },
    )
