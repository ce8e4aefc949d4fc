"""Whose bundles are used."""

import os
from pathlib import Path

from mobile_ft.api.options import runtime_errors
from mobile_ft.bundle.signature import trust_key
from mobile_ft.runtime import trust_key as trust_natively

_file: Path | None = None


def trust(key: str | os.PathLike[str]) -> None:
    """From now on this process, and what it starts, uses bundles only where `export_bundle(sign=...)` signed them with
    the private half of `key`, a file with an Ed25519 public key in PEM (`openssl pkey -in KEY -pubout`). A bundle that
    was changed since, or that is not signed, is refused before anything else of it is read.

    Another call trusts another key in its place; none takes it back. Raises UserError naming the file where it is no
    such key.
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
