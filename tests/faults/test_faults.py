"""Power cut, full disk, errors and short writes at every call that changes files: what was there or the new is whole.

The slow test tries every fault of every call, and prints a table of what it tried; the other tries a sample.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mobile_ft import info
from mobile_ft.runtime import Dataset, RuntimeFailure, TrainConfig, mft_run_path
from tests.faults.layer import Operations, Outcome, run_program
from tests.faults.replay import State, read_folder, write_folder
from tests.faults.trial import Operation, replayed, try_faults

ROWS = [json.dumps({"text": text}, separators=(",", ":")) for text in ("hello", "b" * 9000, "he", "l" * 5000)]


@dataclass(frozen=True)
class Setting:
    """What operations are made of. They work on the folder `root`."""

    layer: Path
    root: Path
    python: Operations
    bundle: Path
    tokens: tuple[Path, Path]
    scratch: Path

    def whole(self, start: State, run: Callable[[int, str], Outcome]) -> tuple[Outcome, State]:
        """The run that nothing happens to, and what it leaves."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        write_folder(self.root, start)
        outcome = run(-1, "none")
        assert outcome.code == 0, outcome.error
        return outcome, read_folder(self.root)


@pytest.fixture
def setting(
    layer: Path, watched: Path, python: Operations, talking_bundle: Path, tokens: tuple[Path, Path], tmp_path: Path
) -> Setting:
    return Setting(layer, watched, python, talking_bundle, tokens, tmp_path)


def lasting(state: State) -> State:
    """Without what a process leaves that ends in the middle, and the next one takes for nothing."""
    return {path: data for path, data in state.items() if not path.endswith(".partial") and "/offload-" not in path}


def training(setting: Setting, name: str, run: Callable[..., Outcome]) -> Operation:
    """A run that saves several times. Its files change by renames alone, so each has a list of contents in turn."""
    outcome, final = setting.whole({}, run)
    versions: dict[str, list[bytes]] = {}
    for _, disk, _ in replayed(setting.root, {}, outcome.calls):
        for path, data in lasting(disk.kept()).items():
            known = versions.setdefault(path, [])
            if data not in known[-1:]:
                known.append(data)

    def newest(path: str, data: bytes) -> int:
        assert data in versions.get(path, []), f"{path} is damaged"
        return max(number for number, known in enumerate(versions[path]) if known == data)

    def check(state: State, told: State) -> None:
        for path, data in lasting(told).items():
            assert path in state, f"{path} is lost"
            assert newest(path, state[path]) >= versions[path].index(data), f"{path} is older than what was told of"
        for path, data in lasting(state).items():
            newest(path, data)

    def again() -> None:
        resume = (setting.root / "out" / "checkpoint.safetensors").exists()
        again = run(-1, "none", resume)
        assert again.code == 0, again.error
        assert lasting(read_folder(setting.root)) == final, "goes on to another result"

    return Operation(name, setting.root, {}, run, check, again)


def save(setting: Setting, name: str = "train", *options: str) -> Operation:
    train, valid = map(str, setting.tokens)
    command = [str(mft_run_path()), "train", str(setting.bundle), "--data", train, "--out", str(setting.root / "out")]
    command += ["--seq-len", "32", "--threads", "1", "--backward", "recompute", "--steps", "4", "--save-every", "2"]
    command += ["--valid", valid, "--eval-every", "2", *options]

    def run(call: int, kind: str, resume: bool = False) -> Outcome:
        return run_program(setting.layer, setting.root, command + ["--resume"] * resume, call, kind)

    return training(setting, name, run)


def offload(setting: Setting) -> Operation:
    return save(setting, "train, offloading", "--schedule", "dropbp")


def cached_prefix(setting: Setting) -> Operation:
    return save(setting, "train, cached prefix", "--schedule", "freeze", "--cache-prefix", "true")


def run_files(setting: Setting) -> Operation:
    """`mobile_ft.train`, which writes tokens and run.yaml besides."""
    options = {"seq_len": 32, "threads": 1, "backward": "recompute", "steps": 2, "save_every": 1}
    arguments = {"bundle": str(setting.bundle), "rows": [json.loads(row) for row in ROWS], "options": options}
    arguments["out"] = str(setting.root / "out")

    def run(call: int, kind: str, resume: bool = False) -> Outcome:
        return setting.python.run("train", arguments | {"resume": resume}, call, kind)

    return training(setting, "train in Python", run)


def replacing(
    setting: Setting,
    name: str,
    target: str,
    old: State,
    run: Callable[[int, str], Outcome],
    verify: Callable[[], object],
) -> Operation:
    """What puts the file or folder `target` in the place of `old`."""

    def of(state: State) -> State:
        return {path: data for path, data in state.items() if path == target or path.startswith(f"{target}/")}

    new = of(setting.whole(old, run)[1])
    assert new != old

    def check(state: State, told: State) -> None:
        found = of(state)
        assert found == new or (found == old and of(told) == old), f"{target} is neither old nor new: {list(found)}"

    def again() -> None:
        if of(read_folder(setting.root)) == new:
            verify()
        again = run(-1, "none")
        assert again.code == 0, again.error
        assert of(read_folder(setting.root)) == new, "ends with another result"

    return Operation(name, setting.root, old, run, check, again)


def export(setting: Setting, over: bool = False) -> Operation:
    out = setting.root / "bundle"

    def run(call: int, kind: str, seed: int = 1) -> Outcome:
        return setting.python.run("export", {"out": str(out), "seed": seed}, call, kind)

    old = setting.whole({}, lambda call, kind: run(call, kind, 0))[1] if over else {}
    name = "export over a bundle" if over else "export"
    return replacing(setting, name, "bundle", old, run, lambda: info(out, verify=True))


def convert(setting: Setting, to: str, old: State) -> Operation:
    arguments = {"bundle": str(setting.bundle), "adapter": str(setting.bundle), "out": str(setting.root / "out")}

    def run(call: int, kind: str) -> Outcome:
        return setting.python.run("convert", arguments | {"to": to}, call, kind)

    name = f"convert to {to}" + (" over another" if old else "")
    return replacing(setting, name, "out", old, run, lambda: None)


def end_round(setting: Setting, number: int) -> Operation:
    """A federated server's; of the first one there is no folder before."""
    arguments = {"bundle": str(setting.bundle), "out": str(setting.root / "out")}

    def run(call: int, kind: str, number: int = number) -> Outcome:
        return setting.python.run("end_round", arguments | {"number": number}, call, kind)

    old = setting.whole({}, lambda call, kind: run(call, kind, number - 1))[1] if number > 1 else {}
    return replacing(setting, f"federated round {number}", "out", old, run, lambda: None)


def add_rows(setting: Setting, before: int = 0) -> Operation:
    """Rows that were told of stay; of the others any may, whole and in turn."""
    name, path = "rows.jsonl", setting.root / "rows.jsonl"
    added = ROWS[before // 2 :]  # a long one first where its line end is that of the one before
    start: State = {name: "\n".join(ROWS[:before]).encode()} if before else {}  # from elsewhere, without a line end
    arguments = {"bundle": str(setting.bundle), "path": str(path), "rows": added}

    def run(call: int, kind: str) -> Outcome:
        return setting.python.run("add_rows", arguments, call, kind)

    def rows_of(data: bytes) -> list[str]:
        """As the runtime reads them, by which one more can be added."""
        copy, packed = setting.scratch / name, setting.scratch / "packed"
        copy.write_bytes(data)
        dataset = Dataset(str(setting.bundle), str(copy))
        rows = dataset.rows
        dataset.add('{"text":"more"}')
        config = TrainConfig(seq_len="32")
        assert dataset.write_tokens(str(packed), config)["rows"] == dataset.rows == rows + 1
        *lines, more = copy.read_text().splitlines()
        assert more == '{"text":"more"}' and len(lines) == rows
        return lines

    def check(state: State, told: State) -> None:
        promised = told.get(name, b"").decode().splitlines()
        assert name in state or not promised, "all rows are lost"
        try:
            found = rows_of(state.get(name, b""))
        except RuntimeFailure as error:
            raise AssertionError(f"rows cannot be read: {error}") from error
        assert found[: len(promised)] == promised, f"{len(found)} of {len(promised)} rows are left"
        rest = iter([*ROWS[:before], *added])
        assert all(row in rest for row in found), "rows that nobody added"

    def again() -> None:
        rows = rows_of(path.read_bytes()) if path.exists() else []
        assert run(-1, "none").code == 0
        assert path.read_text().splitlines() == [*rows, *added]

    title = "dataset" + (" that has rows" if before else "")
    return Operation(title, setting.root, start, run, check, again)


def learn(setting: Setting, forgets: bool = False, first: int = 20) -> Operation:
    """A night after one of `first` rows, or rows forgotten. What state.json names is that before or after, and of the
    rest nothing counts."""
    rows = [{"id": f"row{i}", "prompt": f"{i}?", "completion": "hello"} for i in range(40)]
    data = [setting.scratch / f"{night}.jsonl" for night in (1, 2)]
    for count, path in zip((first, 2 * first), data, strict=True):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows[:count]))
    state = setting.root / "state"
    command = [str(mft_run_path()), "learn", str(setting.bundle), "--state", str(state)]
    options = ["--seq-len", "32", "--threads", "1", "--lr", "5e-3", "--general-bound", "10", "--steps", "3"]

    def night(number: int) -> list[str]:
        return [*command, "--data", str(data[number - 1]), *options]

    def made(named: dict[str, Any]) -> list[dict[str, Any]]:
        return [*named["versions"], *([named["candidate"]] if "candidate" in named else [])]

    def counted(found: State) -> State:
        """The files that state.json names, without what is only kept to save time."""
        if "state/state.json" not in found:
            return {}
        named = json.loads(found["state/state.json"])
        folders = tuple(f"state/{entry['folder']}/" for entry in made(named) if entry["folder"])
        return {
            path: content
            for path, content in found.items()
            if path in ("state/state.json", f"state/{named['rows_file']}")
            or (path.startswith(folders) and not path.endswith(("/", "losses.json", ".partial")))
        }

    _, start = setting.whole({}, lambda call, kind: run_program(setting.layer, setting.root, night(1), call, kind))
    secret = made(json.loads(start["state/state.json"]))[0]["trained"][0]
    changed = [*command, "--forget", secret] if forgets else night(2)

    def run(call: int, kind: str) -> Outcome:
        return run_program(setting.layer, setting.root, changed, call, kind)

    old, new = counted(start), counted(setting.whole(start, run)[1])
    assert old != new and len(new) >= 5

    def check(found: State, told: State) -> None:
        assert counted(found) in (old, new), f"neither before nor after: {list(found)}"
        assert counted(found) == new or counted(told) == old, "what was told of is lost"

    def again() -> None:
        if counted(read_folder(setting.root)) == new:
            versions = run_program(setting.layer, setting.root, [command[0], "versions", str(state)], -1, "none")
            assert versions.code == 0, versions.error
            return
        again = run(-1, "none")
        assert again.code == 0, again.error
        assert counted(read_folder(setting.root)) == new, "ends with another result"

    return Operation("forget" if forgets else "learn", setting.root, start, run, check, again)


OPERATIONS: dict[str, Callable[[Setting], Operation]] = {
    "save": save,
    "offload": offload,
    "prefix": cached_prefix,
    "run-files": run_files,
    "export": export,
    "export-over": lambda setting: export(setting, over=True),
    "peft": lambda setting: convert(setting, "peft", {}),
    "peft-over": lambda setting: convert(setting, "peft", {"out/": b"", "out/adapter_config.json": b"old"}),
    "gguf-lora": lambda setting: convert(setting, "gguf-lora", {}),
    "gguf-over": lambda setting: convert(setting, "gguf", {"out": b"old"}),
    "hf-over": lambda setting: convert(setting, "hf", {"out/": b"", "out/config.json": b"old"}),
    "round-first": lambda setting: end_round(setting, 1),
    "round": lambda setting: end_round(setting, 2),
    "learn": learn,
    "learn-on": lambda setting: learn(setting, first=8),
    "forget": lambda setting: learn(setting, forgets=True),
    "forget-candidate": lambda setting: learn(setting, forgets=True, first=8),
    "dataset": add_rows,
    "dataset-more": lambda setting: add_rows(setting, before=2),
}


ALL_SYNCS = ("save", "dataset", "dataset-more")  # where not all are alike, or were not tried already


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_sample_of_faults(name: str, setting: Setting) -> None:
    always = ("rename", "sync") if name in ALL_SYNCS else ("rename",)
    count = try_faults(OPERATIONS[name](setting), 40, always, most_again=4)
    assert count.cuts > 10 and count.faults > 10 and count.states > 5
    assert not count.lost, "\n".join(count.lost[:10])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_fault(name: str, setting: Setting, capsys: pytest.CaptureFixture) -> None:
    operation = OPERATIONS[name](setting)
    count = try_faults(operation)
    with capsys.disabled():
        print(f"\n{count.line(operation.name)}")
    assert not count.lost, "\n".join(count.lost[:10])
