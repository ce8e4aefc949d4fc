"""A GGUF file of many types of tensors, exported and run, against Transformers, which decodes them to float32."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter, dequantize
from transformers import AutoModelForCausalLM

from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.source.gguf_model import GgufModel
from mobile_ft.model.lora import LoraConfig
from mobile_ft.runtime import Model
from tests.export.source.test_gguf_blocks import random_rows
from tests.runtime.conftest import relative_error

Q = GGMLQuantizationType
WIDTH, VOCABULARY = 256, 64
TOKENS = np.random.default_rng(0).integers(0, VOCABULARY, 41)
NAMES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "token_embd", "output")


def write_gguf(path: Path, types: tuple[Q, ...]) -> None:
    """One layer of a Llama, its matrices of these types in the order of NAMES."""
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    for name, kind in zip(NAMES, types, strict=True):
        rows = {"attn_k": WIDTH // 2, "attn_v": WIDTH // 2, "token_embd": VOCABULARY, "output": VOCABULARY}
        prefix = "blk.0." if name.startswith(("attn", "ffn")) else ""
        spread = dequantize(random_rows(kind, WIDTH, WIDTH), kind).std()
        raw = random_rows(kind, rows.get(name, WIDTH), WIDTH, 0.03 / spread)
        writer.add_tensor(f"{prefix}{name}.weight", raw, raw_dtype=kind)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("types", "tolerance"),
    [
        ((Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.IQ4_NL, Q.IQ4_NL, Q.F16, Q.BF16), 1e-5),
        ((Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.Q3_K, Q.Q2_K, Q.IQ4_XS, Q.Q6_K, Q.Q5_K, Q.Q6_K), 1e-3),
    ],
    ids=["kept", "rounded"],
)
def test_logits(tmp_path: Path, types: tuple[Q, ...], tolerance: float) -> None:
    write_gguf(tmp_path / "model.gguf", types)
    write_bundle(GgufModel(tmp_path / "model.gguf"), LoraConfig(2, 4.0, ("q_proj",)), 64, 0, tmp_path / "bundle")
    model = Model(str(tmp_path / "bundle"))
    model.prepare("", 64)
    ours = model.logits(TOKENS, np.arange(len(TOKENS)))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32).double()
    with torch.no_grad():
        expected = theirs(torch.from_numpy(TOKENS)[None]).logits[0].numpy()
    assert expected.std() > 0.1
    assert relative_error(ours, expected) < tolerance


@pytest.mark.slow
def test_llama_cpp_continues_in_the_same_words(smollm2: Path, smollm2_gguf: Path) -> None:
    """SmolLM2, 24 tokens after each of two texts; our logits of all that llama.cpp wrote, whose products round
    activations to 8 bits, which decides where two tokens are about as likely."""
    llama_cpp = pytest.importorskip("llama_cpp")
    reference = llama_cpp.Llama(str(smollm2_gguf), n_ctx=64, n_threads=1, verbose=False)
    model = Model(str(smollm2))
    model.prepare("", 64)
    for text in (b"The capital of France is", b"def add(a, b):\n    return"):
        tokens, written = reference.tokenize(text, add_bos=False), []
        reference.reset()
        for token in reference.generate(tokens, top_k=1, temp=0.0, repeat_penalty=1.0):
            written.append(token)
            if len(written) == 24:
                break
        whole = np.array([*tokens, *written[:-1]])
        ours = model.logits(whole, np.arange(len(whole)))[len(tokens) - 1 :]
        behind = ours.max(-1) - ours[np.arange(24), written]
        assert behind.max() < 0.3 and (behind == 0).sum() >= 20
