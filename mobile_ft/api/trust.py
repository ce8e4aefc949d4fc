"""Accepts only bundles that are signed with a trusted key."""

import os
from pathlib import Path

from mobile_ft.api.options import runtime_errors
from mobile_ft.bundle.signature import trust_key
from mobile_ft.runtime import trust_key as trust_natively

_file: Path | None = None


def trust(key: str | os.PathLike[str]) -> None:
    """Accepts only bundles that were signed with the private key of `key` (see `sign` of `export_bundle`).

    This applies from now on to this process and its child processes. Other bundles are rejected before anything else in
    them is read. Another call replaces the key; no call removes it.

    Args:
        key: File with an Ed25519 public key (PEM), as `openssl pkey -in KEY -pubout` writes it.

    Raises:
        UserError: The file is not such a key.
    """
    global _file
    file = Path(key).resolve()
    pem = trust_key(file)
    with runtime_errors():
        trust_natively(pem)
    _file = file


def native_trust() -> list[str]:
    """Returns the arguments with which mft-run trusts the same key."""
    return [] if _file is None else ["--trust", str(_file)]
