"""LowMemoryBP on Hugging Face models: forward unchanged, gradients right, less kept, undone without a trace."""

import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mobile_ft.errors import UserError
from mobile_ft.pytorch import SavedTensors, apply
from tests.pytorch.models import MODELS, make, training_arguments

Results = tuple[Tensor, int, dict[str, Tensor]]


def step(model: nn.Module, inputs: dict[str, Tensor]) -> Results:
    """Logits, bytes kept for the backward, gradients."""
    model.zero_grad()
    with SavedTensors(model) as saved:
        output: Any = model(**inputs)
    output.loss.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return output.logits.detach(), saved.bytes, gradients


def error(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """The largest of a tensor; those that are 0 but for rounding, as of the keys' biases, against all of them."""
    assert a.keys() == b.keys()
    least = 1e-3 * float(torch.stack([g.norm() for g in b.values()]).norm())
    return max(float((a[name] - b[name]).norm() / (b[name].norm() + least)) for name in b)


@pytest.mark.parametrize("family", MODELS)
def test_norms_change_nothing_but_what_is_kept(family: str) -> None:
    model, inputs = make(family)
    names = list(model.state_dict())
    logits, kept, gradients = step(model, inputs)
    applied = apply(model, activation="exact")
    assert (applied.activations, applied.norms) == (0, MODELS[family][3])
    assert list(model.state_dict()) == names
    ours = step(model, inputs)
    assert torch.allclose(ours[0], logits, atol=2e-5, rtol=1e-5)
    assert error(ours[2], gradients) < 2e-4
    assert ours[1] < 0.95 * kept
    applied.undo()
    again = step(model, inputs)
    assert torch.equal(again[0], logits) and again[1] == kept and error(again[2], gradients) == 0


@pytest.mark.parametrize("family", MODELS)
def test_activations_keep_two_bits(family: str) -> None:
    """And change gradients, but not much, and not the forward at all."""
    model, inputs = make(family)
    logits, kept, gradients = step(model, inputs)
    applied = apply(model, norm="exact")
    assert applied.activations == MODELS[family][2]
    ours = step(model, inputs)
    assert torch.equal(ours[0], logits)
    assert ours[1] < 0.97 * kept
    flat = [torch.cat([g.flatten() for g in all_of.values()]) for all_of in (ours[2], gradients)]
    assert 0.8 < float(torch.cosine_similarity(flat[0], flat[1], dim=0)) < 1 - 1e-6


def test_gradient_checkpointing() -> None:
    model, inputs = make("llama")
    _, _, gradients = step(model, inputs)
    apply(model, activation="exact")
    model.gradient_checkpointing_enable({"use_reentrant": False})
    assert error(step(model, inputs)[2], gradients) < 2e-4


@pytest.mark.parametrize("first", ["peft", "apply"])
def test_with_peft(first: str) -> None:
    """Linears keep z for LoRA's A, whichever comes first."""
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
    results = {}
    for norm in ("exact", "memory_sharing"):
        model, inputs = make("llama")
        if first == "apply" and norm == "memory_sharing":
            apply(model, activation="exact")
        torch.manual_seed(2)
        wrapped: Any = get_peft_model(model, lora)
        if first == "peft" and norm == "memory_sharing":
            apply(wrapped, activation="exact")
        results[norm] = step(wrapped, inputs)
    exact, ours = results["exact"], results["memory_sharing"]
    assert error(ours[2], exact[2]) < 2e-4
    assert ours[1] < 0.92 * exact[1]


def test_a_weight_that_changes_before_the_backward() -> None:
    model, inputs = make("llama")
    apply(model)
    loss = model(**inputs).loss
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    with pytest.raises(RuntimeError, match=r"changed between forward and backward|modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("counted", [False, True])
def test_a_forward_without_backward_leaves_nothing(counted: bool) -> None:
    """A graph that is dropped is gone, whatever hooks its tensors went through."""
    model, inputs = make("llama")
    if not counted:
        apply(model)
    seen: list[weakref.ref[Tensor]] = []
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda _module, _args, out: seen.append(weakref.ref(out)))
    with SavedTensors(model) if counted else nullcontext():
        model(**inputs)
    assert len(seen) > 20
    assert all(out() is None for out in seen)


def test_nothing_to_apply_to() -> None:
    with pytest.raises(UserError, match="approx2bit: Sequential has no SiLU or GELU"):
        apply(nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)))
    model = nn.Sequential(nn.Linear(3, 3), nn.SiLU())
    with pytest.raises(UserError, match="memory_sharing: Sequential has no RMSNorm or LayerNorm"):
        apply(model)
    assert "forward" not in model[1].__dict__


@pytest.mark.parametrize("checkpointing", [False, True])
def test_trainer(tmp_path: Path, checkpointing: bool) -> None:
    """Transformers' Trainer, on linears that bitsandbytes holds in 4 bits, with PEFT."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

    model, inputs = make("llama")
    model.save_pretrained(tmp_path / "model")
    quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    rows = [{name: tensor[i % 2] for name, tensor in inputs.items()} for i in range(12)]
    losses = {}
    for norm in ("exact", "memory_sharing"):
        torch.manual_seed(3)
        base = AutoModelForCausalLM.from_pretrained(tmp_path / "model", quantization_config=quantization)
        wrapped: Any = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear"))
        if norm == "memory_sharing":
            assert apply(wrapped, activation="exact").norms == 7
        arguments = TrainingArguments(**training_arguments(tmp_path / norm, 6), gradient_checkpointing=checkpointing)
        trainer = Trainer(wrapped, arguments, train_dataset=rows)
        trainer.train()
        losses[norm] = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses["memory_sharing"] == pytest.approx(losses["exact"], rel=1e-3)
    assert losses["exact"][-1] < losses["exact"][0]


@pytest.mark.parametrize("family", ["llama", "vit", "bert"])
def test_autocast(family: str) -> None:
    """Norms keep what linears keep: z in bfloat16, where autocast keeps x in float32 and y in bfloat16 besides."""
    model, inputs = make(family)
    with torch.autocast("cpu", torch.bfloat16):
        logits, kept, gradients = step(model, inputs)
        apply(model, activation="exact")
        ours = step(model, inputs)
    assert float((ours[0] - logits).float().norm() / logits.float().norm()) < 0.02
    flat = [torch.cat([g.flatten() for g in all_of.values()]) for all_of in (ours[2], gradients)]
    assert float(torch.cosine_similarity(flat[0], flat[1], dim=0)) > 0.99
    weights = sum(2 * p.numel() for p in model.parameters() if p.dim() == 2)  # autocast's copies of them, at most
    assert ours[1] < 0.9 * kept and kept - ours[1] > 0.12 * (kept - weights)


@pytest.mark.parametrize("family", MODELS)
def test_half_precision(family: str) -> None:
    """LLaMA's norms round where ours do; those that multiply and add in float32 first, once less."""
    model, inputs = make(family)
    model.bfloat16()
    inputs = {name: t.bfloat16() if t.is_floating_point() else t for name, t in inputs.items()}
    logits, _, gradients = step(model, inputs)
    apply(model, activation="exact")
    ours = step(model, inputs)
    if family in ("llama", "qwen2", "qwen3"):
        assert torch.equal(ours[0], logits)
    assert float((ours[0] - logits).float().norm() / logits.float().norm()) < 0.05
    flat = [torch.cat([g.float().flatten() for g in all_of.values()]) for all_of in (ours[2], gradients)]
    assert float(torch.cosine_similarity(flat[0], flat[1], dim=0)) > 0.97
