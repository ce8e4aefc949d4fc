"""Schedules on Hugging Face models: what is trained, that its gradients are right, and that nothing else changed."""

from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from mobile_ft.errors import UserError
from mobile_ft.pytorch import SavedTensors, Schedule, Scheduled, apply
from mobile_ft.pytorch.layers import find_layers
from tests.pytorch.models import MODELS, make

Gradients = dict[str, Tensor]


def step(model: nn.Module, inputs: dict[str, Tensor]) -> tuple[Tensor, int, Gradients]:
    model.zero_grad()
    with SavedTensors(model) as saved:
        output: Any = model(**inputs)
    if output.loss.requires_grad:
        output.loss.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return output.logits.detach(), saved.bytes, gradients


def layer_of(model: nn.Module, name: str) -> int | None:
    """Which layer a parameter belongs to."""
    for index, layer in enumerate(find_layers(model)):
        if any(p is dict(model.named_parameters())[name] for p in layer.module.parameters()):
            return index
    return None


@pytest.mark.parametrize("family", MODELS)
def test_dropped_branches(family: str) -> None:
    """The forward stays, dropped branches get no gradient, and others that of the same model with branches detached."""
    model, inputs = make(family)
    logits, kept, whole = step(model, inputs)
    layers = find_layers(model)
    with Scheduled(model, Schedule("lcsb", ratio=0.5, selection="contiguous")) as scheduled:
        selected = scheduled.begin(1)
        assert len(selected) == len(layers) and 0 < sum(selected) < len(layers)
        ours = step(model, inputs)
    assert torch.allclose(ours[0], logits, rtol=0, atol=1e-6)
    assert ours[1] < kept
    for name in ours[2]:
        index = layer_of(model, name)
        if index is not None and "norm" not in name.lower() and "ln_" not in name:
            assert selected[index], name
    top = max(i for i, flag in enumerate(selected) if flag)
    if top == len(layers) - 1:  # above it nothing is dropped, so its gradients are exact
        for name in ours[2]:
            if layer_of(model, name) == top:
                assert torch.allclose(ours[2][name], whole[name], rtol=1e-4, atol=1e-6), name
    again = step(model, inputs)
    assert again[1] == kept and all(torch.equal(again[2][name], whole[name]) for name in whole)


@pytest.mark.parametrize("name", ["lcsb", "dropbp"])
def test_gradients_against_a_model_with_detached_branches(name: Literal["lcsb", "dropbp"]) -> None:
    """LLaMA's residual stream written out once more, each branch detached by hand where it was dropped."""
    model, inputs = make("llama")
    schedule = Schedule(name, ratio=0.5, seed=4, steps=1000)
    with Scheduled(model, schedule) as scheduled:
        selected = scheduled.begin(2)
        ours = step(model, inputs)[2]
    flags = selected if schedule.drops_units else [flag for flag in selected for _ in range(2)]
    assert 0 < sum(flags) < len(flags)
    model.zero_grad()
    core: Any = model.model
    head: Any = model.lm_head
    x = core.embed_tokens(inputs["input_ids"])
    rotary = core.rotary_emb(x, torch.arange(x.shape[1])[None])
    for i, layer in enumerate(core.layers):
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)[None, None]
        branch = layer.self_attn(layer.input_layernorm(x), position_embeddings=rotary, attention_mask=mask)[0]
        x = x + (branch if flags[2 * i] else branch.detach())
        branch = layer.mlp(layer.post_attention_layernorm(x))
        x = x + (branch if flags[2 * i + 1] else branch.detach())
    logits = head(core.norm(x))
    labels = inputs["labels"]
    nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()).backward()
    expected = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert ours.keys() == expected.keys()
    for key, gradient in ours.items():
        assert torch.allclose(gradient, expected[key], rtol=1e-3, atol=1e-6), key


def test_suffix_keeps_nothing_below() -> None:
    model, inputs = make("llama")
    _, kept, whole = step(model, inputs)
    with Scheduled(model, Schedule("suffix", suffix_depths=(1,))) as scheduled:
        assert scheduled.begin(0) == [False, False, True]
        _, ours_kept, ours = step(model, inputs)
        model.eval()
        assert step(model, inputs)[2].keys() == whole.keys()  # schedules are for training
        model.train()
    assert {layer_of(model, name) for name in ours} == {2, None}
    assert "model.embed_tokens.weight" not in ours
    assert all(torch.equal(ours[name], whole[name]) for name in ours)
    assert ours_kept < 0.6 * kept


def test_lisa_passes_the_gradient_on() -> None:
    model, inputs = make("llama")
    whole = step(model, inputs)[2]
    with Scheduled(model, Schedule("lisa", ratio=0.3, period=1)) as scheduled:
        for number in range(4):
            selected = scheduled.begin(number)
            ours = step(model, inputs)[2]
            assert {layer_of(model, name) for name in ours} == {selected.index(True), None}
            assert all(torch.allclose(ours[name], whole[name], rtol=1e-4, atol=1e-7) for name in ours)
    assert all(p.requires_grad for p in model.parameters())


def test_sensitivities() -> None:
    """Against their definition, unit by unit; measured within the first forward of the step at a tenth."""
    model, inputs = make("llama")
    layers = find_layers(model)

    def norms(dropped: int | None) -> dict[str, float]:
        handles = [
            branch.end.register_forward_hook(
                lambda _m, _i, out: out.detach() if isinstance(out, Tensor) else (out[0].detach(), *out[1:])
            )
            for unit, branch in enumerate(b for layer in layers for b in layer.branches)
            if unit == dropped
        ]
        gradients = step(model, inputs)[2]
        for handle in handles:
            handle.remove()
        return {
            name: float(gradients[name].norm()) if name in gradients else 0.0 for name, _ in model.named_parameters()
        }

    whole = norms(None)
    expected = [sum((whole[name] - norm) ** 2 for name, norm in norms(unit).items()) for unit in range(6)]
    with Scheduled(model, Schedule("dropbp", ratio=0.5, steps=20)) as scheduled:
        for number in range(2):
            scheduled.begin(number)
            step(model, inputs)
        assert scheduled.sensitivities is None
        scheduled.begin(2)
        before = {name: torch.full_like(p, 3.0) for name, p in model.named_parameters()}
        for name, parameter in model.named_parameters():
            parameter.grad = before[name]
        model(**inputs)
        assert all(p.grad is before[name] for name, p in model.named_parameters())
        assert scheduled.sensitivities == pytest.approx(expected, rel=1e-3)
        assert scheduled.flops is not None and scheduled.drop_rates is not None
        # 64 x 64 and 64 x 160 matrices: q, k, v, o with half as many keys, and three of the MLP.
        hidden, tokens, middle = 64, 80, 160
        assert scheduled.flops[1] == pytest.approx(2 * tokens * 3 * hidden * middle)
        assert scheduled.flops[0] >= 2 * tokens * 3 * hidden * hidden
        dropped = sum(r * f for r, f in zip(scheduled.drop_rates, scheduled.flops, strict=True))
        assert dropped >= 0.5 * sum(scheduled.flops) - 1e-6
        assert sum(scheduled.selected) <= 3


def test_dropbp_needs_a_loss() -> None:
    model, inputs = make("llama")
    with Scheduled(model, Schedule("dropbp", steps=5)) as scheduled:
        scheduled.begin(0)
        with pytest.raises(UserError, match="pass labels to the model"):
            model(input_ids=inputs["input_ids"])


def test_undone_in_any_order() -> None:
    model, inputs = make("llama")
    logits, kept, whole = step(model, inputs)
    applied = apply(model)
    scheduled = Scheduled(model, Schedule("lisa", ratio=0.3))
    scheduled.begin(0)
    with pytest.raises(UserError, match="already has a schedule"):
        Scheduled(model, Schedule("lcsb"))
    applied.undo()
    step(model, inputs)
    scheduled.undo()
    again = step(model, inputs)
    assert torch.equal(again[0], logits) and again[1] == kept and again[2].keys() == whole.keys()
    assert not any("forward" in module.__dict__ for module in model.modules())
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    Scheduled(model, Schedule("lcsb")).undo()
    assert not any(p.requires_grad for p in model.parameters())


def test_apply_with_a_schedule_that_does_not_fit() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.SiLU())
    with pytest.raises(UserError, match="no transformer layers"):
        apply(model, norm="exact", schedule=Schedule("lcsb"))
    assert "forward" not in model[1].__dict__


def test_dropbp_keeps_a_unit_that_trains() -> None:
    """LoRA on q and v alone: MLPs hold no parameters, and a step that keeps only those would have no gradient."""
    from peft import LoraConfig, get_peft_model

    model, inputs = make("llama")
    wrapped: Any = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    with Scheduled(wrapped, Schedule("dropbp", ratio=0.17, steps=10000)) as scheduled:
        for number in range(40):
            assert any(scheduled.begin(number)[::2])
            assert step(wrapped, inputs)[2]


@pytest.mark.parametrize("name", ["suffix", "freeze"])
def test_reentrant_checkpointing_is_refused(name: Any) -> None:
    model, inputs = make("llama")
    model.gradient_checkpointing_enable({"use_reentrant": True})
    with Scheduled(model, Schedule(name)) as scheduled, pytest.raises(UserError, match="use_reentrant=False"):
        scheduled.begin(0)


def test_towers_and_unknown_layers() -> None:
    llama, vit = make("llama")[0], make("vit")[0]
    with pytest.raises(UserError, match="layers of several kinds .LlamaDecoderLayer, ViTLayer.; use the submodel"):
        find_layers(nn.ModuleList([llama, vit]))
    core: Any = llama.model
    core.layers.append(nn.Linear(2, 2))
    with pytest.raises(UserError, match="LlamaForCausalLM: 1 of 4 layers are not supported"):
        find_layers(llama)


def test_no_layers() -> None:
    with pytest.raises(UserError, match="Linear: has no transformer layers"):
        Scheduled(nn.Linear(2, 2), Schedule())
