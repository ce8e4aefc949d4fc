"""Rows that a learner forgets, as if they had never been there, and the nights that are repeated for that."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.learning import (
    adapter,
    candidate,
    contents,
    copied,
    find,
    forget,
    held_out,
    learn,
    night_of,
    rows_of,
)
from tests.runtime.native import events, failure, files
from tests.small_bundle import TalkingModel, write_small_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bundle(tmp_path_factory.mktemp("learner") / "bundle", TalkingModel)


def test_a_candidate_forgets(bundle: Path, tmp_path: Path) -> None:
    """It ends with the same bits as if the row had never been there."""
    rows, folders = rows_of(9), [tmp_path / "with", tmp_path / "without"]
    learn(folders[0], bundle, rows[:6])
    trained = json.loads((folders[0] / "state.json").read_text())["candidate"]["trained"]
    secret = trained[0]
    left = [row for row in rows if row["id"] != secret]
    learn(folders[0], bundle, rows)
    learn(folders[1], bundle, left[:5])
    learn(folders[1], bundle, left)
    found = forget(folders[0], bundle, secret)
    assert find(found, "forget") == {"event": "forget", "rows": 1, "version": 0, "nights": 2, "from_base": False}
    assert [contents(candidate(state)) for state in folders] == [contents(candidate(folders[1]))] * 2
    ends = [candidate(state) / "adapter_model.safetensors" for state in folders]
    assert ends[0].read_bytes() == ends[1].read_bytes() and f'"{secret}"'.encode() not in contents(folders[0])


@pytest.mark.parametrize("released", [True, False])
def test_forgotten_after_a_release(released: bool, bundle: Path, tmp_path: Path) -> None:
    """The repeated nights release what nights release that never saw the row."""
    options = ("--held-out", 0.6, "--replay", 1)
    rows = [*rows_of(40), *rows_of(40, 40, "abcabc"), *rows_of(40, 80, "xyzxyz")]
    folders = [tmp_path / "with", tmp_path / "without"]
    for end in (40, 80, 120):
        learn(folders[0], bundle, rows[:end], *options)
    nights, judges = night_of(folders[0]), held_out(folders[0], bundle)
    secret = next(
        row for row, when in nights.items() if (when == (1, 2) if released else when[0] == 2 and row in judges)
    )
    for end in (40, 80, 120):
        learn(folders[1], bundle, [row for row in rows[:end] if row["id"] != secret], *options)
    found = forget(folders[0], bundle, secret)
    assert find(found, "forget")["nights"] == (2 if released else 0)
    if released:
        assert night_of(folders[0]) == night_of(folders[1])
        assert adapter(find(found, "done")) == adapter(events("versions", folders[1])[0])
    else:
        assert night_of(folders[0]) == {row: when for row, when in nights.items() if row != secret}


def test_forgotten_as_if_it_had_never_been_there(bundle: Path, tmp_path: Path) -> None:
    """The nights are repeated from before the row, and end with the same bits as without it."""
    nights = [rows_of(24), rows_of(24, 24, "abcabc"), rows_of(24, 48, "xyzxyz")]
    with_it, without = tmp_path / "with", tmp_path / "without"
    for night in range(3):
        learn(with_it, bundle, [row for rows in nights[: night + 1] for row in rows])
    trained = json.loads((with_it / "state.json").read_text())["versions"][1]["trained"]
    secret = next(row for row in trained if row in {entry["id"] for entry in nights[1]})
    text = next(row for row in nights[1] if row["id"] == secret)
    for night in range(3):
        learn(without, bundle, [row for rows in nights[: night + 1] for row in rows if row["id"] != secret])

    found = forget(with_it, bundle, secret)
    assert find(found, "forget") == {"event": "forget", "rows": 1, "version": 1, "nights": 2, "from_base": False}
    expected, done = events("versions", without)[0], find(found, "done")
    assert adapter(done) == adapter(expected)
    assert [night["gain"] for night in done["nights"]] == [night["gain"] for night in expected["nights"]]
    left = contents(with_it)
    assert f'"{secret}"'.encode() not in left and text["prompt"].encode() not in left
    assert files(with_it) == {"state.json", json.loads((with_it / "state.json").read_text())["rows_file"], "versions"}

    again = learn(with_it, bundle, [row for rows in nights for row in rows])  # the app still has it
    assert find(again, "rows")["added"] == 0
    assert "is not the id of a row" in failure("learn", bundle, "--state", with_it, "--forget", "nobody")


def with_option(state: Path, name: str, value: str) -> dict[str, Any]:
    """Changes an option of all nights. Returns the state."""
    whole: dict[str, Any] = json.loads((state / "state.json").read_text())
    for night in whole["nights"]:
        night["options"][name] = value
    (state / "state.json").write_text(json.dumps(whole))
    return whole


def test_a_night_that_fails_does_not_keep_a_row(bundle: Path, tmp_path: Path) -> None:
    """Repeated without the row, the night cannot be: it counts as one that adopted nothing."""
    state = tmp_path / "state"
    learn(state, bundle, rows_of(30))
    whole = with_option(state, "lr", "-1")
    row = whole["versions"][0]["trained"][0]
    found = forget(state, bundle, row)
    done = find(found, "done")
    assert done["version"] == 0 and done["nights"][0]["why"] == "the night could not be repeated"
    assert "lr -1: must be" in find(found, "verdict")["why"]
    assert find(found, "verdict").keys() - {"event", "peak_rss_mb"} == done["nights"][0].keys() - {
        "night",
        "new",
        "replayed",
    }
    assert f'"{row}"'.encode() not in contents(state)


def test_a_budget_that_has_no_room_any_more_does_not_lose_a_night(bundle: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    learn(state, bundle, rows_of(30))
    whole = with_option(state, "budget", "1000000")
    done = find(forget(state, bundle, whole["versions"][0]["trained"][0]), "done")
    assert done["version"] == 2 and done["nights"][0]["adopted"]


def test_a_rolled_back_branch_stays_away(bundle: Path, tmp_path: Path) -> None:
    """Nights that went on from a version that was rolled back are not repeated."""
    state = tmp_path / "state"
    rows = [*rows_of(24), *rows_of(24, 24, "abcabc"), *rows_of(3, 48, "zz"), *rows_of(24, 51, "xyzxyz")]
    for end in (24, 48, 51):
        learn(state, bundle, rows[:end], *(["--general-bound", 1e-6] if end == 51 else []))
    events("versions", state, "--rollback", 1)
    done = find(learn(state, bundle, rows), "done")
    assert [night["adopted"] for night in done["nights"]] == [True, True, False, True]
    assert done["versions"][-1]["parent"] == 1
    secret = json.loads((state / "state.json").read_text())["versions"][0]["trained"][0]
    found = forget(state, bundle, secret)
    assert [event["night"] for event in found if event["event"] == "night"] == [1, 4]


def test_a_night_is_not_compared_with_a_later_one(bundle: Path, tmp_path: Path) -> None:
    """Repeated, the first night's answers may fit their prompts worse than those of a later night."""
    state, rows = tmp_path / "state", copied(140, 0)
    for end in (70, 140):
        learn(state, bundle, rows[:end], "--epochs", 40, "--replay", 0, "--lr", 1e-2)
    events("versions", state, "--rollback", 1)
    whole = json.loads((state / "state.json").read_text())
    first, second = (night["fit"] for night in whole["nights"])
    assert first[0] / first[1] < 0.55 < 0.75 < second[0] / second[1]
    found = forget(state, bundle, whole["versions"][0]["trained"][0])
    assert [event["night"] for event in found if event["event"] == "night"] == [1]
    assert find(found, "verdict")["adopted"] and find(found, "done")["rows"] == 139


def repeated_after_forgetting(state: Path, bundle: Path, night: int) -> list[int]:
    """The nights that are repeated to forget a row which this night brought."""
    brought = [row for row, (when, _) in night_of(state).items() if when == night]
    whole = json.loads((state / "state.json").read_text())
    made = [*whole["versions"], *([whole["candidate"]] if "candidate" in whole else [])]
    secret = next(row for row in brought if any(row in version["trained"] for version in made))
    return [event["night"] for event in forget(state, bundle, secret) if event["event"] == "night"]


def test_an_undecided_night_that_was_rolled_back_stays_away(bundle: Path, tmp_path: Path) -> None:
    """With the version that went on from its candidate, and without one."""
    rows = [*rows_of(24), *rows_of(24, 24, "abcabc"), *rows_of(24, 48, "xyzxyz"), *rows_of(3, 72, "zz")]
    state, other = tmp_path / "state", tmp_path / "other"
    for end, options in ((24, []), (27, ["--lr", 1e-9]), (51, [])):
        learn(state, bundle, rows[:end], *options)
        if end == 27:
            shutil.copytree(state, other)
    events("versions", state, "--rollback", 1)
    learn(state, bundle, rows)
    verdicts = json.loads((state / "state.json").read_text())["nights"]
    assert [night["verdict"]["adopted"] for night in verdicts] == [True, False, True, True]
    assert verdicts[1]["verdict"]["undecided"]
    assert repeated_after_forgetting(state, bundle, 1) == [1, 4]

    events("versions", other, "--rollback", 1)
    learn(other, bundle, rows)
    assert repeated_after_forgetting(other, bundle, 1) == [1, 3]


def test_a_version_that_is_rolled_back_to_again(bundle: Path, tmp_path: Path) -> None:
    """What went on from the version between both rollbacks is not repeated."""
    rows = [*rows_of(24), *rows_of(24, 24, "abcabc"), *rows_of(3, 48, "zz")]
    state = tmp_path / "state"
    for end, back in ((24, None), (48, 1), (51, 2)):
        learn(state, bundle, rows[:end], *(["--lr", 1e-9] if end == 51 else []))
        if back is not None:
            events("versions", state, "--rollback", back)
    shutil.copytree(state, tmp_path / "second")
    assert repeated_after_forgetting(state, bundle, 1) == [1, 2]
    assert repeated_after_forgetting(tmp_path / "second", bundle, 2) == [2]


def test_forget_keeps_as_many_versions_as_a_night(bundle: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    rows = [*rows_of(24), *rows_of(24, 24, "abcabc"), *rows_of(24, 48, "xyzxyz")]
    for night in range(3):
        learn(state, bundle, rows[: 24 * (night + 1)], "--keep", 2)
    secret = json.loads((state / "state.json").read_text())["versions"][0]["trained"][0]
    done = find(forget(state, bundle, secret), "done")
    assert [version["folder"] != "" for version in done["versions"]] == [False, True, True]


def test_forgetting_a_held_out_row(bundle: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    done = find(learn(state, bundle, rows_of(30)), "done")
    row = sorted(held_out(state, bundle))[0]
    found = forget(state, bundle, row)
    assert find(found, "forget")["nights"] == 0 and find(found, "done")["version"] == done["version"]
    assert row not in held_out(state, bundle) and f'"{row}"'.encode() not in contents(state)


@pytest.mark.parametrize("gone", ["rows", "version"])
def test_forgetting_starts_at_the_base_where_the_past_is_gone(gone: str, bundle: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    options = ["--log-bytes", 1500] if gone == "rows" else ["--keep", 1, "--replay", 1]
    rows = [*rows_of(24), *rows_of(24, 24, "abcabc"), *rows_of(24, 48, "xyzxyz")]
    for night in range(3):
        done = find(learn(state, bundle, rows[: 24 * (night + 1)], *options), "done")
    kept = [json.loads(line) for line in next(state.glob("rows-*")).read_text().splitlines()]
    if gone == "rows":
        assert sum(len(row["row"]) for row in kept if "row" in row) <= 1500 and done["rows"] < 72
    else:
        assert sum(entry["folder"] != "" for entry in done["versions"]) == 1
    first, *_, last = (entry["trained"] for entry in with_option(state, "max_move", "1e-6")["versions"])
    assert not set(last) & set(first), "named once"
    secret = min(last)
    found = forget(state, bundle, secret)
    assert find(found, "forget")["from_base"] and find(found, "forget")["version"] == 0
    assert find(found, "night")["new"] == done["rows"] - done["held_out"] - any(row.get("id") == secret for row in kept)
    assert find(found, "done")["rows"] == done["rows"] - any(row.get("id") == secret for row in kept)
    assert find(found, "verdict")["moved"] > 1e-3, "the limit of a night does not limit all of them"
