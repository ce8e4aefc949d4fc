"""A GGUF file in two parts, one behind the other in the input."""

from pathlib import Path

from fuzz.python.fuzz_gguf import export
from tests.export.small_gguf import small_parts

_MAGIC = b"GGUF"


def seeds() -> list[bytes]:
    return [b"".join(small_parts(tokenizer)) for tokenizer in ("gpt2", "llama")]


def run(data: bytes, folder: Path) -> None:
    start = max(data.rfind(_MAGIC), 0)  # of the second part
    paths = [folder / f"model-0000{number}-of-00002.gguf" for number in (1, 2)]
    for path, part in zip(paths, (data[:start], data[start:]), strict=True):
        path.write_bytes(part)
    export(paths[0], folder)
