"""Reads a Transformers model in memory, with float weights or quantized by bitsandbytes, and its tokenizer."""

import tempfile
from pathlib import Path
from typing import Any

from mobile_ft.data.tokenizer import GENERATION_FILE
from mobile_ft.errors import UserError
from mobile_ft.export.quantizer.tensors import Tensors
from mobile_ft.export.source.hf_checkpoint import HfCheckpoint
from mobile_ft.export.source.hf_folder import copy_tokenizer
from mobile_ft.model.hf_config import folder_name

_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "uint8": "U8", "int32": "I32"}


class HfModel(HfCheckpoint):
    """A model in memory, with the content that `model.save_pretrained` would write. `tokenizer` may be None.

    Raises UserError, with the name of the model's class, if it cannot be used.
    """

    def __init__(self, model: Any, tokenizer: Any, linear_format: str, embedding_format: str):
        name, tensors = type(model).__name__, _StateDict(model)
        if any(".base_layer." in tensor for tensor in tensors.names):
            raise UserError(f"{name}: has an adapter; call merge_and_unload() or unload() first")
        with tempfile.TemporaryDirectory(prefix="mobile-ft-") as folder:
            config = Path(folder) / "config.json"
            model.config.to_json_file(config, use_diff=False)
            try:
                super().__init__(config, tensors, linear_format, embedding_format)
            except UserError as error:
                raise UserError(str(error).replace(str(config), f"{name}.config")) from None
        # The name that was passed to from_pretrained; saved files do not have it.
        path = str(getattr(model, "name_or_path", "") or name)
        path = folder_name(path) if Path(path).is_dir() else path
        self._name_model(path)
        self._model_name, self._model_config = name, model.config
        self._tokenizer, self._generation_config = tokenizer, getattr(model, "generation_config", None)

    def write_tokenizer(self, folder: Path) -> None:
        if self._tokenizer is None:
            return
        with tempfile.TemporaryDirectory(prefix="mobile-ft-") as saved:
            self._tokenizer.save_pretrained(saved)
            if self._generation_config is not None:
                # save_pretrained would reject contradictory settings.
                self._generation_config.to_json_file(Path(saved) / GENERATION_FILE)
            self._model_config.to_json_file(Path(saved) / "config.json", use_diff=False)
            try:
                copy_tokenizer(Path(saved), folder, self.config.vocab_size)
            except UserError as error:
                raise UserError(str(error).replace(saved, self._model_name)) from None


class _StateDict(Tensors):
    def __init__(self, model: Any):
        self._model = type(model).__name__
        self._tensors = model.state_dict()
        self.names = self._tensors.keys()

    def where(self, name: str) -> str:
        return self._model

    def _open(self, name: str) -> Any:
        if self._tensors[name].is_meta:
            raise UserError(f"{self._model}: tensor {name} is not in memory; load the model without offloading")
        return _Slices(self._tensors[name])


class _Slices:
    """A tensor with the interface of safetensors' slices."""

    def __init__(self, tensor: Any):
        self._tensor = tensor.detach()

    def get_dtype(self) -> str:
        dtype = str(self._tensor.dtype).removeprefix("torch.")
        return _DTYPES.get(dtype, dtype)

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def __getitem__(self, index: Any) -> Any:
        return self._tensor[index]
