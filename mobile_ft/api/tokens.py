"""Writes token files, with checks before and warnings afterwards."""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from mobile_ft.api.files import writing
from mobile_ft.bundle.description import Bundle, read_tokenizer
from mobile_ft.data.prepare import DataStats, Loss, prepare
from mobile_ft.data.rows import DataSource, Split, has_split
from mobile_ft.errors import MobileFtWarning, UserError
from mobile_ft.runtime import data_options

T = TypeVar("T")


def check_lengths(bundle: Bundle, seq_len: int, batch_size: int = 1) -> None:
    """Raises UserError if the bundle does not support this many tokens per batch."""
    if seq_len * batch_size > bundle.max_seq_len:
        asked = f"seq_len {seq_len}" + (f" x batch_size {batch_size}" if batch_size > 1 else "")
        raise UserError(
            f"{asked} exceeds the {bundle.max_seq_len} tokens that {bundle.folder} was exported for; "
            "lower it, or export the bundle again with a larger max_seq_len"
        )


def data_path(data: DataSource) -> Path | None:
    """Returns the path of the data, or None if it is in memory."""
    return Path(data) if isinstance(data, (str, os.PathLike)) else None


def prepare_tokens(
    bundle: Bundle,
    data: DataSource,
    split: Split,
    seq_len: int,
    seed: int,
    out: Path,
    loss: Loss = "sft",
    options: Mapping[str, str] | None = None,
) -> DataStats:
    """Writes one split of `data` to the token file `out`, and warns about rows that were truncated or left out.

    Only those `options` are used that `data_options` lists.
    """
    tokenizer = read_tokenizer(bundle)
    path = data_path(data)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        stats = prepare(data, split, tokenizer, seq_len, seed, out, loss, data_settings(options or {}))
    where = path or f"{split} data"
    if stats.bad:
        _warn(f"{where}: {stats.bad} of {stats.rows} rows were skipped as malformed: {'; '.join(stats.bad_rows)}")
    if stats.truncated:
        _warn(f"{where}: {stats.truncated} of {stats.rows} rows were truncated at seq_len {seq_len}")
    if stats.dropped:
        _warn(f"{where}: {stats.dropped} of {stats.rows} rows were dropped: no tokens to train on at seq_len {seq_len}")
    return stats


def validation_data(data: DataSource, valid: DataSource | None, eval_every: int) -> DataSource | None:
    """Returns the data to validate on: `valid`, else the split of `data`. None if the run does not validate."""
    if eval_every == 0:
        if valid is not None:
            raise UserError("valid: requires eval_every, the number of steps between validations")
        return None
    if valid is None and not has_split(data, "valid"):
        raise UserError(
            f"eval_every {eval_every}: requires valid, or data with a validation split, such as a folder with "
            "valid.jsonl"
        )
    return data if valid is None else valid


def forms_in_words(stats: DataStats) -> str:
    """Describes the rows, such as "data: 120 rows of chat messages, 3 of text"."""
    forms = [f"{count:,} {'rows ' if i == 0 else ''}of {form}" for i, (form, count) in enumerate(stats.forms.items())]
    return f"data: {', '.join(forms)}"


def data_settings(options: Mapping[str, T]) -> dict[str, T]:
    """Returns the options that affect tokenization."""
    names = {option.name for option in data_options()}
    return {name: text for name, text in options.items() if name in names}


def _warn(message: str) -> None:
    warnings.warn(message, MobileFtWarning, stacklevel=4)
