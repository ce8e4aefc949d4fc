"""Generation with the KV cache against Transformers' greedy decoding."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mobile_ft.data.tokenizer import Tokenizer
from tests.runtime.native import events, failure


def generate(bundle: Path, prompt: list[int], *options: object) -> list[int]:
    run = events("generate", bundle, "--prompt-tokens", ",".join(map(str, prompt)), *options)
    return [event["id"] for event in run if event["event"] == "token"]


def test_greedy_equals_transformers(smollm2: Path, load_base: Callable[[], Any], adapter: Path) -> None:
    from peft import PeftModel

    tokenizer = Tokenizer(smollm2)
    messages = [{"role": "user", "content": "Name three colours of the rainbow, and what each reminds you of."}]
    prompt = tokenizer.encode(tokenizer.render_chat(messages, add_generation_prompt=True))
    model, answers = load_base(), []
    for options in ([], ["--adapter", adapter]):
        if options:
            model = PeftModel.from_pretrained(model, adapter)
        answer = generate(smollm2, prompt, "--max-tokens", 40, "--compute", "float32", *options)
        assert len(answer) == 40
        with torch.no_grad():
            logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        # Each token is the likeliest one after those before it; the margin is for ties within rounding.
        assert (logits[torch.arange(40), answer] >= logits.max(-1).values - 1e-2).all()
        answers.append(answer)
    assert answers[0] != answers[1]


def test_stops_and_limits(smollm2: Path) -> None:
    prompt = Tokenizer(smollm2).encode("The capital of France is")
    whole = generate(smollm2, prompt, "--max-tokens", 12)
    assert len(whole) == 12
    stop = whole[5]
    assert generate(smollm2, prompt, "--max-tokens", 12, "--stop-tokens", stop) == whole[: whole.index(stop)]
    filled = generate(smollm2, np.tile(prompt, 102).tolist(), "--max-tokens", 100)
    assert len(filled) == 512 - 102 * len(prompt)


def test_a_prompt_as_text(smollm2: Path) -> None:
    """Its tokens, what ends the answer and the answer's text are those of Python."""
    tokenizer = Tokenizer(smollm2)
    messages = [{"role": "user", "content": "What is 2 + 2?"}]
    prompt = tokenizer.encode(tokenizer.render_chat(messages, add_generation_prompt=True))
    stop = ",".join(map(str, tokenizer.end_ids))
    expected = generate(smollm2, prompt, "--max-tokens", 30, "--stop-tokens", stop)
    run = events("generate", smollm2, "--prompt", "What is 2 + 2?", "--max-tokens", 30)
    assert [event["id"] for event in run if event["event"] == "token"] == expected
    assert [e["text"] for e in run if e["event"] == "answer"] == [tokenizer.decode_shown(expected)]


def test_sampling_follows_the_seed(small_bundle: Path) -> None:
    runs = [generate(small_bundle, [1, 2, 3], "--temp", 1.0, "--seed", seed, "--max-tokens", 20) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_bad_prompts(small_bundle: Path) -> None:
    assert "250 is not in the vocabulary" in failure("generate", small_bundle, "--prompt-tokens", "1,250")
    assert "the prompt is empty" in failure("generate", small_bundle, "--prompt-tokens", "")
    both = failure("generate", small_bundle, "--prompt", "Hello", "--prompt-tokens", "1")
    assert "--prompt: cannot be combined with --prompt-tokens or --stop-tokens" in both
    no_text = failure("generate", small_bundle, "--prompt", "Hello")
    assert "tokenizer.json: not part of the bundle; export a model with a tokenizer" in no_text
    kwargs = failure("generate", small_bundle, "--prompt-tokens", "1", "--chat-template-kwargs", '{"a": 1}')
    assert "--chat-template-kwargs: requires --prompt; --prompt-tokens are not rendered" in kwargs
    assert "temp -1" in failure("generate", small_bundle, "--prompt-tokens", "1", "--temp", "-1")
    too_long = ",".join(["1"] * 65)
    assert "the prompt has 65 tokens; the bundle's maximum is 64" in failure(
        "generate", small_bundle, "--prompt-tokens", too_long
    )
