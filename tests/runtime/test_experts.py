"""Weights of experts that no token chose stay on disk."""

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

from mobile_ft.bundle.description import read_bundle
from mobile_ft.bundle.flat_tensor import tensor_places
from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.source.random_init import RandomModel
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.lora import LoraConfig
from mobile_ft.runtime import Model

EXPERTS = 16
CONFIG = ModelConfig(
    *("experts", 256, 512, 2, 4, 2, 64, 250, 1e-5, 1e4, 512, True),
    model_type="granitemoe",
    num_experts=EXPERTS,
    num_experts_per_tok=1,
    moe_intermediate_size=2048,
    norm_topk_prob=True,
)


def resident(path: Path) -> np.ndarray:
    """Returns whether each page of a file is in the page cache, by mincore(2)."""
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE) as mapped,
    ):
        pages = -(-len(mapped) // mmap.PAGESIZE)
        flags = (ctypes.c_ubyte * pages)()
        start = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(len(mapped)), flags) == 0
        return np.array(list(flags), np.uint8) & 1 == 1


def test_pages_of_unused_experts(tmp_path: Path) -> None:
    write_bundle(RandomModel(CONFIG, 0), LoraConfig(4, 8.0, ("q_proj",)), 64, 0, tmp_path / "bundle")
    weights = tmp_path / "bundle" / "weights.ptd"
    model = Model(str(tmp_path / "bundle"))
    model.prepare("", 8)
    tokens, positions = np.array([7]), np.zeros(1, np.int64)
    model.logits(tokens, positions)  # verifies the checksums, which reads everything
    file = os.open(weights, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)
    before = resident(weights)
    model.logits(tokens, positions)
    found = resident(weights)
    with weights.open("rb") as opened:
        places = tensor_places(opened.read(read_bundle(tmp_path / "bundle").weights.index_size))
    for layer in range(CONFIG.num_hidden_layers):
        for name in ("gate_up_proj", "down_proj"):
            offset, size = places[f"model.layers.{layer}.block_sparse_moe.experts.{name}.weight"]
            pages = slice(offset // mmap.PAGESIZE, -(-(offset + size) // mmap.PAGESIZE))
            assert before[pages].mean() < 0.01
            # One of the experts, and what the kernel reads around a page.
            assert 0.99 / EXPERTS < found[pages].mean() < 1.5 / EXPERTS
