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
    """The key in a PEM file, as `openssl genpkey -algorithm ed25519` writes it. Raises UserError naming the file."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    wanted = "an Ed25519 private key in PEM is wanted, as `openssl genpkey -algorithm ed25519 -out KEY` makes one"
    try:
        key = load_pem_private_key(file.read_bytes(), password=None)
    except TypeError:
        raise UserError(f"{file}: is encrypted; a key without a password is wanted") from None
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UserError(f"{file}: {wanted} ({error})") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UserError(f"{file}: {wanted}")
    return key


def trust_key(file: Path) -> str:
    """From now on `check_signature` wants signatures of the public key in a PEM file, whose text this returns. Raises
    UserError naming the file where it is none."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    global _trusted
    wanted = "an Ed25519 public key in PEM is wanted, as `openssl pkey -in KEY -pubout` writes it"
    try:
        pem = file.read_text(encoding="utf-8")
        key = load_pem_public_key(pem.encode())
        if not isinstance(key, Ed25519PublicKey):
            raise UserError(f"{file}: {wanted}")
        _trusted = key
        return pem
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UserError(f"{file}: {wanted} ({error})") from None


def check_signature(index: Path, content: bytes) -> None:
    """Raises UserError where a key is trusted, and is not the one that signed this `content` of bundle.json."""
    if _trusted is None:
        return
    from cryptography.exceptions import InvalidSignature

    file = signature_file(index)
    if not file.is_file():
        raise UserError(f"{file}: no such file; the bundle is not signed, and only those of a trusted key are used")
    if (size := file.stat().st_size) != 64:
        raise UserError(f"{file}: {size} bytes; an Ed25519 signature has 64")
    try:
        _trusted.verify(file.read_bytes(), content)
    except InvalidSignature:
        raise UserError(
            f"{index}: not as the trusted key signed it: signed with another key, or changed since"
        ) from None
