"""tools/phone_check.py against a stand-in for adb, whose phone is a folder of this machine with its own runtime."""

import importlib
import os
import re
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from gather_runtime import gather

from mobile_ft.runtime import mft_run_path
from tests.tools.reports import Sections, rows, sections_of

# FAKE/edit2 changes what the second run prints. FAKE/breaks says what is in the command of a run that fails,
# FAKE/unplug of one that is cut off after three lines, and then adb is gone.
ADB = r"""#!/bin/sh
[ -e FAKE/gone ] && { echo "adb: no devices/emulators found" >&2; exit 1; }
[ "$1" = -s ] && { [ "$2" = phone ] || { echo "adb: device '$2' not found" >&2; exit 1; }; shift 2; }
moved() { printf %s "$1" | sed 's#/data/local/tmp#FAKE/tmp#g; s#/sys/devices/system/cpu#FAKE/cpu#g'; }
export PATH="FAKE/bin:$PATH"
case $1 in
  push) shift; cp -r $(moved "$*");;
  shell) script=$(moved "$2")
    is() { [ -e "FAKE/$1" ] && echo "$script" | grep -q -e "$(cat "FAKE/$1")"; }
    case $script in *run.sh*) echo >> FAKE/runs;; esac
    edit=FAKE/edit$(cat FAKE/runs 2>/dev/null | wc -l)
    if is breaks; then echo "mft-run: error: no space left" >&2; exit 1
    elif is unplug; then sh -c "$script" | head -n 3; touch FAKE/gone; exit 255
    elif [ -e "$edit" ]; then sh -c "$script" | sed -u -f "$edit"
    else sh -c "$script"; fi;;
  exec-out) exec sh -c "$(moved "$2")";;
  *) echo "adb: unknown command $1" >&2; exit 1;;
esac
"""
GETPROP = """#!/bin/sh
cat << END
[ro.board.platform]: [pineapple]
[ro.build.version.release]: [15]
[ro.build.version.sdk]: [35]
[ro.product.manufacturer]: [Example]
[ro.product.model]: [Phone 9]
[ro.soc.manufacturer]: [QTI]
[ro.soc.model]: [SM8650]
END
"""
# In the layout of Android 14.
DUMPSYS = r"""#!/bin/sh
case $1 in
  thermalservice) cat << END
IsStatusOverride: false
Thermal Status: 1
Cached temperatures:
	Temperature{mValue=99.0, mType=3, mName=skin, mStatus=0}
HAL Ready: true
Current temperatures from HAL:
	Temperature{mValue=41.5, mType=0, mName=CPU0, mStatus=0}
	Temperature{mValue=47.25, mType=0, mName=CPU1, mStatus=0}
	Temperature{mValue=33.1, mType=3, mName=skin, mStatus=1}
	Temperature{mValue=NaN, mType=3, mName=skin2, mStatus=1}
Current cooling devices from HAL:
	CoolingDevice{mValue=1, mType=3, mName=fan}
END
;;
  battery) printf 'Current Battery Service state:\n  AC powered: false\n  USB powered: true\n  level: 8%s\n' 3
    printf '  temperature: 312\n';;
  meminfo) rollup=/proc/$2/smaps_rollup
    [ -r "$rollup" ] || { echo "No process found for: $2"; exit; }
    awk -v pid="$2" '/^Pss:/ { pss = $2 } /^Pss_Anon:/ { anon = $2 } END { if (pss > 0) {
      printf "** MEMINFO in pid %d [mft-run] **\n        TOTAL %8d\n", pid, pss
      printf " App Summary\n                       Pss(KB)                        Rss(KB)\n"
      printf "         Native Heap: %8d                        %8d\n", anon, anon
      printf "            Graphics: %8d\n             Unknown: %8d\n\n", 0, pss - anon
      printf "           TOTAL PSS: %8d            TOTAL RSS: %8d      TOTAL SWAP PSS: %8d\n", pss, pss, 0 } }' \
      "$rollup";;
esac
"""
PROGRAMS = {
    "getprop": GETPROP,
    "dumpsys": DUMPSYS,
    "getconf": '#!/bin/sh\n[ "$1" = PAGE_SIZE ] && echo 16384\n',
    "uname": "#!/bin/sh\necho 6.1.99-android14\n",
}


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This machine's own, as for a phone."""
    folder = tmp_path_factory.mktemp("gathered") / "runtime"
    executorch = Path(str(distribution("executorch").locate_file("executorch")))
    system = [Path("/lib64"), *(found for lib in ("/usr/lib", "/lib") for found in Path(lib).glob("*-linux-gnu"))]
    gather(mft_run_path(), folder, [executorch / "lib", *system, Path("/usr/lib")])
    return folder


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "fake"
    (folder / "tmp").mkdir(parents=True)
    for core, (khz, capacity) in enumerate([(1800000, 250), (1800000, 250), (3300000, 1024), (None, 700)]):
        (folder / "cpu" / f"cpu{core}" / "cpufreq").mkdir(parents=True)
        (folder / "cpu" / f"cpu{core}" / "cpu_capacity").write_text(f"{capacity}\n")
        if khz:
            (folder / "cpu" / f"cpu{core}" / "cpufreq" / "cpuinfo_max_freq").write_text(f"{khz}\n")
    (folder / "bin").mkdir()
    (folder / "programs").mkdir()
    for name, script in PROGRAMS.items():
        (folder / "bin" / name).write_text(script)
        (folder / "bin" / name).chmod(0o755)
    (folder / "programs" / "adb").write_text(ADB.replace("FAKE", str(folder)))
    (folder / "programs" / "adb").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'programs'}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def check(
    tool: ModuleType, fake: Path, bundle: Path, runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, Sections]]:
    """The exit code and the sections of the report; of these checks alone, where any are named."""

    def run(*checks: str, options: tuple[str, ...] = ()) -> tuple[int, Sections]:
        if checks:
            monkeypatch.setattr(tool, "CHECKS", {name: tool.CHECKS[name] for name in checks})
        report = tmp_path / "report.md"
        words = ["--bundle", str(bundle), "--runtime", str(runtime), "--minutes", "0.04", "-o", str(report)]
        code = tool.main([*words, *options])
        return code, sections_of(report)

    return run


# In the layout of macOS 15.
MAC_PROGRAMS = {
    "sysctl": """case $2 in
  hw.memsize) echo 17179869184;; hw.model) echo Mac16,12;; hw.pagesize) echo 16384;;
  machdep.cpu.brand_string) echo "Apple M4";; hw.perflevel0.physicalcpu) echo 4;; hw.perflevel1.physicalcpu) echo 6;;
  *) echo "sysctl: unknown oid '$2'" >&2; exit 1;;
esac""",
    "sw_vers": "echo 15.5",
    "pmset": """case $2 in
  therm) printf 'CPU Power notify\n\tCPU_Scheduler_Limit \t= 100\n\tCPU_Speed_Limit \t= 80\n';;
  batt) printf "Now drawing from 'AC Power'\n -InternalBattery-0 (id=1)\t83%%; charging; 0:40 remaining\n";;
esac""",
    "footprint": """rss=$(awk '/^VmRSS:/ { print $2 }' /proc/$1/status 2>/dev/null) || exit 1
printf '======\nmft-run [%d]: 64-bit    Footprint: %d KB (16384 bytes per page)\n======\n' $1 $rss""",
}


def test_a_mac(
    check: Callable[..., tuple[int, Sections]],
    tool: ModuleType,
    fake: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, script in MAC_PROGRAMS.items():
        (fake / "programs" / name).write_text(f"#!/bin/sh\n{script}\n")
        (fake / "programs" / name).chmod(0o755)
    monkeypatch.setattr(tool, "MAC_FOLDER", str(tmp_path / "mac"))
    code, sections = check(options=("--mac",))
    assert code == 0, sections
    device = rows(sections["Device"])
    assert device["model"] == ["Mac16,12"] and device["SoC"] == ["Apple M4"] and device["macOS"] == ["15.5"]
    assert device["memory"] == ["17180 MB"] and device["cores"] == ["4 + 6"]
    assert device["battery"] == ["83 %, powered by AC Power"]
    assert device["heat"][0].startswith("throttling CPU at 80 %")
    memory = rows(sections["Memory"])
    assert 1 < float(memory["`footprint`: footprint"][0]) <= float(memory["resident"][0]) + 1
    assert {"10"} <= set(rows(sections["Speed"]))
    assert not (tmp_path / "mac").exists()
    assert "screen off" not in (tmp_path / "report.md").read_text()


def test_a_phone_that_does_all(
    check: Callable[..., tuple[int, Sections]], fake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, sections = check(options=("--serial", "phone"))
    assert code == 0, sections
    assert list(sections) == ["Device", "Exactness", "Memory", "Speed", "Heat", "Kill"]
    judged = [title for title, text in sections.items() if text.startswith("passed\n")]
    assert judged == ["Exactness", "Memory", "Kill"] and "failed" not in "".join(sections.values())
    assert not (fake / "tmp" / "mobile-ft-check").exists()
    assert "screen off and doze" in (tmp_path / "report.md").read_text()
    assert "Exactness: passed" in capsys.readouterr().out

    device = rows(sections["Device"])
    assert device["model"] == ["Example Phone 9"] and device["SoC"] == ["QTI SM8650"]
    assert device["platform"] == ["pineapple"] and device["Android"] == ["15, SDK 35"]
    assert device["kernel"] == ["6.1.99-android14"] and device["page size"] == ["16384"]
    assert re.fullmatch(r"\d{3,} MB", device["memory"][0])
    assert device["cores"] == [
        "2 of 1.80 GHz, capacity 250; 1 of 3.30 GHz, capacity 1024; 1 of unknown GHz, capacity 700"
    ]
    assert device["battery"] == ["83 %, powered by USB"]
    assert device["heat"] == ["throttling light, skin 33.1 °C, CPU 47.25 °C, battery 31.2 °C"]
    assert re.search(r"The runtime chose float32-\w+ and \d+ threads\.", sections["Device"])

    exactness = rows(sections["Exactness"])
    assert exactness["float32"][2:] == ["0", "0.0001"]  # the same machine
    assert 0 < float(exactness["int8"][2]) < float(exactness["int8"][3]) == 0.05
    for compute in ("float32", "int8"):
        there, here = exactness[compute][:2]
        assert there.startswith(f"{compute}-") and here.startswith("float32-")

    memory = rows(sections["Memory"])
    resident, planned, budget = map(float, memory["resident"])
    anonymous, planned_anonymous = map(float, memory["anonymous"][:2])
    assert 1 < anonymous < resident < planned < budget == 300 and anonymous < planned_anonymous < planned
    pss, heap, unknown = (
        float(memory[f"`dumpsys meminfo`: {name}"][0]) for name in ("TOTAL PSS", "Native Heap", "Unknown")
    )
    assert 1 < pss <= resident + 1  # the kernel counts resident pages a little later than it maps them
    assert heap + unknown == pytest.approx(pss, abs=0.2)
    assert "`dumpsys meminfo`: Graphics" not in memory

    speed = rows(sections["Speed"])
    for compute in ("float32", "int8"):
        middle, every = speed[compute]
        assert float(middle) == sorted(map(float, every.split(", ")))[1]
    assert {"4"} <= set(speed) and any(name.endswith("(chosen)") for name in speed)
    ratio = re.search(r"float32 takes (\d+\.\d\d) times as long as int8\.", sections["Speed"])
    assert ratio and float(ratio[1]) == pytest.approx(float(speed["float32"][0]) / float(speed["int8"][0]), abs=0.01)

    heat = rows(sections["Heat"])
    assert heat["before"] == ["", "", "light", "33.1", "47.25", "31.2", "83"]
    minutes = [name for name in heat if name.isdigit()]
    assert minutes == ["1", "2", "3", "4", "5"][: len(minutes)] and len(minutes) > 1  # 2.4 s, with a busy machine
    assert all(int(heat[name][0]) > 0 and heat[name][2:] == heat["before"][2:] for name in minutes)
    assert re.search(r"s per step at the beginning, \S+ s at the end: \d+\.\d\d times as long\.", sections["Heat"])
    assert "Battery: 83 to 83 %, powered by USB." in sections["Heat"]

    went_on = re.search(
        r"50 steps, kill -9 after the checkpoint of step 3; it resumed after step (\d+)", sections["Kill"]
    )
    assert went_on and 3 <= int(went_on[1]) < 50


def test_failures_cost_their_check_alone(check: Callable[..., tuple[int, Sections]], fake: Path) -> None:
    """One loss of float32 that is off by more than 1e-4, one of int8 that is none, a run that ends with an error."""
    (fake / "edit1").write_text(r'/"step":3,/s/"loss":\([0-9]\.[0-9]\{3\}\)[0-9]*/"loss":\1/' + "\n")
    (fake / "edit2").write_text('/"step":7,/s/"loss":[0-9.]*/"loss":null/\n')
    (fake / "breaks").write_text("--steps 1$")
    code, sections = check("Exactness", "Device", "Kill")
    assert code == 1
    verdict = sections["Exactness"].splitlines()[0]
    found = re.fullmatch(
        r"failed: losses in float32 differ by (\S+), more than 0.0001; losses in int8 differ by inf, more than 0.05",
        verdict,
    )
    assert found and 1e-4 < float(found[1]) < 1e-3
    assert rows(sections["Exactness"])["float32"][2] == found[1]
    assert sections["Device"].startswith("failed: no space left\n") and "Phone 9" in sections["Device"]
    assert sections["Kill"].startswith("passed\n")


def test_memory_over_the_plan(check: Callable[..., tuple[int, Sections]], fake: Path) -> None:
    sizes = {"peak_rss_mb": 330, "planned_mb": 320, "peak_anon_mb": 290, "planned_anon_mb": 280}
    (fake / "edit1").write_text("".join(f's/"{name}":[0-9.]*/"{name}":{size}.0/\n' for name, size in sizes.items()))
    code, sections = check("Memory")
    assert code == 1
    assert sections["Memory"].splitlines()[0] == (
        "failed: resident memory reached 330.0 MB, but 320.0 MB were planned; anonymous memory reached 290.0 MB, "
        "but 280.0 MB were planned; resident memory reached 330.0 MB, but the budget is 300 MB"
    )


def test_a_killed_run_that_goes_on_otherwise(check: Callable[..., tuple[int, Sections]], fake: Path) -> None:
    """Losses that differ from the ninth digit on: before the kill, after it, and what the run remembers."""
    ninth = r's/"loss":\([0-9]\.[0-9]\{7\}\)[0-9]*/"loss":\1/' + "\n"
    (fake / "edit2").write_text(f'/"step":2,/{ninth}')
    remembered = r's/"losses":\[\([0-9]\.[0-9]\{7\}\)[0-9]*/"losses":[\1/' + "\n"
    (fake / "edit3").write_text(f'/"step":50,/{ninth}{remembered}s/"steps_done":[0-9]*/"steps_done":0/\n')
    code, sections = check("Kill")
    assert code == 1
    assert sections["Kill"].splitlines()[0] == (
        "failed: resumed at step 0, but was killed after the checkpoint of step 3; losses of steps 2, 50 differ from "
        "the "
        "uninterrupted run; the losses of its result differ from the uninterrupted run"
    )


def test_a_kill_that_does_not_come(
    check: Callable[..., tuple[int, Sections]], tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "KILL_STEPS", 4)
    monkeypatch.setattr(tool.ShellDevice, "signal", lambda self, name: None)
    code, sections = check("Kill")
    assert code == 1 and sections["Kill"] == "failed: kill -9 at step 3 was sent after the last step"


def test_a_phone_that_is_unplugged(check: Callable[..., tuple[int, Sections]], fake: Path) -> None:
    (fake / "unplug").write_text("1000000")  # the steps of heat
    code, sections = check("Device", "Heat", "Kill")
    assert code == 1
    assert "The runtime chose" in sections["Device"]
    verdict = sections["Heat"].splitlines()[0]
    assert re.fullmatch(
        "failed: .+; the phone does not respond any more; its files stay in adb:/data/local/tmp/mobile-ft-check",
        verdict,
    )
    assert rows(sections["Heat"])["1"][0] == "2"  # steps that were seen, behind the plan
    assert sections["Kill"] == "failed: not run, because the phone was lost in Heat"


def test_a_phone_that_says_nothing(check: Callable[..., tuple[int, Sections]], fake: Path) -> None:
    """What has a criterion needs none of it."""
    for name in PROGRAMS:
        (fake / "bin" / name).write_text("#!/bin/sh\necho Permission Denial >&2\nexit 1\n")
    for file in (fake / "cpu").rglob("*cpu*_*"):
        file.unlink()
    code, sections = check("Device", "Memory", "Heat", options=("--minutes", "0.01", "--keep"))
    assert code == 0, sections
    device = rows(sections["Device"])
    assert device["model"] == device["kernel"] == device["page size"] == ["unknown"]
    assert device["cores"] == ["4 of unknown GHz, capacity unknown"]
    assert device["heat"] == ["throttling unknown, skin unknown °C, CPU unknown °C, battery unknown °C"]
    assert sections["Memory"].startswith("passed\n") and "reported the process 0 times" in sections["Memory"]
    assert rows(sections["Heat"])["1"][2:] == ["unknown"] * 5
    assert (fake / "tmp" / "mobile-ft-check" / "mft-run").exists()  # --keep


class Says:
    """A device that answers each command with a text."""

    def __init__(self, **answers: str) -> None:
        self._answers = answers

    def output(self, script: str) -> bytes:
        return next((text for word, text in self._answers.items() if word in script), "").encode()


def test_older_androids(tool: ModuleType) -> None:
    readings = importlib.import_module("phone_readings")
    thermal = "Thermal Status: 9\nCached temperatures:\n Temperature{mValue=-3.5, mType=3, mName=skin, mStatus=0}\n"
    now = readings.heat(Says(thermalservice=thermal, battery="  AC powered: true\n  Wireless powered: true\n"))
    assert now == readings.Heat("shutdown", -3.5, None, None, None, "AC, Wireless")
    table = "Uptime: 5123 Realtime: 5123\n   TOTAL    70000    60000\n App Summary\n     Native Heap:    30000\n"
    memory = readings.memory(Says(meminfo=f"{table}  TOTAL:    50000    TOTAL SWAP PSS:   7\n"), "pid")
    assert memory == {"Native Heap": 30.72, "TOTAL PSS": 51.2}


def test_interrupted(
    check: Callable[..., tuple[int, Sections]],
    tool: ModuleType,
    fake: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(phone: Any, section: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tool, "CHECKS", {"Heat": interrupted, "Kill": tool.CHECKS["Kill"]})
    with pytest.raises(KeyboardInterrupt):
        check()
    assert (tmp_path / "report.md").read_text().endswith("## Heat\n\nfailed: interrupted\n")
    assert not (fake / "tmp" / "mobile-ft-check").exists()


def test_no_phone(tool: ModuleType, fake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["--serial", "other", "-o", str(tmp_path / "report.md")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("phone_check: ") and "device 'other' not found" in error
    assert not (tmp_path / "report.md").exists()
