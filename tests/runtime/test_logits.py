"""Logits of the exported SmolLM2 against Transformers loading the same GGUF."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.runtime import Model
from tests.runtime.conftest import TEXT

TEXTS = [
    TEXT,
    "<|im_start|>user\nWhat is 17 + 25?<|im_end|>\n<|im_start|>assistant\n17 + 25 = 42.<|im_end|>\n",
    'for (int i = 0; i < 10; ++i) {\n  printf("%d\\n", i * i);  // squares\n}\nHöhe: 3,5 m — 日本語 \n',
]


def test_logits_equal_transformers(smollm2: Path, load_base: Callable[[], Any]) -> None:
    base, model, tokenizer = load_base(), Model(str(smollm2)), Tokenizer(smollm2)
    model.prepare("", 512)
    for text in TEXTS:
        tokens = np.array(tokenizer.encode(text), np.int64)
        ours = model.logits(tokens, np.arange(len(tokens)))
        with torch.no_grad():
            theirs = base(torch.from_numpy(tokens)[None]).logits[0].numpy()
        assert np.array_equal(ours.argmax(-1), theirs.argmax(-1))
        assert np.abs(ours - theirs).max() < 1e-2
