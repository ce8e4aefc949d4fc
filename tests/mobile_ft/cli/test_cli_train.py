import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mobile_ft.conftest import Cli

TRAIN_FIELDS = {
    *("steps", "tokens", "losses", "loss_first", "loss_last", "step_seconds_median", "tokens_per_second"),
    *("peak_rss_mb", "peak_anon_mb", "planned_mb", "budget_mb", "schedule", "ratio", "backward", "seq_len"),
}


def test_train_learns_and_reports(cli: Cli, bundle: Path, data: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "out", tmp_path / "report.json"
    options = ["--steps", 12, "--seq-len", 64, "--lr", "2e-2", "--budget", "200MB", "--schedule", "lcsb"]
    result = cli("train", bundle, "--data", data, "--out", out, "--json", report, *options)
    assert (result.code, result.err) == (0, "")
    assert "step 12/12  loss" in result.out
    assert "peak anonymous memory" in result.out

    values = json.loads(report.read_text())
    assert set(values) >= TRAIN_FIELDS
    assert "event" not in values
    assert len(values["losses"]) == 12
    assert values["loss_first"] == values["losses"][0]
    assert values["loss_last"] == values["losses"][-1]
    assert values["loss_last"] < 0.9 * values["loss_first"]
    assert values["budget_mb"] == 200
    assert (values["schedule"], values["ratio"], values["seq_len"]) == ("lcsb", 0.5, 64)
    for series in values["memory_mb"].values():
        assert len(series) == 12
    assert max(values["memory_mb"]["anon_mb"]) == values["peak_anon_mb"]
    assert values["peak_anon_mb"] < values["peak_rss_mb"] < values["planned_mb"]
    for name in ("adapter_model.safetensors", "adapter_config.json", "checkpoint.safetensors"):
        assert (out / name).is_file()


def test_resume_prepares_the_same_data_and_goes_on(cli: Cli, bundle: Path, data: Path, tmp_path: Path) -> None:
    command = ["train", bundle, "--data", data, "--steps", 3, "--seq-len", 64, "--out", tmp_path / "out"]
    assert cli(*command).code == 0
    again = cli(*command)
    assert again.code == 1
    assert "resume it, or choose another out" in again.err
    report = tmp_path / "report.json"
    assert cli(*command, "--resume", "--json", report).code == 0
    assert len(json.loads(report.read_text())["losses"]) == 3
    (data / "train.jsonl").write_text('{"text": "something else"}\n')
    other = cli(*command, "--resume")
    assert other.code == 1
    assert "a resumed run needs the same bundle, data and options" in other.err


def test_every_option_reaches_mft_run(
    cli: Cli, bundle: Path, data: Path, tmp_path: Path, fake_mft_run: Callable[[str], None]
) -> None:
    fake_mft_run(f'printf "%s " "$@" > {tmp_path}/arguments; echo "mft-run: error: enough" >&2; exit 1')
    numbers = "--steps 7 --seq-len 32 --batch-size 2 --grad-accum 3 --warmup-steps 4 --save-every 5 --seed 6"
    rates = "--lr 0.01 --weight-decay 0.1 --max-grad-norm 0.5 --ratio 0.25"
    names = "--lr-scheduler constant --schedule suffix --selection strided --suffix-depths 1,2 --unselected skip"
    names += " --backward store --optimizer adamw8bit"
    options = f"{numbers} {rates} {names} --budget 1GB --adapter a --resume".split()
    result = cli("train", bundle, "--data", data, "--out", tmp_path / "out", *options)
    assert result.err == "mobile-ft: error: enough\n"
    passed = (tmp_path / "arguments").read_text().split()
    assert passed[:8] == [
        *("train", str(bundle), "--data", str(tmp_path / "out/tokens.safetensors")),
        *("--out", str(tmp_path / "out"), "--parent", str(os.getpid())),
    ]
    pairs = {tuple(options[i : i + 2]) for i in range(0, len(options) - 1, 2)}
    assert {tuple(passed[i : i + 2]) for i in range(8, len(passed) - 1, 2)} == pairs
    assert passed[-1] == "--resume"


def test_config_and_command_line_make_one_configuration(
    cli: Cli, bundle: Path, data: Path, tmp_path: Path, fake_mft_run: Callable[[str], None]
) -> None:
    fake_mft_run(f'printf "%s " "$@" > {tmp_path}/arguments; echo "mft-run: error: enough" >&2; exit 1')
    config = tmp_path / "mine.yaml"
    config.write_text(f"bundle: {bundle}\ndata: {data}\nseq_len: 32\nepochs: 2\nlr: 1e-3\nwarmup_ratio: 0.1\n")
    command = ["train", "--config", config, "--out", tmp_path / "out", "--lr", "2e-3", "--steps", 5]
    assert cli(*command).err == "mobile-ft: error: enough\n"
    passed = (tmp_path / "arguments").read_text().split()
    assert passed[1] == str(bundle)
    given = passed[passed.index("--parent") + 2 :]
    assert {tuple(given[i : i + 2]) for i in range(0, len(given), 2)} == {
        *(("--seq-len", "32"), ("--lr", "2e-3"), ("--steps", "5"), ("--warmup-ratio", "0.1")),
    }


def test_config_that_is_wrong_is_named(cli: Cli, tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("batchsize: 2\n")
    result = cli("train", "--config", config)
    message = f"{config}: batchsize: unknown option; did you mean batch_size?"
    assert result == (1, "", f"mobile-ft: error: {message}\n")


def test_bundle_and_data_are_required_somewhere(cli: Cli, tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("seq_len: 64\n")
    for command, missing in ((["train"], "BUNDLE, --data"), (["train", "x", "--config", config], "--data")):
        result = cli(*command)
        assert result.code == 2
        assert result.err.endswith(f"error: the following arguments are required: {missing}\n")


def test_validation_is_shown_and_reported(cli: Cli, bundle: Path, data: Path, tmp_path: Path) -> None:
    report, out = tmp_path / "report.json", tmp_path / "out"
    options = ["--steps", 6, "--seq-len", 64, "--eval-every", 3, "--report-to", "jsonl", "--json", report]
    result = cli("train", bundle, "--data", data, "--out", out, *options)
    assert (result.code, result.err) == (0, "")
    assert "step 3  validation loss " in result.out and "perplexity" in result.out
    assert "best adapter" in result.out
    values = json.loads(report.read_text())
    assert [step for step, _ in values["evals"]] == [3, 6]
    assert values["best_loss"] == min(loss for _, loss in values["evals"])
    events = [json.loads(line)["event"] for line in (out / "log.jsonl").read_text().splitlines()]
    assert events.count("eval") == 2 and events[-1] == "done"
    assert (out / "best" / "adapter_model.safetensors").is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seq-len", 65], "seq_len 65 exceeds the 64 tokens that "),
        (
            ["--seq-len", 32, "--batch-size", 3],
            "seq_len 32 x batch_size 3 exceeds the 64 tokens that ",
        ),
        (
            ["--seq-len", 64, "--json", "nowhere/r.json"],
            "--json nowhere/r.json: the folder nowhere does not exist",
        ),
        (["--seq-len", 64, "--json", "."], "--json .: not a regular file"),
        (["--seq-len", 0], "seq_len 0: must be at least 1"),
        (["--seq-len", 64, "--steps", 0], "steps 0: must be at least 1"),
        (["--seq-len", 64, "--steps", "many"], "steps many: must be an integer"),
        (["--seq-len", 64, "--seed", "-1"], "seed -1: must "),
        (["--seq-len", 64, "--lr", "nan"], "lr nan: must be a number"),
        (["--seq-len", 64, "--budget", "lots"], "budget lots: must be a size such as 512MB"),
        (["--seq-len", 64, "--budget", "1MB"], "budget 1MB is too small; this run needs "),
        (["--seq-len", 64, "--adapter", "nowhere"], "nowhere/adapter_config.json: "),
        (["--seq-len", 64, "--suffix-depths", "9", "--schedule", "suffix"], "suffix depth 9: must be from 1 to 2"),
    ],
)
def test_bad_values_are_one_line(
    cli: Cli,
    bundle: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[object],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli("train", bundle, "--data", data, *options)
    assert result.code == 1
    assert result.err.startswith(f"mobile-ft: error: {message}")
    assert result.err.count("\n") == 1
    assert not (tmp_path / "mobile-ft-out" / "checkpoint.safetensors").exists()


@pytest.mark.parametrize(
    ("option", "allowed"),
    [
        (["--schedule", "half"], ["full", "lcsb", "suffix"]),
        (["--selection", "best"], ["contiguous", "strided", "random"]),
        (["--unselected", "drop"], ["momentum", "skip"]),
        (["--lr-scheduler", "square"], ["cosine", "linear", "constant"]),
    ],
)
def test_usage_errors_name_what_is_allowed(
    cli: Cli, bundle: Path, data: Path, option: list[str], allowed: list[str]
) -> None:
    result = cli("train", bundle, "--data", data, *option)
    assert result.code == 2
    for word in allowed:
        assert word in result.err.splitlines()[-1]


def test_too_long_is_refused_before_the_data_is_read(cli: Cli, bundle: Path, tmp_path: Path) -> None:
    result = cli("train", bundle, "--data", tmp_path / "missing", "--seq-len", 65)
    assert "seq_len 65" in result.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "train.jsonl: is empty"),
        ('{"text": "fine"}\n{"text": oops}\n', "train.jsonl:2: not JSON"),
        ('{"text": "fine"}\n\n{"body": "x"}\n', 'train.jsonl:3: the row has "body"'),
    ],
)
def test_bad_data_names_file_and_line(
    cli: Cli, bundle: Path, data: Path, tmp_path: Path, content: str, message: str
) -> None:
    (data / "train.jsonl").write_text(content)
    result = cli("train", bundle, "--data", data, "--seq-len", 64, "--out", tmp_path / "out")
    assert result.code == 1
    assert message in result.err
    assert result.err.count("\n") == 1


def test_missing_inputs(cli: Cli, bare_bundle: Path, bundle: Path, data: Path, tmp_path: Path) -> None:
    result = cli("train", tmp_path / "nothing", "--data", data)
    assert result.code == 1
    assert f"{tmp_path / 'nothing'}/bundle.json: no such file" in result.err
    result = cli("train", bundle, "--data", tmp_path / "nothing", "--seq-len", 64, "--out", tmp_path / "out")
    assert result.code == 1
    assert f"{tmp_path / 'nothing'}: not found" in result.err
    result = cli("train", bare_bundle, "--data", data, "--seq-len", 64, "--out", tmp_path / "out")
    assert result.code == 1
    assert "has no tokenizer" in result.err
    (tmp_path / "file").write_text("")
    result = cli("train", bundle, "--data", data, "--seq-len", 64, "--out", tmp_path / "file")
    assert result.code == 1
    assert result.err.startswith(f"mobile-ft: error: {tmp_path / 'file'}")


def test_rows_cut_or_left_out_are_told(cli: Cli, bundle: Path, data: Path, tmp_path: Path) -> None:
    long = json.dumps({"prompt": "a", "completion": "b" * 100})
    silent = json.dumps({"prompt": "a" * 100, "completion": "b"})
    (data / "train.jsonl").write_text(f"{long}\n{silent}\n")
    result = cli("train", bundle, "--data", data, "--seq-len", 64, "--steps", 1, "--out", tmp_path / "out")
    assert result.code == 0
    assert result.err.splitlines() == [
        f"mobile-ft: warning: {data}: 1 of 2 rows were truncated at seq_len 64",
        f"mobile-ft: warning: {data}: 1 of 2 rows were dropped: no tokens to train on at seq_len 64",
    ]


def test_killed_child_is_told(
    cli: Cli, bundle: Path, data: Path, tmp_path: Path, fake_mft_run: Callable[[str], None]
) -> None:
    out = tmp_path / "out"
    fake_mft_run("kill -9 $$")
    command = ["train", bundle, "--data", data, "--seq-len", 64, "--out", out]
    killed = "mobile-ft: error: the training process was killed (signal 9); "
    assert cli(*command) == (1, "data: 1 rows of prompt and completion\n", f"{killed}no checkpoint was written yet\n")
    fake_mft_run(f"touch {out}/checkpoint.safetensors; kill -9 $$")
    assert cli(*command).err == f"{killed}a checkpoint is in {out}; resume the run to continue\n"


def test_child_that_fails_without_a_message(
    cli: Cli, bundle: Path, data: Path, tmp_path: Path, fake_mft_run: Callable[[str], None]
) -> None:
    command = ["train", bundle, "--data", data, "--seq-len", 64, "--out", tmp_path / "out"]
    fake_mft_run("exit 3")
    assert cli(*command).err == "mobile-ft: error: mft-run failed without a message\n"
    fake_mft_run("echo 'cannot load a library' >&2; exit 127")
    assert cli(*command).err == "mobile-ft: error: cannot load a library\n"


@pytest.fixture
def ctrl_c() -> None:
    """Makes Ctrl-C count: whoever is started in a shell's background inherits it as ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_saves_the_step_in_progress(bundle: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "mobile_ft.cli.main",
        "train",
        bundle,
        "--data",
        data,
        "--out",
        out,
    ]
    command += ["--seq-len", "64", "--steps", "1000000", "--save-every", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if "step" in line:
                break
        child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        assert not (out / "checkpoint.safetensors").exists()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"interrupted; a checkpoint is in {out}; resume the run to continue\n" in err
    assert "Traceback" not in err
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert (out / "checkpoint.safetensors").stat().st_size > 0


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_twice_does_not_wait_for_a_long_step(
    cli: Cli, bundle: Path, data: Path, tmp_path: Path, fake_mft_run: Callable[[str], None]
) -> None:
    pid_file = tmp_path / "pid"
    fake_mft_run(f"trap '' TERM; echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 600")

    def interrupt() -> None:
        while not pid_file.exists():
            time.sleep(0.01)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)

    threading.Thread(target=interrupt, daemon=True).start()
    result = cli("train", bundle, "--data", data, "--seq-len", 64, "--out", tmp_path / "out")
    assert result.code == 130
    assert result.err == "mobile-ft: warning: interrupted; no checkpoint was written yet\n"
    for _ in range(100):
        if not Path(f"/proc/{pid_file.read_text().strip()}").exists():
            return
        time.sleep(0.05)
    pytest.fail("the child still runs")
