"""Keys and a signature: PEM, a zero byte, and the 64 bytes that are beside a bundle.json."""

from contextlib import suppress
from pathlib import Path

from mobile_ft.bundle import signature
from mobile_ft.errors import UserError

# RFC 8032, 7.1, test 1: of an empty text.
_PRIVATE = b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
_PUBLIC = b"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"
_SIGNATURE = bytes.fromhex(
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
    "655141438e7a100b"
)


def seeds() -> list[bytes]:
    public = _PUBLIC + b"-----END PUBLIC KEY-----\n"
    return [public + b"\0" + _SIGNATURE, _PRIVATE + b"-----END PRIVATE KEY-----\n\0"]


def run(data: bytes, folder: Path) -> None:
    pem, _, signed = data.partition(b"\0")
    (folder / "key").write_bytes(pem)
    signature.signature_file(folder / "bundle.json").write_bytes(signed)
    with suppress(UserError):
        signature.read_private_key(folder / "key")
        return
    try:
        signature.trust_key(folder / "key")
        signature.check_signature(folder / "bundle.json", b"")
    finally:
        signature._trusted = None
