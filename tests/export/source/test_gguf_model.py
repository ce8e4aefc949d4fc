"""Reading GGUF: values and row order against the file, and clear errors for what cannot be used."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, dequantize, quantize

from mobile_ft.bundle.description import Conversion
from mobile_ft.errors import UserError
from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.source.gguf_blocks import PACKED_FORMATS
from mobile_ft.export.source.gguf_file import GgufTensor, read_gguf
from mobile_ft.export.source.gguf_model import GgufModel
from mobile_ft.model.formats import unpack
from mobile_ft.model.lora import BaseModel, LoraConfig
from tests.targets import ALL_LINEAR

HIDDEN, INNER, HEADS, KV_HEADS, VOCAB = 64, 96, 4, 2, 60
Q = GGMLQuantizationType


@pytest.fixture
def write_gguf(tmp_path: Path) -> Callable[..., Path]:
    """Writes a one-layer Llama GGUF of random weights in the given type."""

    def write(linear: Q = Q.Q4_0, arch: str = "llama", drop: str = "", extra: str = "", **shapes: int) -> Path:
        path = tmp_path / "model.gguf"
        writer = GGUFWriter(path, arch)
        writer.add_block_count(1)
        writer.add_context_length(512)
        writer.add_embedding_length(HIDDEN)
        writer.add_feed_forward_length(shapes.get("inner", INNER))
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_layer_norm_rms_eps(1e-5)
        keys = HIDDEN // HEADS * KV_HEADS
        tensors = {
            "token_embd": (VOCAB, HIDDEN),
            "output": (VOCAB, HIDDEN),
            "blk.0.attn_q": (HIDDEN, HIDDEN),
            "blk.0.attn_k": (keys, HIDDEN),
            "blk.0.attn_v": (keys, HIDDEN),
            "blk.0.attn_output": (HIDDEN, HIDDEN),
            "blk.0.ffn_gate": (INNER, HIDDEN),
            "blk.0.ffn_up": (INNER, HIDDEN),
            "blk.0.ffn_down": (HIDDEN, INNER),
        }
        rng = np.random.default_rng(0)
        for name, shape in tensors.items():
            if name != drop:
                values = rng.standard_normal(shape).astype(np.float32)
                writer.add_tensor(f"{name}.weight", quantize(values, linear), raw_dtype=linear)
        for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm", *([extra] if extra else [])):
            writer.add_tensor(f"{name}.weight", np.ones(HIDDEN, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


@pytest.mark.parametrize("quantized", [Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.F16])
def test_what_exports_unchanged(write_gguf: Callable[..., Path], quantized: Q) -> None:
    model = GgufModel(write_gguf(quantized))
    raw = {t.name: t for t in GGUFReader(model.path).tensors}
    weight = model.packed("model.layers.0.mlp.down_proj.weight", INNER, HIDDEN)
    assert weight.format == PACKED_FORMATS[quantized]
    expected = dequantize(raw["blk.0.ffn_down.weight"].data, quantized)
    assert np.array_equal(unpack(weight.data, weight.format, HIDDEN), expected)
    assert model.conversions.to_list() == [Conversion(quantized.name, weight.format, INNER * HIDDEN, 0)]


def test_a_bundle_of_it(write_gguf: Callable[..., Path], tmp_path: Path) -> None:
    model = GgufModel(write_gguf(Q.F32))
    bundle = write_bundle(model, LoraConfig(4, 8.0, ALL_LINEAR), 32, 0, tmp_path / "bundle")
    assert set(bundle["formats"].values()) == {"f16"} and bundle["formats"].keys() >= {"lm_head.weight"}
    assert not bundle["model"]["tie_word_embeddings"]
    (conversion,) = bundle["conversions"]
    assert (conversion["source"], conversion["format"]) == ("F32", "f16")
    assert 2.0**-14 < conversion["error"] < 2.0**-11


def test_matrices_are_read_in_pieces(write_gguf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Which pieces of 16 rows or more changes nothing, rotary order included."""
    path = write_gguf(Q.Q5_0)
    whole = GgufModel(path)
    monkeypatch.setattr("mobile_ft.export.source.source._WEIGHTS", 1)
    pieces = GgufModel(path)
    for name, rows in (("model.layers.0.self_attn.q_proj", HIDDEN), ("model.embed_tokens", VOCAB)):
        expected = whole.packed(f"{name}.weight", HIDDEN, rows)
        assert np.array_equal(pieces.packed(f"{name}.weight", HIDDEN, rows).data, expected.data)
    assert pieces.conversions.to_list() == whole.conversions.to_list()


def test_rotary_rows_are_put_back_in_order(write_gguf: Callable[..., Path]) -> None:
    """llama.cpp's converter takes row [half, pair] of a head to [pair, half]."""
    model = GgufModel(write_gguf(Q.F16))
    raw = {t.name: t for t in GGUFReader(model.path).tensors}
    stored = np.array(raw["blk.0.attn_k.weight"].data, np.float32)
    ours = unpack(model.packed("model.layers.0.self_attn.k_proj.weight", HIDDEN, 32).data, "f16", 32)
    permuted = ours.reshape(KV_HEADS, 2, 8, HIDDEN).swapaxes(1, 2).reshape(32, HIDDEN)
    assert np.array_equal(permuted, stored)
    assert not np.array_equal(ours, stored)


def message(path: Path) -> str:
    with pytest.raises(UserError) as error:
        model = GgufModel(path)
        write_bundle(model, LoraConfig(4, 8.0, ALL_LINEAR), 32, 0, path.parent / "bundle")
    assert not (path.parent / "bundle").exists()
    assert not [p for p in path.parent.iterdir() if p.name.startswith(".bundle")]
    text = str(error.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def test_missing_file(tmp_path: Path) -> None:
    assert "no such file" in message(tmp_path / "none.gguf")


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.99])
def test_truncated_file(write_gguf: Callable[..., Path], share: float) -> None:
    path = write_gguf()
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    assert "not a readable GGUF file, or truncated" in message(path)


def test_not_gguf(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"this is not a model" * 100)
    assert "not a readable GGUF file" in message(path)


def test_unsupported_contents(write_gguf: Callable[..., Path]) -> None:
    assert "has type MXFP4; supported: Q4_0, Q4_1, Q5_0" in message(write_gguf(Q.MXFP4))
    assert "architecture is 'mamba'; supported: 'llama'" in message(write_gguf(arch="mamba"))
    assert "lm_head.weight" not in message(write_gguf(drop="blk.0.ffn_up"))
    assert "self_attn.q_proj.weight is missing" in message(write_gguf(drop="blk.0.attn_q"))
    assert "'blk.0.attn_sinks.weight' is not part of a model of architecture 'llama'" in message(
        write_gguf(extra="blk.0.attn_sinks")
    )
    assert "has shape [96, 64]; the model's configuration requires [128, 64]" in message(write_gguf(inner=128))


def test_metadata_is_what_the_package_gguf_reads(smollm2_gguf: Path) -> None:
    theirs, ours = GGUFReader(smollm2_gguf), read_gguf(smollm2_gguf)
    assert ours.fields == {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert [t.name for t in ours.tensors] == [t.name for t in theirs.tensors]
    for our, their in zip(ours.tensors, theirs.tensors, strict=True):
        assert (our.type, list(our.shape)) == (their.tensor_type, their.shape.tolist())
        assert np.array_equal(our.data[:1000], their.data.reshape(-1).view(np.uint8)[:1000])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"attention.head_count": [4, 4]}, "llama.attention.head_count is [4, 4]; it must be one positive integer"),
        ({"attention.head_count": 1000}, "head_dim is 1; it must be a multiple of 8"),
        ({"attention.layer_norm_rms_epsilon": 0.0}, "rms_epsilon is 0.0; it must be one positive number"),
        ({"attention.layer_norm_rms_epsilon": float("nan")}, "rms_epsilon is nan; it must be one positive number"),
        ({"attention.layer_norm_rms_epsilon": "small"}, "rms_epsilon is 'small'; it must be one positive number"),
        ({"rope.freq_base": [1.0]}, "llama.rope.freq_base is [1.0]; it must be one positive number"),
        ({"block_count": 1 << 27}, "llama.block_count is 134217728; it must be one positive integer, at most 1000"),
        ({"block_count": True}, "llama.block_count is True; it must be one positive integer"),
        ({"context_length": 1 << 31}, "llama.context_length is 2147483648; it must be one positive integer, at most"),
        ({"feed_forward_length": "a\nb"}, r"llama.feed_forward_length is 'a\nb'"),
    ],
)
def test_metadata_of_wrong_types(
    write_gguf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, change: dict[str, object], text: str
) -> None:
    path = write_gguf()
    file = read_gguf(path)
    for key, value in change.items():
        file.fields[f"llama.{key}"] = value
    monkeypatch.setattr("mobile_ft.export.source.gguf_model.read_gguf", lambda path: file)
    assert text in message(path)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (np.ones((2, 4), np.float32), None),
        (np.ones((2, 8), np.float32), "rope_freqs has 16 values; it must have 8"),
        (np.zeros(8, np.float32), "rope_freqs has values that are not positive numbers"),
        (np.full(8, 1e-45, np.float32), "rope_freqs has values that are not positive numbers"),
        (np.full(8, np.nan, np.float32), "'rope_freqs.weight' has values that are not finite"),
        (np.ones(8, np.int8), "'rope_freqs.weight' has type I8; it must be one of F16, BF16, F32"),
    ],
)
def test_rotary_factors(
    write_gguf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, values: np.ndarray, text: str | None
) -> None:
    path = write_gguf()
    file = read_gguf(path)
    kind = Q.F32 if values.dtype == np.float32 else Q.I8
    data = values.reshape(-1).view(np.uint8)
    file.tensors.append(GgufTensor("rope_freqs.weight", kind, values.shape[::-1], data))
    monkeypatch.setattr("mobile_ft.export.source.gguf_model.read_gguf", lambda path: file)
    if text is not None:
        assert text in message(path)
    else:
        assert GgufModel(path).inv_freq(0).shape == (8,)


def gguf(*parts: bytes, tensors: int = 0, fields: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, fields) + b"".join(parts)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


UINT8, ARRAY, STRING = 0, 9, 8


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a GGUF file"),
        (b"GGU", "not a GGUF file"),
        (b"GGUF" + b"\0\0\0\3", "version 50331648"),
        (gguf(fields=1 << 60), "more than 8388608 values"),
        (gguf(tensors=1 << 20), "unpack_from requires"),
        (gguf(struct.pack("<Q", 1 << 63), fields=1), "it ends before byte 92233720368547"),
        (gguf(text("a"), struct.pack("<IIQ", ARRAY, UINT8, 1 << 40), fields=1), "more than 8388608 values"),
        (gguf(text("a"), struct.pack("<IIQ", ARRAY, UINT8, 1 << 22), fields=1), "it ends before byte 41943"),
        (gguf(text("a"), struct.pack("<IIQ", ARRAY, STRING, 1 << 22), fields=1), "unpack_from requires"),
        (gguf(text("a"), struct.pack("<IIQ", ARRAY, ARRAY, 1), fields=1), "metadata type 9"),
        (gguf(text("a"), struct.pack("<I", 99), fields=1), "metadata type 99"),
        (gguf(*[text("a"), struct.pack("<IB", UINT8, 1)] * 2, fields=2), "metadata 'a' is repeated"),
        (gguf(text("general.alignment"), struct.pack("<IB", UINT8, 0), fields=1), "general.alignment is 0"),
        (gguf(text("general.alignment"), struct.pack("<I", STRING), text("x"), fields=1), "general.alignment is 'x'"),
        (gguf(text("t"), struct.pack("<I", 1 << 31), tensors=1), "tensor 't' has 2147483648 dimensions"),
        (gguf(text("t"), struct.pack("<IIQ", 0, 0, 0), tensors=1), "tensor 't' of type F32 has shape []"),
        (gguf(text("t"), struct.pack("<IQIQ", 1, 4, 999, 0), tensors=1), "tensor 't' has the unknown type 999"),
        (gguf(text("t"), struct.pack("<IQIQ", 1, 4, 2, 0), tensors=1), "tensor 't' of type Q4_0 has shape [4]"),
        (
            gguf(text("t"), struct.pack("<IQIQ", 1, 4, 0, 0), tensors=1),
            "tensor 't' ends at byte 80, but the file has 57",
        ),
        (gguf(text("t"), struct.pack("<IQQIQ", 2, 1 << 62, 1 << 62, 0, 0), tensors=1), "tensor 't' ends at byte"),
        (gguf(text("t"), struct.pack("<IQIQ", 1, 0, 0, 1 << 63), tensors=1), "tensor 't' ends at byte"),
        (gguf(*[text("t"), struct.pack("<IQIQ", 1, 0, 0, 0)] * 2, bytes(64), tensors=2), "two tensors have the same"),
        (gguf(text("a"), struct.pack("<I", STRING), struct.pack("<Q", 1) + b"\xff", fields=1), "can't decode byte"),
    ],
)
def test_files_made_to_harm(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    refused = message(path)
    assert "not a readable GGUF file, or truncated (" in refused and reason in refused


def test_what_adapters_call_it(
    write_gguf: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file, or the name that it gives itself."""
    path = write_gguf()
    monkeypatch.chdir(tmp_path)
    assert GgufModel(Path(path.name)).base == BaseModel(str(path))
    model = GgufModel(path)
    model.fields["general.name"] = "My model"
    assert model.base == BaseModel(model.config.name)
