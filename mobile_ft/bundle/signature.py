"""Signatures of bundles: Ed25519 over bundle.json, 64 bytes in a file beside it (docs/reference/bundle_format.md)."""

from pathlib import Path
from typing import TYPE_CHECKING

from mobile_ft.errors import UserError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_trusted: "Ed25519PublicKey | None" = None


def signature_file(index: Path) -> Path:
    return index.with_name(f"{index.name}.sig")


def read_private_key(file: Path) -> "Ed25519PrivateKey":
    """Reads a PEM file written by `openssl genpkey -algorithm ed25519`. Raises UserError, with the file's name, if it
    is not such a key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    wanted = "must be an Ed25519 private key in PEM; create one with `openssl genpkey -algorithm ed25519 -out KEY`"
    try:
        key = load_pem_private_key(file.read_bytes(), password=None)
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror or error}); it {wanted}") from None
    except TypeError:
        raise UserError(f"{file}: is encrypted; use a key without a password") from None
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UserError(f"{file}: {wanted} ({error})") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UserError(f"{file}: {wanted}")
    return key


def trust_key(file: Path) -> str:
    """Makes `check_signature` require signatures of the public key in a PEM file. Returns the file's text.

    Raises UserError, with the file's name, if it is not such a key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    global _trusted
    wanted = "must be an Ed25519 public key in PEM; write one with `openssl pkey -in KEY -pubout`"
    try:
        pem = file.read_text(encoding="utf-8")
        key = load_pem_public_key(pem.encode())
        if not isinstance(key, Ed25519PublicKey):
            raise UserError(f"{file}: {wanted}")
        _trusted = key
        return pem
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror or error}); it {wanted}") from None
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UserError(f"{file}: {wanted} ({error})") from None


def check_signature(index: Path, content: bytes) -> None:
    """Raises UserError if a key is trusted and did not sign this `content` of bundle.json."""
    if _trusted is None:
        return
    from cryptography.exceptions import InvalidSignature

    file = signature_file(index)
    if not file.is_file():
        raise UserError(
            f"{file}: no such file; the bundle is not signed, but only bundles signed with the trusted key are accepted"
        )
    if (size := file.stat().st_size) != 64:
        raise UserError(f"{file}: has {size} bytes; an Ed25519 signature has 64")
    try:
        _trusted.verify(file.read_bytes(), content)
    except InvalidSignature:
        raise UserError(
            f"{index}: the signature does not match the trusted key; the bundle was signed with another key or "
            "changed since"
        ) from None
