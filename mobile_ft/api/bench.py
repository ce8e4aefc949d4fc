"""Measures how fast a bundle answers and trains on this machine."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mobile_ft.api.files import writing
from mobile_ft.api.native import Event, run_native
from mobile_ft.api.options import native_arguments, option_texts, step_options, train_settings
from mobile_ft.api.progress import ProgressDisplay
from mobile_ft.api.results import BenchResult, BenchRow
from mobile_ft.api.tokens import check_lengths
from mobile_ft.bundle.description import read_bundle
from mobile_ft.data.packing import EncodedRow, pack, write_token_file
from mobile_ft.errors import UserError

_SEQ_LEN = 256


def bench(
    bundle: str | os.PathLike[str],
    *,
    adapter: str | os.PathLike[str] | None = None,
    n_prompt: Sequence[int] | None = None,
    n_gen: int = 64,
    repetitions: int = 5,
    kv_bits: int = 0,
    progress: bool = True,
    **options: Any,
) -> BenchResult:
    """Measures reading a prompt, answering and training, on random tokens.

    Args:
        bundle: The bundle.
        adapter: Folder of a PEFT adapter. Default: the model as it was exported.
        n_prompt: Tokens of each prompt. Default: those of 32, 256 and 1024 that fit the bundle.
        n_gen: Tokens of the answer behind each prompt.
        repetitions: Number of measurements, whose median counts.
        kv_bits: As for `generate`.
        progress: Show progress.
        options: The step options of docs/reference/options.md. Answers use `compute` and `threads`.

    Raises:
        UserError: An input cannot be used.
    """
    found = read_bundle(Path(bundle))
    given = option_texts(step_options(), options)
    given.setdefault("seq_len", str(min(_SEQ_LEN, found.max_seq_len)))
    settings = train_settings(given)
    if n_prompt is not None and len(n_prompt) == 0:
        raise UserError("n_prompt []: must have at least one length")
    seq_len, batch_size = int(settings["seq_len"]), int(settings["batch_size"])
    check_lengths(found, seq_len, batch_size)
    rows: list[BenchRow] = []
    with tempfile.TemporaryDirectory(prefix="mobile-ft-") as folder:
        tokens = Path(folder) / "tokens.safetensors"
        with writing(tokens):
            _write_random_tokens(tokens, seq_len, batch_size, found.model.vocab_size)
        arguments = ["bench", str(found.folder), "--data", str(tokens), "--parent", str(os.getpid())]
        arguments += ["--n-gen", str(n_gen), "--repetitions", str(repetitions), "--kv-bits", str(kv_bits)]
        if n_prompt is not None:
            arguments += ["--n-prompt", ",".join(map(str, n_prompt))]
        if adapter is not None:
            arguments += ["--adapter", str(adapter)]
        with ProgressDisplay("measurement", progress) as display:

            def on_event(event: Event) -> None:
                if event["event"] == "bench":
                    rows.append(BenchRow(**{name: value for name, value in event.items() if name != "event"}))
                elif event["done"] == 0:
                    display.start(event["total"])
                else:
                    display.update(event["done"])

            run_native([*arguments, *native_arguments(given)], on_event)
    return BenchResult(rows)


def _write_random_tokens(path: Path, seq_len: int, batch_size: int, vocab_size: int) -> None:
    drawn = np.random.default_rng(0).integers(0, vocab_size, (batch_size, seq_len + 1), dtype=np.int32)
    rows = [EncodedRow(row[:-1], row[1:]) for row in drawn]
    write_token_file(path, pack(rows, seq_len, 0))
