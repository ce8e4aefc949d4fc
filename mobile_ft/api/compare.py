"""Compares adapters of a bundle on the same rows: losses with paired intervals, and answers side by side."""

import os
from collections import defaultdict
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import mean, stdev

from mobile_ft.api.compare_page import compare_page
from mobile_ft.api.evaluate import evaluation_length
from mobile_ft.api.files import check_output_path, write_text
from mobile_ft.api.model import LoadedModel, load
from mobile_ft.api.native import Event, run_native
from mobile_ft.api.progress import ProgressDisplay
from mobile_ft.api.results import ComparedRow, CompareResult, Difference
from mobile_ft.api.scratch import scratch_folder
from mobile_ft.bundle.description import Bundle, read_bundle, read_tokenizer
from mobile_ft.data.packing import EncodedRow, apart, write_token_file
from mobile_ft.data.prepare import encode_each
from mobile_ft.data.rows import DataSource, read_rows
from mobile_ft.errors import UserError

BASE = "base"  # the name of the model without adapter
_SHOWN_TOKENS = 200  # of an answer

Losses = dict[str, tuple[float, int]]  # where a row is -> sum of its losses, and number of its targets


def compare(
    bundle: str | os.PathLike[str],
    data: DataSource,
    adapters: Sequence[str | os.PathLike[str]],
    *,
    seq_len: int | None = None,
    prompts: Sequence[str] = (),
    report: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> CompareResult:
    """Compares the base model and adapters on rows that none of them was trained on.

    Args:
        bundle: The bundle.
        data: Held-out rows: a path, a list of rows or a `datasets.Dataset`. If it has splits, the validation split is
            used, or else the test split.
        adapters: Folders of PEFT adapters. Each is compared with the base model, and with the one before it.
        seq_len: Tokens per row, above which it is truncated. Default: 256, or the bundle's limit if that is less.
        prompts: Questions that all of them answer, greedily.
        report: HTML file to write.
        progress: Show progress.

    Raises:
        UserError: An input cannot be used.
    """
    found = read_bundle(Path(bundle))
    if not adapters:
        raise UserError("adapters: must name at least one adapter")
    for adapter in adapters:
        if not (Path(adapter) / "adapter_config.json").is_file():
            raise UserError(f"{adapter}: is not the folder of an adapter; it has no adapter_config.json")
    if report is not None:
        check_output_path("report", Path(report))
    length = evaluation_length(found, seq_len)
    names = [BASE, *(str(adapter) for adapter in adapters)]
    if len(set(names)) < len(names):
        raise UserError(f"adapters: {', '.join(names[1:])}: each may be named once")
    sides: dict[str, Losses] = {}
    with scratch_folder() as folder, ProgressDisplay("sequence", progress) as display:
        tokens = folder / "rows.safetensors"
        places = _write_rows(found, data, length, tokens)
        for name in names:
            display.print(f"{name}: loss of {len(set(places))} rows")
            sides[name] = _losses(found, tokens, places, None if name == BASE else name, display)
    rows = [
        ComparedRow(where, {name: losses[where][0] / losses[where][1] for name, losses in sides.items()})
        for where in sides[BASE]
    ]
    result = CompareResult(
        names=names,
        losses={name: _per_token(losses) for name, losses in sides.items()},
        differences=[_difference(rows, one, other) for one, other in _pairs(names)],
        rows=rows,
        answers=_answers(found, names, prompts),
    )
    if report is not None:
        write_text(Path(report), compare_page(result))
    return result


def _write_rows(bundle: Bundle, data: DataSource, seq_len: int, out: Path) -> list[str]:
    """Writes each row in a sequence of its own. Returns the place of each sequence's row."""
    encoded: list[EncodedRow] = []
    places: list[str] = []
    for row, found in encode_each(read_rows(data, "valid"), read_tokenizer(bundle), seq_len):
        for piece in found.rows:
            assert isinstance(piece, EncodedRow)  # pairs are of other losses
            encoded.append(piece)
            places.append(row.where)
    if not encoded:
        raise UserError(f"data: no row has anything to learn within {seq_len} tokens")
    write_token_file(out, apart(encoded))
    return places


def _losses(bundle: Bundle, tokens: Path, places: list[str], adapter: str | None, display: ProgressDisplay) -> Losses:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    display.start(len(places))

    def on_event(event: Event) -> None:
        if event["event"] == "progress":
            row = sums[places[event["done"] - 1]]
            row[0] += event["loss"]
            row[1] += event["targets"]
            display.update(event["done"])

    arguments = ["eval", str(bundle.folder), "--data", str(tokens), "--parent", str(os.getpid())]
    run_native(arguments if adapter is None else [*arguments, "--adapter", adapter], on_event)
    return {where: (loss, int(targets)) for where, (loss, targets) in sums.items()}


def _per_token(losses: Losses) -> float:
    return sum(loss for loss, _ in losses.values()) / sum(targets for _, targets in losses.values())


def _pairs(names: list[str]) -> list[tuple[str, str]]:
    """Each adapter with the base model, and with the one before it."""
    with_base = [(names[0], name) for name in names[1:]]
    return with_base + list(zip(names[1:], names[2:], strict=False))


def _difference(rows: list[ComparedRow], one: str, other: str) -> Difference:
    """Returns how the mean loss of a row changes from `one` to `other`, with its 95 % interval (paired t)."""
    changes = [row.losses[other] - row.losses[one] for row in rows]
    half = float("inf")
    if len(changes) > 1:
        half = _t_quantile(len(changes) - 1) * stdev(changes) / sqrt(len(changes))
    change = mean(changes)
    return Difference(
        one=one,
        other=other,
        change=change,
        low=change - half,
        high=change + half,
        better=sum(value < 0 for value in changes),
        worse=sum(value > 0 for value in changes),
    )


def _t_quantile(freedom: int) -> float:
    """Returns the 97.5 % quantile of Student's t, within 1 % from 3 degrees of freedom (Cornish and Fisher)."""
    if freedom < 3:
        return (12.706, 4.303)[freedom - 1]
    z, n = 1.959963984540054, freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def _answers(bundle: Bundle, names: list[str], prompts: Sequence[str]) -> dict[str, list[str]]:
    """Returns the answers to each prompt, in the order of `names`."""
    if not prompts:
        return {}
    model: LoadedModel = load(bundle.folder)
    answers: dict[str, list[str]] = {prompt: [] for prompt in prompts}
    for name in names:
        model.use_adapter(None if name == BASE else name)
        for prompt in prompts:
            answers[prompt].append(model.generate(prompt, temp=0, max_tokens=_SHOWN_TOKENS).text)
    return answers
