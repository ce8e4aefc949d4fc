"""Entry point of `mobile-ft`: runs a command and turns errors into one line and an exit status."""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import mobile_ft
from mobile_ft.cli.output import warnings_as_lines
from mobile_ft.errors import UserError, one_line

_INTERRUPTED = 130  # the exit status of shells for Ctrl-C

# Each command's module in this folder, in the order of the help.
_COMMANDS = {
    "export": "export",
    "data": "data",
    "plan": "plan",
    "profile": "profile",
    "train": "train",
    "learn": "learn",
    "forget": "forget",
    "versions": "versions",
    "eval": "evaluate",
    "compare": "compare",
    "generate": "generate",
    "chat": "chat",
    "bench": "bench",
    "info": "info",
    "models": "models",
    "convert": "convert",
    "device": "device",
    "studio": "studio",
}


class _Version(argparse.Action):
    """Looks the version up only if it is asked for, which takes as long as importing a command."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"mobile-ft {mobile_ft.__version__}")
        parser.exit()


def command_parser(wanted: str = "") -> argparse.ArgumentParser:
    """Returns the parser of the command `wanted`, whose module alone is imported, or of all commands."""
    parser = argparse.ArgumentParser(
        prog="mobile-ft", description="Fine-tune 4-bit LLMs with LoRA in a few hundred MB of memory."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in [wanted] if wanted in _COMMANDS else _COMMANDS:
        import_module(f"mobile_ft.cli.{_COMMANDS[name]}").add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns 0, 1 after an error, 130 after Ctrl-C; argparse itself exits with 2."""
    if arguments is None:
        _leave_ascii()
    words = sys.argv[1:] if arguments is None else [str(word) for word in arguments]
    args = command_parser(words[0] if words else "").parse_args(words)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # any text can then be printed, as on standard error
    try:
        with warnings_as_lines():
            if getattr(args, "trust", None) is not None:
                mobile_ft.trust(args.trust)
            args.run(args)
        sys.stdout.flush()
    except UserError as error:
        return _fail(str(error))
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe; Python would report an error at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(f"{error.filename or 'standard output'}: {error.strerror or error}")
    except MemoryError:
        return _fail("out of memory")
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _leave_ascii() -> None:
    """Restarts this process in UTF-8 mode if the locale is ASCII. Python does so by default, unless it is disabled.

    Paths may have other characters, and torch reads files of its own that have them.
    """
    if sys.getfilesystemencoding() == "ascii" and not sys.flags.utf8_mode:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def _fail(message: str) -> int:
    print(f"mobile-ft: error: {one_line(message)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
