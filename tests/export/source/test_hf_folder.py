"""Hugging Face folders as save_pretrained writes them: tensors, formats, shards, tokenizer, and what is refused."""

import copy
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.errors import UserError
from mobile_ft.export.source.hf_folder import HfFolder, copy_tokenizer
from mobile_ft.model.formats import unpack
from mobile_ft.model.shapes import (
    PER_LAYER_LINEAR,
    PER_LAYER_NORM,
    PER_LAYER_TABLE,
    linear_shapes,
    unit_types,
    vector_shapes,
)
from tests.hf_models import FAMILIES, random_model


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Any:
    return random_model(FAMILIES[request.param])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Llama, in one file."""
    folder = tmp_path / "model"
    random_model(FAMILIES["llama3"]).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shard", ["10GB", "20KB"])
def test_every_tensor(model: Any, tmp_path: Path, dtype: torch.dtype, shard: str) -> None:
    """In 8 bits within two steps of each group (the largest may be clipped), norms and biases exactly."""
    model = copy.deepcopy(model).to(dtype)
    model.save_pretrained(tmp_path, max_shard_size=shard)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard == "20KB")
    source = HfFolder(tmp_path, "q8_0", "f16")
    values = dict(model.named_parameters()) | {n: b for n, b in model.named_buffers() if n.endswith("expert_bias")}
    parameters = {name: p.detach().float().numpy() for name, p in values.items()}
    seen = set()
    for layer in range(source.config.num_hidden_layers):
        for unit in unit_types(source.config, layer):
            for name, shape in vector_shapes(source.config, layer, unit).items():
                full = f"model.layers.{layer}.{name}"
                assert np.array_equal(source.vector(full, math.prod(shape)), parameters[full].reshape(-1))
                seen.add(full)
            for name, (columns, rows) in linear_shapes(source.config, layer, unit).items():
                full = f"model.layers.{layer}.{name}.weight"
                weight = source.packed(full, columns, rows)
                full = full if full in parameters else full.removesuffix(".weight")  # experts
                expected = parameters[full].reshape(rows, columns)
                groups = np.abs(expected.reshape(rows, -1, 32)).max(-1)
                step = np.repeat(groups / 127, 32, -1)
                assert np.all(np.abs(unpack(weight.data, weight.format, rows) - expected) <= 2 * step)
                seen.add(full)
    tables = parameters.keys() & {source.config.embedding, "lm_head.weight"}
    for name in tables:
        table, expected = source.packed(name, source.config.hidden_size, source.config.vocab_size), parameters[name]
        assert np.array_equal(unpack(table.data, "f16", len(expected)), expected.astype(np.float16).astype(np.float32))
    if width := source.config.hidden_size_per_layer_input:
        rows = source.config.num_hidden_layers * 250
        table = source.packed(PER_LAYER_TABLE, width, rows)
        expected = parameters[PER_LAYER_TABLE].reshape(rows, width)
        assert np.allclose(unpack(table.data, "q8_0", rows), expected, atol=0.01)
        assert np.array_equal(source.vector(PER_LAYER_NORM, width), parameters[PER_LAYER_NORM])
        seen |= {PER_LAYER_TABLE, PER_LAYER_LINEAR, PER_LAYER_NORM}
    norm = f"{source.config.family.final_norm}.weight"
    assert np.array_equal(source.vector(norm, source.config.hidden_size), parameters[norm])
    assert parameters.keys() == seen | tables | {norm}


def test_a_text_model_within_another(folder: Path) -> None:
    """Names behind a prefix, with a head of its own beside them."""
    tensors = load_file(folder / "model.safetensors")
    renamed = {name.replace("model.", "language_model.model.", 1): x for name, x in tensors.items()}
    renamed["language_model.lm_head.weight"] = torch.full((250, 64), 0.5)
    save_file(renamed, folder / "model.safetensors")
    source = HfFolder(folder, "q4_0", "q8_0")
    size = source.config.hidden_size
    assert np.array_equal(source.vector("model.norm.weight", size), tensors["model.norm.weight"].numpy())
    assert np.allclose(unpack(source.packed("lm_head.weight", 64, 250).data, "q8_0", 250), 0.5, atol=1e-3)


def test_large_matrices_are_quantized_piece_by_piece(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = HfFolder(folder, "q4_1", "q8_0").packed("model.layers.0.mlp.up_proj.weight", 64, 96)
    monkeypatch.setattr("mobile_ft.export.source.source._WEIGHTS", 32 * 64)
    pieces = HfFolder(folder, "q4_1", "q8_0").packed("model.layers.0.mlp.up_proj.weight", 64, 96)
    assert np.array_equal(whole.data, pieces.data)


@pytest.mark.parametrize("where", ["config", "file", "list", "nowhere"])
def test_tokenizer(folder: Path, tiny_bundle: Any, tmp_path: Path, chatml: str, where: str) -> None:
    tokenizer = tiny_bundle("tokenizer")
    for file in tokenizer.iterdir():
        shutil.copy(file, folder)
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": chatml}]
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config |= {"config": {"chat_template": chatml}, "list": {"chat_template": named}}.get(where, {})
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if where == "file":
        (folder / "chat_template.jinja").write_text(chatml)
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 8]}')
    out = tmp_path / "out"
    out.mkdir()
    HfFolder(folder, "q4_0", "q8_0").write_tokenizer(out)
    copied = Tokenizer(out)
    assert copied.end_ids == [copied.eos_id, 7, 8]
    assert copied.encode("x y") == Tokenizer(tokenizer).encode("x y")
    assert copied.has_chat_template == (where != "nowhere")
    if where != "nowhere":
        assert copied.render_chat([{"role": "user", "content": "hi"}]) == "<|im_start|>user\nhi<|im_end|>\n"


_EOS, _START, _END = 257, 258, 259  # special tokens of the tiny tokenizer, the first of which is its EOS


def _with_files(folder: Path, tokenizer: Path, files: dict[str, dict[str, Any]]) -> None:
    for file in tokenizer.iterdir():
        shutil.copy(file, folder)
    (folder / "generation_config.json").unlink()
    config = json.loads((folder / "config.json").read_text()) | {"vocab_size": 260}
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "eos_token_id"}))
    for name, values in files.items():
        old = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
        (folder / name).write_text(json.dumps(old | values))


ENDS: dict[str, tuple[dict[str, dict[str, Any]], list[int]]] = {
    "generation": ({"generation_config.json": {"eos_token_id": [7, _EOS, 8]}}, [_EOS, 7, 8]),
    "config": ({"config.json": {"eos_token_id": [7, 8]}}, [_EOS, 7, 8]),
    "one of config": ({"config.json": {"eos_token_id": 7}}, [_EOS, 7]),
    "map": ({"special_tokens_map.json": {"eos_token": {"content": "<|im_end|>"}}}, [_EOS, _END]),
    "the map's alone": (
        {"special_tokens_map.json": {"eos_token": "<|im_end|>"}, "tokenizer_config.json": {"eos_token": None}},
        [_END],
    ),
    "default of a class": (
        {"generation_config.json": {"eos_token_id": _END}, "config.json": {"eos_token_id": 2}},
        [_EOS, _END],
    ),
    "all": (
        {
            "generation_config.json": {"eos_token_id": [_EOS, 7]},
            "config.json": {"eos_token_id": _START},
            "special_tokens_map.json": {"eos_token": "<|im_end|>"},
        },
        [_EOS, _END, 7, _START],
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_tokens_that_end_an_answer(folder: Path, tiny_bundle: Any, tmp_path: Path, case: str) -> None:
    files, ends = ENDS[case]
    _with_files(folder, tiny_bundle("tokenizer"), files)
    out = tmp_path / "out"
    out.mkdir()
    HfFolder(folder, "q4_0", "q8_0").write_tokenizer(out)
    assert Tokenizer(out).end_ids == ends
    written = json.loads((out / "generation_config.json").read_text())["eos_token_id"]
    assert written == (ends if len(ends) > 1 else ends[0])


def test_ends_of_the_text_model_within_one_with_vision(folder: Path, tiny_bundle: Any, tmp_path: Path) -> None:
    _with_files(folder, tiny_bundle("tokenizer"), {})
    config = {"eos_token_id": 7, "text_config": {"eos_token_id": [8, 7]}}
    (folder / "config.json").write_text(json.dumps(config))
    copy_tokenizer(folder, tmp_path, 260)
    assert Tokenizer(tmp_path).end_ids == [_EOS, 7, 8]
    (folder / "config.json").write_text(json.dumps(config | {"text_config": {"eos_token_id": 260}}))
    with pytest.raises(UserError, match="config.json: text_config: eos_token_id is 260"):
        copy_tokenizer(folder, tmp_path, 260)


def test_other_settings_of_generation(folder: Path, tiny_bundle: Any, tmp_path: Path) -> None:
    """Are kept; without a generation_config.json they are config.json's, as Transformers has it."""
    given = {"temperature": 0.6, "top_p": 0.95, "do_sample": True, "bos_token_id": 3, "transformers_version": "4.51.0"}
    _with_files(folder, tiny_bundle("tokenizer"), {"generation_config.json": given, "config.json": {"pad_token_id": 5}})
    out = tmp_path / "out"
    out.mkdir()
    HfFolder(folder, "q4_0", "q8_0").write_tokenizer(out)
    assert json.loads((out / "generation_config.json").read_text()) == given | {"eos_token_id": _EOS}
    (folder / "generation_config.json").unlink()
    HfFolder(folder, "q4_0", "q8_0").write_tokenizer(out)
    expected = {"bos_token_id": 1, "pad_token_id": 5, "eos_token_id": _EOS}
    assert json.loads((out / "generation_config.json").read_text()) == expected


@pytest.mark.parametrize("value", [260, [7, 260], -1, "7", [7.0], True, {"a": 1}])
@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
def test_what_is_no_token_is_refused(folder: Path, tiny_bundle: Any, tmp_path: Path, file: str, value: Any) -> None:
    _with_files(folder, tiny_bundle("tokenizer"), {file: {"eos_token_id": value}})
    with pytest.raises(UserError) as error:
        HfFolder(folder, "q4_0", "q8_0").write_tokenizer(tmp_path)
    assert str(error.value).startswith(
        f"{folder / file}: eos_token_id is {value!r}; it must be one or several token ids"
    )
    assert str(error.value).endswith("token ids below 260")


def test_chat_template_of_an_older_processor(folder: Path, tiny_bundle: Any, tmp_path: Path, chatml: str) -> None:
    """Is taken where nothing else has one; a file and the tokenizer's own configuration come first."""
    for file in tiny_bundle("tokenizer").iterdir():
        shutil.copy(file, folder)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    older, out = folder / "chat_template.json", tmp_path / "out"
    out.mkdir()

    def template() -> str | None:
        HfFolder(folder, "q4_0", "q8_0").write_tokenizer(out)
        return Tokenizer(out).chat_template

    assert template() is None
    older.write_text(json.dumps({"chat_template": chatml}))
    assert template() == chatml
    older.write_text(json.dumps({"chat_template": [{"name": "default", "template": "named"}]}))
    assert template() == "named"
    older.write_text(json.dumps({"chat_template": 1}))
    with pytest.raises(
        UserError, match=r"chat_template\.json: chat_template must be a string, or a list that has one named"
    ):
        template()
    config = json.loads((folder / "tokenizer_config.json").read_text()) | {"chat_template": "configured"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert template() == "configured"
    (folder / "chat_template.jinja").write_text("in a file")
    assert template() == "in a file"


def _rewrite(folder: Path, **changed: torch.Tensor | None) -> None:
    tensors = load_file(folder / "model.safetensors") | {k.replace("__", "."): v for k, v in changed.items()}
    save_file({name: x for name, x in tensors.items() if x is not None}, folder / "model.safetensors")


def _index(folder: Path, files: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))


def _link(folder: Path) -> None:
    shutil.move(folder / "model.safetensors", folder.parent / "elsewhere.safetensors")
    (folder / "model.safetensors").symlink_to("../elsewhere.safetensors")


def _huge(folder: Path) -> None:
    """A tensor of 4 TB, says its header."""
    header = json.dumps({"embed_tokens.weight": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}})
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header.encode())


def _pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


NORM = "model__layers__0__input_layernorm__weight"
HARM: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (
        lambda f: (f / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}"),
        "not a readable safetensors file",
    ),
    "huge": (_huge, "not a readable safetensors file"),
    "pickle": (_pickle, "pytorch_model.bin is a pickle, which is not supported"),
    "link": (_link, "which is outside of the folder"),
    "missing": (lambda f: _rewrite(f, **{NORM: None}), "tensor model.layers.0.input_layernorm.weight is missing"),
    "shape": (lambda f: _rewrite(f, **{NORM: torch.ones(63)}), "F32 [63]; it must be one of F32, F16, BF16, [64]"),
    "integers": (lambda f: _rewrite(f, **{NORM: torch.ones(64, dtype=torch.int32)}), "I32 [64]; it must be one of"),
    "not finite": (lambda f: _rewrite(f, **{NORM: torch.full((64,), torch.inf)}), "values that are not finite"),
    "two models": (
        lambda f: _rewrite(f, vision__embed_tokens__weight=torch.ones(2)),
        "2 tensors named embed_tokens",
    ),
    "no index": (lambda f: _index(f, []), "weight_map is []; it must map each tensor to its file"),
    "index leads out": (lambda f: _index(f, {"a": "../x.safetensors"}), "in '../x.safetensors'; it must be in a"),
    "missing shard": (lambda f: _index(f, {"embed_tokens.weight": "x.safetensors"}), "x.safetensors: no such file"),
    "index of pickles": (lambda f: _index(f, {"a": "pytorch_model.bin"}), "in 'pytorch_model.bin'; it must be in a"),
}


@pytest.mark.parametrize("harm", HARM)
def test_refused(folder: Path, harm: str) -> None:
    change, message = HARM[harm]
    change(folder)
    with pytest.raises(UserError) as error:
        source = HfFolder(folder, "q4_0", "q8_0")
        source.vector("model.layers.0.input_layernorm.weight", 64)
    assert message in str(error.value)


def test_a_linear_that_is_not_finite(folder: Path) -> None:
    _rewrite(folder, model__layers__0__mlp__up_proj__weight=torch.full((96, 64), torch.nan))
    with pytest.raises(UserError, match=r"up_proj.weight: has values that are not finite, or too large for q4_0"):
        HfFolder(folder, "q4_0", "q8_0").packed("model.layers.0.mlp.up_proj.weight", 64, 96)
