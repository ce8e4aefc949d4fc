"""Opens models for export. Imports torch only for models that need it."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mobile_ft.api.hub import find_model
from mobile_ft.api.progress import ProgressDisplay
from mobile_ft.errors import UserError, check_installed
from mobile_ft.files.json_text import read_json_object
from mobile_ft.model.formats import FORMATS
from mobile_ft.model.hf_config import base_model, known_config, known_models, read_hf_config, text_settings
from mobile_ft.model.hub_cache import cached_repository

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from mobile_ft.export.source.hf_checkpoint import HfCheckpoint
    from mobile_ft.export.source.source import ModelSource

WEIGHT_FORMATS = tuple(FORMATS)
# The format of 4 to 5 bits with the lowest perplexity (docs/benchmarks.md).
DEFAULT_FORMAT, DEFAULT_EMBEDDING_FORMAT = "iq4_nl", "q8_0"
BUILTIN_MODELS = ("smollm2-135m",)
_EXACT = "f16"


@dataclass(frozen=True)
class Quantization:
    """How to quantize a model with float weights. None selects the default.

    `linear` is the format of linear layers, and `embedding` that of the embedding and the output head; both are names
    in WEIGHT_FORMATS. `calibration` is a text file, whose activations weight the quantization errors of the columns of
    linear layers.
    """

    linear: str | None = None
    embedding: str | None = None
    calibration: Path | None = None

    def __post_init__(self) -> None:
        for option, name in (("quant", self.linear), ("quant_embedding", self.embedding)):
            if name is not None and name not in WEIGHT_FORMATS:
                raise UserError(f"{option} {name}: must be one of {', '.join(WEIGHT_FORMATS)}")

    def only_for_floats(self, embedding: bool) -> str | None:
        """Returns a given option that has no effect on quantized linear layers (with `embedding`: on a model in which
        all weights are quantized), or None."""
        if self.linear is not None:
            return f"quant {self.linear}"
        if self.calibration is not None:
            return f"calibration {self.calibration}"
        return f"quant_embedding {self.embedding}" if embedding and self.embedding is not None else None


def open_checkpoint(
    model: "str | os.PathLike[str] | PreTrainedModel",
    tokenizer: Any = None,
    quantization: Quantization = Quantization(),
    random_init: bool = False,
    seed: int = 0,
    progress: bool = True,
) -> "ModelSource":
    """Opens a model: a built-in one, a .gguf file, a Hugging Face folder, a model on the hub, which is downloaded, or a
    Transformers model in memory with its tokenizer.

    With `random_init`, `model` is a config.json or a known model's name, and the weights are random numbers of `seed`.
    `progress` shows downloads and the calibration. Raises UserError if the model cannot be used.
    """
    if not isinstance(model, str | os.PathLike):
        from mobile_ft.export.source.hf_model import HfModel

        return _quantized(lambda *to: HfModel(model, tokenizer, *to), type(model).__name__, quantization, progress)
    if tokenizer is not None:
        raise UserError(f"{model}: has its own tokenizer; set tokenizer only for a model in memory")
    name = os.fspath(model)
    path = known_config(name) or find_model(name, random_init, progress)
    if (path / "config.json").is_file():
        if not random_init:
            return _quantized(lambda *to: _hf_folder(path, *to), name, quantization, progress)
        path = path / "config.json"
    option = quantization.only_for_floats(embedding=True)
    if option is not None:
        raise UserError(f"{option}: applies to models with float weights; the weights of {name} are already quantized")
    if path.suffix == ".json":
        if not random_init:
            raise UserError(f"{name}: has no weights; use a Hugging Face folder or a .gguf file, or set random_init")
        from mobile_ft.export.source.random_init import RandomModel

        config = read_hf_config(path)  # first, because its errors name the file
        settings = text_settings(read_json_object(path, "use a Hugging Face config.json"))
        return RandomModel(config, seed, base_model(path), settings)
    if random_init:
        raise UserError(f"{name}: random_init requires a config.json or one of {', '.join(known_models())}")
    if name not in BUILTIN_MODELS and path.suffix != ".gguf":
        raise UserError(
            f"{name}: no such file, folder or built-in model; use "
            f"{' or '.join(BUILTIN_MODELS)}, a .gguf file, a Hugging Face folder, a model on the hub as OWNER/NAME, or "
            "a config.json with random_init"
        )
    check_installed("gguf", name)
    from mobile_ft.export.source.gguf_model import GgufModel, builtin_model

    return GgufModel(builtin_model(name) or path)


def _hf_folder(path: Path, linear_format: str, embedding_format: str) -> "HfCheckpoint":
    from mobile_ft.export.source.hf_folder import HfFolder

    source, repository = HfFolder(path, linear_format, embedding_format), cached_repository(path)
    if repository is not None:
        source.config = replace(source.config, name=repository)
    return source


def _quantized(
    make: Callable[[str, str], "HfCheckpoint"], name: str, quantization: Quantization, progress: bool
) -> "HfCheckpoint":
    source = make(quantization.linear or DEFAULT_FORMAT, quantization.embedding or DEFAULT_EMBEDDING_FORMAT)
    option = quantization.only_for_floats(embedding=False)
    if option is not None and source.method is not None:
        raise UserError(f"{option}: {name} is already quantized by {source.method} and keeps its formats; leave it out")
    if quantization.calibration is not None:
        check_installed("torch", "calibration")
        from mobile_ft.export.calibration import calibrate

        with ProgressDisplay("calibration layer", progress) as display:
            calibrate(source, make(_EXACT, _EXACT), quantization.calibration, display.count)
    return source
