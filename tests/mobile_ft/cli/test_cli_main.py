import json
import os
import pty
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from mobile_ft.cli.main import main
from tests.mobile_ft.conftest import Cli

MAIN = [sys.executable, "-m", "mobile_ft.cli.main"]


def test_torch_is_not_imported(bundle: Path, data: Path, tmp_path: Path) -> None:
    """A training front end that loads torch would weigh more than the training."""
    script = """
import sys
from mobile_ft.cli.main import main
bundle, data, out = sys.argv[1:]
for command in (
    ["info", bundle],
    ["plan", bundle, "--seq-len", "64"],
    ["profile", bundle, "--seq-len", "64", "--steps", "1", "--report", out + "/report.html"],
    ["train", bundle, "--data", data, "--seq-len", "64", "--steps", "1", "--out", out + "/run"],
    ["eval", bundle, "--data", data],
    ["generate", bundle, "--prompt", "x", "--max-tokens", "1"],
    ["convert", bundle, "--adapter", out + "/run", "--to", "peft", "-o", out + "/peft"],
):
    assert main(command) == 0, command
print("loaded:", sorted({"torch", "transformers", "executorch", "peft"} & set(sys.modules)))
"""
    command: list[str | Path] = [sys.executable, "-c", script, bundle, data, tmp_path]
    result = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == "loaded: []"


def test_help_of_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("export", "plan", "profile", "train", "eval", "generate", "info", "convert"):
        with pytest.raises(SystemExit) as exit:
            main([command, "--help"])
        assert exit.value.code == 0
        assert "BUNDLE" in capsys.readouterr().out


def test_no_command_is_a_usage_error(cli: Cli) -> None:
    result = cli()
    assert result.code == 2
    assert "COMMAND" in result.err


def test_reader_that_stops_early_is_no_error(bundle: Path) -> None:
    with subprocess.Popen([*MAIN, "info", bundle], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""


def test_full_disk_is_one_line(bundle: Path) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run([*MAIN, "info", bundle], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert result.stderr == "mobile-ft: error: standard output: No space left on device\n"


def test_what_a_terminal_cannot_show_is_escaped(bundle: Path, tmp_path: Path) -> None:
    description = json.loads((bundle / "bundle.json").read_text())
    description["model"]["name"] = "größe\ud800\n\x1b[2J"
    (bundle / "bundle.json").write_text(json.dumps(description))
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    result = subprocess.run([*MAIN, "info", bundle], capture_output=True, text=True, env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert r"gr\xf6\xdfe\ud800\n\x1b[2J" in result.stdout
    for bad in ("a\nb", "\udcff"):
        result = subprocess.run([*MAIN, "info", tmp_path / bad], capture_output=True, text=True, env=environment)
        assert result.returncode == 1
        assert result.stderr.count("\n") == 1 and "bundle.json: no such file" in result.stderr


def test_too_little_memory_is_one_line(cli: Cli, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def large(folder: Path) -> None:
        raise MemoryError

    monkeypatch.setattr("mobile_ft.api.info.read_bundle", large)
    assert cli("info", bundle)[::2] == (1, "mobile-ft: error: out of memory\n")


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("train {bundle} --data {data} --seq-len 64 --out {tmp}/out", "out/tokens.safetensors"),
        ("convert {bundle} --adapter {bundle} --to peft -o {tmp}/peft", "peft"),
        ("info {bundle} --json {tmp}/info.json", "info.json"),
    ],
)
def test_file_that_cannot_be_written_is_named(
    bundle: Path, data: Path, tmp_path: Path, command: str, file: str
) -> None:
    words = [word.format(bundle=bundle, data=data, tmp=tmp_path) for word in command.split()]

    def small_files_only() -> None:  # the nearest thing to a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    result = subprocess.run([*MAIN, *words], stderr=subprocess.PIPE, text=True, preexec_fn=small_files_only)
    assert result.returncode == 1
    assert result.stderr.startswith(f"mobile-ft: error: {tmp_path / file}: ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / file).exists()


def test_progress_bar_on_a_terminal(bundle: Path, data: Path, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    command: list[str | Path] = [
        "train",
        bundle,
        "--data",
        data,
        "--seq-len",
        "64",
        "--steps",
        "3",
        "--out",
        tmp_path / "out",
    ]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen([*MAIN, *command], stdout=follower, stderr=subprocess.STDOUT, env=environment)
    os.close(follower)
    shown = b""
    while True:
        try:
            shown += os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
    os.close(leader)
    assert process.wait() == 0
    text = shown.decode()
    assert "━" in text
    assert "step 3/3" in text
    assert "tokens/s" in text
    assert text.endswith("\r\n")
