"""Where a Hugging Face model adds its attention and MLP branches to the residual stream."""

from dataclasses import dataclass

from torch import nn

from mobile_ft.errors import UserError

_ATTENTION = ("self_attn", "attn", "attention")


@dataclass(frozen=True)
class Branch:
    """Of a layer, attention or MLP: the modules that do its work, and the last one, whose output is added to the
    residual."""

    modules: tuple[nn.Module, ...]
    end: nn.Module


@dataclass(frozen=True)
class Layer:
    """A transformer layer."""

    module: nn.Module
    attention: Branch
    mlp: Branch

    @property
    def branches(self) -> tuple[Branch, Branch]:
        return self.attention, self.mlp


def find_layers(model: nn.Module) -> list[Layer]:
    """All transformer layers, from the lowest. Raises UserError where there are none of a known kind."""
    layers = [
        layer
        for parent in model.modules()
        if isinstance(parent, nn.ModuleList)
        for module in parent
        if (layer := _layer(module)) is not None
    ]
    if not layers:
        raise UserError(f"{type(model).__name__} holds no transformer layers with attention and MLP")
    return layers


def _layer(module: nn.Module) -> Layer | None:
    children = dict(module.named_children())
    attention = next((children[name] for name in _ATTENTION if name in children), None)
    if attention is None:
        return None
    if "mlp" in children:  # the LLaMA family, GPT-2, ViT, Swin; Gemma 2 and 3 normalise what a branch gives
        mlp, post = children["mlp"], "post_feedforward_layernorm" in children
        ends = (
            children["post_attention_layernorm"] if post else attention,
            children.get("post_feedforward_layernorm", mlp),
        )
        return Layer(module, Branch((attention,), ends[0]), Branch((mlp,), ends[1]))
    if "intermediate" in children and "output" in children:  # BERT, RoBERTa: a dropout, then the residual and a norm
        output, mlp_output = attention.get_submodule("output"), children["output"]
        return Layer(
            module,
            Branch((attention.get_submodule("self"), output.get_submodule("dense")), output.get_submodule("dropout")),
            Branch((children["intermediate"], mlp_output.get_submodule("dense")), mlp_output.get_submodule("dropout")),
        )
    return None
