"""train.csv, through what comes before training."""

from pathlib import Path

from fuzz.python.fuzz_text import tokenizer
from mobile_ft.data.prepare import prepare


def seeds() -> list[bytes]:
    return [
        b"prompt,completion,weight\na,b,0.5\na b,ab,\n",
        b'\xef\xbb\xbftext\r\n"a ""b""\nab"\r\n',
        b"instruction,input,output\na,,b\n",
    ]


def run(data: bytes, folder: Path) -> None:
    (folder / "train.csv").write_bytes(data)
    prepare(folder / "train.csv", "train", tokenizer(folder), 16, 0, folder / "tokens.safetensors")
