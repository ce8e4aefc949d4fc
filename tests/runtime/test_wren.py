"""The family of docs/internals/adding_a_family.md, as that page adds it, against a model of its own in PyTorch."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.model import families
from mobile_ft.model.families import llama
from mobile_ft.model.lora import BaseModel, LoraConfig, adapter_key, parse_targets, write_adapter
from mobile_ft.runtime import GenerateConfig, Generator, Model, TrainConfig, Trainer
from tests.runtime.conftest import relative_error
from tests.small_tokenizer import write_small_tokenizer

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "adding_a_family.md"
TOKENS = np.random.default_rng(0).integers(0, 250, 33)
HEADS, DIM, RANK, SCALE = 4, 16, 3, 2.0
LINEARS = {
    **dict.fromkeys(("attention.query", "attention.key", "attention.value", "attention.dense"), (64, 64)),
    **{"ffn.gate": (96, 64), "ffn.up": (96, 64), "ffn.down": (64, 96)},
}


def block(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return text


def random_weights() -> dict[str, Tensor]:
    """Numbers of float16, as the checkpoint has them."""
    torch.manual_seed(0)
    weights = {"model.embed_tokens.weight": 0.1 * torch.randn(250, 64), "model.ln_out.weight": 1 + torch.rand(64)}
    for layer in range(4):
        own = {f"{name}.weight": 0.15 * torch.randn(shape) for name, shape in LINEARS.items()}
        own |= {f"attention.{name}.bias": 0.3 * torch.randn(64) for name in ("query", "key", "value")}
        own |= {f"{name}.weight": 1 + 0.3 * torch.randn(64) for name in ("ln_attn", "ln_attn_out", "ln_mlp")}
        own |= {f"attention.{name}_norm.weight": 1 + 0.3 * torch.randn(DIM) for name in ("query", "key")}
        weights |= {f"model.layers.{layer}.{name}": x for name, x in own.items()}
    return {name: x.half() for name, x in weights.items()}


def wren(weights: dict[str, Tensor], lora: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """Logits [T, vocabulary], in the weights' dtype."""
    t = len(tokens)
    angles = torch.arange(t)[:, None] * (1e4 ** (-torch.arange(0, DIM, 2) / DIM)).float()
    cos, sin = angles.cos().double(), angles.sin().double()

    def rotated(x: Tensor) -> Tensor:
        low, high = x.chunk(2, -1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)

    def norm(x: Tensor, name: str) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], weights[f"{name}.weight"], 1e-5)

    x = weights["model.embed_tokens.weight"][tokens]
    for layer in range(4):
        at = f"model.layers.{layer}."

        def linear(x: Tensor, name: str, layer: int = layer) -> Tensor:
            name_of = f"model.layers.{layer}.{name}"
            y = functional.linear(x, weights[f"{name_of}.weight"], weights.get(f"{name_of}.bias"))
            a, b = (lora[adapter_key(layer, f"{name}.lora_{ab}.weight")] for ab in "AB")
            return y + SCALE * x @ a.T @ b.T

        z = norm(x, f"{at}ln_attn")
        q, k, v = (linear(z, f"attention.{n}").view(t, HEADS, DIM).transpose(0, 1) for n in ("query", "key", "value"))
        q, k = norm(q, f"{at}attention.query_norm"), norm(k, f"{at}attention.key_norm")
        if layer % 2 == 0:
            q, k = rotated(q), rotated(k)
        o = functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        x = x + norm(linear(o.transpose(0, 1).reshape(t, 64), "attention.dense"), f"{at}ln_attn_out")
        z = norm(x, f"{at}ln_mlp")
        gate = functional.gelu(linear(z, "ffn.gate"), approximate="tanh")
        x = x + linear(gate * linear(z, "ffn.up"), "ffn.down")
    return norm(x, "model.ln_out") @ weights["model.embed_tokens.weight"].T


def test_wren(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(families.FAMILIES, "wren", None)  # taken out again behind the test
    exec(block("python"), vars(llama) | {"FAMILIES": families.FAMILIES})
    weights = random_weights()
    write_small_tokenizer(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(block("json"))
    save_file(weights, tmp_path / "model" / "model.safetensors")
    source = HfFolder(tmp_path / "model", "f16", "f16")
    lora = LoraConfig(RANK, SCALE * RANK, parse_targets("all-linear", source.config))
    bundle = write_bundle(source, lora, 64, 0, tmp_path / "bundle")
    assert set(bundle["kinds"]) == {"attn", "attn_no_rope", "mlp"}

    rng = np.random.default_rng(1)
    initial = load_file(tmp_path / "bundle" / "adapter_model.safetensors")
    initial = {name: (0.1 * rng.standard_normal(x.shape)).astype(np.float32) for name, x in initial.items()}
    write_adapter(tmp_path, lora, BaseModel("wren"), initial)
    dense = {name: x.double() for name, x in weights.items()}
    trainer = Trainer(Model(str(tmp_path / "bundle")), TrainConfig(seq_len=64, backward="store"), str(tmp_path))
    adapter = {name: torch.from_numpy(x).double().requires_grad_() for name, x in initial.items()}
    logits = wren(dense, adapter, torch.from_numpy(TOKENS))
    loss = functional.cross_entropy(logits[:-1], torch.from_numpy(TOKENS[1:]), reduction="sum")
    loss.backward()
    ours = trainer.accumulate(TOKENS[:-1], TOKENS[1:], np.arange(len(TOKENS) - 1), [True] * 4)
    assert ours == pytest.approx(loss.item(), rel=1e-5)
    gradients = trainer.gradients()
    assert gradients.keys() == adapter.keys()
    for name, theirs in adapter.items():
        assert theirs.grad is not None
        assert relative_error(gradients[name], theirs.grad.numpy()) < 1e-4, name

    model = Model(str(tmp_path / "bundle"))
    model.prepare(str(tmp_path), 64)
    assert np.abs(model.logits(TOKENS, np.arange(len(TOKENS))) - logits.detach().numpy()).max() < 1e-4
    answer = Generator(model).generate(TOKENS.tolist(), GenerateConfig(max_tokens=6))
    whole = wren(dense, adapter, torch.tensor([*TOKENS, *answer]))[len(TOKENS) - 1 : -1]
    assert (whole[torch.arange(6), answer] >= whole.max(-1).values - 1e-4).all()
