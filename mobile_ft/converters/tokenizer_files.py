"""The bundle's tokenizer, for folders that carry one."""

import shutil
from pathlib import Path

from mobile_ft.bundle import Bundle, read_tokenizer
from mobile_ft.tokenizer import TOKENIZER_FILES, Tokenizer


def write_tokenizer_files(bundle: Bundle, out: Path) -> Tokenizer | None:
    """Copies them into the folder `out`; None where the bundle has none, as after `export --random-init`."""
    if not set(TOKENIZER_FILES) <= bundle.files.keys():
        return None
    tokenizer = read_tokenizer(bundle)
    for name in TOKENIZER_FILES:
        shutil.copyfile(bundle.folder / name, out / name)
    return tokenizer
