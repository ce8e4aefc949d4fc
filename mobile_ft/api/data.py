"""Inspects training data before a run: learned tokens of each row, lengths of rows, and duplicates."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mobile_ft.api.export import open_quietly
from mobile_ft.api.files import check_output_path, write_text
from mobile_ft.api.hub import find_model
from mobile_ft.api.options import option_texts
from mobile_ft.api.scratch import scratch_folder
from mobile_ft.bundle.description import INDEX_FILE, read_bundle, read_tokenizer
from mobile_ft.data.packing import NO_LOSS, pack
from mobile_ft.data.prepare import PAIR_LOSSES, EncodedRows, Loss, LossMask, Tokens, encode_rows
from mobile_ft.data.row_view import RowView, runs_of
from mobile_ft.data.rows import DataSource, Split, has_split, read_rows_and_errors
from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.errors import UserError
from mobile_ft.runtime import RowText, data_options

ON_BAD_ROW = "skip"  # so that one look shows all that is wrong
_SEQ_LEN = 256
_BINS = 20  # of the histogram
_MOST_NAMED = 10  # duplicates


@dataclass(frozen=True)
class SplitReport:
    """Statistics of one split. A preference counts as one row."""

    rows: int
    forms: dict[str, int]
    truncated: int  # rows cut at the end
    dropped: int  # rows with nothing to learn
    bad: int  # rows that cannot be used
    bad_rows: list[str]  # errors of the first of these
    sequences: int  # after packing
    tokens: int  # in all sequences
    learned: int  # of these, targets of the loss
    lengths: list[int]  # tokens of each row, before truncation
    repeated: int  # duplicates, not counting the first occurrence
    first_rows: list[RowView]


@dataclass(frozen=True)
class DataReport:
    """The result of `inspect_data`."""

    data: Path | None
    seq_len: int
    splits: dict[str, SplitReport]
    in_both: list[str] = field(default_factory=list)  # rows of "valid" that are also in "train", at most ten
    in_both_count: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"data": None if self.data is None else str(self.data)}

    def summary(self) -> tuple[str, dict[str, str]]:
        """Returns the title and the rows of a table."""
        rows: dict[str, str] = {}
        for name, split in self.splits.items():
            lengths = np.array(split.lengths or [0])
            kept = f"{split.truncated:,} truncated, {split.dropped:,} dropped, {split.bad:,} malformed"
            rows[f"{name}: rows"] = f"{split.rows:,} ({', '.join(f'{n:,} {form}' for form, n in split.forms.items())})"
            rows[f"{name}: problems"] = f"{kept}, {split.repeated:,} duplicated"
            rows[f"{name}: tokens per row"] = (
                f"median {int(np.median(lengths))}, 95 % within {int(np.quantile(lengths, 0.95))}, "
                f"longest {lengths.max()}"
            )
            fill = split.tokens / max(1, split.sequences * self.seq_len)
            rows[f"{name}: packed"] = f"{split.sequences:,} sequences of {self.seq_len} tokens, {fill:.0%} full"
            rows[f"{name}: learned"] = (
                f"{split.learned:,} of {split.tokens:,} tokens ({split.learned / max(1, split.tokens):.0%})"
            )
        if "valid" in self.splits:
            rows["in both"] = f"{self.in_both_count:,} rows of valid are also in train"
        return f"data at {self.seq_len} tokens per sequence", rows


def histogram(lengths: list[int]) -> list[tuple[int, int, int]]:
    """Returns (first length, end, number of rows) of bins of equal width. The end is exclusive."""
    if not lengths:
        return []
    width = max(1, -(-(max(lengths) + 1) // _BINS))
    counts = np.bincount(np.array(lengths) // width)
    return [(i * width, (i + 1) * width, int(count)) for i, count in enumerate(counts)]


def inspect_data(
    model: str | os.PathLike[str],
    data: DataSource,
    *,
    valid: DataSource | None = None,
    seq_len: int | None = None,
    loss: Loss = "sft",
    rows: int = 3,
    report: str | os.PathLike[str] | None = None,
    **options: Any,
) -> DataReport:
    """Shows what training on `data` would learn, with the tokenizer and chat template of a model.

    Args:
        model: A bundle, or a model that `export_bundle` takes.
        data: Training data: a path, a list of rows or a `datasets.Dataset`.
        valid: Validation data. Default: the validation split of `data`, if there is one.
        seq_len: Tokens per sequence. Default: 256, or the bundle's limit if that is less.
        loss: "sft"; "dpo", "ipo", "orpo" or "simpo" for preferences; "kto" for answers with a label.
        rows: Rows to show per split.
        report: HTML file to write.
        options: The data options of docs/reference/options.md. Rows that cannot be used are skipped by default.

    Raises:
        UserError: An input cannot be used.
    """
    from mobile_ft.api.data_page import data_page

    given = {"on_bad_row": ON_BAD_ROW} | option_texts(data_options(), options)
    check_output_path("report", None if report is None else Path(report))
    with _tokenizer(model) as (tokenizer, most):
        length = min(_SEQ_LEN, most or _SEQ_LEN) if seq_len is None else seq_len
        sources: dict[Split, DataSource] = {"train": data}
        if valid is not None or has_split(data, "valid"):
            sources["valid"] = data if valid is None else valid
        inspections = {name: _Inspection(tokenizer, length, loss, rows) for name in sources}
        splits: dict[str, SplitReport] = {}
        for name, source in sources.items():
            splits[name] = inspections[name].run(source, name, given)
    both: list[str] = []
    if "valid" in inspections:
        both = [where for key, where in inspections["valid"].seen.items() if key in inspections["train"].seen]
    path = Path(data) if isinstance(data, str | os.PathLike) else None
    found = DataReport(path, length, splits, both[:_MOST_NAMED], len(both))
    if report is not None:
        write_text(Path(report), data_page(found))
    return found


class _Inspection:
    """Collects the report and the duplicates of all splits."""

    def __init__(self, tokenizer: Tokenizer, seq_len: int, loss: Loss, shown: int) -> None:
        self._tokenizer, self._seq_len, self._loss, self._shown = tokenizer, seq_len, loss, shown
        self._lengths: list[int] = []
        self._views: list[RowView] = []
        self.seen: dict[bytes, str] = {}  # digest of a row's content -> place of its first occurrence

    def run(self, source: DataSource, split: Split, options: dict[str, str]) -> SplitReport:
        rows = read_rows_and_errors(source, split)
        encoded = encode_rows(rows, self._tokenizer, self._seq_len, self._loss, options, self._look)
        sequences = pack(encoded.rows, self._seq_len, seed=0)
        return SplitReport(
            rows=encoded.read,
            forms=dict(encoded.forms),
            truncated=encoded.truncated,
            dropped=encoded.dropped,
            bad=encoded.bad,
            bad_rows=encoded.bad_rows,
            sequences=len(sequences.offsets) - 1,
            tokens=int(sequences.offsets[-1]),
            learned=_targets(encoded),
            lengths=self._lengths,
            repeated=len(self._lengths) - len(self.seen),
            first_rows=self._views,
        )

    def _look(self, where: str, text: RowText, sides: list[tuple[Tokens, LossMask]]) -> None:
        self._lengths.append(sum(len(tokens) for tokens, _ in sides))
        key = hashlib.sha256("\0".join(side[0] for side in text.sides).encode()).digest()
        self.seen.setdefault(key, where)
        if len(self._views) < self._shown:
            places = None if text.plain else self._seq_len // 2 if self._loss in PAIR_LOSSES else self._seq_len
            runs = [runs_of(tokens, learned, places, self._tokenizer) for tokens, learned in sides]
            learned = sum(int(mask.sum()) for _, mask in sides)
            form = text.form if text.label is None else f"{text.form}, {'liked' if text.label else 'disliked'}"
            self._views.append(RowView(where, form, text.weight, runs, self._lengths[-1], learned))


def _targets(encoded: EncodedRows) -> int:
    rows = [row for rows in encoded.rows for row in (rows if isinstance(rows, tuple) else (rows,))]
    return sum(int(np.count_nonzero(row.targets != NO_LOSS)) for row in rows)


@contextmanager
def _tokenizer(model: str | os.PathLike[str]) -> Iterator[tuple[Tokenizer, int | None]]:
    """Yields a model's tokenizer, and a bundle's maximum number of tokens (None for other models)."""
    path = find_model(model)
    if (path / INDEX_FILE).is_file():
        bundle = read_bundle(path)
        yield read_tokenizer(bundle), bundle.max_seq_len
        return
    with scratch_folder() as folder:
        open_quietly(path).write_tokenizer(folder)
        if not (folder / "tokenizer.json").is_file():
            raise UserError(f"{model}: has no tokenizer; use a model with one")
        yield Tokenizer(folder), None
