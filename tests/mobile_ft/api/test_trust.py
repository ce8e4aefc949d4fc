"""Bundles that have to be signed: nothing of one is used where the trusted key does not vouch for it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from mobile_ft.api.describe import describe
from mobile_ft.bundle import signature
from mobile_ft.bundle.description import read_bundle, read_tokenizer
from mobile_ft.bundle.signature import read_private_key, trust_key
from mobile_ft.errors import UserError
from mobile_ft.export.bundle import write_bundle
from mobile_ft.model.lora import LoraConfig
from tests.runtime.native import events, failure
from tests.small_bundle import CONFIG, TalkingModel
from tests.targets import ALL_LINEAR

Key = Ed25519PrivateKey | X25519PrivateKey


def private_pem(key: Key, encryption: KeySerializationEncryption | None = None) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())


def public_pem(key: Key) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """own.pem and own.pub, other.pub of another."""
    folder = tmp_path_factory.mktemp("keys")
    own, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    (folder / "own.pem").write_bytes(private_pem(own))
    (folder / "own.pub").write_bytes(public_pem(own))
    (folder / "other.pub").write_bytes(public_pem(other))
    return folder


@pytest.fixture(scope="module")
def signed(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signed") / "bundle"
    key = read_private_key(keys / "own.pem")
    write_bundle(TalkingModel(CONFIG, 0), LoraConfig(4, 8.0, ALL_LINEAR), 64, 0, folder, key=key)
    return folder


@pytest.fixture
def bundle(signed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(signed, tmp_path / "bundle"))


@pytest.fixture(params=["Python", "mft-run"])
def refusal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Path], str]:
    """Why a bundle is not opened where a key is trusted; empty where it is."""
    monkeypatch.setattr(signature, "_trusted", None)  # and so it will be again

    def in_python(bundle: Path, key: Path) -> str:
        trust_key(key)
        try:
            read_bundle(bundle)
            return ""
        except UserError as error:
            return str(error)

    def natively(bundle: Path, key: Path) -> str:
        command = ["plan", bundle, "--seq-len", 16, "--trust", key]
        try:
            return "" if events(*command) else "no plan"
        except AssertionError:
            return failure(*command)

    return in_python if request.param == "Python" else natively


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def test_who_signed_it(bundle: Path, keys: Path, refusal: Callable[[Path, Path], str]) -> None:
    assert refusal(bundle, keys / "own.pub") == ""
    assert "bundle.json: the signature does not match the trusted key" in refusal(bundle, keys / "other.pub")
    (bundle / "bundle.json.sig").unlink()
    assert "bundle.json.sig: no such file; the bundle is not signed" in refusal(bundle, keys / "own.pub")


def test_a_change_of_what_is_signed(bundle: Path, keys: Path, refusal: Callable[[Path, Path], str]) -> None:
    size = (bundle / "bundle.json").stat().st_size
    for place in (0, size // 2, size - 1):
        flip(bundle / "bundle.json", place)
        assert "the signature does not match the trusted key" in refusal(bundle, keys / "own.pub")
        flip(bundle / "bundle.json", place)
    with (bundle / "bundle.json").open("a") as file:
        file.write(" ")
    assert "the signature does not match the trusted key" in refusal(bundle, keys / "own.pub")
    for content in ("", "{", "[" * 1000000):  # not even its JSON is looked at
        (bundle / "bundle.json").write_text(content)
        found = refusal(bundle, keys / "own.pub")
        assert "the signature does not match the trusted key" in found or (content == "" and "empty" in found)


def test_a_change_of_the_signature(bundle: Path, keys: Path, refusal: Callable[[Path, Path], str]) -> None:
    for place in (0, 31, 32, 63):
        flip(bundle / "bundle.json.sig", place)
        assert "the signature does not match the trusted key" in refusal(bundle, keys / "own.pub")
        flip(bundle / "bundle.json.sig", place)
    assert refusal(bundle, keys / "own.pub") == ""
    for size in (0, 63, 65):
        (bundle / "bundle.json.sig").write_bytes(bytes(size))
        assert f"bundle.json.sig: has {size} bytes" in refusal(bundle, keys / "own.pub")


# What reads each of the other files, here and in mft-run.
READERS: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "program.pte": (lambda b: read_bundle(b).verified("program.pte"), ["plan", "--seq-len", "16"]),
    "adapter_model.safetensors": (lambda b: describe(read_bundle(b)), ["generate", "--prompt", "hello"]),
    "adapter_config.json": (
        lambda b: read_bundle(b).verified("adapter_config.json"),
        ["generate", "--prompt", "hello"],
    ),
    "tokenizer.json": (lambda b: read_tokenizer(read_bundle(b)), ["generate", "--prompt", "hello"]),
    "tokenizer_config.json": (lambda b: read_tokenizer(read_bundle(b)), []),
    "text.json": (lambda b: read_bundle(b).verified("text.json"), ["generate", "--prompt", "hello"]),
}


@pytest.mark.parametrize("name", READERS)
def test_every_other_file_is_held_against_it(bundle: Path, keys: Path, name: str) -> None:
    in_python, command = READERS[name]
    command = [*command[:1], str(bundle), *command[1:], "--trust", str(keys / "own.pub")] if command else []
    if command:
        events(*command)
    content = (bundle / name).read_bytes()
    for changed in (b"{" + content[1:-1] + b"}", b"[" * len(content)):  # of the same length: only its sum tells
        changed = changed if changed != content else b" " + changed[1:]
        (bundle / name).write_bytes(changed)
        with pytest.raises(UserError, match="checksum does not match"):
            in_python(bundle)
        if command:
            assert f"{name}: the checksum does not match bundle.json" in failure(*command)


def test_what_is_not_listed_is_not_read(bundle: Path) -> None:
    (bundle / "generation_config.json").write_text('{"eos_token_id": [1]}')
    with pytest.raises(UserError, match="generation_config.json: not part of the bundle"):
        read_tokenizer(read_bundle(bundle))


def test_weights_are_held_against_it(bundle: Path, keys: Path) -> None:
    command = ["generate", bundle, "--prompt", "hello", "--trust", keys / "own.pub"]
    for place, message in ((0, "index"), (-1, "does not match its checksum")):
        flip(bundle / "weights.ptd", place)
        assert message in failure(*command)
        flip(bundle / "weights.ptd", place)


def test_openssl_finds_it_good(bundle: Path, keys: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    files: list[str | Path] = ["-in", bundle / "bundle.json", "-sigfile", bundle / "bundle.json.sig"]
    command: list[str | Path] = [
        "openssl",
        "pkeyutl",
        "-verify",
        "-pubin",
        "-inkey",
        keys / "own.pub",
        "-rawin",
        *files,
    ]
    assert subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.parametrize("reader", [read_private_key, trust_key])
def test_files_that_are_no_keys(
    reader: Callable[[Path], object], keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signature, "_trusted", None)
    montgomery = X25519PrivateKey.generate()
    encrypted = private_pem(Ed25519PrivateKey.generate(), BestAvailableEncryption(b"secret"))
    swapped = (keys / ("own.pub" if reader is read_private_key else "own.pem")).read_bytes()
    curve = private_pem(montgomery) if reader is read_private_key else public_pem(montgomery)
    for content in (b"", b"no key", swapped, encrypted, curve, b"\xff" * 100):
        (tmp_path / "key").write_bytes(content)
        with pytest.raises(UserError) as error:
            reader(tmp_path / "key")
        assert str(tmp_path / "key") in str(error.value) and "key" in str(error.value).split(": ", 1)[1]
    for file in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match=r"cannot be read \(.*\); it must be an Ed25519"):
            reader(file)
    assert signature._trusted is None
    (tmp_path / "key").write_bytes(b"no key")
    assert "must be an Ed25519 public key in PEM" in failure("plan", tmp_path, "--trust", tmp_path / "key")


def mobile_ft(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mobile_ft.cli.main", *(str(x) for x in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_commands(bundle: Path, keys: Path, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("hello " * 40)
    train = ["--data", tmp_path / "data.txt", "--out", tmp_path / "out", "--seq-len", 16, "--steps", 2]
    generate = ["--prompt", "hello", "--max-tokens", 2]
    for command in (["train", bundle, *train], ["info", bundle, "--verify"], ["generate", bundle, *generate]):
        done = mobile_ft(*command, "--trust", keys / "own.pub")
        assert done.returncode == 0, done.stderr
        refused = mobile_ft(*command, "--trust", keys / "other.pub")
        assert refused.returncode == 1 and "the signature does not match the trusted key" in refused.stderr
    assert "--trust" in mobile_ft("eval", "--help").stdout


@pytest.mark.slow
def test_export_signs(keys: Path, tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 250, "rms_norm_eps": 1e-5}
    (tmp_path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 512}))
    bundle = tmp_path / "bundle"
    export = ["export", tmp_path / "config.json", "--random-init", "--max-seq-len", 32, "-o", bundle]
    plan = ["plan", bundle, "--seq-len", 32, "--trust", keys / "own.pub"]
    for _ in range(2):  # a signed bundle may be replaced
        made = mobile_ft(*export, "--sign", keys / "own.pem")
        assert made.returncode == 0, made.stderr
        assert mobile_ft(*plan).returncode == 0
    assert mobile_ft(*export).returncode == 0  # and by one that is not
    assert "the bundle is not signed" in mobile_ft(*plan).stderr
