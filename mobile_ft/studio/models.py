"""Models on the page: what there is, what is being exported, and what `info` says."""

import os
from dataclasses import asdict
from typing import Any

from mobile_ft.api.checkpoint import BUILTIN_MODELS
from mobile_ft.api.info import info
from mobile_ft.bundle.description import INDEX_FILE, read_bundle
from mobile_ft.errors import UserError
from mobile_ft.studio import jobs
from mobile_ft.studio.workspace import Workspace, names, new_place, place, remove, typed_path

# Options of `export` that the page offers, with the flags of the command line.
_OPTIONS = {"lora_rank": "--lora-rank", "lora_alpha": "--lora-alpha", "max_seq_len": "--max-seq-len"}


def list_models(studio: Workspace) -> dict[str, Any]:
    """The bundles, the exports that run or failed, and the models that come with mobile-ft."""
    bundles = [name for name in names(studio.models) if (studio.models / name / INDEX_FILE).is_file()]
    exports = {name: asdict(jobs.state(studio.exports / name)) for name in names(studio.exports)}
    pending = {name: state for name, state in exports.items() if name not in bundles}
    return {"models": bundles, "exports": pending, "builtin": sorted(BUILTIN_MODELS)}


def describe_model(studio: Workspace, model: str) -> dict[str, Any]:
    """What `info` says of a bundle of the studio, as rows."""
    found = info(studio.model(model))
    _, rows = found.summary()
    return {"rows": rows, "max_seq_len": read_bundle(studio.model(model)).max_seq_len}


def describe_source(studio: Workspace, source: str) -> dict[str, Any]:
    """What `info` says of a model that could be exported: a path, a built-in model or one on the hub."""
    title, rows = info(source).summary()
    return {"title": title, "rows": rows}


def add_model(studio: Workspace, source: str, name: str, options: dict[str, str]) -> dict[str, Any]:
    """Starts the export of a model. A bundle is linked as it is."""
    if not source:
        raise UserError("model: name a folder, a .gguf file, a bundle or a model on the hub")
    path = typed_path(source)
    target = new_place(studio.models, name)
    if (path / INDEX_FILE).is_file():
        read_bundle(path)
        os.symlink(path.resolve(), target)
        return list_models(studio)
    if source.startswith("-"):
        raise UserError(f"model {source}: does not exist")
    arguments = ["export", str(path) if path.exists() else source, "--output", str(target)]
    for option, value in options.items():
        if option not in _OPTIONS:
            raise UserError(f"{option}: unknown option of an export; known: {', '.join(_OPTIONS)}")
        if value:
            arguments.append(f"{_OPTIONS[option]}={value}")
    job = studio.exports / name
    job.mkdir(exist_ok=True)
    jobs.start(job, arguments)
    return list_models(studio)


def remove_model(studio: Workspace, model: str) -> dict[str, Any]:
    """Removes a bundle and what is left of its export. Of a bundle elsewhere, it removes the link alone."""
    job, bundle = place(studio.exports, model), place(studio.models, model)
    if jobs.is_running(job):
        raise UserError(f"model {model}: is being exported; wait for its end")
    for path in (job, bundle):
        if path.exists() or path.is_symlink():
            remove(path)
    return list_models(studio)
