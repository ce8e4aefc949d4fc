"""Text to token file, with the checks that come before and the warnings after."""

from pathlib import Path
from typing import Literal

from mobile_ft.bundle import Bundle, read_tokenizer
from mobile_ft.cli.output import warn, writing
from mobile_ft.data import DataStats, prepare
from mobile_ft.errors import UserError


def check_lengths(bundle: Bundle, seq_len: int, batch_size: int = 1) -> None:
    """Raises UserError where the bundle's program was not made for so many tokens at once."""
    if seq_len * batch_size > bundle.max_seq_len:
        asked = f"--seq-len {seq_len}" + (f" x --batch-size {batch_size}" if batch_size > 1 else "")
        raise UserError(
            f"{asked} is more than the {bundle.max_seq_len} tokens that {bundle.folder} was exported for; "
            "use less, or export it again with a larger --max-seq-len"
        )


def prepare_tokens(
    bundle: Bundle, data: Path, split: Literal["train", "valid"], seq_len: int, seed: int, out: Path
) -> DataStats:
    """Writes one split of `data` to the token file `out` and warns of rows that were cut or left out."""
    tokenizer = read_tokenizer(bundle)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        stats = prepare(data, split, tokenizer, seq_len, seed, out)
    if stats.truncated:
        warn(f"{data}: {stats.truncated} of {stats.rows} rows lost their end at --seq-len {seq_len}")
    if stats.dropped:
        warn(f"{data}: {stats.dropped} of {stats.rows} rows left out: nothing to learn at --seq-len {seq_len}")
    return stats
