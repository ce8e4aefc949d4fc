"""Tiny random Transformers models of each family, and the same weights as a source for export.

Linears are quantized to 4 bits and the embedding to 8, and the values of that go back into the Transformers model, so
both hold the same numbers.
"""

import copy
import json
from pathlib import Path
from typing import Any

import torch
from gguf import GGMLQuantizationType, quantize
from transformers import (
    ArceeConfig,
    AutoModelForCausalLM,
    Ernie4_5Config,
    Exaone4Config,
    FalconH1Config,
    Gemma2Config,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    Gemma4TextConfig,
    GemmaConfig,
    Glm4Config,
    GlmConfig,
    GraniteConfig,
    GraniteMoeConfig,
    GraniteMoeHybridConfig,
    GraniteMoeSharedConfig,
    GraniteSWAConfig,
    HeliumConfig,
    HunYuanDenseV1Config,
    HyperCLOVAXConfig,
    InternLM3Config,
    IQuestCoderConfig,
    Lfm2Config,
    Lfm2MoeConfig,
    Lfm3Config,
    LlamaConfig,
    Ministral3Config,
    MinistralConfig,
    MistralConfig,
    MixtralConfig,
    NemotronHConfig,
    Olmo2Config,
    Olmo3Config,
    OlmoeConfig,
    OlmoHybridConfig,
    Phi3Config,
    PreTrainedConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    Qwen3NextConfig,
    SmolLM3Config,
    VaultGemmaConfig,
)

from mobile_ft.export.source.gguf_blocks import take_apart
from mobile_ft.export.source.source import ModelSource
from mobile_ft.model.formats import F32, PackedWeight, pack, unpack
from mobile_ft.model.hf_config import read_hf_config, text_settings

_SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 250,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
_UNTIED = _SHAPE | {"tie_word_embeddings": False}
# 34 tokens of context before the scaling: some frequencies stay, some are divided, some lie between.
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 34,
}
_GEMMA_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
_DELTA: dict[str, Any] = {  # a value head has other sizes than a key head
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 8,
}
_MULTIPLIERS: dict[str, Any] = {"embedding_multiplier": 6.0, "residual_multiplier": 0.3, "logits_scaling": 0.7}
FAMILIES: dict[str, PreTrainedConfig] = {
    "qwen2": Qwen2Config(
        num_hidden_layers=2, rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 1e6}, **_SHAPE
    ),
    "llama3": LlamaConfig(num_hidden_layers=2, head_dim=32, rope_parameters=_LLAMA3, **_SHAPE),
    "mistral": MistralConfig(
        num_hidden_layers=2,
        head_dim=24,
        sliding_window=9,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        **_UNTIED,
    ),
    "smollm3": SmolLM3Config(num_hidden_layers=4, pad_token_id=0, **_SHAPE),  # the last without rotary embedding
    "qwen3": Qwen3Config(num_hidden_layers=2, head_dim=32, **_SHAPE),
    # One layer of attention between short convolutions.
    "lfm2": Lfm2Config(
        num_hidden_layers=3,
        conv_L_cache=3,
        block_multiple_of=32,
        layer_types=["conv", "full_attention", "conv"],
        **_SHAPE | {"intermediate_size": 160},
    ),
    "gemma": GemmaConfig(num_hidden_layers=2, head_dim=32, **_SHAPE),
    "gemma2": Gemma2Config(
        num_hidden_layers=2,
        head_dim=32,
        query_pre_attn_scalar=50,
        sliding_window=9,
        attn_logit_softcapping=3.0,
        final_logit_softcapping=4.0,
        **_SHAPE,
    ),
    "vaultgemma": VaultGemmaConfig(
        num_hidden_layers=2,
        head_dim=32,
        query_pre_attn_scalar=32,
        sliding_window=9,
        attn_logit_softcapping=5.0,
        **_SHAPE,
    ),
    "internlm3": InternLM3Config(num_hidden_layers=2, head_dim=32, **_UNTIED),
    "iquestcoder": IQuestCoderConfig(num_hidden_layers=2, head_dim=32, **_UNTIED),
    "ministral": MinistralConfig(
        num_hidden_layers=2,
        head_dim=32,
        sliding_window=9,
        layer_types=["sliding_attention", "full_attention"],
        **_UNTIED,
    ),
    # Within the original context, as `llama_4_scaling_beta` requires.
    "ministral3": Ministral3Config(
        num_hidden_layers=2,
        head_dim=32,
        rope_parameters=YARN | {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1},
        **_UNTIED,
    ),
    "lfm3": Lfm3Config(
        num_hidden_layers=4,
        head_dim=16,
        conv_L_cache=7,
        sliding_window=9,
        layer_types=["conv", "full_attention", "sliding_attention", "conv"],
        pad_token_id=0,
        **_SHAPE,
    ),
    "granite": GraniteConfig(num_hidden_layers=2, attention_multiplier=0.2, **_MULTIPLIERS, **_SHAPE),
    "granitemoehybrid": GraniteMoeHybridConfig(
        num_hidden_layers=2,
        attention_multiplier=0.3,
        layer_types=["full_attention"] * 2,
        num_local_experts=0,
        num_experts_per_tok=0,
        shared_intermediate_size=96,
        position_embedding_type="rope",
        mamba_n_heads=8,
        **_MULTIPLIERS,
        **_SHAPE,
    ),
    "falcon_h1": FalconH1Config(
        num_hidden_layers=2,
        mamba_d_ssm=96,
        mamba_n_heads=6,
        mamba_d_head=16,
        mamba_d_state=24,
        mamba_n_groups=2,
        mamba_chunk_size=16,
        key_multiplier=0.7,
        attention_in_multiplier=1.2,
        attention_out_multiplier=0.6,
        ssm_in_multiplier=0.8,
        ssm_out_multiplier=0.5,
        ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 0.7],
        mlp_multipliers=[0.8, 0.6],
        embedding_multiplier=3.0,
        lm_head_multiplier=1.4,
        **_SHAPE,
    ),
    # Two groups of heads that share B and C.
    "granite4": GraniteMoeHybridConfig(
        num_hidden_layers=3,
        attention_multiplier=0.3,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        num_local_experts=0,
        num_experts_per_tok=0,
        shared_intermediate_size=96,
        position_embedding_type="nope",
        mamba_n_heads=8,
        mamba_d_head=16,
        mamba_d_state=24,
        mamba_n_groups=2,
        mamba_chunk_size=16,
        **_MULTIPLIERS,
        **_SHAPE,
    ),
    "granite_swa": GraniteSWAConfig(
        num_hidden_layers=4,
        attention_multiplier=0.2,
        sliding_window=9,
        layer_types=["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
        layer_rope_theta=[0, 10000.0, 100000.0, 0],
        **_MULTIPLIERS,
        **_SHAPE,
    ),
    "hyperclovax": HyperCLOVAXConfig(
        num_hidden_layers=2, head_dim=32, attention_multiplier=0.3, **_MULTIPLIERS, **_SHAPE
    ),
    "phi3": Phi3Config(
        num_hidden_layers=2,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 2.0],
            "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        },
        original_max_position_embeddings=128,
        pad_token_id=0,
        **_SHAPE,
    ),
    "ernie4_5": Ernie4_5Config(num_hidden_layers=2, head_dim=32, **_SHAPE),
    "helium": HeliumConfig(num_hidden_layers=2, head_dim=16, **_SHAPE),
    "glm": GlmConfig(num_hidden_layers=2, head_dim=32, pad_token_id=0, **_SHAPE),
    "glm4": Glm4Config(num_hidden_layers=2, head_dim=32, pad_token_id=0, **_SHAPE),
    "olmo2": Olmo2Config(num_hidden_layers=2, **_UNTIED),
    "olmo3": Olmo3Config(
        num_hidden_layers=2,
        sliding_window=9,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
        **_UNTIED,
    ),
    "exaone4": Exaone4Config(
        num_hidden_layers=2, sliding_window=9, layer_types=["sliding_attention", "full_attention"], **_SHAPE
    ),
    "hunyuan": HunYuanDenseV1Config(
        num_hidden_layers=2,
        head_dim=32,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 1.0, "alpha": 1000.0},
        **_SHAPE,
    ),
    # Two value heads share a key head, and the heads of keys and of values differ in size.
    "qwen3_5": Qwen3_5TextConfig(
        num_hidden_layers=3,
        head_dim=32,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        **_DELTA,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 1e6,
            "partial_rotary_factor": 0.25,
            "mrope_section": [2, 1, 1],
        },
        **_SHAPE,
    ),
    # Weights of experts: a softmax of all, a softmax of the chosen ones, sigmoids.
    "olmoe": OlmoeConfig(num_hidden_layers=2, num_experts=5, num_experts_per_tok=2, pad_token_id=0, **_UNTIED),
    "granitemoe": GraniteMoeConfig(
        num_hidden_layers=2,
        num_local_experts=6,
        num_experts_per_tok=3,
        attention_multiplier=0.2,
        **_MULTIPLIERS,
        **_SHAPE,
    ),
    "qwen3_moe": Qwen3MoeConfig(
        num_hidden_layers=2,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        norm_topk_prob=True,
        **_SHAPE | {"head_dim": 32},
    ),
    "lfm2_moe": Lfm2MoeConfig(
        num_hidden_layers=3,
        num_dense_layers=1,
        num_experts=6,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        routed_scaling_factor=1.5,
        layer_types=["conv", "full_attention", "conv"],
        pad_token_id=0,
        **_SHAPE,
    ),
    "arcee": ArceeConfig(num_hidden_layers=2, **_SHAPE),
    "mixtral": MixtralConfig(num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2, **_UNTIED),
    # Experts beside an MLP: with a gate of its own, with a delta net, without a gate, with Mamba-2.
    "qwen2_moe": Qwen2MoeConfig(
        num_hidden_layers=2,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        shared_expert_intermediate_size=96,
        **_SHAPE,
    ),
    "qwen3_next": Qwen3NextConfig(
        num_hidden_layers=2,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=64,
        layer_types=["linear_attention", "full_attention"],
        **_DELTA | {"linear_key_head_dim": 32},
        **_SHAPE | {"head_dim": 32},
    ),
    "qwen3_5_moe": Qwen3_5MoeTextConfig(
        num_hidden_layers=2,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=64,
        layer_types=["linear_attention", "full_attention"],
        **_DELTA,
        **{key: value for key, value in _SHAPE.items() if key != "intermediate_size"} | {"head_dim": 32},
    ),
    "granitemoeshared": GraniteMoeSharedConfig(
        num_hidden_layers=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        shared_intermediate_size=64,
        attention_multiplier=0.2,
        **_MULTIPLIERS,
        **_SHAPE,
    ),
    "granite4_moe": GraniteMoeHybridConfig(
        num_hidden_layers=2,
        attention_multiplier=0.3,
        layer_types=["linear_attention", "full_attention"],
        num_local_experts=4,
        num_experts_per_tok=2,
        shared_intermediate_size=64,
        position_embedding_type="nope",
        mamba_n_heads=8,
        mamba_d_head=16,
        mamba_d_state=24,
        mamba_chunk_size=16,
        **_MULTIPLIERS,
        **_SHAPE,
    ),
    # Keys and values of other sizes than queries, a step of up to 2, and no rotary embedding.
    "olmo_hybrid": OlmoHybridConfig(
        num_hidden_layers=3,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        rope_parameters={"rope_type": "default", "rope_theta": None},
        pad_token_id=0,
        **_DELTA | {"linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 16},
        **_UNTIED,
    ),
    # Transformers keeps steps above time_step_min except in generation; the original has no such limit.
    "nemotron_h": NemotronHConfig(
        layers_block_type=["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"],
        head_dim=16,
        mamba_num_heads=8,
        mamba_head_dim=16,
        n_groups=2,
        ssm_state_size=24,
        chunk_size=16,
        time_step_min=1e-9,
        **_UNTIED,
    ),
    # The window is shorter than the tests' sequences, and one layer of three has none.
    "gemma3": Gemma3TextConfig(
        num_hidden_layers=3,
        head_dim=32,
        query_pre_attn_scalar=32,
        sliding_window=9,
        rope_parameters=_GEMMA_ROPE,
        **_SHAPE | {"sliding_window_pattern": 2},
    ),
    # Two layers that take keys and values of the layers before them, whose heads differ in size.
    "gemma4": Gemma4TextConfig(
        num_hidden_layers=5,
        head_dim=16,
        sliding_window=9,
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        num_kv_shared_layers=2,
        use_double_wide_mlp=True,
        hidden_size_per_layer_input=32,
        vocab_size_per_layer_input=250,
        final_logit_softcapping=4.0,
        pad_token_id=0,
        **_SHAPE | {"global_head_dim": 32},
    ),
}


# Families whose traits others have too: their exported models are tested with the slow tests.
ALIKE = (
    *("gemma", "vaultgemma", "mistral", "ministral", "internlm3", "iquestcoder", "hyperclovax", "helium"),
    *("granite", "granite4", "ernie4_5", "glm4", "olmo2", "olmo3", "arcee"),
    *("mixtral", "qwen2_moe", "qwen3_moe", "qwen3_5_moe", "granitemoe", "granitemoeshared", "granite4_moe"),
)
_EAGER = ("gemma2", "vaultgemma", "granite_swa")  # their attention has no other form in Transformers


def random_model(config: PreTrainedConfig) -> Any:
    """A Transformers model whose biases and norms say something too."""
    torch.manual_seed(0)
    config = copy.deepcopy(config)  # a test may change its model's, and others share this one
    attention = "eager" if config.model_type in _EAGER else "sdpa"
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # the only one in float64
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("expert_bias"):
                buffer.normal_(0, 0.3)
            if name.endswith("layer_scalar"):
                buffer.copy_(torch.randint(4, 13, (1,)) / 8)
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn_like(parameter)
            elif "experts" in name:
                parameter.normal_(0, 0.15)
            elif parameter.dim() == 3:  # a short convolution's taps
                parameter.normal_(0, 0.5)
            elif "embed" in name:
                parameter.normal_(0, 0.1)
            else:
                parameter.normal_(0, 0.15)
    return model


def gemma3_with_vision() -> Any:
    """A Gemma 3 with a vision tower, in numbers that float16 holds."""
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Gemma3Config(
        text_config=FAMILIES["gemma3"].to_dict(),
        vision_config=vision | {"image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4,
        image_token_index=240,
        boi_token_index=241,
        eoi_token_index=242,
    )
    torch.manual_seed(0)
    model = Gemma3ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.1 if "embed_tokens" in name else 0.15)
            parameter.copy_(parameter.half())
    return model


class HfModel(ModelSource):
    """The weights of a Transformers model, which it leaves with their quantized values."""

    def __init__(self, model: Any, folder: Path):
        model.config.to_json_file(folder / "config.json", use_diff=False)
        self.config = read_hf_config(folder / "config.json")
        self.hf_settings = text_settings(json.loads((folder / "config.json").read_text()))
        self.parameters = dict(model.named_parameters()) | dict(model.named_buffers())

    def format_of(self, name: str) -> str:
        if name.endswith(f".{self.config.family.linears.get('router')}.weight"):
            return "q8_0"
        return "q8_0" if "embed" in name or "lm_head" in name else "q4_0"

    def packed(self, name: str, in_features: int, out_features: int) -> PackedWeight:
        fmt, parameter = self.format_of(name), self.parameters.get(name, self.parameters.get(name[: -len(".weight")]))
        assert parameter is not None
        kind = GGMLQuantizationType[fmt.upper()]
        rows = take_apart(quantize(parameter.detach().numpy().reshape(out_features, in_features), kind), kind)
        weight = pack(fmt, rows.codes, rows.header)
        parameter.data.copy_(torch.from_numpy(unpack(weight.data, fmt, out_features)).reshape(parameter.shape))
        return weight

    def vector(self, name: str, size: int) -> F32:
        return self.parameters[name].detach().numpy().reshape(-1)

    def write_tokenizer(self, folder: Path) -> None:
        pass
