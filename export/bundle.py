"""Writes a training bundle (docs/reference/bundle_format.md) from a model."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from mobile_ft.bundle.description import FORMAT, INDEX_FILE, VERSION, WEIGHTS_FILE, checksum, read_bundle
from mobile_ft.bundle.signature import signature_file
from mobile_ft.data.device_text import write_device_text
from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.errors import UserError
from mobile_ft.export.program.cache import build, cached_program
from mobile_ft.export.program.program import MLP_TOKENS, KindMethods, program_spec
from mobile_ft.export.source.added_tokens import check_added_tokens
from mobile_ft.export.source.end_tokens import add_turn_end
from mobile_ft.export.source.source import ModelSource
from mobile_ft.export.weights_file import LazyTensor, write_weights
from mobile_ft.files.folder import new_folder
from mobile_ft.files.json_text import read_json_object
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.formats import F32, packed_shape
from mobile_ft.model.lora import LoraConfig, adapter_key, init_adapter, within_decoder, write_adapter
from mobile_ft.model.lora_layers import lora_module
from mobile_ft.model.shapes import (
    PER_LAYER_LINEAR,
    PER_LAYER_NORM,
    PER_LAYER_TABLE,
    forward_flops,
    head_flops,
    unit_types,
)
from mobile_ft.model.unit_spec import UnitSpec, inv_freq_name, unit_specs

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def _unit_entry(layer: int, spec: UnitSpec, modules: str) -> dict[str, Any]:
    c = spec.config
    scaled = c.family.layer_scale is not None and spec.type == unit_types(c, layer)[-1]
    rotary = [inv_freq_name(c, layer)] if spec.rotary_pairs else []
    return {
        "name": f"layers.{layer}.{spec.type}",
        "kind": spec.kind,
        "layer": layer,
        **({"scale": f"model.layers.{layer}.{c.family.layer_scale}"} if scaled else {}),
        **({"takes": f"layers.{c.kv_layer(layer)}.attn"} if spec.side == "takes" else {}),
        "weights": rotary + [f"model.layers.{layer}.{name}" for name in spec.weights],
        "lora": [adapter_key(layer, name, modules) for name in spec.lora],
    }


def _layer_and_name(key: str) -> tuple[int, str]:
    """Returns the layer and the name within it of an adapter's tensor."""
    _, layer, name = within_decoder(key).split(".", 2)
    return int(layer), name


def _kind_entry(layer: int, spec: UnitSpec, methods: KindMethods) -> dict[str, Any]:
    """Returns a kind's entry in bundle.json: its methods, their costs and their saved tensors. `layer` has a unit of
    the kind."""
    c, a = spec.config, spec.attention
    return {
        "tokens": methods.tokens,
        "takes_positions": spec.takes_positions,
        "cache_width": spec.cache_width,
        **({"side": spec.side, "side_widths": list(spec.side_widths)} if spec.side else {}),
        "state_size": math.prod(spec.state_shape),
        "linears": [[linear.in_features, linear.out_features] for linear in spec.linears],
        "attention": None if a is None else {"heads": a.heads, "kv_heads": a.kv_heads, "head_dim": a.head_dim},
        "delta_net": _delta_net_entry(c) if spec.type == "delta" else None,
        **({"mamba2": _mamba2_entry(c)} if spec.type in ("mamba", "hybrid") else {}),
        **({"experts": _experts_entry(spec)} if spec.type == "experts" else {}),
        "flops": forward_flops(c, layer, spec.type),
        "recompute_flops": forward_flops(c, layer, spec.type, again=True),
        "saved": methods.saved,
        "reads_x": methods.reads_x,
    }


def _delta_net_entry(c: ModelConfig) -> dict[str, int]:
    return {
        "key_heads": c.linear_num_key_heads,
        "key_dim": c.linear_key_head_dim,
        "heads": c.linear_num_value_heads,
        "value_dim": c.linear_value_head_dim,
        "taps": c.linear_conv_kernel_dim,
    }


def _mamba2_entry(c: ModelConfig) -> dict[str, int]:
    return {
        "groups": c.mamba_n_groups,
        "state": c.mamba_d_state,
        "heads": c.mamba_n_heads,
        "dim": c.mamba_d_head,
        "taps": c.mamba_d_conv,
    }


def _experts_entry(spec: UnitSpec) -> dict[str, int]:
    c = spec.config
    return {
        "experts": c.num_experts,
        "top_k": c.num_experts_per_tok,
        "hidden": c.hidden_size,
        "inner": c.moe_intermediate_size,
        **({"rank": spec.lora_rank} if any(linear.lora for linear in spec.linears if linear.experts > 1) else {}),
    }


def _formats(specs: list[tuple[int, UnitSpec]]) -> dict[str, str]:
    """Returns the format of every linear layer's weight."""
    return {f"model.layers.{layer}.{x.name}.weight": x.format for layer, spec in specs for x in spec.linears}


def _tensors(source: ModelSource, specs: list[tuple[int, UnitSpec]], head_weight: str) -> Iterator[LazyTensor]:
    """Yields all tensors of `weights.ptd`, in the order in which a step reads them."""
    c = source.config

    def packed(name: str, in_features: int, out_features: int) -> LazyTensor:
        try:
            shape = packed_shape(source.format_of(name), out_features, in_features)
        except ValueError as error:
            raise UserError(f"{name}: {error}") from None
        return LazyTensor(name, "uint8", shape, lambda: source.packed(name, in_features, out_features).data)

    def vector(name: str, shape: tuple[int, ...]) -> LazyTensor:
        return LazyTensor(name, "float32", shape, lambda: source.prepared(name, shape))

    rotary = {inv_freq_name(c, layer): (layer, spec) for layer, spec in specs if spec.rotary_pairs}
    for name, (layer, spec) in rotary.items():
        yield LazyTensor(name, "float32", (spec.rotary_pairs,), partial(source.inv_freq, layer))
    yield packed(c.embedding, c.hidden_size, c.vocab_size)
    if c.hidden_size_per_layer_input:
        yield vector(PER_LAYER_NORM, (c.hidden_size_per_layer_input,))
        yield packed(PER_LAYER_LINEAR, c.hidden_size, c.num_hidden_layers * c.hidden_size_per_layer_input)
        yield packed(PER_LAYER_TABLE, c.hidden_size_per_layer_input, c.vocab_size * c.num_hidden_layers)
    for layer, spec in specs:
        prefix = f"model.layers.{layer}."
        yield from (vector(f"{prefix}{name}", shape) for name, shape in spec.vectors.items())
        for linear in spec.linears:
            yield packed(f"{prefix}{linear.name}.weight", linear.in_features, linear.out_features)
    if c.family.layer_scale is not None:
        yield from (vector(f"model.layers.{i}.{c.family.layer_scale}", (1,)) for i in range(c.num_hidden_layers))
    yield vector(f"{c.family.final_norm}.weight", (c.hidden_size,))
    if not c.tie_word_embeddings:
        yield packed(head_weight, c.hidden_size, c.vocab_size)


def _per_layer_formats(source: ModelSource) -> dict[str, str]:
    if not source.config.hidden_size_per_layer_input:
        return {}
    return {name: source.format_of(name) for name in (PER_LAYER_TABLE, PER_LAYER_LINEAR)}


def _per_layer_entry(c: ModelConfig, max_seq_len: int) -> dict[str, Any]:
    """Returns the description of per-layer embeddings in bundle.json, if the model has them."""
    if not c.hidden_size_per_layer_input:
        return {}
    weights = [PER_LAYER_NORM, PER_LAYER_LINEAR, PER_LAYER_TABLE]
    return {
        "per_layer": {
            "width": c.hidden_size_per_layer_input,
            "tokens": min(max_seq_len, MLP_TOKENS),
            "weights": weights,
        }
    }


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """Yields a folder beside `target`. It replaces `target` if the block succeeds, and is deleted otherwise."""
    target = target.resolve()
    if target.exists():
        _check_replaceable(target)
    try:
        with new_folder(target) as scratch:
            yield scratch
    except OSError as error:
        raise UserError(f"{target}: cannot write the bundle ({error.strerror or error})") from None
    except SafetensorError as error:  # raised instead of OSError
        raise UserError(f"{target}: cannot write the bundle ({error})") from None


def _check_replaceable(target: Path) -> None:
    """Raises UserError unless the folder is a bundle without other files."""
    if not (target / INDEX_FILE).is_file():
        raise UserError(f"{target}: exists and is not a bundle; choose another out")
    own = {INDEX_FILE, signature_file(target / INDEX_FILE).name, WEIGHTS_FILE, *read_bundle(target).files}
    others = sorted(path.name for path in target.iterdir() if path.name not in own)
    if others:
        raise UserError(f"{target}: contains {others[0]}, which is not part of a bundle; choose another out")


def _write_text(source: ModelSource, folder: Path) -> None:
    """Writes the tokenizer and text.json, if the model has a tokenizer. Raises UserError if it cannot be used."""
    source.write_tokenizer(folder)
    if not (folder / "tokenizer.json").is_file():
        if source.chat_template is not None:
            raise UserError("chat_template: requires a model with a tokenizer")
        return
    if source.chat_template is not None:
        config_file = folder / "tokenizer_config.json"
        config = read_json_object(config_file, "the export writes it") | {"chat_template": source.chat_template}
        config_file.write_text(json.dumps(config, indent=2), encoding="utf-8")
    try:
        tokenizer = Tokenizer(folder)
        check_added_tokens(tokenizer, source.config, str(folder / "tokenizer.json"))
        add_turn_end(folder, tokenizer)
        write_device_text(folder, tokenizer)
    except UserError as error:
        raise UserError(str(error).replace(f"{folder}/", source.tokenizer_place)) from None


def write_bundle(
    source: ModelSource,
    lora: LoraConfig,
    max_seq_len: int,
    seed: int,
    target: Path,
    activation: str = "exact",
    adapter: dict[str, F32] | None = None,
    hollow: bool = False,
    on_tensor: Callable[[int, int], None] = lambda done, total: None,
    key: "Ed25519PrivateKey | None" = None,
    cache: bool = True,
) -> dict[str, Any]:
    """Exports `source` to the folder `target` and returns the content of its bundle.json.

    `activation`, one of mobile_ft.bundle.description.ACTIVATIONS, is the storage format of activations. `adapter` has
    the tensors to start from, with PEFT's names; missing ones are initialized as in PEFT, with B = 0. A `hollow` bundle
    has no weights and can only be planned. `on_tensor` is called with the number of written and of all tensors; the
    program is written after them. `key` signs the bundle. With `cache`, the program is read from the user's cache if an
    earlier export has saved it.
    """
    c, base = source.config, source.base
    specs = unit_specs(source, lora, activation)
    head_weight = c.embedding if c.tie_word_embeddings else "lm_head.weight"
    embed_format, head_format = source.format_of(c.embedding), source.format_of(head_weight)
    per_layer = _per_layer_formats(source)
    with _new_folder(target) as folder:
        if not hollow:  # its errors are reported before the weights are written, which takes longest
            _write_text(source, folder)
        weights = write_weights(folder / WEIGHTS_FILE, _tensors(source, specs, head_weight), hollow, on_tensor)
        per_layer_formats = (per_layer[PER_LAYER_TABLE], per_layer[PER_LAYER_LINEAR]) if per_layer else None
        wanted = program_spec(c, (spec for _, spec in specs), embed_format, head_format, max_seq_len, per_layer_formats)
        program = (cached_program if cache else build)(wanted)
        (folder / "program.pte").write_bytes(program.data)
        kinds = {spec.kind: (spec, layer) for layer, spec in reversed(specs)}
        shapes = [
            (adapter_key(layer, lora_module(c.family, linear.name), base.modules), *linear.lora_shapes(lora.rank))
            for layer, spec in specs
            for linear in spec.linears
            if linear.lora
        ]
        start = {adapter_key(*_layer_and_name(key), base.modules): x for key, x in (adapter or {}).items()}
        write_adapter(folder, lora, base, init_adapter(shapes, seed) | start)
        bundle = {
            "format": FORMAT,
            "version": VERSION,
            "model": c.to_json(),
            "hf_settings": source.hf_settings,
            "base_model": asdict(base),
            "lora": asdict(lora),
            "lr_factor": c.family.lr_factor,
            "max_seq_len": max_seq_len,
            "activation": activation,
            "formats": _formats(specs) | {c.embedding: embed_format, head_weight: head_format} | per_layer,
            "conversions": [conversion.to_json() for conversion in source.conversions.to_list()],
            "kinds": {spec.kind: _kind_entry(layer, spec, program.kinds[spec.kind]) for spec, layer in kinds.values()},
            "embed": {"weights": [c.embedding]},
            "head": {
                "weights": [f"{c.family.final_norm}.weight", head_weight],
                "tokens": program.head_tokens,
                "flops": head_flops(c),
            },
            **_per_layer_entry(c, max_seq_len),
            "units": [_unit_entry(layer, spec, base.modules) for layer, spec in specs],
            "checksums": {file.name: checksum(file) for file in sorted(folder.iterdir()) if file.name != WEIGHTS_FILE},
            "weights": weights.to_json(),
        }
        content = (json.dumps(bundle, indent=1, allow_nan=False) + "\n").encode()
        (folder / INDEX_FILE).write_bytes(content)
        if key is not None:
            signature_file(folder / INDEX_FILE).write_bytes(key.sign(content))
    return bundle
