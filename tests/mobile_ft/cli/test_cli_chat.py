import _thread
import argparse
import io
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from mobile_ft.cli import chat
from tests.mobile_ft.conftest import Cli

MAIN = [sys.executable, "-m", "mobile_ft.cli.main"]

Talk = Callable[..., tuple[list[str], str]]


@pytest.fixture
def adapter(cli: Cli, bundle: Path, data: Path, tmp_path: Path) -> Path:
    """Trained until the one dialogue of `data` is known by heart."""
    out = tmp_path / "adapter"
    options = ["--steps", 200, "--seq-len", 64, "--lr", "2e-2"]
    assert cli("train", bundle, "--data", data, "--out", out, *options).code == 0
    return out


@pytest.fixture
def talk(bundle: Path, adapter: Path) -> Talk:
    """What `mobile-ft chat` prints when these lines come in, without the prompts; its errors."""

    def run(*lines: str, options: Sequence[str] = ()) -> tuple[list[str], str]:
        command: list[str | Path] = [*MAIN, "chat", bundle, "--adapter", adapter, "--max-tokens", "6", *options]
        result = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=60)
        assert result.returncode == 0
        return result.stdout.replace("> ", "").splitlines(), result.stderr

    return run


def test_answers_and_commands(talk: Talk) -> None:
    typed = ["2+2?", "/adapter none", "/reset", "2+2?", "/adapter adapter", "/reset", "2+2?", "/exit", "2+2?"]
    lines, errors = talk(*typed)
    assert errors == ""
    assert lines[:2] == ["4, sir", "no adapter"]
    assert lines[-3:] == ["adapter adapter", "conversation cleared", "4, sir"]
    assert "4, sir" not in lines[2:-1]


def test_several_adapters(talk: Talk, bundle: Path, tmp_path: Path) -> None:
    untrained = tmp_path / "untrained"
    untrained.mkdir()
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        (untrained / name).write_bytes((bundle / name).read_bytes())
    typed = ["/adapter", "/adapter untrained", "2+2?", "/reset", "/adapter", "/adapter adapter", "2+2?"]
    lines, errors = talk(*typed, options=["--adapter", str(untrained)])
    assert errors == ""
    assert lines[:2] == ["adapters: adapter (in use), untrained, none", "adapter untrained"]
    assert lines[2] != "4, sir"
    assert lines[-3:-1] == ["adapter adapter", "4, sir"]
    assert "adapters: adapter, untrained (in use), none" in lines


def test_adapters_of_one_name(cli: Cli, bundle: Path, tmp_path: Path) -> None:
    for folder, message in (("b/x", "the name x is also the name of"), ("none", "the name none means no adapter")):
        result = cli("chat", bundle, "--adapter", tmp_path / "x", "--adapter", tmp_path / folder)
        assert result.code == 1 and message in result.err


def test_end_of_input_leaves(talk: Talk) -> None:
    assert talk() == ([""], "")
    assert talk("/help me")[0][0].startswith("Commands: /reset")


def test_the_conversation_goes_along(talk: Talk) -> None:
    """Until it is too long for the bundle's 64 tokens, which is said without ending the chat."""
    lines, errors = talk("2+2?", "2+2?", "2+2?", "/reset", "2+2?")
    assert lines[0] == "4, sir" and lines[-2] == "4, sir"
    assert errors.startswith("mobile-ft: error: the prompt has ") and errors.count("\n") == 1


def test_system_prompt_is_part_of_it(talk: Talk) -> None:
    """Which is seen where it leaves no room for a question."""
    long = "B" * 40
    too_long = "mobile-ft: error: the prompt has "
    assert talk("2+2?", options=["--system", long])[1].startswith(too_long)
    lines, errors = talk(f"/system {long}", "2+2?", "/system", "2+2?")
    assert errors.startswith(too_long) and errors.count("\n") == 1
    assert lines[:3] == ["system prompt set", "system prompt removed", "4, sir"]


class SlowModel:
    """Says two words; Ctrl-C comes between them."""

    tokenizer = SimpleNamespace(has_chat_template=True)

    def __init__(self) -> None:
        self.asked: list[list[dict[str, str]]] = []

    def stream(self, messages: list[dict[str, str]], stop: object) -> Iterator[str]:
        self.asked.append(messages)
        yield "Well, "
        if len(self.asked) == 1:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        yield "yes"


def test_ctrl_c_ends_the_answer_alone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    model = SlowModel()
    monkeypatch.setattr("mobile_ft.cli.chat.load", lambda bundle, adapter: model)
    monkeypatch.setattr("sys.stdin", io.StringIO("One?\nTwo?\n"))
    result = cli("chat", "some.bundle")
    assert (result.code, result.err) == (0, "")
    assert result.out == "> Well, \n> Well, yes\n> \n"
    assert [message["content"] for message in model.asked[1]] == ["One?", "Well, ", "Two?"]


def test_keys_on_a_terminal(bundle: Path) -> None:
    """Ctrl-C at any moment leaves the prompt, Ctrl-D leaves the chat."""
    leader, follower = pty.openpty()
    command = [*MAIN, "chat", str(bundle), "--max-tokens", "60", "--temp", "2"]
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, start_new_session=True, preexec_fn=take_terminal
    )
    os.close(follower)

    def wait_for(text: bytes) -> bytes:
        shown = b""
        end = time.monotonic() + 60
        while text not in shown and time.monotonic() < end:
            if select.select([leader], [], [], 1)[0]:
                try:
                    shown += os.read(leader, 4096)
                except OSError:  # it has left
                    break
        assert text in shown, (shown, process.poll())
        return shown

    assert b"Commands: /reset" in wait_for(b"> ")
    for _ in range(5):
        os.write(leader, b"go on\n")
        wait_for(b"go on")
        os.write(leader, b"\x03")
        time.sleep(0.3)
        os.write(leader, b"\n")
        wait_for(b"> ")
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:  # it counts at the prompt alone
        os.write(leader, b"\x04")
        time.sleep(0.3)
    assert process.wait(timeout=1) == 0
    os.close(leader)


def test_ctrl_c_as_an_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python notices it where the loop begins anew: there it must not end the chat."""

    class Interrupts:
        __pos__ = staticmethod(_thread.interrupt_main)  # no call in byte code, after which it would be noticed

    class Conversation:
        def __init__(self, model: object, system: str | None, adapters: dict[str, Path]) -> None:
            self.answered = 0

        def answer(self, text: str, args: argparse.Namespace) -> None:
            self.answered += 1
            _ = +pending

    pending, lines = Interrupts(), iter(["One?", "Two?", "/exit"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    monkeypatch.setattr(chat, "_Conversation", Conversation)
    monkeypatch.setattr(chat, "load", lambda *_: SimpleNamespace(tokenizer=SimpleNamespace(has_chat_template=True)))
    chat.run(argparse.Namespace(bundle="bundle", adapter=[], system=None))
    assert next(lines, None) is None


def test_ctrl_c_twice() -> None:
    """The second comes while the first is handled, and is dropped."""
    interrupts = chat._Interrupts()
    interrupts.raise_once()  # before the prompt
    interrupts.allowed = True
    with pytest.raises(KeyboardInterrupt):
        interrupts.raise_once()
    interrupts.raise_once()


def take_terminal() -> None:
    """Makes standard input the terminal that Ctrl-C comes from."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
