"""Small models of each family, with random weights, and inputs for them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as tf

Inputs = dict[str, torch.Tensor]

TEXT: dict[str, Any] = dict(hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4)
DECODER = TEXT | dict(num_key_value_heads=2, vocab_size=120, tie_word_embeddings=False)
ENCODER = TEXT | dict(vocab_size=120, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
VISION = TEXT | dict(image_size=32, patch_size=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
SWIN: dict[str, Any] = dict(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)


def _tokens() -> Inputs:
    tokens = torch.randint(5, 120, (2, 40), generator=torch.Generator().manual_seed(1))
    return {"input_ids": tokens, "labels": tokens}


def _images() -> Inputs:
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return {"pixel_values": images, "labels": torch.tensor([0, 1])}


def training_arguments(out: Path, steps: int) -> dict[str, Any]:
    """Of a Trainer that logs every step and nothing else."""
    return dict(
        output_dir=str(out),
        max_steps=steps,
        per_device_train_batch_size=2,
        learning_rate=1e-2,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )


# Family -> how to make the model, its inputs, how many activations and norms it holds.
MODELS: dict[str, tuple[Callable[[], tf.PreTrainedModel], Callable[[], Inputs], int, int]] = {
    "llama": (lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**DECODER)), _tokens, 3, 7),
    "qwen2": (lambda: tf.Qwen2ForCausalLM(tf.Qwen2Config(**DECODER)), _tokens, 3, 7),
    "qwen3": (lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**DECODER, head_dim=16)), _tokens, 3, 13),
    "gemma": (lambda: tf.GemmaForCausalLM(tf.GemmaConfig(**DECODER, head_dim=16)), _tokens, 3, 7),
    "gemma3": (lambda: tf.Gemma3ForCausalLM(tf.Gemma3TextConfig(**DECODER, head_dim=16)), _tokens, 3, 19),
    "gpt2": (
        lambda: tf.GPT2LMHeadModel(
            tf.GPT2Config(n_embd=64, n_layer=3, n_head=4, vocab_size=120, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
        ),
        _tokens,
        3,
        7,
    ),
    "bert": (lambda: tf.BertForMaskedLM(tf.BertConfig(**ENCODER)), _tokens, 4, 8),
    "roberta": (lambda: tf.RobertaForMaskedLM(tf.RobertaConfig(**ENCODER)), _tokens, 3, 8),
    "vit": (lambda: tf.ViTForImageClassification(tf.ViTConfig(**VISION)), _images, 3, 7),
    "swin": (
        lambda: tf.SwinForImageClassification(
            tf.SwinConfig(**SWIN, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, drop_path_rate=0.0)
        ),
        _images,
        4,
        11,
    ),
}


def make(family: str) -> tuple[tf.PreTrainedModel, Inputs]:
    """Training mode, no dropout; norm weights are not all 1, so that forgetting one shows."""
    torch.manual_seed(0)
    model, inputs = MODELS[family][0](), MODELS[family][1]()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            elif "embed" not in name:
                parameter.mul_(3)  # so that activations see more than the middle of their range
    return model.train(), inputs
