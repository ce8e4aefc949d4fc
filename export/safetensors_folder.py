"""The safetensors files of a Hugging Face folder: one, or several that an index names. Pickles are refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from mobile_ft.errors import UserError
from mobile_ft.export.tensors import Tensors
from mobile_ft.json_text import read_json_object

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"


class SafetensorsFolder(Tensors):
    """Raises UserError naming the file where it cannot be used, or leads out of the folder."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._files = dict(_tensor_files(folder))
        self.names = self._files.keys()
        self._opened: dict[Path, Any] = {}

    def where(self, name: str) -> str:
        return str(self._files.get(name, self._folder))

    def _open(self, name: str) -> Any:
        path = self._files[name]
        try:
            if path not in self._opened:
                self._opened[path] = safe_open(path, framework="pt")  # numpy has no bfloat16
            return self._opened[path].get_slice(name)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: not a readable safetensors file with {name} ({error})") from None


def _tensor_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every tensor's name, and the file that holds it."""
    index, whole = folder / _INDEX, folder / _WEIGHTS
    if index.is_file():
        files = read_json_object(index, "give one that save_pretrained wrote").get("weight_map")
        if not isinstance(files, dict) or not files:
            raise UserError(f"{index}: weight_map is {files!r}; it should name each tensor's file")
        for name, file in files.items():
            if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
                raise UserError(f"{index}: tensor {name} is in {file!r}; it should be in a .safetensors file beside it")
            yield name, inside(folder, folder / file)
        return
    if not whole.is_file():
        hint = pickle_hint(folder)
        raise UserError(f"{whole}: no such file, nor {_INDEX}{hint}; save the model with save_pretrained")
    try:
        with safe_open(inside(folder, whole), framework="np") as file:
            yield from ((name, whole) for name in file.keys())  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{whole}: not a readable safetensors file ({error})") from None


def pickle_hint(folder: Path) -> str:
    """A clause on a pickle that the folder has in place of what was looked for; empty where there is none."""
    pickled = next((p.name for p in sorted(folder.glob("*")) if p.suffix in (".bin", ".pt", ".pth")), None)
    return f"; {pickled} is a pickle, which is not read" if pickled else ""


def inside(folder: Path, path: Path) -> Path:
    """The file, unless it is a link that leads elsewhere than the folder, or the blobs of the Hub's cache around it."""
    real, home = path.resolve(), folder.resolve()
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    if real.parent not in (home, home.parent.parent / "blobs"):
        raise UserError(f"{path}: a link to {real}, which is outside of the folder")
    return path
