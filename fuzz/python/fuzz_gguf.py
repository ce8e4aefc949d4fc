"""A GGUF file, through what `mobile-ft export` reads of it: metadata, every tensor, the tokenizer."""

import math
from pathlib import Path

from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.export.source.gguf_blocks import PACKED_FORMATS
from mobile_ft.export.source.gguf_families import ARCHITECTURES
from mobile_ft.export.source.gguf_model import GgufModel
from mobile_ft.model.shapes import linear_shapes, unit_types, vector_shapes
from tests.export.small_gguf import small_gguf, small_gguf_of


def seeds() -> list[bytes]:
    """Every tokenizer, every type of matrix, and the settings of every architecture."""
    tokenizers = [small_gguf("gpt2"), small_gguf("llama"), small_gguf("t5")]
    return [*tokenizers, *(small_gguf("gpt2", t) for t in PACKED_FORMATS), *map(small_gguf_of, ARCHITECTURES)]


def run(data: bytes, folder: Path) -> None:
    (folder / "model.gguf").write_bytes(data)
    export(folder / "model.gguf", folder)


def export(path: Path, folder: Path) -> None:
    """All that `mobile-ft export` reads of the file at `path`."""
    model = GgufModel(path)
    config = model.config
    model.packed("model.embed_tokens.weight", config.hidden_size, config.vocab_size)
    for layer in range(config.num_hidden_layers):
        if config.rope(layer) is not None:
            model.inv_freq(layer)
        for unit in unit_types(config, layer):
            for name, shape in vector_shapes(config, layer, unit).items():
                model.vector(f"model.layers.{layer}.{name}", math.prod(shape))
            for name, (columns, rows) in linear_shapes(config, layer, unit).items():
                model.packed(f"model.layers.{layer}.{name}.weight", columns, rows)
    model.write_tokenizer(folder)
    Tokenizer(folder).encode("a b")
