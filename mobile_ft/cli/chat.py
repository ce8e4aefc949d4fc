"""`mobile-ft chat`: chats with a model on the terminal."""

import argparse
import signal
import sys
from contextlib import suppress
from pathlib import Path

from mobile_ft.api.model import LoadedModel, load
from mobile_ft.cli.arguments import Subparsers, add_bundle, add_options, given_options
from mobile_ft.data.tokenizer import Message
from mobile_ft.errors import UserError
from mobile_ft.runtime import generate_options

with suppress(ImportError):  # adds history and line editing to input()
    import readline  # noqa: F401

_HELP = (
    "Commands: /reset (clear the conversation), /system TEXT (set the system prompt), "
    "/adapter NAME (answer with another adapter; none: without one), /exit"
)
_NONE = "none"


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("chat", help="talk with the model", description=f"{_HELP}. Ctrl-C ends an answer.")
    add_bundle(parser)
    parser.add_argument(
        "--adapter",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="PEFT adapter (default: none, the exported model); may be repeated, for /adapter NAME, where NAME is the "
        "folder's name; the chat begins with the first",
    )
    parser.add_argument("--system", metavar="TEXT", help="system prompt")
    parser.add_argument(
        "--stop", metavar="TEXT", action="append", default=[], help="stop at this text; may be repeated"
    )
    add_options(parser, generate_options())
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    names = _names_of(args.adapter)
    model = load(args.bundle, args.adapter[0] if args.adapter else None)
    if not model.tokenizer.has_chat_template:
        raise UserError(f"{args.bundle}: the model has no chat template; use `mobile-ft generate`")
    conversation = _Conversation(model, args.system, names)
    if sys.stdin.isatty():
        print(_HELP)
    interrupts = _Interrupts()
    before = signal.signal(signal.SIGINT, interrupts.raise_once)
    try:
        _converse(conversation, interrupts, args)
    finally:
        signal.signal(signal.SIGINT, before)


def _names_of(adapters: list[Path]) -> dict[str, Path]:
    names: dict[str, Path] = {}
    for adapter in adapters:
        name = adapter.resolve().name
        if name == _NONE or name in names:
            taken = "means no adapter" if name == _NONE else f"is also the name of {names[name]}"
            raise UserError(f"--adapter {adapter}: the name {name} {taken}; rename the folder")
        names[name] = adapter
    return names


class _Interrupts:
    """Ctrl-C. It raises KeyboardInterrupt once after `allowed` was set, so that none is raised where the first one is
    handled: there, it would end the chat."""

    def __init__(self) -> None:
        self.allowed = False

    def raise_once(self, *_: object) -> None:
        if self.allowed:
            self.allowed = False
            raise KeyboardInterrupt


def _converse(conversation: "_Conversation", interrupts: _Interrupts, args: argparse.Namespace) -> None:
    """Answers line by line, until the input ends."""
    interrupted = False
    while True:
        try:
            while True:  # within the try, because Python can raise KeyboardInterrupt between two iterations, too
                interrupts.allowed = True
                if interrupted:
                    interrupted = False
                    print()
                line = input("> ").strip()
                if line == "/exit":
                    return
                if line.startswith("/"):
                    print(conversation.command(line))
                elif line:
                    conversation.answer(line, args)
        except EOFError:
            interrupts.allowed = False
            print()
            return
        except KeyboardInterrupt:  # while a line is typed, or before the answer's first word
            interrupted = True
        except UserError as error:
            interrupts.allowed = False
            print(f"mobile-ft: error: {error}", file=sys.stderr)


class _Conversation:
    def __init__(self, model: LoadedModel, system: str | None, adapters: dict[str, Path]) -> None:
        self._model = model
        self._system = system
        self._adapters = adapters
        self._adapter = next(iter(adapters), None)  # its name; None: the bundle's own
        self._messages: list[Message] = []

    def command(self, line: str) -> str:
        """Runs a line that starts with a slash. Returns the reply."""
        name, _, text = line.partition(" ")
        text = text.strip()
        if name == "/reset" and not text:
            self._messages = []
            return "conversation cleared"
        if name == "/system":
            self._system = text or None
            return "system prompt set" if text else "system prompt removed"
        if name == "/adapter":
            return self._use_adapter(text)
        return _HELP

    def _use_adapter(self, name: str) -> str:
        names = [*self._adapters, _NONE]
        if name not in names:
            shown = ", ".join(f"{known} (in use)" if known == self._adapter else known for known in names)
            return f"adapters: {shown}"
        self._model.use_adapter(self._adapters.get(name))
        self._adapter = name
        return "no adapter" if name == _NONE else f"adapter {name}"

    def answer(self, text: str, args: argparse.Namespace) -> None:
        """Streams the answer. Ctrl-C ends it; the part so far stays in the conversation."""
        system = [] if self._system is None else [{"role": "system", "content": self._system}]
        asked = [*self._messages, {"role": "user", "content": text}]
        pieces = []
        answer = self._model.stream([*system, *asked], stop=args.stop, **given_options(args, generate_options()))
        try:
            for piece in answer:
                pieces.append(piece)
                print(piece, end="", flush=True)
        except KeyboardInterrupt:
            answer.close()
        print()
        self._messages = [*asked, {"role": "assistant", "content": "".join(pieces)}]
