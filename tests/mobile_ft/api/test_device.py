"""A packed folder trains with nothing else, here and on a device at the other end of adb or ssh."""

import json
import os
import shutil
import subprocess
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from gather_runtime import gather

from mobile_ft.api.device_link import Device
from mobile_ft.api.device_pack import pack_for_device
from mobile_ft.api.device_run import pull_from_device, run_on_device
from mobile_ft.api.train import train
from mobile_ft.cli.main import main
from mobile_ft.errors import UserError
from mobile_ft.runtime import mft_run_path
from tests.small_bundle import TalkingModel, write_small_bundle

ROWS = [{"prompt": f"hello {i}", "completion": f"hi {i}"} for i in range(30)]
OPTIONS: dict[str, Any] = {"seq_len": 32, "steps": 6, "save_every": 2, "lr": 1e-3, "threads": 1}

# Commands that stand for a phone and a host: both "devices" are a folder of this machine.
ADB = """#!/bin/sh
[ "$1" = -s ] && { [ "$2" = phone ] || { echo "adb: device '$2' not found" >&2; exit 1; }; shift 2; }
cd DEVICE
case $1 in
  shell|exec-out) shift; exec sh -c "$*";;
  push) shift; cp -r "$@";;
  *) echo "adb: unknown command $1" >&2; exit 1;;
esac
"""
SSH = """#!/bin/sh
[ "$1" = host ] || { echo "ssh: Could not resolve hostname $1" >&2; exit 255; }
cd DEVICE && shift && exec sh -c "$*"
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bundle(tmp_path_factory.mktemp("bundle") / "small", TalkingModel)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This machine's own, as for a device."""
    folder = tmp_path_factory.mktemp("gathered") / "runtime"
    executorch = Path(str(distribution("executorch").locate_file("executorch")))
    system = [
        Path("/lib64"),
        *Path("/usr/lib").glob("*-linux-gnu"),
        Path("/usr/lib"),
        *Path("/lib").glob("*-linux-gnu"),
    ]
    gather(mft_run_path(), folder, [executorch / "lib", *system])
    return folder


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `adb` and `ssh` reach."""
    folder, programs = tmp_path / "device", tmp_path / "programs"
    folder.mkdir()
    programs.mkdir()
    for name, script in (("adb", ADB), ("ssh", SSH)):
        (programs / name).write_text(script.replace("DEVICE", str(folder)))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return folder


def losses(lines: str) -> list[float]:
    return [event["loss"] for event in map(json.loads, lines.splitlines()) if event["event"] == "step"]


@pytest.mark.parametrize("raw", [False, True])
def test_a_pack_trains_as_train_does(raw: bool, bundle: Path, runtime: Path, rows: Path, tmp_path: Path) -> None:
    expected = train(bundle, rows, tmp_path / "here", progress=False, **OPTIONS)
    pack = pack_for_device(bundle, rows, tmp_path / "phone", raw_data=raw, runtime=runtime, **OPTIONS)
    assert (pack / "train.tokens").exists() != raw
    moved = tmp_path / "elsewhere and spaced"
    pack.rename(moved)
    script = ["sh", str(moved / "run.sh"), "--steps", "4"]
    first = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    assert losses(first) == pytest.approx(expected.losses[:4], rel=0.05)  # to four steps' end by another schedule of lr
    shutil.rmtree(moved / "out")
    whole = subprocess.run(script[:2], capture_output=True, text=True, check=True).stdout
    assert losses(whole) == expected.losses
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        assert (moved / "out" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    answer = ["sh", str(moved / "mft-run"), "generate", str(moved / "bundle"), "--prompt", "hello 3"]
    said = subprocess.run(answer, capture_output=True, text=True, check=True).stdout
    assert json.loads(said.splitlines()[-2])["event"] == "answer"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to change to another root folder")
def test_nothing_else_is_needed(bundle: Path, runtime: Path, rows: Path, tmp_path: Path) -> None:
    expected = train(bundle, rows, tmp_path / "here", progress=False, **OPTIONS)
    pack = pack_for_device(bundle, rows, tmp_path / "phone", runtime=runtime, **OPTIONS)
    loader = next((pack / "lib").glob("ld-linux-*")).name
    start = [shutil.which("chroot") or "", str(pack), f"/lib/{loader}", "--library-path", "/lib", "/bin/mft-run"]
    options = [word for name, value in OPTIONS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = [*start, "train", "/bundle", "--data", "/train.tokens", "--out", "/out", *options]
    done = subprocess.run(command, capture_output=True, text=True, env={"MFT_ISA": os.environ["MFT_ISA"]})
    assert done.returncode == 0, done.stderr
    assert losses(done.stdout) == expected.losses


@pytest.mark.parametrize("kind", ["adb", "ssh"])
def test_run_and_pull(
    kind: str, bundle: Path, runtime: Path, rows: Path, device: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = train(bundle, rows, tmp_path / "here", progress=False, **OPTIONS)
    options = [word for name, value in OPTIONS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    pack, there = tmp_path / "phone", ["--adb", "phone"] if kind == "adb" else ["--ssh", "host"]
    there += ["--folder", "work here"]
    packed = ["device", "pack", str(bundle), "--data", str(rows), "--runtime", str(runtime), "-o", str(pack), *options]
    assert main(packed) == 0
    capsys.readouterr()
    assert main(["device", "run", str(pack), *there, "--json", str(tmp_path / "result.json")]) == 0
    shown = capsys.readouterr().out
    assert "copying" in shown and "step 6/6" in shown
    assert json.loads((tmp_path / "result.json").read_text())["losses"] == expected.losses
    assert main(["device", "pull", *there, "-o", str(tmp_path / "adapter")]) == 0
    weights = "adapter_model.safetensors"
    assert (tmp_path / "adapter" / weights).read_bytes() == (tmp_path / "here" / weights).read_bytes()

    assert main(["device", "run", str(pack), *there]) == 0  # done, and nothing is copied again
    assert "copying" not in capsys.readouterr().out
    assert main(["device", "pull", *there, "-o", str(tmp_path / "adapter")]) == 0  # takes the place of the last
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "photo").write_text("")
    assert main(["device", "pull", *there, "-o", str(tmp_path / "mine")]) == 1
    assert "mine: exists and is not an adapter" in capsys.readouterr().err


def test_a_broken_connection_loses_nothing(
    bundle: Path, runtime: Path, rows: Path, device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device's run ends saved when nobody listens any more, and goes on to the same losses."""
    expected = train(bundle, rows, tmp_path / "here", progress=False, **(OPTIONS | {"steps": 40, "save_every": 100}))
    pack = pack_for_device(bundle, rows, tmp_path / "phone", runtime=runtime, **(OPTIONS | {"steps": 40}))
    device_of = Device("ssh", "host", "work")
    ssh = tmp_path / "programs" / "ssh"
    whole = ssh.read_text()
    hang_up = f'#!/bin/sh\ncase $2 in *run.sh*) cd {device}; sh -c "$2" | head -n 4; exit 255;; esac\n'
    ssh.write_text(whole.replace("#!/bin/sh\n", hang_up))  # after the plan and three steps
    with pytest.raises(UserError, match="is saved in out and can be resumed"):
        run_on_device(pack, device_of, progress=False)
    ssh.write_text(whole)
    rest = run_on_device(pack, device_of, progress=False)
    assert rest.losses == expected.losses
    assert 0 < len(rest.memory_mb["rss_mb"]) < 40  # steps of the second run alone
    assert pull_from_device(device_of, tmp_path / "adapter").is_dir()


def test_another_pack_in_the_same_place(bundle: Path, runtime: Path, rows: Path, device: Path, tmp_path: Path) -> None:
    place = Device("adb", "phone", "work")
    first = pack_for_device(bundle, rows, tmp_path / "first", raw_data=True, runtime=runtime, **OPTIONS)
    other_rows = tmp_path / "other.jsonl"
    other_rows.write_text("".join(json.dumps(row) + "\n" for row in reversed(ROWS[:20])))
    second = pack_for_device(bundle, other_rows, tmp_path / "second", raw_data=True, runtime=runtime, **OPTIONS)
    run_on_device(first, place, progress=False)
    with pytest.raises(
        UserError, match="adb phone:work: the folder out has a run of another pack; choose another folder"
    ):
        run_on_device(second, place, progress=False)
    shutil.rmtree(device / "work" / "out")  # what the user does not want any more
    result = run_on_device(second, place, progress=False)
    assert result.losses == train(bundle, other_rows, tmp_path / "here", progress=False, **OPTIONS).losses


@pytest.mark.parametrize("kind", ["adb", "ssh"])
def test_a_copy_that_breaks_off_is_made_again(
    kind: str, bundle: Path, runtime: Path, rows: Path, device: Path, tmp_path: Path
) -> None:
    pack = pack_for_device(bundle, rows, tmp_path / "phone", runtime=runtime, **OPTIONS)
    place = Device("adb", "phone", "work") if kind == "adb" else Device("ssh", "host", "work")
    run_on_device(pack, place, progress=False)
    shutil.rmtree(device / "work" / "out")
    pack = pack_for_device(bundle, rows, pack, runtime=runtime, **(OPTIONS | {"steps": 3}))
    program = tmp_path / "programs" / kind
    whole = program.read_text()
    breaks = 'case "$*" in *push*|*tar*) echo "connection lost" >&2; exit 1;; esac'
    program.write_text(whole.replace("#!/bin/sh\n", f"#!/bin/sh\n{breaks}\n"))
    with pytest.raises(UserError, match="connection lost"):
        run_on_device(pack, place, progress=False)
    (device / "work" / "lib").rename(device / "lost")  # of what a copy had not brought yet
    program.write_text(whole)
    assert len(run_on_device(pack, place, progress=False).losses) == 3


def test_nothing_of_others_is_lost(bundle: Path, runtime: Path, rows: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "manifest.json").write_text('{"name": "my site"}')
    (site / "index.html").write_text("")
    with pytest.raises(UserError, match="site: contains index.html, which would be deleted"):
        pack_for_device(bundle, rows, site, runtime=runtime, **OPTIONS)
    pack = pack_for_device(bundle, rows, tmp_path / "phone", runtime=runtime, **OPTIONS)
    pack_for_device(bundle, rows, pack, runtime=runtime, **OPTIONS)  # nothing but a pack
    subprocess.run(["sh", str(pack / "run.sh")], capture_output=True, check=True)
    with pytest.raises(UserError, match="phone: contains out/adapter_config.json, which would be deleted"):
        pack_for_device(bundle, rows, pack, runtime=runtime, **OPTIONS)
    assert (pack / "out" / "adapter_config.json").is_file()


def test_the_runtime_of_a_platform(
    bundle: Path, runtime: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mobile_ft.api.device_pack.mft_run_path", lambda: tmp_path / "mft-run")
    with pytest.raises(UserError, match="run `make macos` first"):
        pack_for_device(bundle, rows, tmp_path / "mac", platform="macos", **OPTIONS)
    shutil.copytree(runtime, tmp_path / "macos")
    pack = pack_for_device(bundle, rows, tmp_path / "mac", platform="macos", **OPTIONS)
    assert (pack / "bin" / "mft-run").is_file()
    with pytest.raises(UserError, match="run `make aarch64` first"):
        pack_for_device(bundle, rows, tmp_path / "phone", **OPTIONS)
    with pytest.raises(UserError, match="platform windows: must be one of linux, macos"):
        pack_for_device(bundle, rows, tmp_path / "phone", platform="windows", **OPTIONS)  # type: ignore[arg-type]


def test_what_the_device_cannot_read_is_not_packed(bundle: Path, runtime: Path, tmp_path: Path) -> None:
    """Python takes longer texts than the runtime's tokenizer, which says so now."""
    long = tmp_path / "long.jsonl"
    long.write_text(json.dumps({"text": "hello " * 1_000_000}) + "\n")
    with pytest.raises(UserError, match="at most 4194304 are supported at once"):
        pack_for_device(bundle, long, tmp_path / "phone", raw_data=True, runtime=runtime, seq_len=32)
    assert not (tmp_path / "phone").exists()


def test_mistakes(bundle: Path, runtime: Path, rows: Path, device: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no runtime for devices found; create one with tools/gather_runtime.py"):
        pack_for_device(bundle, rows, tmp_path / "phone", runtime=tmp_path)
    with pytest.raises(UserError, match="valid: requires eval_every"):
        pack_for_device(bundle, rows, tmp_path / "phone", valid=rows, runtime=runtime, seq_len=32)
    with pytest.raises(UserError, match="raw_data: requires data as a .jsonl file"):
        pack_for_device(bundle, ROWS, tmp_path / "phone", raw_data=True, runtime=runtime, seq_len=32)
    with pytest.raises(UserError, match="exceeds the 64 tokens"):
        pack_for_device(bundle, rows, tmp_path / "phone", runtime=runtime, seq_len=65)
    assert not (tmp_path / "phone").exists()
    full = tmp_path / "full"
    full.mkdir()
    (full / "photo").write_text("")
    with pytest.raises(UserError, match="contains photo, which would be deleted"):
        pack_for_device(bundle, rows, full, runtime=runtime, seq_len=32)
    with pytest.raises(
        UserError, match="full/manifest.json: no such file; use a folder written by `mobile-ft device pack`"
    ):
        run_on_device(full, Device("ssh", "host", "work"), progress=False)
    pack = pack_for_device(bundle, rows, tmp_path / "phone", runtime=runtime, seq_len=32)
    for unreachable, message in (
        (Device("ssh", "nowhere", "work"), "Could not resolve hostname nowhere"),
        (Device("adb", "other", "work"), "device 'other' not found"),
    ):
        with pytest.raises(UserError, match=message):
            run_on_device(pack, unreachable, progress=False)
    with pytest.raises(UserError, match="work/out.*No such file|can't cd to"):
        pull_from_device(Device("ssh", "host", "work"), tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()


def test_all_of_it_fits_together_in_a_pack(bundle: Path, runtime: Path, rows: Path, tmp_path: Path) -> None:
    """Validation and an adapter to start from; the manifest names every file."""
    train(bundle, rows, tmp_path / "before", progress=False, **OPTIONS)
    options = OPTIONS | {"eval_every": 3}
    pack = pack_for_device(
        bundle, rows, tmp_path / "phone", valid=rows, adapter=tmp_path / "before", runtime=runtime, **options
    )
    files = {str(path.relative_to(pack)) for path in pack.rglob("*") if path.is_file()}
    assert set(json.loads((pack / "manifest.json").read_text())) == files - {"manifest.json"}
    done = subprocess.run(["sh", str(pack / "run.sh")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"event":"eval"') == 2
    assert (pack / "out" / "best").is_dir()


def test_a_folder_brings_its_validation_data(bundle: Path, runtime: Path, rows: Path, tmp_path: Path) -> None:
    """As for `train`."""
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "valid"):
        (data / f"{split}.jsonl").write_bytes(rows.read_bytes())
    for raw_data in (False, True):
        pack = pack_for_device(
            bundle, data, tmp_path / "phone", raw_data=raw_data, runtime=runtime, eval_every=3, **OPTIONS
        )
        assert "--valid valid.tokens" in (pack / "run.sh").read_text()
        assert (pack / ("valid.jsonl" if raw_data else "valid.tokens")).is_file()
    with pytest.raises(UserError, match="eval_every 3: requires valid, or data with a validation split"):
        pack_for_device(bundle, rows, tmp_path / "phone", runtime=runtime, eval_every=3, **OPTIONS)
