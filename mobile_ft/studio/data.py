"""Data on the page: files, rows that were typed, and their tokens."""

import json
import os
import re
from dataclasses import asdict
from typing import Any

from mobile_ft.api.data import histogram, inspect_data
from mobile_ft.errors import UserError
from mobile_ft.runtime import data_options
from mobile_ft.studio.workspace import Workspace, free_place, names, place, remove, typed_path

_SHOWN_ROWS = 8
ROWS_ENDING = ".jsonl"


def list_data(studio: Workspace) -> dict[str, Any]:
    return {"data": names(studio.data)}


def link_data(studio: Workspace, path: str) -> dict[str, Any]:
    """Adds a file or folder of this computer by its path."""
    source = typed_path(path)
    if not path or not source.exists():
        raise UserError(f"data {path}: does not exist")
    target = free_place(studio.data, re.sub(r"[^\w.-]|^\.", "-", source.resolve().name))
    os.symlink(source.resolve(), target)
    return {"name": target.name}


def remove_data(studio: Workspace, data: str) -> dict[str, Any]:
    """Removes a file of the studio. Of a file elsewhere, it removes the link alone."""
    remove(studio.rows(data))
    return list_data(studio)


def add_row(studio: Workspace, data: str, row: dict[str, Any]) -> dict[str, Any]:
    """Appends a row to a file of the studio, which the first row makes."""
    path = place(studio.data, data if data.endswith(ROWS_ENDING) else data + ROWS_ENDING)
    if path.is_symlink():
        raise UserError(f"data {data}: lies outside the studio's folder; rows are added to the studio's own files")
    with path.open("ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":  # the last row, of another program, has no end
                file.write(b"\n")
        file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return {"name": path.name}


def look_at_data(studio: Workspace, model: str, data: str, options: dict[str, str]) -> dict[str, Any]:
    """Rows as tokens with the learned ones marked, lengths against seq_len, and what is dropped."""
    known = {"seq_len", "loss", *(option.name for option in data_options())}
    if unknown := options.keys() - known:
        raise UserError(f"{', '.join(unknown)}: unknown option of data; known: {', '.join(sorted(known))}")
    given: dict[str, Any] = {name: value for name, value in options.items() if value != ""}
    if "seq_len" in given:
        given["seq_len"] = int(given["seq_len"])
    report = inspect_data(studio.model(model), studio.rows(data), rows=_SHOWN_ROWS, **given)
    title, rows = report.summary()
    splits = {}
    for name, split in report.splits.items():
        views = [asdict(view) for view in split.first_rows]
        splits[name] = {
            "rows": split.rows,
            "learned": split.learned,
            "tokens": split.tokens,
            "truncated": split.truncated,
            "dropped": split.dropped,
            "bad": split.bad,
            "bad_rows": split.bad_rows,
            "histogram": histogram(split.lengths),
            "first_rows": views,
        }
    return {"title": title, "table": rows, "seq_len": report.seq_len, "splits": splits}
