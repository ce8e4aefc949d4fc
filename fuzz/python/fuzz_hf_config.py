"""A config.json, through what `mobile-ft export --random-init` works out of it before it makes weights."""

from pathlib import Path

from mobile_ft.model.hf_config import known_config, known_models, read_hf_config
from mobile_ft.model.lora_layers import linear_names
from mobile_ft.model.rope import frequencies, rope_factor
from mobile_ft.model.shapes import base_parameters


def seeds() -> list[bytes]:
    return [path.read_bytes() for name in known_models() if (path := known_config(name)) is not None]


def run(data: bytes, folder: Path) -> None:
    (folder / "config.json").write_bytes(data)
    config = read_hf_config(folder / "config.json")
    base_parameters(config)
    linear_names(config)
    for layer in range(config.num_hidden_layers):
        if (rope := config.rope(layer)) is not None:
            frequencies(config.head_dim, *rope)
            rope_factor(rope[1])
