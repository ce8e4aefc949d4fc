"""The merged GGUF as our own export reads it and as llama.cpp runs it, tokens included."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader
from tokenizers import Tokenizer, models, pre_tokenizers

from mobile_ft import MobileFtWarning, UserError, convert
from mobile_ft.bundle.description import read_bundle
from mobile_ft.converters.gguf_names import GgufNames
from mobile_ft.export.source.gguf_families import ARCHITECTURES, Settings, config_values
from mobile_ft.export.source.gguf_model import GgufModel
from mobile_ft.model.hf_config import config_of, read_hf_config
from mobile_ft.model.rope import frequencies, rope_factor
from mobile_ft.model.shapes import PER_LAYER_TABLE
from mobile_ft.runtime import quantize
from tests import hf_models
from tests.tuned_models import (
    CHAT_TEMPLATE,
    TEXT,
    TOKENS,
    Tuned,
    byte_level,
    llama_cpp_tolerance,
    merged_weights,
    sentencepiece,
    with_tokenizer,
)


@pytest.fixture(scope="module", params=[byte_level, sentencepiece], ids=lambda make: make.__name__)
def worded(
    request: pytest.FixtureRequest, tuned_of: Callable[[str], Tuned], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tuned, Tokenizer]:
    """A Llama with one of the tokenizers, and the tokenizer."""
    tokenizer = request.param()
    return with_tokenizer(tuned_of("llama3"), tokenizer, tmp_path_factory.mktemp("worded")), tokenizer


@pytest.mark.parametrize("quant", ["f16", "q8_0", "q4_0", "q4_1", "iq4_nl"])
def test_weights_are_those_of_peft(worded: tuple[Tuned, Tokenizer], converted: Callable[..., Path], quant: str) -> None:
    tuned, _ = worded
    model = GgufModel(converted(tuned, "gguf", quant=quant))
    for name, expected in merged_weights(tuned).items():
        if expected.ndim == 1:
            assert np.array_equal(model.vector(name, len(expected)), expected)
            continue
        kind = "q8_0" if quant != "f16" and "embed_tokens" in name else quant
        assert model.format_of(name) == kind
        found = model.packed(name, expected.shape[1], expected.shape[0])
        assert np.array_equal(found.data, quantize(expected, kind))  # with scales by error search


def test_weights_come_back(tuned_in_gguf: Tuned, converted: Callable[..., Path]) -> None:
    """In Hugging Face's order. A file has vectors in another form: norms with their offset, and -exp(A_log)."""
    model = GgufModel(converted(tuned_in_gguf, "gguf", quant="f16"))
    names = GgufNames(read_bundle(tuned_in_gguf.bundle).model)
    for name, expected in merged_weights(tuned_in_gguf).items():
        if name == PER_LAYER_TABLE:
            expected = expected.reshape(-1, model.config.hidden_size_per_layer_input)
        factors = names.factors(name)
        expected = expected if factors is None else expected * factors[:, None]
        if expected.ndim == 2:
            found = model.packed(name, expected.shape[1], expected.shape[0])
            assert np.array_equal(found.data, quantize(expected, "f16")), name
        else:
            np.testing.assert_allclose(model.vector(name, expected.size), expected.reshape(-1), rtol=1e-6, atol=2e-7)


def test_a_grid_that_swallows_the_adapter_is_warned_of(
    bundle: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """The bundle's linears are q4_0."""
    for quant in ("q4_0", "q8_0", "q4_1"):
        convert(bundle, bundle, tmp_path / f"{quant}.gguf", to="gguf", quant=quant, progress=False)
    warnings = [str(found.message) for found in recwarn if found.category is MobileFtWarning]
    assert len(warnings) == 1 and warnings[0].startswith("quant q4_0: the model already uses this format")


def test_configuration_and_tokens_come_back(
    worded: tuple[Tuned, Tokenizer], converted: Callable[..., Path], tmp_path: Path
) -> None:
    tuned, tokenizer = worded
    model = GgufModel(converted(tuned, "gguf"))
    assert model.rope_factors is not None  # of Llama 3's scaling
    config = tuned.base.config
    rotary = tuned.base.model.rotary_emb.inv_freq.numpy()
    np.testing.assert_allclose(model.inv_freq(0), rotary, rtol=1e-6)
    assert (model.config.head_dim, model.config.vocab_size) == (config.head_dim, config.vocab_size)
    model.write_tokenizer(tmp_path)
    back = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = TEXT.replace("keeper's lamp", "light")  # behind a user-defined token, export's starts without a space
    assert back.encode(text, add_special_tokens=False).ids == tokenizer.encode(text, add_special_tokens=False).ids


def test_our_own_export_reads_it_back(tuned_in_gguf: Tuned, converted: Callable[..., Path]) -> None:
    """But for rotary factors, which GGUF has without what made them; its numbers are float32."""
    model = GgufModel(converted(tuned_in_gguf, "gguf"))
    found, expected = model.config, read_bundle(tuned_in_gguf.bundle).model
    for layer in range(expected.num_hidden_layers):
        rope = expected.rope(layer)
        if rope is not None:
            np.testing.assert_allclose(
                model.inv_freq(layer), frequencies(expected.head_dim_of(layer), *rope), rtol=1e-6
            )
            assert rope_factor(found.rope_scaling) == pytest.approx(rope_factor(expected.rope_scaling), rel=1e-6)
    floats: dict[str, Any] = {
        key: float(np.float32(value)) for key, value in asdict(expected).items() if isinstance(value, float)
    }
    if found.model_type == "falcon_h1":  # its multipliers are in the weights
        floats |= {key: 1.0 for key in floats if key.endswith("_multiplier")}
        floats |= {"logits_scaling": 1.0, "attention_multiplier": expected.head_dim**-0.5}
    if found.model_type == "hunyuan_v1_dense":  # its alpha is in rope_theta
        floats["rope_theta"] = found.rope_theta
    if found.model_type in ("gemma2", "gemma3_text"):  # from a whole number, in float64
        floats["attention_multiplier"] = expected.attention_multiplier
    assert replace(found, name="", rope_scaling=None) == replace(expected, name="", rope_scaling=None, **floats)


def test_other_tokenizers_are_refused(
    tuned_of: Callable[[str], Tuned], tmp_path: Path, converted: Callable[..., Path]
) -> None:
    word_level = Tokenizer(models.WordLevel({"a": 0, "<s>": 1, "</s>": 2}))
    tuned = with_tokenizer(tuned_of("llama3"), word_level, tmp_path)
    with pytest.raises(
        UserError, match="tokenizer.json: is a WordLevel tokenizer; GGUF output supports byte-level BPE"
    ):
        converted(tuned, "gguf")
    assert not (tmp_path / "gguf").exists()


def test_unknown_pre_tokenizers_are_refused(
    tuned_of: Callable[[str], Tuned], tmp_path: Path, converted: Callable[..., Path]
) -> None:
    tokenizer = byte_level()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), tokenizer.pre_tokenizer])
    tuned = with_tokenizer(tuned_of("llama3"), tokenizer, tmp_path)
    with pytest.raises(UserError, match="tokenizer.json: its pre-tokenizer is not supported in GGUF output"):
        converted(tuned, "gguf")


def test_a_smaller_vocabulary_is_padded(worded: tuple[Tuned, Tokenizer], converted: Callable[..., Path]) -> None:
    tuned, tokenizer = worded
    reader = GGUFReader(converted(tuned, "gguf"))
    count = tokenizer.get_vocab_size()
    tokens, types = (reader.fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "token_type"))
    assert (len(tokens), len(types)) == (512, 512)
    assert tokens[count:] == [f"[PAD{index}]" for index in range(count, 512)] and set(types[count:]) == {5}


def test_ministral_without_scaling() -> None:
    """A config.json that says nothing of it has YaRN, and a GGUF file has none."""
    counts = {"block_count": 1, "attention.head_count": 2, "embedding_length": 64, "feed_forward_length": 96}
    numbers = counts | {"context_length": 64, "attention.layer_norm_rms_epsilon": 1e-5}
    settings = Settings({f"mistral3.{key}": value for key, value in numbers.items()}, "mistral3")
    values = config_values(settings, ARCHITECTURES["mistral3"], 250, True, {})
    assert config_of(values, "name").rope_scaling is None


# Full attention is not that of the last layer with keys and values of its own.
_OTHER_ORDER = {
    "layer_types": [f"{kind}_attention" for kind in ("sliding", "full", "sliding", "sliding", "full")],
    "per_layer_config": {"1": {"head_dim": 32}, "4": {"head_dim": 32}},
}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gemma2", {"query_pre_attn_scalar": 50}, r"gemma2 scales scores by 1 / sqrt\(32\), and this model by 0.14"),
        ("gemma2", {"layer_types": ["full_attention"] * 2}, "exactly every second layer has full attention"),
        (
            "qwen3",
            {"layer_types": ["sliding_attention"] * 2, "sliding_window": 9},
            "qwen3 does not support layers with",
        ),
        ("exaone4", {"layer_types": ["full_attention"] * 2}, "exaone4 does not support layers without a rotary"),
        ("qwen3_5", {}, "key and value heads of one size, a multiple of 32"),
        ("qwen3_5", {"layer_types": ["full_attention", "linear_attention", "linear_attention"]}, "at every n-th layer"),
        ("gemma4", _OTHER_ORDER, "last layers with keys and values of their own are one with a sliding"),
        ("qwen2_moe", {}, "qwen2moe does not support a tied head"),
        ("glm", {}, "chatglm requires that hidden_size is 4 heads of 32"),
        ("llama3", {"rope_parameters": hf_models.YARN}, "llama does not support the model's factor of the rotary"),
    ],
)
def test_what_llama_cpp_would_compute_otherwise(
    name: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    hf_models.FAMILIES[name].to_json_file(tmp_path / "config.json", use_diff=False)
    values = json.loads((tmp_path / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=message):
        GgufNames(read_hf_config(tmp_path / "config.json"))


@pytest.mark.slow
def test_llama_cpp_has_the_same_logits(tuned_in_gguf: Tuned, converted: Callable[..., Path]) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    path = converted(tuned_in_gguf, "gguf")
    model = llama_cpp.Llama(str(path), logits_all=True, n_ctx=64, n_threads=1, verbose=False)
    model.eval(TOKENS.tolist())
    assert np.abs(model.scores[: len(TOKENS)] - tuned_in_gguf.logits).max() < llama_cpp_tolerance(tuned_in_gguf)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "family"), [("qwen2", "qwen2_5_vl_text"), ("qwen3", "qwen3_vl_text")])
def test_texts_of_models_with_vision(
    text: str, family: str, tuned_of: Callable[[str], Tuned], converted: Callable[..., Path], tmp_path: Path
) -> None:
    """Are those of Qwen2 and 3 without images, in architectures that expect sections of positions."""
    llama_cpp = pytest.importorskip("llama_cpp")
    tuned = tuned_of(text)
    bundle = shutil.copytree(tuned.bundle, tmp_path / "bundle")
    description = json.loads((bundle / "bundle.json").read_text())
    description["model"]["model_type"] = description["hf_settings"]["model_type"] = family
    for key in ("sliding_window", "use_sliding_window", "max_window_layers"):
        description["hf_settings"].pop(key, None)
    (bundle / "bundle.json").write_text(json.dumps(description))
    path = converted(tuned._replace(bundle=bundle), "gguf")
    assert GgufModel(path).config.model_type == family
    model = llama_cpp.Llama(str(path), logits_all=True, n_ctx=64, n_threads=1, verbose=False)
    model.eval(TOKENS.tolist())
    assert np.abs(model.scores[: len(TOKENS)] - tuned.logits).max() < llama_cpp_tolerance(tuned)


@pytest.mark.slow
def test_granite_4_without_mamba(tuned_of: Callable[[str], Tuned], converted: Callable[..., Path]) -> None:
    """Is Granite 3 to llama.cpp, whose gate and up are apart."""
    llama_cpp = pytest.importorskip("llama_cpp")
    tuned = tuned_of("granitemoehybrid")
    path, lora = converted(tuned, "gguf", tuned.bundle), converted(tuned, "gguf-lora")
    assert GgufModel(path).config.model_type == "granite"
    model = llama_cpp.Llama(str(path), lora_path=str(lora), logits_all=True, n_ctx=64, n_threads=1, verbose=False)
    model.eval(TOKENS.tolist())
    assert np.abs(model.scores[: len(TOKENS)] - tuned.logits).max() < llama_cpp_tolerance(tuned)


@pytest.mark.slow
def test_llama_cpp_has_the_same_tokens(worded: tuple[Tuned, Tokenizer], converted: Callable[..., Path]) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    tuned, tokenizer = worded
    model = llama_cpp.Llama(str(converted(tuned, "gguf")), n_ctx=64, n_threads=1, verbose=False)
    for text in (TEXT, f"<s>{TEXT}</s>"):
        encoded = tokenizer.encode(text, add_special_tokens=False).ids
        assert model.tokenize(text.encode(), add_bos=False, special=True) == encoded
    assert model.token_bos() == tokenizer.token_to_id("<s>") and model.token_eos() == tokenizer.token_to_id("</s>")
    assert model.metadata["tokenizer.chat_template"] == CHAT_TEMPLATE
