"""train.parquet, through what comes before training."""

from io import BytesIO
from pathlib import Path
from typing import Any

from pyarrow import Table, parquet

from fuzz.python.fuzz_text import tokenizer
from mobile_ft.data.prepare import prepare

_CHAT = [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "ab"}]


def _file(rows: list[dict[str, Any]], **more: Any) -> bytes:
    file = BytesIO()
    parquet.write_table(Table.from_pylist(rows), file, store_schema=False, **more)
    return file.getvalue()


def seeds() -> list[bytes]:
    return [
        _file([{"text": "a b", "weight": 0.5}, {"text": "ab", "weight": None}]),
        _file([{"prompt": "a", "completion": "b"}] * 3, compression="none", use_dictionary=False),
        _file([{"messages": _CHAT}], compression="zstd"),
    ]


def run(data: bytes, folder: Path) -> None:
    (folder / "train.parquet").write_bytes(data)
    prepare(folder / "train.parquet", "train", tokenizer(folder), 16, 0, folder / "tokens.safetensors")
