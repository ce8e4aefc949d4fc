"""`mobile-ft train`: fine-tunes the LoRA adapter of a bundle."""

import argparse
from collections import deque
from pathlib import Path
from typing import Any

from mobile_ft.bundle import Bundle, read_bundle
from mobile_ft.cli.arguments import (
    STEP_OPTIONS,
    Subparsers,
    add_adapter,
    add_bundle,
    add_data,
    add_json,
    add_step_options,
    integer,
    native_arguments,
)
from mobile_ft.cli.native import Event, KilledError, run_native
from mobile_ft.cli.output import check_json_path, print_table, warn, write_json
from mobile_ft.cli.progress import ProgressDisplay, duration
from mobile_ft.cli.tokens import check_lengths, prepare_tokens
from mobile_ft.errors import UserError

_TOKENS = "tokens.safetensors"
_CHECKPOINT = "checkpoint.safetensors"
_PASSED_ON = (
    *STEP_OPTIONS,
    *("steps", "seed", "lr", "lr_scheduler", "warmup_steps", "weight_decay", "unselected", "adapter", "save_every"),
)


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("train", help="fine-tune a LoRA adapter")
    add_bundle(parser)
    add_data(parser, "train.jsonl")
    option = parser.add_argument
    option(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("mobile-ft-out"),
        help="for adapter and checkpoint (default: mobile-ft-out)",
    )
    option("--resume", action="store_true", help="go on from the checkpoint in --out")
    add_adapter(parser, "the bundle's own, untrained")
    option("--steps", metavar="N", type=int, default=100, help="optimizer steps (default: 100)")
    add_step_options(parser)
    option("--lr", metavar="RATE", type=float, default=2e-4, help="learning rate (default: 2e-4)")
    option("--lr-scheduler", choices=["cosine", "constant"], default="cosine")
    option("--warmup-steps", metavar="N", type=int, default=0)
    option("--weight-decay", metavar="RATE", type=float, default=0.0)
    option("--unselected", choices=["momentum", "skip"], default="momentum", help="AdamW on the other layers")
    option("--save-every", metavar="N", type=int, default=100, help="steps between saves (default: 100)")
    option("--seed", metavar="N", type=integer(0), default=0)
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    bundle = read_bundle(args.bundle)
    check_lengths(bundle, args.seq_len, args.batch_size)
    check_json_path(args.json)
    if (args.out / _CHECKPOINT).exists() and not args.resume:
        raise UserError(f"{args.out}: holds the checkpoint of an earlier run; give --resume to go on, or another --out")
    tokens = args.out / _TOKENS  # the same file again on --resume: mft-run compares
    prepare_tokens(bundle, args.data, "train", args.seq_len, args.seed, tokens)
    result = _train(args, bundle, tokens)
    write_json(args.json, result)
    _print_summary(args, result)


def _train(args: argparse.Namespace, bundle: Bundle, tokens: Path) -> dict[str, Any]:
    """The fields of `--json`."""
    arguments = ["train", str(bundle.folder), "--data", str(tokens), "--out", str(args.out)]
    arguments += native_arguments(args, _PASSED_ON)
    if args.resume:
        arguments.append("--resume")
    try:
        with ProgressDisplay("step", args.steps) as display:
            watcher = _Watcher(display, args.steps)
            run_native(arguments, watcher.on_event)
    except KilledError as error:
        reason = f"the training process was killed (signal {error.signal})"
        raise UserError(f"{reason}; {_saved(args.out)}") from error
    except KeyboardInterrupt:
        warn(f"interrupted; {_saved(args.out)}")
        raise
    return watcher.result()


def _saved(out: Path) -> str:
    if (out / _CHECKPOINT).exists():
        return f"what was saved last is in {out}, go on with --resume"
    return "nothing was saved yet"


class _Watcher:
    """Follows mft-run's events."""

    def __init__(self, display: ProgressDisplay, steps: int) -> None:
        self._display, self._steps = display, steps
        self._recent: deque[Event] = deque(maxlen=20)
        self._rss: list[float] = []
        self._anon: list[float] = []
        self._done: Event = {}

    def on_event(self, event: Event) -> None:
        if event["event"] == "step":
            self._rss.append(event["rss_mb"])
            self._anon.append(event["anon_mb"])
            self._recent.append(event)
            self._display.update(event["step"], self._text(event))
        elif event["event"] == "done":
            self._done = event

    def _text(self, event: Event) -> str:
        seconds = sum(step["seconds"] for step in self._recent)
        speed = sum(step["tokens"] for step in self._recent) / seconds
        left = (self._steps - event["step"]) * seconds / len(self._recent)
        return (
            f"loss {event['loss']:.4f}  {speed:.0f} tokens/s  RSS {event['rss_mb']:.0f} MB  "
            f"anon {event['anon_mb']:.0f} MB  {duration(left)} left"
        )

    def result(self) -> dict[str, Any]:
        """What mft-run reports at the end, and the memory after each step of this process."""
        fields = {name: value for name, value in self._done.items() if name != "event"}
        return fields | {"memory_mb": {"rss_mb": self._rss, "anon_mb": self._anon}}


def _print_summary(args: argparse.Namespace, result: dict[str, Any]) -> None:
    budget = result["budget_mb"]
    print_table(
        f"{result['steps']} steps of {args.schedule} at {args.seq_len} tokens",
        {
            "loss, first and last step": f"{result['loss_first']:.4f} -> {result['loss_last']:.4f}",
            "speed": f"{result['tokens_per_second']:.0f} tokens/s",
            "median step": f"{result['step_seconds_median']:.2f} s",
            "budget": "none" if budget is None else f"{budget:.0f} MB",
            "planned memory": f"{result['planned_mb']:.0f} MB",
            "peak RSS": f"{result['peak_rss_mb']:.0f} MB",
            "peak anonymous memory": f"{result['peak_anon_mb']:.0f} MB",
            "adapter": str(args.out),
        },
    )
