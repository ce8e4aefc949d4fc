"""Computes loss and perplexity on held-out data."""

import os
import tempfile
from pathlib import Path
from typing import Any

from mobile_ft.api.native import Event, run_native
from mobile_ft.api.options import option_texts
from mobile_ft.api.progress import ProgressDisplay
from mobile_ft.api.results import EvalResult
from mobile_ft.api.tokens import check_lengths, prepare_tokens
from mobile_ft.bundle.description import Bundle, read_bundle
from mobile_ft.data.rows import DataSource
from mobile_ft.errors import UserError
from mobile_ft.runtime import data_options

_SEQ_LEN = 256


def evaluation_length(bundle: Bundle, seq_len: int | None) -> int:
    """Returns the tokens per sequence: `seq_len`, or by default 256 or the bundle's limit if that is less.

    Raises UserError if the bundle does not support this many.
    """
    length = min(_SEQ_LEN, bundle.max_seq_len) if seq_len is None else seq_len
    check_lengths(bundle, length)
    return length


def evaluate(
    bundle: str | os.PathLike[str],
    data: DataSource,
    *,
    adapter: str | os.PathLike[str] | None = None,
    seq_len: int | None = None,
    progress: bool = True,
    **options: Any,
) -> EvalResult:
    """Computes loss and perplexity, in float32.

    Args:
        bundle: The bundle.
        data: Held-out data: a path, a list of rows or a `datasets.Dataset`. If it has splits, the validation split is
            used.
        adapter: Folder of a PEFT adapter. Default: the model as it was exported.
        seq_len: Tokens per sequence. Default: 256, or the bundle's limit if that is less.
        progress: Show progress.
        options: The data options of docs/reference/options.md.

    Raises:
        UserError: An input cannot be used.
    """
    found = read_bundle(Path(bundle))
    length = evaluation_length(found, seq_len)
    given = option_texts(data_options(), options)
    done: Event = {}
    with tempfile.TemporaryDirectory(prefix="mobile-ft-") as folder:
        tokens = Path(folder) / "tokens.safetensors"
        stats = prepare_tokens(found, data, "valid", length, 0, tokens, options=given)
        arguments = ["eval", str(found.folder), "--data", str(tokens), "--parent", str(os.getpid())]
        if adapter is not None:
            arguments += ["--adapter", str(adapter)]
        with ProgressDisplay("sequence", progress) as display:
            display.start(stats.sequences)

            def on_event(event: Event) -> None:
                if event["event"] == "progress":
                    display.update(event["done"])
                else:
                    done.update(event)

            run_native(arguments, on_event)
    if done["loss"] is None:  # JSON has no NaN
        raise UserError(f"{adapter or found.folder}: the loss is not finite")
    return EvalResult(done["loss"], done["ppl"], done["tokens"])
