"""The small random bundle that many tests train: `python tests/small_bundle.py FOLDER` writes one for tests without
Python, with a tokenizer and a chat template."""

import json
import string
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.source.random_init import RandomModel
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.lora import LoraConfig
from tests.targets import ALL_LINEAR

# 4 layers, grouped heads, a vocabulary that does not fill its last panel.
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONFIG = ModelConfig("small", 64, 96, 4, 4, 2, 16, 250, 1e-5, 1e4, 512, True)


class TalkingModel(RandomModel):
    """With a tokenizer of single ASCII characters and a few words, and ChatML."""

    def __init__(self, config: ModelConfig, seed: int):
        same = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
        more = (
            "head_dim",
            "vocab_size",
            "rms_norm_eps",
            "rope_theta",
            "max_position_embeddings",
            "tie_word_embeddings",
        )
        settings = {key: getattr(config, key) for key in ("model_type", *same, *more)}
        super().__init__(config, seed, hf_settings=settings)

    def write_tokenizer(self, folder: Path) -> None:
        words = ["he", "ll", "hell", "hello"]
        characters = [*string.ascii_letters, *string.digits, *string.punctuation, "Ġ", "Ċ"]
        vocabulary = {token: index for index, token in enumerate([*characters, *words])}
        tokenizer = Tokenizer(models.BPE(vocabulary, [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o")]))
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
        marks = ["<|im_start|>", "<|im_end|>"]
        tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in marks])
        tokenizer.save(str(folder / "tokenizer.json"))
        config = {"eos_token": marks[1], "chat_template": CHATML}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_small_bundle(folder: Path, model: type[RandomModel] = RandomModel, config: ModelConfig = CONFIG) -> Path:
    """LoRA rank 4 on all linears, at most 64 tokens: trains in milliseconds."""
    write_bundle(model(config, 0), LoraConfig(4, 8.0, ALL_LINEAR), 64, 0, folder)
    return folder


if __name__ == "__main__":
    write_small_bundle(Path(sys.argv[1]), TalkingModel)
