import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

MAIN = [sys.executable, "-m", "mobile_ft.cli.main"]


@pytest.fixture
def adapter(cli, bundle, data, tmp_path):
    """Trained until the one dialogue of `data` is known by heart."""
    out = tmp_path / "adapter"
    options = ["--steps", 200, "--seq-len", 64, "--lr", "2e-2"]
    assert cli("train", bundle, "--data", data, "--out", out, *options).code == 0
    return out


@pytest.fixture
def talk(bundle, adapter):
    """What `mobile-ft chat` prints when these lines come in, without the prompts; its errors."""

    def run(*lines, options=()):
        command = [*MAIN, "chat", bundle, "--adapter", adapter, "--max-tokens", "6", *options]
        result = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=60)
        assert result.returncode == 0
        return result.stdout.replace("> ", "").splitlines(), result.stderr

    return run


def test_answers_and_commands(talk):
    lines, errors = talk("2+2?", "/adapter off", "/reset", "2+2?", "/adapter on", "/reset", "2+2?", "/exit", "2+2?")
    assert errors == ""
    assert lines[:2] == ["4, sir", "adapter off"]
    assert lines[-3:] == ["adapter on", "forgotten", "4, sir"]
    assert "4, sir" not in lines[2:-1]


def test_end_of_input_leaves(talk):
    assert talk() == ([""], "")
    assert talk("/help me")[0][0].startswith("/reset forgets")


def test_the_conversation_goes_along(talk):
    """Until it is too long for the bundle's 64 tokens, which is said without ending the chat."""
    lines, errors = talk("2+2?", "2+2?", "/reset", "2+2?")
    assert lines[0] == "4, sir" and lines[-2] == "4, sir"
    assert errors.startswith("mobile-ft: error: --prompt: ") and errors.count("\n") == 1


def test_system_prompt_is_part_of_it(talk):
    told, _ = talk("?", options=["--system", "B", "--temp", "2"])
    assert talk("/system B", "?", options=["--temp", "2"])[0][1:] == told
    assert talk("?", options=["--temp", "2"])[0] != told
    assert talk("/system B", "/system", "?", options=["--temp", "2"])[0][2:] == talk("?", options=["--temp", "2"])[0]


def test_ctrl_c_ends_the_answer_and_ctrl_d_leaves(bundle):
    """On a terminal, where an answer of random tokens goes on for long."""
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
                shown += os.read(leader, 4096)
        assert text in shown
        return shown

    assert b"/reset forgets" in wait_for(b"> ")
    os.write(leader, b"\x03")  # with no answer to end
    wait_for(b"> ")
    os.write(leader, b"go on\n")
    wait_for(b"go on")
    os.write(leader, b"\x03")
    wait_for(b"> ")
    os.write(leader, b"\x04")
    assert process.wait(timeout=30) == 0
    os.close(leader)


def take_terminal() -> None:
    """Makes standard input the terminal that Ctrl-C comes from."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
