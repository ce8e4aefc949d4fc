"""A model that is loaded in this process and generates answers."""

import operator
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Generator as Pieces
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from mobile_ft.api.options import option_texts, runtime_errors
from mobile_ft.api.results import GenerateResult
from mobile_ft.api.stopping import StopStrings
from mobile_ft.bundle.description import Bundle, read_bundle, read_tokenizer
from mobile_ft.data.tokenizer import Message, TextStream, Tokenizer
from mobile_ft.errors import UserError
from mobile_ft.files.path_text import path_text
from mobile_ft.runtime import GenerateConfig, Generator, Model, generate_options

Stop = str | int | Sequence[str | int]
Tools = Sequence[Mapping[str, Any]]  # JSON schemas of functions


def load(bundle: str | os.PathLike[str], adapter: str | os.PathLike[str] | None = None) -> "LoadedModel":
    """Loads a bundle in this process to generate answers.

    Args:
        bundle: The bundle.
        adapter: Folder of a PEFT adapter. Default: the model as it was exported.

    Raises:
        UserError: The bundle or the adapter cannot be used.
    """
    found = read_bundle(Path(bundle))
    tokenizer = read_tokenizer(found)
    with runtime_errors():
        model = Model(path_text(found.folder))
        model.prepare("", min(Generator.prompt_tokens, found.max_seq_len))
    loaded = LoadedModel(found, tokenizer, model)
    if adapter is not None:
        loaded.use_adapter(adapter)  # which keeps it in memory
    return loaded


class LoadedModel:
    """A model in this process, from `load`. It generates one answer at a time: another thread that asks meanwhile gets
    `BusyError`. Several models can answer at the same time.

    `options` of its methods are the generation options of docs/reference/options.md. `stop` is one or several strings,
    which are removed from the text, or token ids. The model's end-of-turn tokens always stop the answer.
    """

    def __init__(self, bundle: Bundle, tokenizer: Tokenizer, model: Any) -> None:
        self.bundle, self.tokenizer = bundle, tokenizer
        self._model = model
        self._generator = Generator(model)

    def __repr__(self) -> str:
        return f"LoadedModel({self.bundle.model.name}, {self.bundle.folder})"

    def use_adapter(self, adapter: str | os.PathLike[str] | None) -> None:
        """Answers with another adapter from now on.

        The four adapters that were used last stay in memory, so that a change between them takes less than a
        millisecond. An adapter is read again if its files have changed.

        Args:
            adapter: Folder of a PEFT adapter. None: no adapter.

        Raises:
            UserError: The adapter cannot be used. The model keeps the current one.
        """
        with runtime_errors():
            if adapter is None:
                self._generator.use_no_adapter()
            else:
                self._generator.use_adapter(path_text(adapter))

    def generate(self, prompt: str, *, system: str | None = None, stop: Stop = (), **options: Any) -> GenerateResult:
        """Answers `prompt`. The prompt is formatted with the model's chat template if it has one."""
        return self._answer(self._prompt_tokens(prompt, system, options), stop, options, lambda text: False)

    def chat(
        self, messages: Sequence[Message], *, tools: Tools | None = None, stop: Stop = (), **options: Any
    ) -> GenerateResult:
        """Answers the last of `messages`.

        A message is {"role": ..., "content": ...} with other keys, such as "tool_calls", if the model's chat template
        uses them. `tools` are the functions that the model may call. Continuing a chat is cheap: only tokens after the
        last answer are computed.
        """
        return self._answer(self._chat_tokens(messages, tools, options), stop, options, lambda text: False)

    def stream(
        self,
        prompt: str | Sequence[Message],
        *,
        system: str | None = None,
        tools: Tools | None = None,
        stop: Stop = (),
        **options: Any,
    ) -> Pieces[str, None, None]:
        """Yields the answer to a prompt or messages piece by piece, as text. Leaving the loop ends the answer."""
        if isinstance(prompt, str):
            tokens = self._prompt_tokens(prompt, system, options)
        else:
            tokens = self._chat_tokens(prompt, tools, options)
        pieces: SimpleQueue[str | BaseException | None] = SimpleQueue()
        left = threading.Event()

        def on_text(text: str) -> bool:
            pieces.put(text)
            return left.is_set()

        def work() -> None:
            try:
                self._answer(tokens, stop, options, on_text)
                pieces.put(None)
            except BaseException as error:
                pieces.put(error)

        worker = threading.Thread(target=work)  # no daemon: it must not run in the runtime while Python exits
        try:
            worker.start()
            while (piece := pieces.get()) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                if piece:
                    yield piece
        finally:
            left.set()
            if worker.ident is not None:
                worker.join()

    def _answer(
        self, prompt: list[int], stop: Stop, options: dict[str, Any], on_text: Callable[[str], bool]
    ) -> GenerateResult:
        strings, stop_tokens = self._stops(stop)
        given = option_texts(generate_options(), _without_kwargs(options))
        decoder, cutter, text = TextStream(self.tokenizer), StopStrings(strings), []

        def show(piece: str) -> bool:
            text.append(piece)
            return on_text(piece)

        def on_token(token: int) -> bool:
            return show(cutter.add(decoder.add(token))) or cutter.found

        start = time.monotonic()
        with runtime_errors():
            config = GenerateConfig(**given, stop_tokens=stop_tokens)
            tokens = self._generator.generate(prompt, config, on_token, lambda: on_text(""))
        show(cutter.add(decoder.finish()) + cutter.finish())
        most = min(_most_tokens(given), self.bundle.max_seq_len - len(prompt))
        stopped = "length" if len(tokens) >= most and not cutter.found else "stop"
        return GenerateResult("".join(text), stopped, len(prompt), len(tokens), time.monotonic() - start)

    def _stops(self, stop: Stop) -> tuple[list[str], list[int]]:
        """Splits `stop` into strings and token ids. Special tokens become ids, because they have no text."""
        given = [stop] if isinstance(stop, (str, int)) else list(stop)
        strings = [item for item in given if isinstance(item, str)]
        ids = [self._token_id(item) for item in given if not isinstance(item, str)]
        encoded = [self.tokenizer.encode(string) for string in strings]
        single = [tokens[0] for tokens in encoded if len(tokens) == 1]
        for string, tokens in zip(strings, encoded, strict=True):
            special = [token for token in tokens if self.tokenizer.is_special(token)]
            if special and len(tokens) > 1:
                name = self.tokenizer.decode(special[:1])
                raise UserError(f"stop {string!r}: has the special token {name}, which has no text; give it alone")
        return strings, list(dict.fromkeys([*self.tokenizer.end_ids, *ids, *single]))

    def _token_id(self, stop: Any) -> int:
        most = self.bundle.model.vocab_size - 1
        try:
            token = -1 if isinstance(stop, bool) else operator.index(stop)  # NumPy's integers, too
        except TypeError:
            token = -1
        if not 0 <= token <= most:
            raise UserError(f"stop {stop!r}: must be text or a token id from 0 to {most}")
        return token

    def _prompt_tokens(self, prompt: str, system: str | None, options: Mapping[str, Any]) -> list[int]:
        if self.tokenizer.has_chat_template:
            before = [] if system is None else [{"role": "system", "content": system}]
            return self._chat_tokens([*before, {"role": "user", "content": prompt}], None, options)
        if system is not None:
            raise UserError("system: requires a chat template, which the model does not have")
        if options.get("chat_template_kwargs"):
            raise UserError("chat_template_kwargs: requires a chat template, which the model does not have")
        _check_text(prompt)
        return self.tokenizer.encode(prompt, add_special=True)

    def _chat_tokens(self, messages: Sequence[Message], tools: Tools | None, options: Mapping[str, Any]) -> list[int]:
        for message in messages:
            if isinstance(message.get("content"), str):
                _check_text(message["content"])
        kwargs = options.get("chat_template_kwargs")
        return self.tokenizer.encode(self.tokenizer.render_chat(messages, True, tools, kwargs))


def _without_kwargs(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that the runtime needs after the prompt is rendered."""
    return {name: value for name, value in options.items() if name != "chat_template_kwargs"}


def _most_tokens(given: Mapping[str, str]) -> int:
    default = next(option.default for option in generate_options() if option.name == "max_tokens")
    return int(given.get("max_tokens", default))


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError("prompt: not UTF-8 text") from error
