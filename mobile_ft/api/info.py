"""Describes a bundle, or a model that can be exported."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mobile_ft.api.checkpoint import BUILTIN_MODELS
from mobile_ft.api.describe import describe
from mobile_ft.api.export import hollow_bundle, most_seq_len, open_quietly
from mobile_ft.api.hub import find_model
from mobile_ft.api.plan import native_plans
from mobile_ft.api.results import BundleInfo, CheckpointInfo
from mobile_ft.bundle.description import INDEX_FILE, check_files, read_bundle
from mobile_ft.errors import UserError
from mobile_ft.model.formats import FORMATS, PANEL_ROWS
from mobile_ft.model.hf_config import known_config
from mobile_ft.model.shapes import base_parameters, linear_shapes, unit_types

if TYPE_CHECKING:
    from mobile_ft.export.source.source import ModelSource
    from mobile_ft.model.config import ModelConfig

_LENGTHS = (256, 512, 1024, 2048)  # tokens


def info(model: str | os.PathLike[str], *, verify: bool = False) -> BundleInfo | CheckpointInfo:
    """Describes a bundle or a model that `export_bundle` takes. For a model, also estimates the quantization error of
    its weights and the memory of training.

    Args:
        model: A bundle or a model.
        verify: Check every file of the bundle against its checksum. Otherwise only small files are read.

    Raises:
        UserError: A file is missing or damaged, or the model is not supported.
    """
    path = find_model(model)
    named = str(path) in BUILTIN_MODELS or known_config(str(path)) is not None
    folder = path.is_dir() and not (path / "config.json").is_file()
    if folder or (path / INDEX_FILE).is_file() or not (named or path.exists()):
        found = read_bundle(path)
        if verify:
            check_files(found)
        return describe(found)
    if verify:
        raise UserError(f"{model}: not a bundle; verify checks the files of a bundle")
    return _describe_checkpoint(Path(model), path)


def _describe_checkpoint(given: Path, path: Path) -> CheckpointInfo:
    source = open_quietly(path)
    config = source.config
    weights = _weights(source)
    most = most_seq_len(config)
    lengths = [n for n in _LENGTHS if n <= most] or [most]
    with hollow_bundle(path, source, lengths[-1]) as bundle:
        plans = native_plans(bundle, {"seq_len": str(lengths[0])}, [{"seq_len": n} for n in lengths[1:]])
        size = bundle.weights.size
    return CheckpointInfo(
        checkpoint=given,
        model=config.to_json(),
        parameters=base_parameters(config),
        weights=weights,
        bundle_bytes=size,
        memory=[
            {"seq_len": n, "planned_mb": plan["planned_mb"], "smallest_budget_mb": plan["smallest_budget_mb"]}
            for n, plan in zip(lengths, plans, strict=True)
        ],
    )


def _weights(source: "ModelSource") -> list[dict[str, Any]]:
    """Returns for each source type of weights: their format, number, bits per weight, and the quantization error,
    measured on a part of the first matrix."""
    from mobile_ft.export.source.source import CheckpointSource

    if not isinstance(source, CheckpointSource):
        return []
    counts: dict[tuple[str, str], int] = {}
    for name, columns, rows in _matrices(source.config):
        pair = source.rows_of(name, columns, rows)[0], source.format_of(name)
        if pair not in counts:
            next(source.pieces(name, columns, rows))
        counts[pair] = counts.get(pair, 0) + columns * rows
    errors = {(c.source, c.format): c.error for c in source.conversions.to_list()}
    return [
        {
            "source": pair[0],
            "format": pair[1],
            "weights": count,
            "bits": 8 * FORMATS[pair[1]].block_bytes / (PANEL_ROWS * FORMATS[pair[1]].group),
            "error": errors[pair],
        }
        for pair, count in sorted(counts.items())
    ]


def _matrices(config: "ModelConfig") -> Iterator[tuple[str, int, int]]:
    """Yields (name, in_features, out_features) of all linear layers, the embedding and the head."""
    yield config.embedding, config.hidden_size, config.vocab_size
    for layer in range(config.num_hidden_layers):
        for unit in unit_types(config, layer):
            for name, (columns, rows) in linear_shapes(config, layer, unit).items():
                yield f"model.layers.{layer}.{name}.weight", columns, rows
    if not config.tie_word_embeddings:
        yield "lm_head.weight", config.hidden_size, config.vocab_size
