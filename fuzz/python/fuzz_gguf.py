"""A GGUF file, through what `mobile-ft export` reads of it: metadata, every tensor, the tokenizer."""

from pathlib import Path

from mobile_ft.export.gguf_model import GgufModel
from mobile_ft.shapes import UNIT_TYPES, linear_shapes, vector_shapes
from mobile_ft.tokenizer import Tokenizer
from tests.export.small_gguf import small_gguf


def seeds() -> list[bytes]:
    return [small_gguf("gpt2"), small_gguf("llama")]


def run(data: bytes, folder: Path) -> None:
    (folder / "model.gguf").write_bytes(data)
    model = GgufModel(folder / "model.gguf")
    config = model.config
    model.inv_freq(False)
    model.packed("model.embed_tokens.weight", config.hidden_size, config.vocab_size)
    for layer in range(config.num_hidden_layers):
        for unit in UNIT_TYPES:
            for name, size in vector_shapes(config, unit).items():
                model.vector(f"model.layers.{layer}.{name}", size)
            for name, (columns, rows) in linear_shapes(config, unit).items():
                model.packed(f"model.layers.{layer}.{name}.weight", columns, rows)
    model.write_tokenizer(folder)
    Tokenizer(folder).encode("a b")
