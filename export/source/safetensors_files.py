"""Reads safetensors files: a model's files, listed in an index, or a single file. Pickles are rejected."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from mobile_ft.errors import UserError
from mobile_ft.export.quantizer.tensors import Tensors
from mobile_ft.files.git_lfs import check_no_pointer
from mobile_ft.files.json_text import read_json_object

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"


class SafetensorsFiles(Tensors):
    """Tensors in given files."""

    def __init__(self, folder: Path, files: dict[str, Path]):
        self._folder, self._files = folder, files
        self.names = files.keys()

    def where(self, name: str) -> str:
        return str(self._files.get(name, self._folder))

    def _open(self, name: str) -> Any:
        path = self._files[name]
        try:  # reopened each time; otherwise, all pages that were read would count as this process's memory
            return safe_open(path, framework="pt").get_slice(name)  # numpy has no bfloat16
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: not a readable safetensors file with {name} ({error})") from None


def model_tensors(folder: Path) -> SafetensorsFiles:
    """Opens all files of a model. Raises UserError, with the file's name, if one cannot be used or is outside of the
    folder."""
    index = folder / _INDEX
    if not index.is_file():
        return file_tensors(folder, _WEIGHTS, f"{_INDEX} is missing too; save the model with save_pretrained")
    files = read_json_object(index, "use one written by save_pretrained").get("weight_map")
    if not isinstance(files, dict) or not files:
        raise UserError(f"{index}: weight_map is {files!r}; it must map each tensor to its file")
    for name, file in files.items():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise UserError(
                f"{index}: tensor {name} is in {file!r}; it must be in a .safetensors file of the same folder"
            )
    paths = {file: _inside(folder, folder / file) for file in files.values()}
    return SafetensorsFiles(folder, {name: paths[file] for name, file in files.items()})


def file_tensors(folder: Path, file: str, wanted: str) -> SafetensorsFiles:
    """Opens one file. Raises UserError, with its name, if it cannot be used, and with `wanted` if it does not exist."""
    path = folder / file
    if not path.is_file():
        pickled = next((p.name for p in sorted(folder.glob("*")) if p.suffix in (".bin", ".pt", ".pth")), None)
        hint = f"{pickled} is a pickle, which is not supported; " if pickled else ""
        raise UserError(f"{path}: no such file; {hint}{wanted}")
    try:
        with safe_open(_inside(folder, path), framework="np") as opened:
            return SafetensorsFiles(folder, dict.fromkeys(opened.keys(), path))
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: not a readable safetensors file ({error})") from None


def _inside(folder: Path, path: Path) -> Path:
    """Returns the file. Rejects links that lead outside of the folder and of the hub's cache around it."""
    real, home = path.resolve(), folder.resolve()
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    if real.parent != home and not _in_cache(real, home):
        raise UserError(f"{path}: is a link to {real}, which is outside of the folder; copy the file into the folder")
    check_no_pointer(path)
    return path


def _in_cache(real: Path, home: Path) -> bool:
    """Whether `real` is in the hub's cache of the model's folder CACHE/models--NAME/snapshots/COMMIT: in
    CACHE/models--NAME/blobs, or with newer versions in CACHE/blobs/XX, which all models share."""
    if home.parent.name != "snapshots":
        return False
    repository = home.parent.parent
    return real.parent == repository / "blobs" or real.parent.parent == repository.parent / "blobs"
