"""Tokens that end an answer: a checkpoint's two, in all that is written of its bundle, where each of them stops."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from gguf import GGUFReader
from transformers import AutoModelForCausalLM, GenerationConfig

from mobile_ft import MobileFtWarning, convert, load
from mobile_ft.api.adapter import read_matching_tensors
from mobile_ft.api.export import export_bundle
from mobile_ft.bundle.description import checksum, read_bundle
from mobile_ft.converters.executorch import _metadata
from mobile_ft.converters.fine_tuned import FineTuned
from mobile_ft.converters.gguf_tokenizer import _add_ends
from mobile_ft.data.tokenizer import Tokenizer
from tests.quantized_checkpoints import llama
from tests.small_tokenizer import small_tokenizer

PROMPTS = ("ab", "b ab a")
LAMPS = ("The lamp", "Ships passed")
MOST = 20
EOS, PAD = 6, 5  # of the tokenizer, and one that no prompt holds
OWN = {"temperature": 0.6, "top_k": 20, "do_sample": False}


class Ended(NamedTuple):
    bundle: Path
    prompts: list[list[int]]
    answers: list[list[int]]  # the end token last
    ends: list[int]


def greedy(model: Any, prompt: list[int], **options: Any) -> list[int]:
    tokens = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=MOST, **options)
    return tokens[0, len(prompt) :].tolist()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A model whose answers to the two prompts each hold one of its end tokens, and no other."""
    folder, model = tmp_path_factory.mktemp("ends"), llama()
    model.save_pretrained(folder / "model")
    (folder / "model" / "tokenizer.json").write_bytes(small_tokenizer())
    (folder / "model" / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    tokenizer = Tokenizer(folder / "model")
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    model.generation_config = GenerationConfig()
    texts = [greedy(model, prompt, eos_token_id=None, pad_token_id=PAD) for prompt in prompts]
    ends, lengths = _ends_within(texts)
    answers = [text[: length + 1] for text, length in zip(texts, lengths, strict=True)]
    assert EOS not in sum(answers, [])
    generation = OWN | {"eos_token_id": [EOS, *ends], "pad_token_id": PAD}
    (folder / "model" / "generation_config.json").write_text(json.dumps(generation))
    options: dict[str, Any] = {"lora_rank": 4, "lora_alpha": 6, "use_rslora": True, "lora_targets": "q_proj,down_proj"}
    exact: dict[str, Any] = {"quant": "f16", "quant_embedding": "f16"}
    export_bundle(folder / "model", folder / "bundle", max_seq_len=64, progress=False, **options, **exact)
    return Ended(folder / "bundle", prompts, answers, [EOS, *ends])


def test_ours_stops_at_either(ended: Ended) -> None:
    model = load(ended.bundle)
    for prompt, text, answer in zip(ended.prompts, PROMPTS, ended.answers, strict=True):
        found = model.generate(text, temp=0, max_tokens=MOST)
        assert (found.prompt_tokens, found.tokens, found.stopped) == (len(prompt), len(answer) - 1, "stop")
    assert json.loads((ended.bundle / "text.json").read_text())["ends"] == ended.ends


def test_transformers_stops_at_either(ended: Ended, tmp_path: Path) -> None:
    out = convert(ended.bundle, ended.bundle, tmp_path / "hf", to="hf", progress=False).output
    expected = OWN | {"eos_token_id": ended.ends, "pad_token_id": PAD}
    assert json.loads((out / "generation_config.json").read_text()) == expected
    assert json.loads((out / "config.json").read_text())["eos_token_id"] == ended.ends
    convert(ended.bundle, ended.bundle, out, to="hf", progress=False)  # over what is there
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    assert [greedy(model, prompt) for prompt in ended.prompts] == ended.answers


def test_one_end_is_a_number(ended: Ended, tuned_of: Any, converted: Any) -> None:
    out = converted(tuned_of("llama3"), "hf")
    config, generation = (json.loads((out / f"{x}config.json").read_text()) for x in ("", "generation_"))
    assert generation == {"bos_token_id": config["bos_token_id"], "eos_token_id": config["eos_token_id"]}
    assert type(config["eos_token_id"]) is int


def test_other_settings_are_the_checkpoint_s_own(tuned_of: Any, converted: Any, tmp_path: Path) -> None:
    tuned, expected = _with_ends(tuned_of("llama3"), tmp_path)
    out = converted(tuned, "hf")
    generation = json.loads((out / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 3, "eos_token_id": expected}
    assert json.loads((out / "config.json").read_text())["eos_token_id"] == expected


def test_executorch(ended: Ended) -> None:
    bundle = read_bundle(ended.bundle)
    model = FineTuned(bundle, read_matching_tensors(ended.bundle, bundle))
    assert _metadata(model, Tokenizer(ended.bundle))["get_eos_ids"] == ended.ends


@pytest.mark.slow
def test_executorch_runs_it(ended: Ended, tmp_path: Path) -> None:
    from executorch.runtime import Runtime

    out = convert(ended.bundle, ended.bundle, tmp_path / "executorch", to="executorch", progress=False).output
    program = Runtime.get().load_program(str(out / "model.pte"))
    assert [int(end) for end in program.load_method("get_eos_ids").execute([])] == ended.ends
    assert Tokenizer(out).end_ids == ended.ends


class _Writer:
    def __init__(self) -> None:
        self.added: dict[str, int] = {}

    def add_eot_token_id(self, token: int) -> None:
        self.added["eot"] = token

    def add_eom_token_id(self, token: int) -> None:
        self.added["eom"] = token


@pytest.mark.parametrize(
    ("ends", "added"),
    [
        ([0], {}),
        ([0, 1], {"eot": 1}),
        ([0, 2], {"eom": 2}),
        ([0, 2, 1], {"eot": 1, "eom": 2}),
        ([0, 1, 3], {"eot": 1, "eom": 3}),
        ([0, 9], {}),  # a row of the embedding that no token has
    ],
)
def test_gguf(ends: list[int], added: dict[str, int]) -> None:
    writer: Any = _Writer()
    _add_ends(writer, ends, ["</s>", "<|eot_id|>", "<|eom_id|>", "<end>"])
    assert writer.added == added


def test_gguf_of_more_than_three() -> None:
    writer: Any = _Writer()
    with pytest.warns(MobileFtWarning, match="GGUF supports at most three end tokens; left out: '<d>', '<e>'"):
        _add_ends(writer, [0, 1, 2, 3, 4], ["<a>", "<b>", "<c>", "<d>", "<e>"])
    assert writer.added == {"eot": 1, "eom": 2}


def test_gguf_file(tuned_of: Any, converted: Any, tmp_path: Path) -> None:
    tuned, expected = _with_ends(tuned_of("llama3"), tmp_path)
    reader = GGUFReader(converted(tuned, "gguf"))
    found = {key: reader.fields[f"tokenizer.ggml.{key}_token_id"].contents() for key in ("eos", "eot", "eom")}
    assert list(found.values()) == expected


@pytest.mark.slow
def test_llama_cpp_knows_them(tuned_of: Any, converted: Any, tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    tuned, expected = _with_ends(tuned_of("llama3"), tmp_path)
    model = llama_cpp.Llama(str(converted(tuned, "gguf")), n_ctx=64, n_threads=1, verbose=False)
    vocabulary = llama_cpp.llama_model_get_vocab(model.model)  # </s> is known by its text too
    assert [token for token in range(model.n_vocab()) if llama_cpp.llama_vocab_is_eog(vocabulary, token)] == sorted(
        expected
    )


@pytest.mark.slow
def test_llama_cpp_stops_at_either(tuned_of: Any, converted: Any, tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    tuned = tuned_of("llama3")
    tokenizer = Tokenizer(tuned.bundle)
    prompts = [tokenizer.encode(prompt, add_special=True) for prompt in LAMPS]
    merged = AutoModelForCausalLM.from_pretrained(converted(tuned, "hf"), dtype=torch.float32)
    merged.generation_config = GenerationConfig()
    texts = [greedy(merged, prompt, eos_token_id=None, pad_token_id=PAD) for prompt in prompts]
    ends, lengths = _ends_within(texts)
    tuned, _ = _with_ends(tuned, tmp_path, ends)
    ours = load(tuned.bundle, adapter=tuned.adapter)
    answers = [ours.generate(prompt, temp=0, max_tokens=MOST) for prompt in LAMPS]
    assert [(answer.tokens, answer.stopped) for answer in answers] == [(length, "stop") for length in lengths]
    gguf = llama_cpp.Llama(str(converted(tuned, "gguf")), n_ctx=64, n_threads=1, verbose=False)
    for prompt, length in zip(prompts, lengths, strict=True):
        found = gguf.create_completion(prompt, temperature=0, max_tokens=MOST)
        assert (found["choices"][0]["finish_reason"], found["usage"]["completion_tokens"]) == ("stop", length)


@pytest.mark.slow
def test_mlx_lm_knows_them(tuned_of: Any, converted: Any, tmp_path: Path) -> None:
    pytest.importorskip("mlx.core")
    from mlx_lm import load as load_mlx

    tuned, expected = _with_ends(tuned_of("llama3"), tmp_path)
    _, tokenizer = load_mlx(str(converted(tuned, "hf")))
    assert set(tokenizer.eos_token_ids) == set(expected)


def _ends_within(texts: list[list[int]]) -> tuple[list[int], list[int]]:
    """A token of each text that ends it and no other, and how many stand before it."""
    lengths = [next(i for i in range(2, MOST) if text[i] not in text[:i]) for text in texts]
    ends = [text[length] for text, length in zip(texts, lengths, strict=True)]
    assert ends[0] not in texts[1][: lengths[1]] and ends[1] not in texts[0][: lengths[0]]
    return ends, lengths


def _with_ends(tuned: Any, folder: Path, more: Sequence[int] = (40, 41)) -> tuple[Any, list[int]]:
    """The same with two tokens more that end."""
    bundle = shutil.copytree(tuned.bundle, folder / "bundle")
    ends = [Tokenizer(bundle).eos_id, *more]
    file, index = bundle / "generation_config.json", bundle / "bundle.json"
    file.write_text(json.dumps({"eos_token_id": ends[1:], "bos_token_id": 3}))
    description = json.loads(index.read_text())
    description["checksums"][file.name] = checksum(file)
    index.write_text(json.dumps(description))
    return tuned._replace(bundle=bundle), ends
