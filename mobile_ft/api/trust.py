"""Whose bundles are used."""

import os
from pathlib import Path

from mobile_ft.api.options import runtime_errors
from mobile_ft.bundle.signature import trust_key
from mobile_ft.runtime import trust_key as trust_natively

_file: Path | None = None


def trust(key: str | os.PathLike[str]) -> None:
    """Accepts only bundles that `export_bundle(sign=...)` signed with the private half of `key`, from now on, in this
    process and its child processes. Other bundles are rejected before anything else in them is read. Another call
    replaces the key; no call removes it.

    Args:
        key: File with an Ed25519 public key (PEM), as `openssl pkey -in KEY -pubout` writes it.

    Raises:
        UserError: The file is no such key.
    """
    global _file
    file = Path(key).resolve()
    pem = trust_key(file)
    with runtime_errors():
        trust_natively(pem)
    _file = file


def native_trust() -> list[str]:
    """The same for mft-run, as arguments."""
    return [] if _file is None else ["--trust", str(_file)]
