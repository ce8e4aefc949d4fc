"""Writes the English dialogues of chatterbot-corpus as training data."""

import importlib.util
import json
import sys
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

_LEFT_OUT = "coding"  # programs rather than dialogues


def write_data(folder: Path, topics: Collection[str] | None = None) -> None:
    """Writes train.jsonl, and valid.jsonl with about a tenth of the dialogues. `topics` are files of the corpus
    (default: all)."""
    splits: dict[str, dict[str, None]] = {"train": {}, "valid": {}}  # the keys are the distinct dialogues, in order
    for file in sorted(_source().glob("*.yml")):
        if file.stem == _LEFT_OUT or (topics is not None and file.stem not in topics):
            continue
        for dialogue in yaml.safe_load(file.read_text(encoding="utf-8"))["conversations"]:
            messages = to_messages(dialogue)
            if messages:
                # Split by the question, so that no held-out question is trained with another answer.
                held_out = zlib.crc32(messages[0]["content"].lower().encode()) % 10 == 0
                splits["valid" if held_out else "train"][json.dumps({"messages": messages})] = None
    folder.mkdir(parents=True)
    for name, rows in splits.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{row}\n" for row in rows))
        print(f"{folder / name}.jsonl: {len(rows)} dialogues")


def to_messages(dialogue: Any) -> list[dict[str, str]]:
    """Returns messages of user and assistant in turn, up to the last answer, or [] if an item is malformed."""
    if not isinstance(dialogue, list) or not all(isinstance(text, str) for text in dialogue):
        return []
    answered = dialogue[: len(dialogue) // 2 * 2]
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text.strip()} for i, text in enumerate(answered)]


def _source() -> Path:
    package = importlib.util.find_spec("chatterbot_corpus")
    if package is None or not package.submodule_search_locations:
        sys.exit("chatterbot-corpus is not installed; run `make setup`")
    return Path(package.submodule_search_locations[0]) / "data" / "english"
