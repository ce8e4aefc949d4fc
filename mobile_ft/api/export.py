"""Exports models to training bundles. Imports torch and executorch only when a program must be built."""

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mobile_ft.api.checkpoint import BUILTIN_MODELS, Quantization, open_checkpoint
from mobile_ft.api.describe import describe
from mobile_ft.api.hub import find_model, find_model_to_plan
from mobile_ft.api.progress import ProgressDisplay
from mobile_ft.api.results import BundleInfo
from mobile_ft.api.scratch import scratch_folder
from mobile_ft.bundle.description import DEFAULT_ACTIVATION, Bundle, read_bundle
from mobile_ft.bundle.signature import read_private_key
from mobile_ft.data.row_files import read_text
from mobile_ft.errors import MobileFtWarning, UserError, check_installed
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.formats import F32
from mobile_ft.model.hf_config import known_config
from mobile_ft.model.lora import MOST_RANK, LoraConfig, parse_targets
from mobile_ft.model.rope import most_tokens

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from mobile_ft.export.source.source import ModelSource

LORA_RANK, LORA_ALPHA, LORA_TARGETS = 16, 32.0, "all-linear"
_LORA = (LORA_RANK, LORA_ALPHA, LORA_TARGETS, False)
_LEAST_SEQ_LEN, _SEQ_LEN, _MOST_SEQ_LEN = 8, 512, 8192


def export_bundle(
    model: "str | os.PathLike[str] | PreTrainedModel",
    out: str | os.PathLike[str],
    *,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    lora_rank: int = LORA_RANK,
    lora_alpha: float = LORA_ALPHA,
    lora_targets: str = LORA_TARGETS,
    use_rslora: bool = False,
    max_seq_len: int | None = None,
    activation: Literal["exact", "int8", "int4", "approx2bit"] = DEFAULT_ACTIVATION,
    quant: str | None = None,
    quant_embedding: str | None = None,
    calibration: str | os.PathLike[str] | None = None,
    adapter: str | os.PathLike[str] | None = None,
    chat_template: str | os.PathLike[str] | None = None,
    random_init: bool = False,
    seed: int = 0,
    sign: str | os.PathLike[str] | None = None,
    progress: bool = True,
    cache: bool = True,
) -> BundleInfo:
    """Exports a model to a training bundle, a folder that `train` and the C++ runtime read.

    Args:
        model: A built-in model's name, a .gguf file, a Hugging Face folder, a model on the Hugging Face hub
            ("owner/name" or "owner/name/file.gguf", either with "@revision"), or a Transformers model in memory. With
            `random_init`, a config.json or a known model's name.
        out: Folder to write. An older bundle there is replaced.
        tokenizer: Tokenizer of a model in memory.
        lora_rank: LoRA rank, from 1 to 256.
        lora_alpha: LoRA alpha. The scale is alpha / rank.
        lora_targets: Linear layers with LoRA, separated by commas. "all-linear" are all but "experts".
        use_rslora: Use the scale alpha / sqrt(rank).
        max_seq_len: Maximum tokens per batch. Default: 512, or the model's limit if that is less.
        activation: Storage format of activations for the backward; see docs/concepts/memory_plan.md. Default: int8.
        quant: Weight format of linear layers that the checkpoint has in floats. Default: iq4_nl. Weights of a .gguf
            file, or quantized by bitsandbytes, MLX, GPTQ or AWQ, keep their own format.
        quant_embedding: Weight format of embedding and head. Default: q8_0.
        calibration: Text file. Quantization errors are weighted by the activations of its first part.
        adapter: Folder of a PEFT or mlx-lm adapter to start from. Its rank, alpha and targets are used. Linear layers
            of its targets that it does not adapt start with B = 0.
        chat_template: File with a Jinja template that replaces the model's own.
        random_init: Use random weights, to measure memory and speed.
        seed: Random seed of the adapter and of random weights.
        sign: File with an Ed25519 private key (PEM) that signs the bundle; see `trust`.
        progress: Show progress.
        cache: Keep the training program of an architecture in the user's cache folder, so that later exports of it do
            not import torch.

    Returns:
        The contents of the bundle.

    Raises:
        UserError: The model or the adapter is not supported, or `out` contains anything but a bundle.
    """
    if not 1 <= lora_rank <= MOST_RANK:
        raise UserError(f"lora_rank {lora_rank}: must be from 1 to {MOST_RANK}")
    if not 0 < lora_alpha < float("inf"):
        raise UserError(f"lora_alpha {lora_alpha:g}: must be a positive number")
    if adapter is not None and (lora_rank, lora_alpha, lora_targets, use_rslora) != _LORA:
        raise UserError(
            f"adapter {adapter}: defines rank, alpha and targets; leave out the lora options and use_rslora"
        )
    if seed < 0:
        raise UserError(f"seed {seed}: must be at least 0")
    target, key = Path(out), None if sign is None else read_private_key(Path(sign))
    quantization = Quantization(quant, quant_embedding, None if calibration is None else Path(calibration))
    with _quiet():
        source = open_checkpoint(model, tokenizer, quantization, random_init, seed, progress)
        source.chat_template = None if chat_template is None else "".join(read_text(Path(chat_template)))
        if adapter is None:
            lora = LoraConfig(lora_rank, lora_alpha, parse_targets(lora_targets, source.config), use_rslora)
            start = None
        else:
            lora, start = _read_adapter(Path(adapter), source.config)
        most = most_seq_len(source.config)
        length = min(_SEQ_LEN, most) if max_seq_len is None else max_seq_len
        if not _LEAST_SEQ_LEN <= length <= most:
            raise UserError(f"max_seq_len {length}: must be from {_LEAST_SEQ_LEN} to {most} for this model")
        with ProgressDisplay("tensor", progress) as display:

            def on_tensor(done: int, total: int) -> None:
                last = "building the training program, which takes a while"
                display.count(done, total, last if done == total else "")

            _write(source, lora, length, seed, target, activation, start, on_tensor=on_tensor, key=key, cache=cache)
    return describe(read_bundle(target))


@contextmanager
def bundle_or_config(path: Path, tokens: int) -> Iterator[Bundle]:
    """Yields the bundle at `path`.

    For a config.json or a known model's name, yields a temporary bundle with random weights and `export_bundle`'s
    defaults, for at least `tokens` tokens.
    """
    path = find_model(path, config_only=True)
    if not _is_config(path):
        yield read_bundle(path)
        return
    print(f"exporting {path} with random weights", file=sys.stderr)
    with _quiet(), _temporary(path, open_checkpoint(path, random_init=True), tokens, hollow=False) as bundle:
        yield bundle


@contextmanager
def bundle_to_plan(path: Path, tokens: int) -> Iterator[Bundle]:
    """Yields the bundle at `path`. For another model or a config.json, yields a temporary bundle without weights."""
    path = find_model_to_plan(path)
    if not _is_config(path) and path.suffix != ".gguf" and str(path) not in BUILTIN_MODELS:
        yield read_bundle(path)
        return
    with hollow_bundle(path, open_quietly(path), tokens) as bundle:
        yield bundle


@contextmanager
def hollow_bundle(path: Path, source: "ModelSource", tokens: int) -> Iterator[Bundle]:
    """Yields a temporary bundle of `source`, the model at `path`, without weights, with `export_bundle`'s defaults, for
    at least `tokens` tokens."""
    with _quiet(), _temporary(path, source, tokens, hollow=True) as bundle:
        yield bundle


def open_quietly(path: Path) -> "ModelSource":
    """Opens the model at `path` as `export_bundle` does, but a config.json alone gives random weights."""
    bare = _is_config(path) and not any(path.glob("*.safetensors"))
    with _quiet():
        return open_checkpoint(path, random_init=bare)


@contextmanager
def _temporary(path: Path, source: "ModelSource", tokens: int, hollow: bool) -> Iterator[Bundle]:
    most = most_seq_len(source.config)
    if tokens > most:
        raise UserError(f"seq_len x batch_size is {tokens} tokens; {path} supports at most {most}")
    lora = LoraConfig(LORA_RANK, LORA_ALPHA, parse_targets(LORA_TARGETS, source.config))
    with scratch_folder() as folder:
        length = max(tokens, min(_SEQ_LEN, most))
        _write(source, lora, length, 0, folder / "bundle", DEFAULT_ACTIVATION, hollow=hollow)
        yield read_bundle(folder / "bundle")


def _is_config(path: Path) -> bool:
    return path.suffix == ".json" or (path / "config.json").is_file() or known_config(str(path)) is not None


def most_seq_len(config: ModelConfig) -> int:
    ropes = (config.rope(layer) for layer in range(config.num_hidden_layers))
    limits = (most_tokens(rope[1]) for rope in ropes if rope is not None)
    return int(min([config.max_position_embeddings, _MOST_SEQ_LEN, *limits]))


def _write(
    source: "ModelSource",
    lora: LoraConfig,
    max_seq_len: int,
    seed: int,
    out: Path,
    activation: str,
    adapter: dict[str, F32] | None = None,
    hollow: bool = False,
    on_tensor: Callable[[int, int], None] = lambda done, total: None,
    key: "Ed25519PrivateKey | None" = None,
    cache: bool = True,
) -> None:
    from mobile_ft.export.bundle import write_bundle

    check_installed("torch", "export")
    write_bundle(source, lora, max_seq_len, seed, out, activation, adapter, hollow, on_tensor, key, cache)


def _read_adapter(folder: Path, config: ModelConfig) -> tuple[LoraConfig, dict[str, F32]]:
    from mobile_ft.export.adapter import read_adapter

    return read_adapter(folder, config)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides the warnings of torch and executorch, which users cannot act upon. Warnings of mobile_ft are shown."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", MobileFtWarning)
            yield
    finally:
        logging.disable(logging.NOTSET)
