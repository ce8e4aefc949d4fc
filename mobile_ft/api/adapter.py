"""Reads a PEFT adapter and compares it with a bundle."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from mobile_ft.bundle import Bundle
from mobile_ft.errors import UserError
from mobile_ft.json_text import read_json_object
from mobile_ft.lora import CONFIG_FILE, WEIGHTS_FILE

Tensors = dict[str, npt.NDArray[np.float32]]

_WANTED = f"an adapter is a folder with {WEIGHTS_FILE} and {CONFIG_FILE}"


def read_tensors(path: Path) -> Tensors:
    """The tensors of an adapter's safetensors file. Raises UserError naming it."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; {_WANTED}")
    try:
        tensors = load_file(path)
    except (SafetensorError, ValueError, TypeError, AttributeError) as error:  # numpy may lack a type of tensors
        raise UserError(f"{path}: not a readable safetensors file ({error})") from error
    for name, tensor in tensors.items():
        if tensor.dtype != np.float32:
            raise UserError(f"{path}: tensor {name} is {tensor.dtype}; supported: float32")
    return tensors


def read_matching_tensors(folder: Path, bundle: Bundle) -> Tensors:
    """The adapter's tensors. Raises UserError where rank, alpha, a name or a shape is not the bundle's."""
    _check_config(folder / CONFIG_FILE, bundle)
    path = folder / WEIGHTS_FILE
    tensors, expected = read_tensors(path), read_tensors(bundle.verified(WEIGHTS_FILE))
    for name, like in expected.items():
        if name not in tensors:
            raise UserError(f"{path}: tensor {name} is missing")
        if tensors[name].shape != like.shape:
            raise UserError(f"{path}: tensor {name} is {tensors[name].shape}; the bundle's is {like.shape}")
    for name in tensors:
        if name not in expected:
            raise UserError(f"{path}: tensor {name} adapts a layer that the bundle does not")
    return tensors


def _check_config(path: Path, bundle: Bundle) -> None:
    config = read_json_object(path, _WANTED)
    try:
        lora = bundle.lora
        expected = {"r": lora.rank, "lora_alpha": lora.alpha, "use_rslora": lora.use_rslora}
        found = {"use_rslora": False} | config  # PEFT's default
        for name, value in expected.items():
            if found[name] != value:
                shown = value if isinstance(value, bool) else f"{value:g}"
                raise UserError(f"{path}: {name} is {found[name]}; the bundle was exported with {shown}")
        for name in ("use_dora", "rank_pattern", "alpha_pattern"):
            if found.get(name):
                raise UserError(f"{path}: {name} is not supported")
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path}: not a PEFT adapter configuration ({error})") from error
