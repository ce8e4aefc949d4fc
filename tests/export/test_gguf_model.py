"""Reading GGUF: values and row order against the file, and clear errors for what cannot be used."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, dequantize, quantize

from mobile_ft.errors import UserError
from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.gguf_model import GgufModel
from mobile_ft.formats import unpack
from mobile_ft.lora import ALL_LINEAR, LoraConfig

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


@pytest.mark.parametrize("quantized", [Q.Q4_0, Q.Q4_1, Q.Q8_0, Q.F16])
def test_every_format_exports_unchanged(write_gguf: Callable[..., Path], tmp_path: Path, quantized: Q) -> None:
    model = GgufModel(write_gguf(quantized))
    raw = {t.name: t for t in GGUFReader(model.path).tensors}
    weight = model.packed("model.layers.0.mlp.down_proj.weight", INNER, HIDDEN)
    assert weight.format == quantized.name.lower()
    expected = dequantize(raw["blk.0.ffn_down.weight"].data, quantized)
    assert np.array_equal(unpack(weight.data, weight.format, HIDDEN), expected)
    bundle = write_bundle(model, LoraConfig(4, 8.0, ALL_LINEAR), 32, 0, tmp_path / "bundle")
    assert bundle["formats"] == [weight.format]
    assert not bundle["model"]["tie_word_embeddings"]


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
    assert "not a readable GGUF file, or a truncated one" in message(path)


def test_not_gguf(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"this is not a model" * 100)
    assert "not a readable GGUF file" in message(path)


def test_unsupported_contents(write_gguf: Callable[..., Path]) -> None:
    assert "has type Q5_0; supported: Q4_0, Q4_1, Q8_0, F16" in message(write_gguf(Q.Q5_0))
    assert "architecture is 'mamba'; supported: 'llama'" in message(write_gguf(arch="mamba"))
    assert "lm_head.weight" not in message(write_gguf(drop="blk.0.ffn_up"))
    assert "self_attn.q_proj.weight is missing" in message(write_gguf(drop="blk.0.attn_q"))
    assert "'blk.0.attn_sinks.weight' is not part of a Llama" in message(write_gguf(extra="blk.0.attn_sinks"))
    assert "has shape [96, 64]; the model's configuration says [128, 64]" in message(write_gguf(inner=128))
