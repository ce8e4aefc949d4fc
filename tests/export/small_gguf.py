"""GGUF files of some kilobytes: one layer of zeros, of any type, and a tokenizer."""

import struct
from typing import Any

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

# Types of values, as the format numbers them.
_UINT8, _UINT32, _FLOAT32, _STRING, _ARRAY = 0, 4, 6, 8, 9
_VOCABULARY = 5
# Bytes of a row above which a file has no linears: they would not be small.
_SMALL_ROW = 24


# As many nodes as there are bytes, which lead nowhere, and no text.
_CHARSMAP = struct.pack("<I", 1024) + bytes(1024 + 1)


def _row_bytes(kind: GGMLQuantizationType, columns: int) -> int:
    block, size = GGML_QUANT_SIZES[kind]
    return columns // block * size


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, bytes):
        return struct.pack("<IIQ", _ARRAY, _UINT8, len(value)) + value
    if isinstance(value, list):
        kind = struct.unpack_from("<I", _value(value[0]))[0]
        return struct.pack("<IIQ", _ARRAY, kind, len(value)) + b"".join(_value(item)[4:] for item in value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    return struct.pack("<If", _FLOAT32, value) if isinstance(value, float) else struct.pack("<II", _UINT32, value)


def small_gguf(tokenizer: str, kind: GGMLQuantizationType = GGMLQuantizationType.Q4_0) -> bytes:
    """`tokenizer` is gpt2, with merges, or llama or t5, with scores. Matrices are of type `kind`; of a type of large
    blocks there is an embedding alone."""
    width = max(32, GGML_QUANT_SIZES[kind][0])
    return _file(_fields(tokenizer, width), _tensors(kind, width))


_SSM = {"ssm.time_step_rank": 2, "ssm.inner_size": 32, "ssm.group_count": 1, "ssm.state_size": 16, "ssm.conv_kernel": 4}
_SCALES = {"attention.scale": 0.1, "embedding_scale": 2.0, "residual_scale": 0.5, "logit_scale": 2.0}
_EXPERTS = {"expert_count": 2, "expert_used_count": 1}
_SHARED = {"expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 32}
_CONV = {"attention.head_count_kv": [0], "shortconv.l_cache": 3}
_DELTA = _SSM | {"attention.head_count_kv": [2], "rope.dimension_count": 8, "full_attention_interval": 2}
_WINDOW = {"attention.sliding_window": 8}
_PER_LAYER = {"attention.head_count_kv": [2], "feed_forward_length": [32], "embedding_length_per_layer_input": 32}
# What an architecture has beyond llama's settings.
_OWN: dict[str, dict[str, Any]] = {
    "gemma2": _WINDOW,
    "gemma3": _WINDOW,
    "gemma4": _WINDOW | _PER_LAYER | {"attention.key_length_swa": 16},
    "qwen35": _DELTA,
    "qwen35moe": _DELTA | _EXPERTS | _SHARED,
    "mistral3": {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 16,
    },
    "granite": _SCALES,
    "granitemoe": _SCALES | _EXPERTS,
    "granitehybrid": _SCALES
    | _EXPERTS
    | _SSM
    | {"attention.head_count_kv": [0], "expert_shared_feed_forward_length": 32},
    "falcon-h1": _SSM,
    "nemotron_h": _SSM | {"block_count": 2, "attention.head_count_kv": [0, 0], "feed_forward_length": [0, 32]},
    "lfm2": _CONV,
    "lfm2moe": _CONV | _EXPERTS | {"expert_feed_forward_length": 32, "expert_gating_func": 2},
    "olmoe": _EXPERTS,
    "chatglm": {"rope.dimension_count": 8},
    "glm4": {"rope.dimension_count": 8},
    "qwen2moe": _EXPERTS | _SHARED,
    "qwen3moe": _EXPERTS | {"expert_feed_forward_length": 32},
}


def small_gguf_of(architecture: str) -> bytes:
    """With the settings of an architecture, and an embedding and, where there must be one, a head alone."""
    fields = {key.replace("llama.", f"{architecture}.", 1): value for key, value in _fields("gpt2", 32).items()}
    own = {"attention.key_length": 16, **_OWN.get(architecture, {})}
    fields |= {f"{architecture}.{key}": value for key, value in own.items()} | {"general.architecture": architecture}
    names = ["token_embd", "output"] if architecture == "nemotron_h" else ["token_embd"]
    return _file(fields, {name: (GGMLQuantizationType.Q4_0, 32, _VOCABULARY) for name in names})


def small_parts(tokenizer: str) -> tuple[bytes, bytes]:
    """The same in two parts, as gguf-split writes them."""
    tensors = list(_tensors(GGMLQuantizationType.Q4_0, 32).items())
    fields = [{"split.no": number, "split.count": 2, "split.tensors.count": len(tensors)} for number in range(2)]
    return _file(_fields(tokenizer, 32) | fields[0], dict(tensors[:5])), _file(fields[1], dict(tensors[5:]))


def _fields(tokenizer: str, width: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"general.architecture": "llama", "llama.block_count": 1, "llama.context_length": 64}
    fields |= {"llama.embedding_length": width, "llama.feed_forward_length": width}
    fields |= {"llama.attention.head_count": 2, "llama.attention.head_count_kv": 2}
    fields |= {"llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.model": tokenizer}
    fields |= {"tokenizer.ggml.tokens": ["a", "b", "ab", "</s>", "<unk>"], "tokenizer.ggml.token_type": [1, 1, 1, 3, 2]}
    fields |= {"tokenizer.ggml.bos_token_id": 3, "tokenizer.ggml.eos_token_id": 3}
    if tokenizer == "gpt2":
        fields |= {"tokenizer.ggml.merges": ["a b"], "tokenizer.chat_template": "{{ bos_token }}"}
    else:
        fields |= {"tokenizer.ggml.scores": [-1.0] * _VOCABULARY, "tokenizer.ggml.unknown_token_id": 4}
    if tokenizer == "t5":
        fields |= {"tokenizer.ggml.precompiled_charsmap": _CHARSMAP, "tokenizer.ggml.remove_extra_whitespaces": 1}
    return fields


def _tensors(kind: GGMLQuantizationType, width: int) -> dict[str, Any]:
    f32 = GGMLQuantizationType.F32
    tensors: dict[str, Any] = {"token_embd": (kind, width, _VOCABULARY), "rope_freqs": (f32, width // 4)}
    tensors["output_norm"] = (f32, width)
    if _row_bytes(kind, width) <= _SMALL_ROW:
        linears = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
        tensors |= {f"blk.0.{name}": (kind, width, width) for name in linears}
        tensors |= {f"blk.0.{name}": (f32, width) for name in ("attn_norm", "ffn_norm")}
    return tensors


def _file(fields: dict[str, Any], tensors: dict[str, Any]) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    head += b"".join(_text(key) + _value(value) for key, value in fields.items())
    data = b""
    for name, (tensor_kind, columns, *rows) in tensors.items():
        head += _text(f"{name}.weight") + struct.pack(
            f"<I{1 + len(rows)}QIQ", 1 + len(rows), columns, *rows, tensor_kind, len(data)
        )
        ones = struct.pack("<f", 1) * columns
        data += bytes(_row_bytes(tensor_kind, columns) * rows[0]) if rows else ones
        data += bytes(-len(data) % 32)
    return head + bytes(-len(head) % 32) + data
