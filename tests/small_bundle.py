"""The small random bundle that many tests train: `python tests/small_bundle.py FOLDER` writes one for the C++ tests."""

import sys
from pathlib import Path

from mobile_ft.config import ModelConfig
from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.random_init import RandomModel
from mobile_ft.lora import LoraConfig
from tests.targets import ALL_LINEAR

# 4 layers, grouped heads, a vocabulary that does not fill its last panel.
CONFIG = ModelConfig("small", 64, 96, 4, 4, 2, 16, 250, 1e-5, 1e4, 512, True)


def write_small_bundle(folder: Path) -> Path:
    """LoRA rank 4 on all linears, at most 64 tokens: trains in milliseconds."""
    write_bundle(RandomModel(CONFIG, 0), LoraConfig(4, 8.0, ALL_LINEAR), 64, 0, folder)
    return folder


if __name__ == "__main__":
    write_small_bundle(Path(sys.argv[1]))
