"""tools/phone_check.py --iphone against a stand-in for xcrun, whose iPhone is a folder of this machine. Its app runs
this machine's mft-run, and prints what apple/Demo/Logic/Check.swift prints."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import iphone
import pytest

from mobile_ft.api.native import Event
from mobile_ft.runtime import mft_run_path
from tests.tools.reports import Sections, rows, sections_of

# Messages of devicectl are those of Xcode 16 and 26. FAKE/unplug says what is in the arguments of a run that is cut off
# after three lines of the training, and then the iPhone is gone. FAKE/locked is the message of a launch that fails.
XCRUN = r"""#!PYTHON
import json, os, shutil, signal, subprocess, sys
from pathlib import Path

fake, own = Path("FAKE"), Path("FAKE/container/Documents/check")
words = sys.argv[1:]


def option(name):
    return words[words.index(name) + 1] if name in words else None


def fail(*lines):
    sys.exit("\n".join(lines))


def result(value):
    Path(option("--json-output")).write_text(json.dumps({"info": {}, "result": value}))
    print("Human-readable output.")


def says(line):  # as through a terminal
    sys.stdout.write(line.rstrip("\n") + "\r\n")
    sys.stdout.flush()


def event(kind, **values):
    says(json.dumps({"event": kind, **values}))


def heat():
    event("heat", thermal="fair", battery_percent=83, charging=True)


def reset(pid):
    shutil.rmtree(own, ignore_errors=True)
    (own / "bundle").mkdir(parents=True)
    device(pid)


def device(pid):
    event("device", pid=pid, model="iPhone17,1", system="Version 26.1 (Build 23B85)", memory=8000000000,
          limit_mb=3221.2, cores=[2, 4])
    heat()


def train(arguments):
    if "--resume" not in arguments:
        shutil.rmtree(own / "out", ignore_errors=True)
    run = subprocess.Popen(["MFT_RUN", "train", *arguments], cwd=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True)
    signal.signal(signal.SIGTERM, lambda number, frame: run.terminate())
    device(run.pid)
    unplug = fake / "unplug"
    cut_off = unplug.exists() and unplug.read_text() in arguments
    for number, line in enumerate(run.stdout, 1):
        heat()
        says(line)
        if cut_off and number == 3:
            (fake / "gone").touch()
            run.kill()
            fail("ERROR: The connection was interrupted. (com.apple.dt.CoreDeviceError error 4)")
    errors = run.stderr.read()
    if run.wait() < 0:
        print(f"App terminated due to signal {-run.returncode}.")
    elif run.returncode > 0:
        event("error", message=errors.strip().splitlines()[-1].removeprefix("mft-run: error: "))
    return run.returncode


assert words[0] == "devicectl"
if words[1:3] == ["list", "devices"]:
    result({"devices": json.loads((fake / "devices").read_text())})
    sys.exit()
if option("--device") not in ("00008140-A", "my phone") or (fake / "gone").exists():
    fail("ERROR: The specified device was not found. (com.apple.dt.CoreDeviceError error 1000 (0x3E8))",
         f"       DeviceName = {option('--device')}")
command = words[2:4]
if command == ["info", "apps"]:
    app = {"bundleIdentifier": "ai.mobileft.demo", "name": "mobile-ft"}
    result({"apps": [app] if option("--bundle-id") == app["bundleIdentifier"] else []})
elif command == ["copy", "to"]:
    assert option("--domain-type") == "appDataContainer" and option("--domain-identifier") == "ai.mobileft.demo"
    shutil.copyfile(option("--source"), fake / "container" / option("--destination"))
    result({})
elif command == ["process", "signal"]:
    os.kill(int(option("--pid")), getattr(signal, option("--signal")))
    result({})
elif command == ["process", "launch"]:
    assert "--console" in words and "--terminate-existing" in words and "--json-output" not in words
    if (fake / "locked").exists():
        fail(*(fake / "locked").read_text().splitlines())
    says("Launched application with ai.mobileft.demo bundle identifier.")
    says("Waiting for the application to terminate…")
    if (fake / "old").exists():  # an app that knows no --check, until the timeout
        fail("ERROR: The operation timed out. (com.apple.dt.CoreDeviceError error 3)")
    arguments = words[words.index("ai.mobileft.demo") + 1 :]
    assert arguments[0] == "--check"
    if arguments[1] == "reset":
        reset(os.getpid())
    else:
        assert arguments[1] == "train"
        sys.exit(0 if train(arguments[2:]) == 0 else 1)
else:
    sys.exit(f"Error: unexpected arguments {words}")
"""
LOCKED = """ERROR: The application failed to launch. (com.apple.dt.CoreDeviceError error 10002 (0x2712))
       BundleIdentifier = ai.mobileft.demo
       ----------------------------------------
       NSLocalizedFailureReason = The request was denied for reason: Locked
"""


def described(identifier: str, name: str, platform: str = "iOS", state: str = "disconnected") -> str:
    return (
        f'{{"identifier": "{identifier}", "deviceProperties": {{"name": "{name}"}}, '
        f'"hardwareProperties": {{"platform": "{platform}"}}, "connectionProperties": {{"tunnelState": "{state}"}}}}'
    )


PHONE = described("00008140-A", "my phone")
OTHERS = [described("00008301-B", "a watch", "watchOS"), described("00008140-C", "a lost phone", state="unavailable")]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "fake"
    (folder / "programs").mkdir(parents=True)
    (folder / "devices").write_text(f"[{', '.join([PHONE, *OTHERS])}]")
    program = folder / "programs" / "xcrun"
    text = XCRUN.replace("PYTHON", sys.executable).replace("FAKE", str(folder)).replace("MFT_RUN", str(mft_run_path()))
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'programs'}:{os.environ['PATH']}")
    return folder


Check = Callable[..., tuple[int, Sections]]


@pytest.fixture
def check(tool: ModuleType, fake: Path, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """The exit code and the sections of the report, if there is one; of these checks alone, if any are named."""

    def run(*checks: str, options: tuple[str, ...] = ("--iphone",)) -> tuple[int, Sections]:
        if checks:
            monkeypatch.setattr(tool, "CHECKS", {name: tool.CHECKS[name] for name in checks})
        report = tmp_path / "report.md"
        code = tool.main([*options, "--bundle", str(bundle), "--minutes", "0.04", "-o", str(report)])
        return code, sections_of(report) if report.exists() else {}

    return run


def test_an_iphone_that_does_all(check: Check, fake: Path, tmp_path: Path) -> None:
    code, sections = check()
    assert code == 0, sections
    assert list(sections) == ["Device", "Exactness", "Memory", "Speed", "Heat", "Kill"]
    judged = [title for title, text in sections.items() if text.startswith("passed\n")]
    assert judged == ["Exactness", "Memory", "Kill"]
    assert [path.name for path in (fake / "container/Documents/check").rglob("*")] == ["bundle"]
    assert "Resident memory is the footprint" in (tmp_path / "report.md").read_text()

    device = rows(sections["Device"])
    assert device["model"] == ["iPhone17,1"] and device["iOS"] == ["Version 26.1 (Build 23B85)"]
    assert device["memory"] == ["8000 MB"] and device["memory limit of the app"] == ["3221 MB"]
    assert device["cores"] == ["2 + 4"] and device["battery"] == ["83 %, powered by a charger"]
    assert device["heat"] == ["throttling fair, skin unknown °C, CPU unknown °C, battery unknown °C"]
    assert re.search(r"The runtime chose float32-\w+ and \d+ threads\.", sections["Device"])
    assert rows(sections["Exactness"])["float32"][2:] == ["0", "0.0001"]  # the same machine
    memory = rows(sections["Memory"])
    assert set(memory) == {"peak, MB", "resident", "anonymous"} and "times" not in sections["Memory"]
    assert 1 < float(memory["resident"][0]) <= float(memory["resident"][1]) <= 300
    assert any(name.startswith("6") for name in rows(sections["Speed"]))
    heat = rows(sections["Heat"])
    assert heat["before"] == ["", "", "fair", "unknown", "unknown", "unknown", "83"]
    assert int(heat["1"][0]) > 0 and heat["1"][2:] == heat["before"][2:]
    resumed = re.search(r"90 steps, .*resumed after step (\d+)", sections["Kill"])
    assert resumed and 3 <= int(resumed[1]) < 90


def test_an_iphone_that_is_unplugged(check: Check, fake: Path) -> None:
    (fake / "unplug").write_text("1000000")  # the steps of heat
    code, sections = check("Device", "Heat", "Kill")
    assert code == 1 and "The runtime chose" in sections["Device"]
    assert sections["Heat"].splitlines()[0] == (
        "failed: The connection was interrupted. (com.apple.dt.CoreDeviceError error 4); "
        "the phone does not respond any more; its files stay in iphone 00008140-A:Documents/check"
    )
    assert rows(sections["Heat"])["1"][0] == "2"  # steps that were seen, after the plan
    assert sections["Kill"] == "failed: not run, because the phone was lost in Heat"


def test_a_run_that_fails(check: Check, tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The app's message is in the report, and the other checks are run."""
    monkeypatch.setattr(tool, "BUDGET_MB", 1)
    code, sections = check("Memory", "Device")
    assert code == 1
    assert re.match("failed: .*budget", sections["Memory"]) and "does not respond" not in sections["Memory"]
    assert "The runtime chose" in sections["Device"]


def test_a_broken_line(check: Check, fake: Path) -> None:
    program = fake / "programs" / "xcrun"
    program.write_text(program.read_text().replace("        says(line)\n", "        says(line[:20])\n"))
    code, sections = check("Device")
    assert code == 1 and "failed: the app printed '{\"" in sections["Device"], sections
    assert "which is not an event" in sections["Device"]


def test_an_interrupted_run_writes_a_checkpoint(check: Check, fake: Path, bundle: Path, tmp_path: Path) -> None:
    device = iphone.find_iphone("")
    device.clear()
    text = tmp_path / "text.txt"
    text.write_text("hello, this is a text\n" * 20)
    device.install(bundle, text, tmp_path / "pack", {"seq_len": 64})
    seen: list[str] = []

    def on_event(event: Event) -> None:
        seen.append(event["event"])
        if len(seen) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        device.train(["--steps", "100000"], True, on_event)
    assert seen == ["plan", "step", "step", "step"]
    assert (fake / "container/Documents/check/out/checkpoint.safetensors").exists()


@pytest.mark.parametrize(
    ("devices", "options", "message"),
    [
        (OTHERS, ("--iphone",), "no iPhone is connected; connect one, unlock it and trust this Mac"),
        (
            [PHONE, described("00008140-D", "yours")],
            ("--iphone",),
            "several iPhones are connected; choose one by --iphone: 00008140-A (my phone), 00008140-D (yours)",
        ),
        ([PHONE], ("--iphone", "his"), "The specified device was not found. .*; DeviceName = his"),
        ([PHONE], ("--iphone", "my phone", "--app", "org.example"), "org.example is not installed on .*apple/Demo"),
    ],
)
def test_no_iphone_or_no_app(
    check: Check,
    fake: Path,
    capsys: pytest.CaptureFixture[str],
    devices: list[str],
    options: tuple[str, ...],
    message: str,
) -> None:
    (fake / "devices").write_text(f"[{', '.join(devices)}]")
    assert check(options=options) == (1, {})
    error = capsys.readouterr().err
    assert re.match(f"phone_check: {message if '*' in message else re.escape(message)}", error), error


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("locked", LOCKED, "The application failed to launch. .*for reason: Locked$"),
        ("old", "", "The operation timed out"),
    ],
)
def test_an_app_that_does_not_start(
    check: Check, fake: Path, capsys: pytest.CaptureFixture[str], file: str, text: str, message: str
) -> None:
    (fake / file).write_text(text)
    assert check() == (1, {})
    assert re.match(f"phone_check: {message}", capsys.readouterr().err.strip())


def test_another_machine(
    check: Check, fake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (fake / "programs" / "xcrun").unlink()
    assert check() == (1, {})
    assert "xcrun: not found; an iPhone is checked from a Mac with Xcode" in capsys.readouterr().err


def test_the_identifier_is_the_projects() -> None:
    project = Path(__file__).parents[2] / "apple" / "Demo" / "project.yml"
    assert f"PRODUCT_BUNDLE_IDENTIFIER: {iphone.APP}\n" in project.read_text()
