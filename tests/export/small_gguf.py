"""A GGUF file of some kilobytes: one layer of zeros, and a tokenizer."""

import struct
from typing import Any

# Types of values, and of tensors (F32, Q4_0), as the format numbers them.
_UINT32, _FLOAT32, _STRING, _ARRAY = 4, 6, 8, 9
_F32, _Q4_0, _Q4_0_BYTES = 0, 2, 18
_WIDTH, _VOCABULARY = 32, 5


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, list):
        kind = struct.unpack_from("<I", _value(value[0]))[0]
        return struct.pack("<IIQ", _ARRAY, kind, len(value)) + b"".join(_value(item)[4:] for item in value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    return struct.pack("<If", _FLOAT32, value) if isinstance(value, float) else struct.pack("<II", _UINT32, value)


def small_gguf(tokenizer: str) -> bytes:
    """`tokenizer` is gpt2, with merges, or llama, with scores."""
    fields: dict[str, Any] = {"general.architecture": "llama", "llama.block_count": 1, "llama.context_length": 64}
    fields |= {"llama.embedding_length": _WIDTH, "llama.feed_forward_length": _WIDTH}
    fields |= {"llama.attention.head_count": 2, "llama.attention.head_count_kv": 2}
    fields |= {"llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.model": tokenizer}
    fields |= {"tokenizer.ggml.tokens": ["a", "b", "ab", "</s>", "<unk>"], "tokenizer.ggml.token_type": [1, 1, 1, 3, 2]}
    fields |= {"tokenizer.ggml.bos_token_id": 3, "tokenizer.ggml.eos_token_id": 3}
    if tokenizer == "gpt2":
        fields |= {"tokenizer.ggml.merges": ["a b"], "tokenizer.chat_template": "{{ bos_token }}"}
    else:
        fields |= {"tokenizer.ggml.scores": [-1.0] * _VOCABULARY, "tokenizer.ggml.unknown_token_id": 4}
    tensors = {"token_embd": (_Q4_0, _WIDTH, _VOCABULARY), "rope_freqs": (_F32, 8), "output_norm": (_F32, _WIDTH)}
    linears = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    tensors |= {f"blk.0.{name}": (_Q4_0, _WIDTH, _WIDTH) for name in linears}
    tensors |= {f"blk.0.{name}": (_F32, _WIDTH) for name in ("attn_norm", "ffn_norm")}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    head += b"".join(_text(key) + _value(value) for key, value in fields.items())
    data = b""
    for name, (kind, columns, *rows) in tensors.items():
        head += _text(f"{name}.weight") + struct.pack(
            f"<I{1 + len(rows)}QIQ", 1 + len(rows), columns, *rows, kind, len(data)
        )
        count = columns * (rows[0] if rows else 1)
        data += struct.pack("<f", 1) * count if kind == _F32 else bytes(count // 32 * _Q4_0_BYTES)
        data += bytes(-len(data) % 32)
    return head + bytes(-len(head) % 32) + data
