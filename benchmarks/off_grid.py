"""Creates SmolLM2 with other weights and the same function.

The published weights are on the grid of Q4_1, so that this format has no error. Here norms are folded into the
following linear layers, and the channels between v and o and between up and down are rescaled by random factors, in
float32.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from mobile_ft.export.source.gguf_model import GgufModel, builtin_model
from mobile_ft.model.formats import unpack


def float_model(folder: Path) -> Any:
    """Returns SmolLM2 in float32 as a Transformers model, and writes its tokenizer to `folder`."""
    path = builtin_model("smollm2-135m")
    assert path is not None
    source = GgufModel(path)
    c = source.config
    config = LlamaConfig(
        hidden_size=c.hidden_size,
        intermediate_size=c.intermediate_size,
        num_hidden_layers=c.num_hidden_layers,
        num_attention_heads=c.num_attention_heads,
        num_key_value_heads=c.num_key_value_heads,
        vocab_size=c.vocab_size,
        rms_norm_eps=c.rms_norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
        max_position_embeddings=c.max_position_embeddings,
        tie_word_embeddings=True,
    )
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.copy_(torch.from_numpy(source.vector(name, len(parameter))))
        else:
            weight = source.packed(name, parameter.shape[1], parameter.shape[0])
            parameter.copy_(torch.from_numpy(unpack(weight.data, weight.format, weight.rows)))
    source.write_tokenizer(folder)
    return model


def move_off_the_grid(model: Any, seed: int = 0) -> None:
    """Changes the weights without changing the function."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    dim = config.hidden_size // config.num_attention_heads
    for layer in model.model.layers:
        attn, mlp = layer.self_attn, layer.mlp
        for norm, linears in (
            (layer.input_layernorm, (attn.q_proj, attn.k_proj, attn.v_proj)),
            (layer.post_attention_layernorm, (mlp.gate_proj, mlp.up_proj)),
        ):
            for linear in linears:
                linear.weight.mul_(norm.weight)
            norm.weight.fill_(1.0)
        values = torch.rand(len(attn.v_proj.weight), generator=generator) + 0.5
        attn.v_proj.weight.mul_(values[:, None])
        group = config.num_attention_heads // config.num_key_value_heads
        attn.o_proj.weight.div_(values.view(-1, 1, dim).expand(-1, group, dim).reshape(-1))
        inner = torch.rand(config.intermediate_size, generator=generator) + 0.5
        mlp.up_proj.weight.mul_(inner[:, None])
        mlp.down_proj.weight.div_(inner)
