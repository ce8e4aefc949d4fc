"""Tests the runtime on a phone: `python tools/phone_check.py`, after `make aarch64`, with a phone in developer mode
that is connected by adb. Or on a Mac, after `make macos`: `--mac` on the Mac itself, `--mac HOST` by ssh. Or on an
iPhone with the demo app of apple/Demo, from the Mac that it is connected to: `--iphone`.

It takes about ten minutes with the defaults and writes a Markdown report. It compares losses with this computer and
memory with the plan, measures speed and heat, and resumes a run that was killed. At the end, it removes its files from
the device.
"""

import argparse
import math
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import iphone
import mac_readings
import phone_readings
from checked_device import UNKNOWN, CheckedDevice, Heat, MemoryTool, OnEvent
from rich.console import Console
from shell_device import ShellDevice

from mobile_ft.api.device_link import Device
from mobile_ft.api.export import export_bundle
from mobile_ft.api.files import check_output_path, write_text
from mobile_ft.api.native import Event, run_native
from mobile_ft.bundle.description import read_bundle
from mobile_ft.errors import UserError, one_line

FOLDER, MAC_FOLDER = "/data/local/tmp/mobile-ft-check", "/tmp/mobile-ft-check"
TEXT = Path(__file__).parents[1] / "LICENSE"
TOKENS, LR = 256, 1e-3

EXACT_STEPS = 10
# Differences of losses to float32 on this computer, as in tests/runtime/test_aarch64.py.
ALLOWED = {"float32": 1e-4, "int8": 0.05}
BUDGET_MB, MEMORY_STEPS, SAMPLE_SECONDS = 300, 20, 1.0
ROUNDS, TIMED_STEPS = 3, 4
MINUTE, ENDS = 60.0, 5  # seconds per row of the table; number of first and last steps that are compared
KILL_STEPS, KILL_AT = 8, 3
SCREEN = "Not tested: screen off and doze, which do not affect a process of `adb shell` as they affect an app."

Show = Callable[[str], object]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--serial", default="", help="serial number of the phone, if several are connected")
    which.add_argument("--mac", metavar="HOST", nargs="?", const="", help="a Mac: this one, or HOST by ssh")
    which.add_argument(
        "--iphone", metavar="DEVICE", nargs="?", const="", help="an iPhone: the connected one, or DEVICE"
    )
    parser.add_argument("--app", default=iphone.APP, help=f"identifier of the demo app on an iPhone ({iphone.APP})")
    parser.add_argument("--minutes", type=float, default=5, help="duration of the heat test in minutes (default: 5)")
    parser.add_argument("--bundle", type=Path, help="bundle to train (default: smollm2-135m, exported for 256 tokens)")
    parser.add_argument(
        "--runtime", type=Path, help="runtime for the device (default: the one that make built); unused for an iPhone"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder on the device")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("phone_report.md"), help="report file (default: phone_report.md)"
    )
    args = parser.parse_args(arguments)

    console = Console(highlight=False, markup=False)
    try:
        with tempfile.TemporaryDirectory() as scratch, console.status("") as status:
            return check_phone(args, Path(scratch), console.print, status.update)
    except UserError as error:
        print(f"phone_check: {one_line(error)}", file=sys.stderr)
        return 1


def check_phone(args: argparse.Namespace, scratch: Path, say: Show, show: Show) -> int:
    """Copies the pack to the phone, runs the checks and writes the report. Returns the exit status."""
    check_output_path("-o", args.output)
    device = chosen_device(args)
    device.clear()  # also fails early if there is no phone
    try:
        phone = prepare(args, device, scratch, show)
        sections = make_checks(phone, args.output, say)
    finally:
        if not args.keep:
            with suppress(UserError):
                device.clear()
    say(f"{args.output}: the report")
    return 0 if all(section.fine for section in sections) else 1


def chosen_device(args: argparse.Namespace) -> CheckedDevice:
    if args.iphone is not None:
        return iphone.find_iphone(args.iphone, args.app)
    if args.mac is not None:
        mac = Device("ssh" if args.mac else "local", args.mac, MAC_FOLDER)
        return ShellDevice(mac, mac_readings, "macos", args.runtime)
    return ShellDevice(Device("adb", args.serial, FOLDER), phone_readings, "linux", args.runtime, SCREEN)


# --- Runs on the phone -------------------------------------------------------------------------


@dataclass
class Phone:
    """A device that is ready to train, and other data of the checks."""

    device: CheckedDevice
    pack: Path  # with the token file
    bundle: Path
    tokens: int
    minutes: float
    show: Show  # shows the progress

    def train(self, *options: str, fresh: bool = True, on_event: OnEvent = lambda event: None) -> list[Event]:
        """Trains and returns all events. With `fresh` false, resumes the last run. Raises UserError."""
        events: list[Event] = []

        def take(event: Event) -> None:
            events.append(event)
            if event["event"] == "step":
                self.show(f"{shlex.join(options)}  step {event['step']}, {event['seconds']:.2f} s")
            on_event(event)

        self.device.train(options, fresh, take)
        if not events or events[-1]["event"] != "done":
            raise UserError("the run ended without a result")
        return events


def prepare(args: argparse.Namespace, device: CheckedDevice, scratch: Path, show: Show) -> Phone:
    bundle = args.bundle or scratch / "smollm2-135m.bundle"
    if not args.bundle:
        show("exporting smollm2-135m")
        export_bundle("smollm2-135m", bundle, max_seq_len=TOKENS, activation="int8", progress=False)
    tokens = min(TOKENS, read_bundle(bundle).max_seq_len)
    text, pack = scratch / "text.txt", scratch / "pack"
    text.write_text(TEXT.read_text())
    show(f"copying to {device}")
    device.install(bundle, text, pack, {"seq_len": tokens, "lr": LR})
    return Phone(device, pack, bundle, tokens, args.minutes, show)


def losses(events: Sequence[Event]) -> list[float]:
    return [event["loss"] for event in events if event["event"] == "step"]


# --- The report --------------------------------------------------------------------------------


@dataclass
class Section:
    """The section of a check in the report. `judged` means that it has a criterion."""

    title: str
    lines: list[str] = field(default_factory=list)
    judged: bool = False
    failures: list[str] = field(default_factory=list)

    def require(self, holds: bool, otherwise: str) -> None:
        self.judged = True
        if not holds:
            self.failures.append(otherwise)

    @property
    def fine(self) -> bool:
        return not self.failures

    def verdict(self) -> str:
        """ "passed" or "failed", or "" if there is no criterion."""
        return f"failed: {'; '.join(self.failures)}" if self.failures else "passed" if self.judged else ""

    def text(self) -> str:
        verdict = self.verdict()
        return "\n".join([f"## {self.title}", "", *([verdict, ""] if verdict else []), *self.lines])


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines] + [""]


def make_checks(phone: Phone, report: Path, say: Show) -> list[Section]:
    """Runs the checks one after the other, and updates the report after each, so that it survives a failure."""
    sections: list[Section] = []
    lost = ""
    for title, check in CHECKS.items():
        section = Section(title)
        sections.append(section)
        phone.show(title)
        try:
            if lost:
                raise UserError(f"not run, because the phone was lost in {lost}")
            check(phone, section)
        except KeyboardInterrupt:
            section.failures.append("interrupted")
            raise
        except Exception as error:  # an unexpected reply of the phone fails only this check
            section.failures.append(one_line(error if isinstance(error, UserError) else repr(error)))
            if not lost and not phone.device.answers():
                lost = title
                section.failures.append(f"the phone does not respond any more; its files stay in {phone.device}")
        finally:
            write_report(phone, sections, report)
        say(f"{title}: {section.verdict() or 'done'}")
    return sections


def write_report(phone: Phone, sections: Sequence[Section], report: Path) -> None:
    when = time.strftime("%Y-%m-%d %H:%M")
    run = f"{when}, {phone.bundle.name}, {phone.tokens} tokens per step. {phone.device.notes}"
    head = f"# mobile-ft on a device\n\n{run}\n"
    write_text(report, "\n".join([head, *(section.text() for section in sections)]))


# --- The checks --------------------------------------------------------------------------------


def check_device(phone: Phone, section: Section) -> None:
    rows = phone.device.facts()
    now = phone.device.heat()
    rows["battery"] = f"{shown(now.battery_percent)} %, powered by {now.powered or 'itself'}"
    rows["heat"] = in_words(now)
    section.lines += table(["", ""], list(rows.items()))
    resolved = phone.train("--steps", "1")[0]["resolved"]
    section.lines += [f"The runtime chose {resolved['arithmetic']} and {resolved['threads']} threads.", ""]


def check_exactness(phone: Phone, section: Section) -> None:
    header = ["", "the phone", "this computer", f"largest difference of {EXACT_STEPS} losses", "allowed"]
    rows = []
    steps = ["--steps", str(EXACT_STEPS), "--compute"]
    try:
        here = train_here(phone, [*steps, "float32"])
        for compute, allowed in ALLOWED.items():
            there = phone.train(*steps, compute)
            difference = largest_difference(here, there)
            differ = f"losses in {compute} differ by {difference:.2g}, more than {allowed:g}"
            section.require(difference <= allowed, differ)
            sets = [events[0]["arithmetic"] for events in (there, here)]
            rows.append([compute, *sets, f"{difference:.2g}", f"{allowed:g}"])
    finally:
        section.lines += table(header, rows)


def train_here(phone: Phone, options: Sequence[str]) -> list[Event]:
    events: list[Event] = []
    phone.show(f"{shlex.join(options)}  on this computer")
    where = ["--data", str(phone.pack / "train.tokens"), "--out", str(phone.pack.parent / "here")]
    same = ["--seq-len", str(phone.tokens), "--lr", str(LR)]  # the same options as in prepare()
    run_native(["train", str(phone.bundle), *where, *same, *options], events.append)
    return events


def largest_difference(one: Sequence[Event], other: Sequence[Event]) -> float:
    pairs = list(zip(losses(one), losses(other), strict=True))
    return max(math.inf if None in pair else abs(pair[0] - pair[1]) for pair in pairs)  # None: not finite


def check_memory(phone: Phone, section: Section) -> None:
    tool = phone.device.memory_tool
    with Sampled(tool.read) if tool else nullcontext(list[dict[str, float]]()) as samples:
        events = phone.train("--steps", str(MEMORY_STEPS), "--budget", f"{BUDGET_MB}MB")
    plan, done = events[0], events[-1]
    resident, anonymous = done["peak_rss_mb"], done["peak_anon_mb"]
    for what, measured, planned in (
        ("resident", resident, plan["planned_mb"]),
        ("anonymous", anonymous, plan["planned_anon_mb"]),
    ):
        section.require(
            measured <= planned, f"{what} memory reached {measured:.1f} MB, but {planned:.1f} MB were planned"
        )
    section.require(
        resident <= BUDGET_MB, f"resident memory reached {resident:.1f} MB, but the budget is {BUDGET_MB} MB"
    )
    rows: list[list[object]] = [
        ["resident", f"{resident:.1f}", f"{plan['planned_mb']:.1f}", BUDGET_MB],
        ["anonymous", f"{anonymous:.1f}", f"{plan['planned_anon_mb']:.1f}", ""],
    ]
    if tool:
        rows += tool_rows(tool, samples)
    section.lines += table(["peak, MB", "measured", "planned", "budget"], rows)
    if tool:
        times = sum(tool.total in sample for sample in samples)
        reported = f"`{tool.name}` reported the process {times} times"
        section.lines += [f"{reported}; the rows are those of its highest {tool.total}.", ""]


def tool_rows(tool: MemoryTool, samples: Sequence[dict[str, float]]) -> list[list[object]]:
    """The figures of the sample with the highest total, which comes first."""
    found = [sample for sample in samples if tool.total in sample]
    most = max(found, key=lambda sample: sample[tool.total], default={})
    figures = sorted(most.items(), key=lambda item: item[0] != tool.total)
    return [[f"`{tool.name}`: {name}", f"{size:.1f}", "", ""] for name, size in figures if size]


class Sampled(threading.Thread):
    """Collects the results of repeated calls of `read` in a list while the block runs."""

    def __init__(self, read: Callable[[], dict[str, float]]) -> None:
        super().__init__(daemon=True)
        self._read, self._samples = read, list[dict[str, float]]()
        self._over = threading.Event()

    def __enter__(self) -> list[dict[str, float]]:
        self.start()
        return self._samples

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        with suppress(UserError):  # if the phone is lost, the block fails with its own error
            while not self._over.wait(SAMPLE_SECONDS):
                self._samples.append(self._read())


def check_speed(phone: Phone, section: Section) -> None:
    before = phone.device.heat()
    rounds: dict[str, list[float]] = {compute: [] for compute in ALLOWED}
    try:
        for _ in range(ROUNDS):
            for compute, seconds in rounds.items():
                seconds.append(step_seconds(phone, "--compute", compute))
    finally:
        rows = [[compute, f"{median(s):.4g}", ", ".join(f"{x:.4g}" for x in s)] for compute, s in rounds.items() if s]
        section.lines += table(["", "seconds per step", "rounds"], rows)
    ratio = median(rounds["float32"]) / median(rounds["int8"])
    section.lines += [f"float32 takes {ratio:.2f} times as long as int8.", ""]

    chosen = int(phone.train("--steps", "1")[0]["resolved"]["threads"])
    counts = sorted({1, 2, chosen, max(1, phone.device.core_count())})
    times = {count: step_seconds(phone, "--threads", str(count)) for count in counts}
    rows = [[f"{n}{' (chosen)' * (n == chosen)}", f"{times[n]:.4g}", f"{times[1] / times[n]:.2f}"] for n in counts]
    section.lines += table(["threads", "seconds per step", "times as fast as 1"], rows)
    section.lines += [f"Heat before: {in_words(before)}. After: {in_words(phone.device.heat())}.", ""]


def step_seconds(phone: Phone, *options: str) -> float:
    """Returns the median step time of a run without the first step, which reads the weights."""
    events = phone.train("--steps", str(TIMED_STEPS + 1), *options)
    return median(event["seconds"] for event in events[2:] if event["event"] == "step")


def check_heat(phone: Phone, section: Section) -> None:
    readings = [phone.device.heat()]
    seconds: list[list[float]] = [[]]  # step times of each minute
    begin = 0.0
    ending = False
    stopped = False

    def on_event(event: Event) -> None:
        nonlocal begin, ending, stopped
        stopped = event["event"] == "stopped"
        if event["event"] != "step" or ending:
            return
        now = time.monotonic()
        begin = begin or now - event["seconds"]
        seconds[-1].append(event["seconds"])
        ending = now - begin >= 60 * phone.minutes
        if ending or now - begin >= MINUTE * len(seconds):
            readings.append(phone.device.heat())
            if ending:
                phone.device.signal("TERM")
            else:
                seconds.append([])

    try:
        phone.train("--steps", "1000000", "--budget", f"{BUDGET_MB}MB", on_event=on_event)
    except UserError:
        if not (ending and stopped):  # ended by this check, with a checkpoint
            raise
    finally:
        section.lines += heat_lines(seconds, readings)


def heat_lines(seconds: Sequence[Sequence[float]], readings: Sequence[Heat]) -> list[str]:
    rows = [["before", "", "", *columns(readings[0])]]
    for i, minute in enumerate(seconds, 1):
        after = columns(readings[i]) if i < len(readings) else [""] * 5
        rows.append([str(i), str(len(minute)), f"{median(minute):.3f}" if minute else "", *after])
    header = ["minute", "steps", "seconds per step", "throttling", "skin °C", "CPU °C", "battery °C", "battery %"]
    lines = table(header, rows)
    every = [time for minute in seconds for time in minute]
    if every:
        first, last = median(every[:ENDS]), median(every[-ENDS:])
        lines += [
            f"{first:.3f} s per step at the beginning, {last:.3f} s at the end: {last / first:.2f} times as long.",
            "",
        ]
    levels = " to ".join(shown(reading.battery_percent) for reading in (readings[0], readings[-1]))
    return [*lines, f"Battery: {levels} %, powered by {readings[-1].powered or 'itself'}.", ""]


def check_kill(phone: Phone, section: Section) -> None:
    steps = KILL_STEPS + phone.device.late_steps
    options = ["--steps", str(steps), "--save-every", "1"]
    whole = phone.train(*options)
    killed: list[Event] = []

    def on_event(event: Event) -> None:
        killed.append(event)
        if event["event"] == "saved" and event["step"] == KILL_AT:
            phone.device.signal("KILL")

    try:
        phone.train(*options, on_event=on_event)
    except UserError:
        if len(losses(killed)) < KILL_AT:  # not killed by this check
            raise
    else:
        raise UserError(f"kill -9 at step {KILL_AT} was sent after the last step")
    rest = phone.train(*options, fresh=False)
    done = rest[0]["steps_done"]
    section.require(
        KILL_AT <= done < steps, f"resumed at step {done}, but was killed after the checkpoint of step {KILL_AT}"
    )
    expected = losses(whole)
    # JSON has the shortest text of each number, so equal texts are equal bits.
    made = [event for event in (*killed, *rest) if event["event"] == "step"]
    wrong = sorted({event["step"] for event in made if event["loss"] != expected[event["step"] - 1]})
    section.require(not wrong, f"losses of steps {', '.join(map(str, wrong))} differ from the uninterrupted run")
    section.require(rest[-1]["losses"] == expected, "the losses of its result differ from the uninterrupted run")
    section.lines += [
        f"{steps} steps, kill -9 after the checkpoint of step {KILL_AT}; it resumed after step {done}.",
        "",
    ]


def in_words(now: Heat) -> str:
    return (
        f"throttling {now.status}, skin {shown(now.skin)} °C, CPU {shown(now.cpu)} °C, battery {shown(now.battery)} °C"
    )


def columns(now: Heat) -> list[str]:
    return [now.status, shown(now.skin), shown(now.cpu), shown(now.battery), shown(now.battery_percent)]


def shown(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:g}"


CHECKS: dict[str, Callable[[Phone, Section], None]] = {
    "Device": check_device,
    "Exactness": check_exactness,
    "Memory": check_memory,
    "Speed": check_speed,
    "Heat": check_heat,
    "Kill": check_kill,
}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
