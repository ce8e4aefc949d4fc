"""The decoder that ExecuTorch gets, in PyTorch, and the program in stock ExecuTorch's runtime."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from mobile_ft.api.adapter import read_matching_tensors
from mobile_ft.bundle.description import read_bundle
from mobile_ft.converters.executorch_decoder import Decoder
from mobile_ft.converters.fine_tuned import FineTuned
from tests.tuned_models import TOKENS, Tuned

LENGTH = len(TOKENS)


def logits(run: Callable[..., torch.Tensor], chunk: int) -> np.ndarray:
    """Of the last token of every chunk, one call after another: [chunks, vocab]."""
    found = []
    for start in range(0, LENGTH, chunk):
        tokens = torch.from_numpy(TOKENS[None, start : start + chunk])
        found.append(run(tokens, torch.tensor([start])).numpy()[0].copy())
    return np.array(found)


def last_tokens(chunk: int) -> list[int]:
    return [min(start + chunk, LENGTH) - 1 for start in range(0, LENGTH, chunk)]


@pytest.mark.parametrize("chunk", [1, 7, LENGTH])
def test_decoder(tuned: Tuned, chunk: int) -> None:
    """Whatever its caches begin with."""
    bundle = read_bundle(tuned.bundle)
    decoder = Decoder(FineTuned(bundle, read_matching_tensors(tuned.adapter, bundle)))
    for name, buffer in decoder.named_buffers():
        if not name.endswith("inv_freq"):
            buffer.fill_(torch.nan)
    with torch.no_grad():
        assert np.abs(logits(decoder, chunk) - tuned.logits[last_tokens(chunk)]).max() < 1e-4


@pytest.mark.slow
def test_program(tuned: Tuned, converted: Callable[..., Path]) -> None:
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(str(converted(tuned, "executorch") / "model.pte"))
    method = program.load_method("forward")
    assert {"get_max_seq_len", "get_eos_ids", "use_kv_cache"} <= program.method_names
    for chunk in (1, 7, LENGTH):
        found = logits(lambda tokens, start: method.execute([tokens, start])[0], chunk)
        assert np.abs(found - tuned.logits[last_tokens(chunk)]).max() < 1e-4
