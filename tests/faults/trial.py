"""Tries every fault of one operation, and counts."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.layer import CUT, FAULTS, Outcome
from tests.faults.replay import Call, Disk, State, read_folder, write_folder

CACHE = "/losses.json"  # of a learner: what is computed again where it cannot be written
REWRITTEN = {"out/tokens.safetensors.partial"}  # may stay behind: the next run writes it anew


@dataclass(frozen=True)
class Operation:
    """`run` works on the folder `root`, which holds `start` before. `run(call, kind)` has that fault.

    `check` raises AssertionError where of a state is lost what was there, given what `root` held when the operation
    last told of anything. `again` does the operation after all, on what is in `root`, and compares with the run that
    nothing happened to.
    """

    name: str
    root: Path
    start: State
    run: Callable[[int, str], Outcome]
    check: Callable[[State, State], None]
    again: Callable[[], None]


@dataclass
class Count:
    calls: int = 0
    cuts: int = 0
    faults: int = 0
    states: int = 0
    again: int = 0
    lost: list[str] = field(default_factory=list)

    def line(self, name: str) -> str:
        counts = f"{self.calls} calls, {self.faults} faults, {self.cuts} power cuts, {self.states} states"
        return f"{name}: {counts}, {self.again} done again, {len(self.lost)} lost"


def try_faults(operation: Operation, every: int = 1, always: tuple[str, ...] = (), most_again: int = 1000) -> Count:
    """Cuts the power at each call, and lets fail those whose name is in `always` and every `every`-th of each other.

    `most_again` limits on how many of the states after power cuts the operation is done again.
    """
    count = Count()
    whole = _start(operation)
    assert whole.code == 0, whole.error
    final = read_folder(operation.root)
    count.calls = sum(call.number >= 0 for call in whole.calls)
    _cut_power(operation, whole.calls, final, most_again, count)
    for call in _sample([call for call in whole.calls if call.number >= 0], every, always):
        for kind in FAULTS[call.name]:
            count.faults += 1
            _noting(count, operation, f"call {call.number}, {call.name}, {kind}", _fail, call, kind, final, count)
        _noting(count, operation, f"call {call.number}, {call.name}, cut", _cut, call)
    return count


def _sample(calls: list[Call], every: int, always: tuple[str, ...]) -> list[Call]:
    seen: dict[str, int] = {}
    found = []
    for call in calls:
        number = seen[call.name] = seen.get(call.name, -1) + 1
        if call.name in always or number % every == 0:
            found.append(call)
    return found


def _start(operation: Operation, call: int = -1, kind: str = "none") -> Outcome:
    _put(operation, operation.start)
    return operation.run(call, kind)


def _put(operation: Operation, state: State) -> None:
    shutil.rmtree(operation.root, ignore_errors=True)
    operation.root.mkdir()
    write_folder(operation.root, state)


def _noting(count: Count, operation: Operation, what: str, body: Callable[..., None], *arguments: object) -> None:
    try:
        body(operation, *arguments)
    except AssertionError as error:
        count.lost.append(f"{operation.name}: {what}: {error}")


def replayed(root: Path, start: State, calls: list[Call]) -> Iterator[tuple[Call, Disk, State]]:
    """After each call, with what the folder held when something was told last."""
    disk, told = Disk(root, start), start
    for call in calls:
        disk.apply(call)
        if call.name == "told":
            told = disk.kept()
        yield call, disk, told


def _cut_power(operation: Operation, calls: list[Call], final: State, most_again: int, count: Count) -> None:
    seen: dict[frozenset, tuple[State, str]] = {}
    checked = set[tuple[frozenset, int]]()
    promises = 0
    for call, disk, told in replayed(operation.root, operation.start, calls):
        promises += call.name == "told"
        if call.number < 0 and call.name not in ("told", "rename"):
            continue
        count.cuts += 1
        what = f"power cut after call {call.number}, {call.name} {Path(call.path).name}"
        for state in disk.after_power_cut():
            content = frozenset(state.items())
            if (content, promises) in checked:
                continue
            checked.add((content, promises))
            seen.setdefault(content, (state, what))
            _noting(count, operation, what, lambda o, s, t: o.check(s, t), state, told)
    assert disk.kept() == final, "the journal does not tell what is in the folder"
    count.states += len(seen)
    states = list(seen.values())
    for state, what in states[:: max(1, -(-len(states) // most_again))]:
        _put(operation, state)
        count.again += 1
        _noting(count, operation, f"{what}, done again", lambda o: o.again())


def _cut(operation: Operation, call: Call) -> None:
    """The power cut of faults.c leaves what the journal says."""
    outcome = _start(operation, call.number, "cut")
    assert outcome.code == CUT, (outcome.code, outcome.error)
    _check_found(operation, outcome)


def _check_found(operation: Operation, outcome: Outcome) -> None:
    disk, told = Disk(operation.root, operation.start), operation.start
    for _, disk, told in replayed(operation.root, operation.start, outcome.calls):  # noqa: B007, the last of them
        pass
    found = read_folder(operation.root)
    assert found == disk.kept(), "the journal does not tell what is in the folder"
    operation.check(found, told)


def _fail(operation: Operation, call: Call, kind: str, final: State, count: Count) -> None:
    outcome = _start(operation, call.number, kind)
    found = read_folder(operation.root)
    if outcome.code == 0:
        if call.name in ("unlink", "rmdir"):  # what could not be removed may stay
            found = {path: data for path, data in found.items() if path in final}
        found, final = ({path: data for path, data in s.items() if not path.endswith(CACHE)} for s in (found, final))
        assert found == final, f"succeeds with another result: {_difference(found, final)}"
        return
    assert kind not in ("interrupted", "short"), f"fails: {outcome.error}"
    assert outcome.code == 1, f"ends with {outcome.code}: {outcome.error}"
    assert outcome.error.count("\n") == 1 and str(operation.root) in outcome.error, f"says {outcome.error!r}"
    _check_found(operation, outcome)
    if call.name not in ("unlink", "rmdir"):
        left = sorted(found.keys() - final.keys() - operation.start.keys() - REWRITTEN)
        assert not left, f"leaves {left}"
    count.states += 1
    count.again += 1
    operation.again()


def _difference(a: State, b: State) -> list[str]:
    return sorted(path for path in a.keys() | b.keys() if a.get(path) != b.get(path))
