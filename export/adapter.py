"""Reads a LoRA adapter to start from, in PEFT's format or in mlx-lm's, which has A and B transposed."""

import math
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mobile_ft.errors import MobileFtWarning, UserError
from mobile_ft.export.quantizer.tensors import FLOATS, Tensors, numbers
from mobile_ft.export.source.safetensors_files import file_tensors
from mobile_ft.files.json_text import read_json_object
from mobile_ft.files.json_values import Values, json_object, positive_int, positive_number
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.formats import F32
from mobile_ft.model.lora import (
    CONFIG_FILE,
    MOST_RANK,
    WEIGHTS_FILE,
    LoraConfig,
    adapter_key,
    check_supported,
    within_decoder,
)
from mobile_ft.model.lora_layers import adaptable_shapes, lora_module, lora_shapes, lora_target, lora_targets
from mobile_ft.model.shapes import experts_of

_WANTED = f"an adapter is a folder with {CONFIG_FILE}, and {WEIGHTS_FILE} (PEFT) or adapters.safetensors (mlx-lm)"
# The parts of a model with vision that do not process text.
_VISION = re.compile(
    r"(?:base_model\.model\.)?(?:model\.)?(?:vision_tower|vision_model|multi_modal_projector|connector)\..+"
)
# Names in Transformers' models, and `backbone` in mlx-lm's Nemotron-H.
_LINEAR = (
    r"(?:backbone\.|(?:language_model\.)?model\.(?:language_model\.|text_model\.)?)layers\.([0-9]{1,4})\.([a-z0-9_.]+)"
)


@dataclass(frozen=True)
class _Description:
    """The content of adapter_config.json, and the names and layout of the tensors, which depend on the program that
    wrote it."""

    file: str
    name: re.Pattern[str]  # matches a tensor's name: layer, linear layer, and A or B
    transposed: bool
    rank: int
    alpha: float
    use_rslora: bool


def read_adapter(folder: Path, config: ModelConfig) -> tuple[LoraConfig, dict[str, F32]]:
    """Returns the adapter's configuration and its tensors, with PEFT's names and shapes (`lora_shapes`).

    Its targets are the names of all linear layers that it adapts in any layer. Raises UserError if training cannot
    start from it.
    """
    path = folder / CONFIG_FILE
    values = read_json_object(path, _WANTED)
    try:
        description = _peft(values) if "peft_type" in values else _mlx(values)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    found = _tensors(file_tensors(folder, description.file, _WANTED), description, config)
    modules = {within_decoder(key).split(".", 2)[2].rpartition(".lora_")[0] for key in found}
    adapted = {
        lora_target(config.family, name)
        for layer in range(config.num_hidden_layers)
        for name in adaptable_shapes(config, layer)
        if lora_module(config.family, name) in modules
    }
    targets = tuple(target for target in lora_targets(config) if target in adapted)
    if not targets:
        raise UserError(f"{folder / description.file}: has no tensors of an adapter; {_WANTED}")
    return LoraConfig(description.rank, description.alpha, targets, description.use_rslora), found


def _peft(values: Values) -> _Description:
    check_supported(values)
    return _Description(
        file=WEIGHTS_FILE,
        name=re.compile(rf"base_model\.model\.{_LINEAR}\.lora_([AB])\.weight"),
        transposed=False,
        rank=positive_int(values, "r", most=MOST_RANK),
        alpha=positive_number(values, "lora_alpha"),
        use_rslora=bool(values.get("use_rslora")),
    )


def _mlx(values: Values) -> _Description:
    kind = "dora" if values.get("use_dora") else values.get("fine_tune_type", "lora")  # older files have use_dora
    if kind != "lora":
        raise ValueError(f"fine_tune_type is {kind!r}; supported: 'lora'")
    parameters = json_object(values, "lora_parameters")
    rank = positive_int(parameters, "rank", most=MOST_RANK)
    scale = positive_number(parameters, "scale")
    if parameters.get("alpha") is not None and (older := positive_number(parameters, "alpha")) != rank:
        raise ValueError(
            f"alpha is {older:g}, and rank {rank}; earlier versions of mlx-lm multiplied scale by alpha / rank, later "
            f"ones do not: remove alpha, and set scale to {scale * older / rank:g} for an adapter of an earlier version"
        )
    alpha = scale * rank
    if math.isinf(alpha):
        raise ValueError(f"scale is {parameters['scale']!r}; it must be smaller")
    return _Description(
        file="adapters.safetensors",
        name=re.compile(rf"{_LINEAR}\.lora_([ab])"),
        transposed=True,
        rank=rank,
        alpha=alpha,
        use_rslora=False,
    )


def _tensors(tensors: Tensors, description: _Description, config: ModelConfig) -> dict[str, F32]:
    shapes = {
        (layer, lora_module(config.family, name)): lora_shapes(description.rank, *shape, experts_of(config, name))
        for layer in range(config.num_hidden_layers)
        for name, shape in adaptable_shapes(config, layer).items()
    }
    found: dict[str, F32] = {}
    names: dict[tuple[int, str, str], str] = {}  # by layer, linear layer, and A or B
    vision = {name: None for name in tensors.names if _VISION.fullmatch(name)}
    if vision:
        where = tensors.where(next(iter(vision)))
        warnings.warn(MobileFtWarning(f"{where}: left out {len(vision)} tensors of the vision tower"), stacklevel=2)
    for name in (name for name in tensors.names if name not in vision):
        match = description.name.fullmatch(name)
        module = (int(match[1]), match[2]) if match else None
        if match is None or module not in shapes:
            known = ", ".join(lora_targets(config))
            raise UserError(
                f"{tensors.where(name)}: tensor {name} is not A or B of one of the model's linear layers: {known}"
            )
        half = match[3].upper()
        other = names.setdefault((*module, half), name)
        if other != name:
            raise UserError(f"{tensors.where(name)}: tensors {other} and {name} belong to the same linear layer")
        shape = list(shapes[module]["AB".index(half)])
        tensor = tensors.get(name, FLOATS, shape[::-1] if description.transposed else shape)
        values = numbers(tensor[:])
        if not np.isfinite(values).all():
            raise UserError(f"{tensors.where(name)}: tensor {name} has values that are not finite")
        key = adapter_key(module[0], f"{module[1]}.lora_{half}.weight")
        found[key] = np.ascontiguousarray(values.T) if description.transposed else values
    for (layer, linear, half), name in names.items():
        if (layer, linear, "AB".replace(half, "")) not in names:
            raise UserError(
                f"{tensors.where(name)}: tensor {name} has no counterpart; an adapter has A and B of each linear layer"
            )
    _check_experts(tensors, {(layer, name) for layer, name in shapes if name.endswith(".base_layer")}, found)
    return found


def _check_experts(tensors: Tensors, inner: set[tuple[int, str]], found: dict[str, F32]) -> None:
    """PEFT's name of the second matrix of experts is that of the first one if it is adapted alone."""
    for layer, name in inner:
        outer = adapter_key(layer, f"{name.removesuffix('.base_layer')}.lora_A.weight")
        if (adapter_key(layer, f"{name}.lora_A.weight") in found) != (outer in found):
            raise UserError(
                f"{tensors.where(outer)}: adapts one of the two matrices of experts in layer {layer}; supported: both"
            )
