"""Finds the attention and MLP branches of a Hugging Face model, and where they are added to the residual stream."""

from dataclasses import dataclass

from torch import nn

from mobile_ft.errors import UserError

_ATTENTION = ("self_attn", "linear_attn", "attn", "attention")


@dataclass(frozen=True)
class Branch:
    """The attention or MLP of a layer: its modules, and the last module, whose output is added to the residual."""

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
    """Returns all transformer layers, from the lowest. Raises UserError if some layers are of an unknown kind, if there
    are none, or if they belong to several towers."""
    layers: list[Layer] = []
    for parent in model.modules():
        if not isinstance(parent, nn.ModuleList):
            continue
        found = [layer for module in parent if (layer := _layer(module)) is not None]
        if found and len(found) < len(parent):
            raise UserError(
                f"{type(model).__name__}: {len(parent) - len(found)} of {len(parent)} layers are not supported"
            )
        layers += found
    kinds = {type(layer.module).__name__ for layer in layers}
    if not layers:
        raise UserError(f"{type(model).__name__}: has no transformer layers with attention and MLP")
    if len(kinds) > 1:
        raise UserError(
            f"{type(model).__name__}: has layers of several kinds ({', '.join(sorted(kinds))}); use the submodel to "
            "train"
        )
    return layers


def _layer(module: nn.Module) -> Layer | None:
    children = dict(module.named_children())
    attention = next((children[name] for name in _ATTENTION if name in children), None)
    if attention is None:
        return None
    if "mlp" in children:  # the LLaMA family, GPT-2, ViT, Swin; Gemma 2 and 3 normalize a branch's output
        mlp, ends = children["mlp"], (attention, children["mlp"])
        if "post_feedforward_layernorm" in children:
            if "post_attention_layernorm" not in children:
                return None
            ends = children["post_attention_layernorm"], children["post_feedforward_layernorm"]
        return Layer(module, Branch((attention,), ends[0]), Branch((mlp,), ends[1]))
    inner = dict(attention.named_modules()) | {f"mlp.{name}": part for name, part in module.named_modules()}
    names = ("self", "output.dense", "output.dropout", "mlp.intermediate", "mlp.output.dense", "mlp.output.dropout")
    if all(name in inner for name in names):  # BERT, RoBERTa: a dropout, the residual and a norm follow
        own, dense, dropout, intermediate, mlp_dense, mlp_dropout = (inner[name] for name in names)
        return Layer(module, Branch((own, dense), dropout), Branch((intermediate, mlp_dense), mlp_dropout))
    return None
