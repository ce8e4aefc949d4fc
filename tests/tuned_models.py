"""Tiny models of each family with an adapter, and PEFT's logits in float64: what each output is held against.

Base weights and the adapter are multiples of powers of two, so that what is merged is exact in float16.
"""

import json
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.numpy import load_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from mobile_ft.bundle.description import checksum
from mobile_ft.export.bundle import write_bundle
from mobile_ft.model.lora import BaseModel, LoraConfig, write_adapter
from mobile_ft.model.lora_layers import lora_targets
from tests.hf_models import FAMILIES, HfModel, random_model

VOCABULARY = 512
CHAT_TEMPLATE = "{{ bos_token }}{{ messages[0].content }}"
TOKENS = np.random.default_rng(0).integers(0, 300, 41)
TEXT = "The lighthouse keeper's lamp burned for 1987 nights;  nobody asked why.\n\nShips passed. Größe 3.5, éa!"


class Tuned(NamedTuple):
    bundle: Path
    adapter: Path
    base: Any  # Transformers' model, float32
    logits: np.ndarray  # of TOKENS, by PEFT on it in float64


class _Source(HfModel):
    def format_of(self, name: str) -> str:
        return "f16"

    def write_tokenizer(self, folder: Path) -> None:
        _write_tokenizer(byte_level(), folder)


def _write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "add_bos_token": True,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    digits, gpt2 = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, gpt2])
    tokenizer.decoder = decoders.ByteLevel()
    return _trained(tokenizer, pre_tokenizers.ByteLevel.alphabet())


def sentencepiece() -> Tokenizer:
    """Like Llama 2's and Gemma's: BPE with tokens for bytes that are in no other."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return _trained(tokenizer, [], ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))])


def _trained(tokenizer: Tokenizer, alphabet: list[str], first: list[str] | None = None) -> Tokenizer:
    """A few hundred tokens; the rest of the vocabulary stays unused."""
    trainer = trainers.BpeTrainer(
        vocab_size=350, initial_alphabet=alphabet, special_tokens=first or [], show_progress=False
    )
    tokenizer.train_from_iterator([TEXT.replace("ö", "o")], trainer)
    if first:  # the trainer calls all of them special, which bytes are not
        parts = json.loads(tokenizer.to_str())
        parts["added_tokens"] = [token for token in parts["added_tokens"] if token["content"] == "<unk>"]
        tokenizer = Tokenizer.from_str(json.dumps(parts))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in ("<s>", "</s>")])
    tokenizer.add_tokens([AddedToken("keeper's lamp", normalized=False)])
    return tokenizer


def make_tuned(name: str, folder: Path, **changes: Any) -> Tuned:
    """Of a family, with `changes` to its configuration."""
    from peft import PeftModel

    config = deepcopy(FAMILIES[name])
    config.update({"vocab_size": VOCABULARY} | changes)
    if hasattr(config, "vocab_size_per_layer_input"):
        config.vocab_size_per_layer_input = VOCABULARY
    model = random_model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((parameter.clamp(-1, 1) * 256).round() / 256)
    source = _Source(model, folder)
    lora = LoraConfig(4, 8.0, lora_targets(source.config))
    write_bundle(source, lora, 64, 0, folder / "bundle")
    rng = np.random.default_rng(1)
    adapter = load_file(folder / "bundle" / "adapter_model.safetensors")
    adapter = {key: (rng.integers(-2, 3, x.shape) / 16).astype(np.float32) for key, x in adapter.items()}
    (folder / "adapter").mkdir()
    write_adapter(folder / "adapter", lora, BaseModel(name), adapter)
    peft = PeftModel.from_pretrained(deepcopy(model).double(), folder / "adapter")
    return Tuned(folder / "bundle", folder / "adapter", model, logits_of(peft))


def with_tokenizer(tuned: Tuned, tokenizer: Tokenizer, folder: Path) -> Tuned:
    """The same model that reads and writes other tokens."""
    bundle = shutil.copytree(tuned.bundle, folder / "bundle")
    _write_tokenizer(tokenizer, bundle)
    index = bundle / "bundle.json"
    description = json.loads(index.read_text())
    description["checksums"] |= {name: checksum(bundle / name) for name in ("tokenizer.json", "tokenizer_config.json")}
    index.write_text(json.dumps(description))
    return tuned._replace(bundle=bundle)


def with_rslora(tuned: Tuned, folder: Path) -> Tuned:
    """The same model and adapter with rsLoRA's scale; its logits are left out."""
    bundle, adapter = (
        shutil.copytree(tuned.bundle, folder / "bundle"),
        shutil.copytree(tuned.adapter, folder / "adapter"),
    )
    for file, values in ((bundle / "bundle.json", "lora"), (adapter / "adapter_config.json", None)):
        description = json.loads(file.read_text())
        (description if values is None else description[values])["use_rslora"] = True
        file.write_text(json.dumps(description))
    return Tuned(bundle, adapter, tuned.base, np.empty(0))


def logits_of(model: Any) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(TOKENS)[None]).logits[0].numpy()


def llama_cpp_tolerance(tuned: Tuned) -> float:
    """The largest difference of logits from llama.cpp's. Its products round activations to float16. A delta net
    amplifies that by the norm of each head's output: to 0.036 in Transformers, in float64 with rounded activations."""
    return 0.05 if "linear_attention" in (getattr(tuned.base.config, "layer_types", None) or ()) else 0.01


def merged_weights(tuned: Tuned) -> dict[str, np.ndarray]:
    """PEFT's merge, float32, under Hugging Face's names."""
    from peft import PeftModel

    model = PeftModel.from_pretrained(deepcopy(tuned.base), tuned.adapter).merge_and_unload()
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    experts = [name for name in parameters if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]
    for name in experts:  # one matrix of all experts
        parameters[f"{name}.weight"] = parameters.pop(name).flatten(0, 1)
    return {name: parameter.numpy() for name, parameter in parameters.items()}
