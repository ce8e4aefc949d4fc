"""Recognizes a model in the hub's cache: CACHE/models--OWNER--NAME/snapshots/COMMIT."""

import re
from pathlib import Path

_REPOSITORY = re.compile(r"models--([\w.-]+?)--([\w.-]+)", re.ASCII)


def cached_repository(path: Path) -> str | None:
    """Returns owner/name of a model in the cache, from the path of its folder or config.json, or None."""
    folder = path.parent if path.name == "config.json" else path
    match = _REPOSITORY.fullmatch(folder.parent.parent.name) if folder.parent.name == "snapshots" else None
    return None if match is None else f"{match[1]}/{match[2]}"
