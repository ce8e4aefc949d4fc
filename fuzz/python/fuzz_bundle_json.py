"""bundle.json, through `mobile-ft info`."""

import hashlib
import json
from pathlib import Path
from typing import Any

from mobile_ft.api.files import write_json
from mobile_ft.api.info import info
from mobile_ft.bundle.description import FORMAT, VERSION
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.hf_config import known_config, known_models, read_hf_config
from mobile_ft.model.lora import WEIGHTS_FILE as ADAPTER

MODEL = ModelConfig("tiny", 32, 32, 1, 2, 1, 16, 8, 1e-5, 1e4, 64, True)
NO_TENSORS = (2).to_bytes(8, "little") + b"{}"  # a safetensors file
NO_TENSORS_SUM = {"size": len(NO_TENSORS), "sha256": hashlib.sha256(NO_TENSORS).hexdigest()}


def description(model: ModelConfig = MODEL) -> dict[str, Any]:
    lora = {"rank": 2, "alpha": 4.0, "targets": ["q_proj"], "use_rslora": False}
    file = {"size": 1, "sha256": "0" * 64}
    weights = {"size": 1, "index_size": 1, "index_sha256": "0" * 64, "sha256": {"inv_freq": "0" * 64}}
    values = {"format": FORMAT, "version": VERSION, "model": model.to_json(), "lora": lora, "max_seq_len": 64}
    conversion = {"source": "Q6_K", "format": "q8_0_g16", "weights": 10, "error": 1e-4}
    return values | {
        "base_model": {"name": "tiny", "modules": "model"},
        "activation": "exact",
        "conversions": [conversion],
        "formats": {"lm_head.weight": "q4_0"},
        "checksums": {"program.pte": file, ADAPTER: NO_TENSORS_SUM},
        "weights": weights,
    }


def seeds() -> list[bytes]:
    """Also with the settings of every known model."""
    known = [read_hf_config(path) for name in known_models() if (path := known_config(name)) is not None]
    return [json.dumps(description(model)).encode() for model in (MODEL, *known)]


def run(data: bytes, folder: Path) -> None:
    (folder / "bundle.json").write_bytes(data)
    (folder / ADAPTER).write_bytes(NO_TENSORS)
    found = info(folder)
    write_json(folder / "info.json", found.to_json())
    found.summary()
