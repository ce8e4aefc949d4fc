"""Generates answers from a bundle or a loaded model."""

import os
from collections.abc import Sequence
from typing import Any

from mobile_ft.api.model import LoadedModel, Stop, Tools, load
from mobile_ft.api.results import GenerateResult
from mobile_ft.data.tokenizer import Message


def generate(
    bundle: str | os.PathLike[str] | LoadedModel,
    prompt: str,
    *,
    adapter: str | os.PathLike[str] | None = None,
    system: str | None = None,
    stop: Stop = (),
    **options: Any,
) -> GenerateResult:
    """Answers one prompt; see `LoadedModel.generate`. For several prompts, `load` the bundle once."""
    return _loaded(bundle, adapter).generate(prompt, system=system, stop=stop, **options)


def chat(
    bundle: str | os.PathLike[str] | LoadedModel,
    messages: Sequence[Message],
    *,
    adapter: str | os.PathLike[str] | None = None,
    tools: Tools | None = None,
    stop: Stop = (),
    **options: Any,
) -> GenerateResult:
    """Answers the last of `messages`; see `LoadedModel.chat`. For several answers, `load` the bundle once."""
    return _loaded(bundle, adapter).chat(messages, tools=tools, stop=stop, **options)


def _loaded(bundle: str | os.PathLike[str] | LoadedModel, adapter: str | os.PathLike[str] | None) -> LoadedModel:
    if not isinstance(bundle, LoadedModel):
        return load(bundle, adapter)
    if adapter is not None:
        raise ValueError("adapter: the model is already loaded; pass the adapter to load()")
    return bundle
