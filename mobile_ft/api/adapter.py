"""Reads a PEFT adapter and compares it with a bundle."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, deserialize

from mobile_ft.bundle.description import Bundle
from mobile_ft.errors import UserError
from mobile_ft.files.json_text import read_json_object
from mobile_ft.model.lora import ANOTHER_BUNDLE, CONFIG_FILE, WEIGHTS_FILE, check_supported, within_decoder

Tensors = dict[str, npt.NDArray[np.float32]]

_FLOATS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # numpy types; numpy has no bfloat16
_WANTED = f"an adapter is a folder with {WEIGHTS_FILE} and {CONFIG_FILE}"


def read_tensors(path: Path) -> Tensors:
    """Reads the float32, float16 or bfloat16 tensors of an adapter's safetensors file, as float32.

    Raises UserError, with the file's name, if the file cannot be used.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; {_WANTED}")
    try:
        found = dict(deserialize(path.read_bytes()))
    except SafetensorError as error:
        raise UserError(f"{path}: not a readable safetensors file ({error})") from error
    tensors = {}
    for name, tensor in found.items():
        if tensor["dtype"] not in _FLOATS:
            raise UserError(f"{path}: tensor {name} is {tensor['dtype']}; supported: {', '.join(_FLOATS)}")
        values = np.frombuffer(tensor["data"], _FLOATS[tensor["dtype"]])
        if tensor["dtype"] == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = values.astype(np.float32).reshape(tensor["shape"])
    return tensors


def read_matching_tensors(folder: Path, bundle: Bundle) -> Tensors:
    """Reads the adapter's tensors and renames them to the bundle's names, for any of Transformers' model classes.

    Raises UserError if rank, alpha, a name or a shape differs from the bundle's, or a value is not finite.
    """
    _check_config(folder / CONFIG_FILE, bundle)
    path = folder / WEIGHTS_FILE
    tensors, expected = read_tensors(path), read_tensors(bundle.verified(WEIGHTS_FILE))
    names: dict[str, str] = {}
    for name in tensors:
        other = names.setdefault(within_decoder(name), name)
        if other != name:
            raise UserError(f"{path}: tensors {other} and {name} belong to the same linear layer")
    found: Tensors = {}
    for name, like in expected.items():
        own = names.pop(within_decoder(name), None)
        if own is None:
            raise UserError(f"{path}: tensor {name} is missing; {ANOTHER_BUNDLE}")
        tensor = tensors[own]
        if tensor.shape != like.shape:
            raise UserError(
                f"{path}: tensor {own} has shape {tensor.shape}, the bundle's has {like.shape}; {ANOTHER_BUNDLE}"
            )
        if not np.isfinite(tensor).all():
            raise UserError(f"{path}: tensor {own} has values that are not finite")
        found[name] = tensor
    for name in names.values():
        raise UserError(f"{path}: tensor {name} adapts a layer that the bundle does not; {ANOTHER_BUNDLE}")
    return found


def _check_config(path: Path, bundle: Bundle) -> None:
    config = read_json_object(path, _WANTED)
    try:
        check_supported(config)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    try:
        lora = bundle.lora
        expected = {"r": lora.rank, "lora_alpha": lora.alpha, "use_rslora": lora.use_rslora}
        found = {"use_rslora": False} | config  # PEFT's default
        for name, value in expected.items():
            if found[name] != value:
                shown = value if isinstance(value, bool) else f"{value:g}"
                what = f"{name} is {found[name]}; the bundle was exported with {shown}"
                raise UserError(f"{path}: {what}; {ANOTHER_BUNDLE}")
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path}: not a PEFT adapter configuration ({error})") from error
