"""Nights of learning: what is adopted, what is kept, and what is left out."""

import hashlib
import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import mobile_ft
from mobile_ft.data.packing import EncodedRow, pack, write_token_file
from mobile_ft.model.formats import F32
from tests.runtime.learning import (
    OPTIONS,
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
    write_rows,
)
from tests.runtime.native import events, failure, files
from tests.small_bundle import CONFIG, TalkingModel, write_small_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bundle(tmp_path_factory.mktemp("learner") / "bundle", TalkingModel)


def test_nights(bundle: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = learn(state, bundle, rows_of(30))
    assert find(first, "rows") == {"event": "rows", "added": 30, "known": 0, "bad": 0, "dropped": 0}
    night, verdict, done = (find(first, kind) for kind in ("night", "verdict", "done"))
    assert night["new"] + night["held_out"] == 30 and 5 <= night["held_out"] <= 16 and night["replayed"] == 0
    assert verdict["adopted"] and verdict["gain"] > 0 and verdict["chance"] <= 0.05 and done["version"] == 1
    assert files(Path(done["adapter"])) == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "losses.json",
        "moments.safetensors",
    }
    assert files(state) == {"state.json", "rows-2.jsonl", "versions"} and files(state / "versions") == {"0", "1"}

    again = learn(state, bundle, rows_of(30))  # the app's file, to which nothing was added
    assert find(again, "rows")["known"] == 30
    assert find(again, "verdict")["why"] == "there is no new row to train on" and find(again, "done")["version"] == 1

    more = learn(state, bundle, [*rows_of(30), *rows_of(30, 30, "abcabc")], "--replay", 0.5)
    night, verdict, done = (find(more, kind) for kind in ("night", "verdict", "done"))
    assert find(more, "rows")["added"] == 30 and night["replayed"] == int(0.5 * night["new"] + 0.5)
    assert verdict["adopted"] and done["version"] == 2 and done["versions"][1]["parent"] == 1
    assert [entry["adopted"] for entry in done["nights"]] == [True, False, True]
    assert verdict["rows"] == night["held_out"] == done["held_out"] == len(held_out(state, bundle))

    (back,) = events("versions", state, "--rollback", 1)
    assert back["version"] == 1 and adapter(back) == Path(state, "versions/1/adapter_model.safetensors").read_bytes()
    (base,) = events("versions", state, "--rollback", 0)
    assert base["version"] == 0 and base["adapter"] == ""
    assert "version 7: " in failure("versions", state, "--rollback", 7)


def test_a_bad_night_is_not_adopted(bundle: Path, tmp_path: Path) -> None:
    state, rows = tmp_path / "state", rows_of(60)
    assert find(learn(state, bundle, rows), "verdict")["adopted"]
    noise = random.Random(0)
    wrong = rows_of(20, 60)
    for row in wrong:
        row["completion"] = "".join(noise.choice("abcdxyz") for _ in range(9))
    before = Path(state, "versions/1/adapter_model.safetensors").read_bytes()
    found = learn(state, bundle, [*rows, *wrong], "--replay", 0, "--epochs", 10)
    noisy = {row["id"] for row in wrong}
    assert noisy & held_out(state, bundle)
    assert not find(found, "verdict")["adopted"] and adapter(find(found, "done")) == before


def test_general_text_pulls_to_the_base(bundle: Path, tmp_path: Path) -> None:
    rows = rows_of(60)
    free = find(learn(tmp_path / "free", bundle, rows), "verdict")
    assert free["share"] == 1 and free["general"] > 1.01
    limit = 0.9 * (free["general"] - 1)
    bound = find(learn(tmp_path / "bound", bundle, rows, "--general-bound", limit), "verdict")
    assert bound["adopted"] and 0.2 < bound["share"] < 1 and bound["general"] <= 1 + limit
    assert 0 < bound["gain"] < free["gain"]
    far = find(learn(tmp_path / "far", bundle, rows, "--general-bound", limit / 1000), "verdict")
    assert not far["adopted"] and far["share"] == 0.08 and 0 < far["gain"] <= bound["gain"]


def test_general_text_shortens_a_night(bundle: Path, tmp_path: Path) -> None:
    """Before a pull to the base model would undo what earlier nights taught."""
    rows = rows_of(120)
    first = find(learn(tmp_path / "free", bundle, rows[:60]), "verdict")
    shutil.copytree(tmp_path / "free", tmp_path / "bound")
    free = find(learn(tmp_path / "free", bundle, rows, "--epochs", 12), "verdict")
    limit = first["general"] - 1 + 0.3 * (free["general"] - first["general"])
    bound = find(learn(tmp_path / "bound", bundle, rows, "--epochs", 12, "--general-bound", limit), "verdict")
    assert bound["general"] <= 1 + limit and bound["share"] == 0.9 and 0 < bound["moved"] < 0.6 * free["moved"]


class SureModel(TalkingModel):
    """Its next tokens are far from equally likely, so that there is something to lose."""

    def vector(self, name: str, size: int) -> F32:
        return super().vector(name, size) * np.float32(15 if name == "model.norm.weight" else 1)


def written(bundle: Path, seed: int) -> EncodedRow:
    """A text that the base model draws."""
    found = events("generate", bundle, "--prompt-tokens", 1, "--temp", 1, "--seed", seed, "--max-tokens", 30)
    tokens = np.array([1, *(event["id"] for event in found if event["event"] == "token")], np.int32)
    return EncodedRow(tokens[:-1], tokens[1:])


def test_rehearsal(tmp_path: Path) -> None:
    """As many texts as rows to train on, the same ones for the same night. They keep the model's own texts likely."""
    bundle = write_small_bundle(tmp_path / "bundle", SureModel, replace(CONFIG, tie_word_embeddings=False))
    found = [learn(tmp_path / name, bundle, rows_of(60), "--rehearsal", 1) for name in ("first", "again")]
    texts = [event["text"] for event in found[0] if event["event"] == "rehearsal"]
    assert texts == list(range(1, find(found[0], "night")["new"] + 1))
    assert adapter(find(found[0], "done")) == adapter(find(found[1], "done"))

    found.append(learn(tmp_path / "without", bundle, rows_of(60)))
    steps = [find(night, "plan")["steps"] for night in found]
    own = tmp_path / "own"
    write_token_file(own, pack([written(bundle, seed) for seed in range(20)], 48, 0))
    folders = ["", *(find(night, "done")["adapter"] for night in found)]
    losses = [find(events("eval", bundle, "--data", own, "--adapter", folder), "done")["loss"] for folder in folders]
    assert steps[0] >= steps[2] and losses[1] - losses[0] < (losses[3] - losses[0]) / 2

    second = learn(tmp_path / "first", bundle, rows_of(90), "--rehearsal", 0.5)
    night = find(second, "night")
    assert sum(event["event"] == "rehearsal" for event in second) == (night["new"] + night["replayed"] + 1) // 2


def test_rehearsal_of_feedback(bundle: Path, tmp_path: Path) -> None:
    """Its losses do not learn from texts."""
    data = write_rows(tmp_path / "rows.jsonl", [row | {"label": True} for row in rows_of(20)])
    words = ("learn", bundle, "--state", tmp_path / "state", "--data", data, "--loss", "kto", "--seq-len", 48)
    assert "rehearsal 0.5: must be 0 unless loss is sft" in failure(*words, "--rehearsal", 0.5)


def test_few_rows_decide_nothing(bundle: Path, tmp_path: Path) -> None:
    verdict = find(learn(tmp_path / "state", bundle, rows_of(6)), "verdict")
    assert not verdict["adopted"] and "a decision needs 5" in verdict["why"]


def test_an_undecided_night_goes_on(bundle: Path, tmp_path: Path) -> None:
    """The next night begins with the adapter and the moments that the undecided one ended with."""
    state = tmp_path / "state"
    learn(state, bundle, rows_of(6))
    assert files(candidate(state)) == {"adapter_config.json", "adapter_model.safetensors", "moments.safetensors"}
    second = find(learn(state, bundle, rows_of(9)), "verdict")
    assert not second["adopted"] and "the next night goes on from here" in second["why"]
    shutil.copytree(candidate(state), tmp_path / "start")
    third = learn(state, bundle, rows_of(60))
    done = find(third, "done")
    assert find(third, "verdict")["adopted"] and done["version"] == 1 and files(state / "versions") == {"0", "1"}
    trained = json.loads((state / "state.json").read_text())["versions"][0]["trained"]
    assert {"row0", "row8", "row59"} <= set(trained) | held_out(state, bundle)

    # The same night, on a state where the candidate's adapter is the current version.
    other = tmp_path / "other"
    learn(other, bundle, rows_of(6))
    learn(other, bundle, rows_of(9))
    whole = json.loads((other / "state.json").read_text())
    whole["versions"] = [whole.pop("candidate") | {"number": 1}]
    whole |= {"current": 1, "next_version": 2}
    (other / "state.json").write_text(json.dumps(whole))
    assert adapter(find(learn(other, bundle, rows_of(60)), "done")) == adapter(done)


def test_a_bad_night_drops_the_candidate(bundle: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    learn(state, bundle, rows_of(6))
    bad = find(learn(state, bundle, rows_of(60), "--lr", 1, "--general-bound", 1e-6), "verdict")
    assert not bad["adopted"] and "general text rose" in bad["why"]
    assert "candidate" not in json.loads((state / "state.json").read_text()) and files(state / "versions") == {"0"}


def test_a_rollback_drops_the_candidate(bundle: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    learn(state, bundle, rows_of(6))
    shutil.copytree(state, tmp_path / "kept")
    events("versions", state, "--rollback", 0)
    assert "candidate" not in json.loads((state / "state.json").read_text()) and files(state / "versions") == {"0"}
    kept, dropped = (find(learn(folder, bundle, rows_of(60)), "done") for folder in (tmp_path / "kept", state))
    assert kept["version"] == dropped["version"] == 1 and adapter(kept) != adapter(dropped)


def test_old_held_out_rows_are_released(bundle: Path, tmp_path: Path) -> None:
    """The newest 40 stay held out. The others are trained on, once as new rows."""
    state = tmp_path / "state"
    rows = [*rows_of(50), *rows_of(50, 50, "abcabc"), *rows_of(50, 100, "xyzxyz")]
    before, trained = 0, set[str]()
    for number in (1, 2, 3):
        found = learn(state, bundle, rows[: 50 * number], "--held-out", 0.5, "--replay", 0)
        night, nights = find(found, "night"), night_of(state)
        released = {row for row, (_, when) in nights.items() if when == number}
        assert night["new"] - len(released) == 50 - (night["held_out"] - before + len(released))
        assert find(found, "done")["held_out"] == night["held_out"] <= 40
        assert not released or night["held_out"] == 40
        before = night["held_out"]
        whole = json.loads((state / "state.json").read_text())
        made = [*whole["versions"], *([whole["candidate"]] if "candidate" in whole else [])]
        trained |= {row for version in made for row in version["trained"]}
        judges = set(json.loads((state / f"versions/{whole['current']}/losses.json").read_text())["rows"])
        assert len(judges) == before and not judges & trained
    freed = {row for row, (_, when) in nights.items() if when > 0}
    assert len(freed) > 20 and freed & trained
    assert all(nights[row][0] > 1 for row in judges), "the oldest went first"


def test_absence_of_a_row_changes_no_draw(bundle: Path, tmp_path: Path) -> None:
    rows = rows_of(40)
    learn(tmp_path / "all", bundle, rows)
    learn(tmp_path / "less", bundle, rows[:7] + rows[8:])
    assert held_out(tmp_path / "less", bundle) == held_out(tmp_path / "all", bundle) - {"row7"}


def test_other_options_compare_like_with_like(bundle: Path, tmp_path: Path) -> None:
    """Losses that were kept with another seq_len are not compared with those of today."""
    warm, cold = tmp_path / "warm", tmp_path / "cold"
    learn(warm, bundle, rows_of(30))
    shutil.copytree(warm, cold)
    for path in cold.glob("versions/*/losses.json"):
        path.unlink()
    rows = [*rows_of(30), *rows_of(30, 30, "abcabc")]
    first, second = (find(learn(folder, bundle, rows, "--seq-len", 12), "verdict") for folder in (warm, cold))
    for verdict in (first, second):
        verdict.pop("peak_rss_mb")
    assert first == second


def test_mixed_up_answers_are_left_out(bundle: Path, tmp_path: Path) -> None:
    """A night whose answers belong to other prompts, after one whose answers belong to theirs."""
    state, rows = tmp_path / "state", [*copied(70, 0), *copied(70, 70)]
    for end in (70, 140):
        learn(state, bundle, rows[:end], "--epochs", 40, "--replay", 0, "--lr", 1e-2)
    before = find(events("versions", state), "done")
    wrong = [*rows, *copied(70, 140, shift=1)]
    found = learn(state, bundle, wrong, "--replay", 0)
    done = find(found, "done")
    assert find(found, "rows")["added"] == 70 and "may be mixed up" in find(found, "verdict")["why"]
    assert adapter(done) == adapter(before) and (done["rows"], done["held_out"]) == (before["rows"], before["held_out"])
    whole = json.loads((state / "state.json").read_text())
    assert [night["fit"][1] > 30 for night in whole["nights"]] == [True, True, False]
    assert find(learn(state, bundle, wrong), "rows")["known"] == len(wrong), "for good"

    right = find(learn(state, bundle, [*wrong, *copied(70, 210)], "--replay", 0), "verdict")
    assert "mixed up" not in right["why"]
    assert find(forget(state, bundle, "row140"), "forget")["nights"] == 0
    secret = whole["versions"][-1]["trained"][0]
    assert "mixed up" not in str([event for event in forget(state, bundle, secret) if event["event"] == "verdict"])


def test_a_kept_row_that_options_do_not_suit(bundle: Path, tmp_path: Path) -> None:
    """It is named, or left out."""
    rows = [{"id": f"row{i}", "q": f"{i}?", "a": "hello"} for i in range(30)]
    state = tmp_path / "state"
    learn(state, bundle, rows, "--prompt-key", "q", "--completion-key", "a")
    data = write_rows(tmp_path / "more.jsonl", rows_of(30, 30))
    error = failure("learn", bundle, "--state", state, "--data", data, *OPTIONS)
    assert "row row" in error and " of night 1: the row has" in error and "forget it" in error
    found = events("learn", bundle, "--state", state, "--data", data, *OPTIONS, "--on-bad-row", "skip")
    night, verdict = find(found, "night"), find(found, "verdict")
    assert night["replayed"] > 0 and 0 < verdict["rows"] < night["held_out"]


def test_rows_that_are_known_are_not_read_again(bundle: Path, tmp_path: Path) -> None:
    """Whatever options a night has."""
    state, rows = tmp_path / "state", [{"id": i, "q": f"{i}?", "a": "hello"} for i in range(6)]
    learn(state, bundle, rows, "--prompt-key", "q", "--completion-key", "a")
    found = learn(state, bundle, [row | {"id": str(row["id"])} for row in rows])
    assert find(found, "rows") == {"event": "rows", "added": 0, "known": 6, "bad": 0, "dropped": 0}
    data = write_rows(tmp_path / "bad.jsonl", [{"id": 1.5, "prompt": "a", "completion": "b"}])
    assert 'bad.jsonl:1: "id" is 1.5; it must be' in failure("learn", bundle, "--state", state, "--data", data)


def test_ids_of_rows_without_one(bundle: Path, tmp_path: Path) -> None:
    rows = [{"prompt": f"{i}?", "completion": "hello"} for i in range(20)]
    found = learn(tmp_path / "state", bundle, [*rows, *rows])
    assert find(found, "rows") == {"event": "rows", "added": 20, "known": 20, "bad": 0, "dropped": 0}


def test_thumbs(bundle: Path, tmp_path: Path) -> None:
    rows = [row | {"label": i % 2 == 0} for i, row in enumerate(rows_of(60))]
    for i, row in enumerate(rows):
        row["completion"] = "hello" if i % 2 == 0 else "xyz"
    found = learn(tmp_path / "state", bundle, rows, "--loss", "kto", "--beta", 0.5)
    assert find(found, "verdict")["adopted"] and find(found, "done")["version"] == 1
    more = [*rows, *({"id": "b", "prompt": "b", "completion": "hello", "label": True},)]
    data = write_rows(tmp_path / "more.jsonl", more)  # loss and seed are the first night's
    done = events("learn", bundle, "--state", tmp_path / "state", "--data", data, "--seq-len", 48)[-1]
    assert len(done["nights"]) == 2
    error = failure("learn", bundle, "--state", tmp_path / "state", "--data", data, "--loss", "sft")
    assert "was begun with loss kto" in error


def test_early_stopping_by_rows_that_do_not_judge(bundle: Path, tmp_path: Path) -> None:
    found = learn(tmp_path / "state", bundle, rows_of(60), "--eval-every", 2, "--patience", 2)
    night = find(found, "night")
    assert night["watched"] > 0 and night["new"] + night["held_out"] + night["watched"] == 60
    assert any(event["event"] == "eval" for event in found) and find(found, "done")["version"] == 1


def test_limits(bundle: Path, tmp_path: Path) -> None:
    free = find(learn(tmp_path / "free", bundle, rows_of(30)), "verdict")
    bound = find(learn(tmp_path / "bound", bundle, rows_of(30), "--max-move", free["moved"] / 3), "verdict")
    assert bound["moved"] == pytest.approx(free["moved"] / 3) and bound["loss"] > free["loss"]
    short = learn(tmp_path / "short", bundle, rows_of(30), "--epochs", 500, "--minutes", 0.005)
    assert find(short, "stopped")["reason"] == "time is up" and find(short, "done")["version"] == 1


def test_memory(bundle: Path, tmp_path: Path) -> None:
    found = learn(tmp_path / "state", bundle, rows_of(30))
    assert find(found, "trained")["peak_anon_mb"] <= find(found, "plan")["planned_anon_mb"]


def draw(purpose: str, night: int, row: str) -> int:
    """The draw of a row by the seed 0, to sort by."""
    return int(hashlib.sha256(f"0 {purpose} {night} {row}".encode()).hexdigest()[:16], 16)


def test_a_night_goes_half_of_the_way(bundle: Path, tmp_path: Path) -> None:
    """From the adapter before it to the one that `train` makes of the same rows in the same order."""
    state = tmp_path / "state"
    learn(state, bundle, rows_of(30))
    (state / "versions/1/moments.safetensors").unlink()
    before = load_file(state / "versions/1/adapter_model.safetensors")
    rows = rows_of(30, 30, "abcabc")
    done = find(learn(state, bundle, rows, "--replay", 0), "done")
    trained = json.loads((state / "state.json").read_text())["versions"][1]["trained"]
    order = sorted((row for row in rows if row["id"] in trained), key=lambda row: draw("order", 2, row["id"]))
    options: dict[str, Any] = {"seq_len": 48, "threads": 1, "lr": 5e-3, "epochs": 3, "compute": "float32"}
    mobile_ft.train(bundle, order, tmp_path / "out", adapter=state / "versions/1", progress=False, **options)
    ended, found = (
        load_file(Path(folder, "adapter_model.safetensors")) for folder in (tmp_path / "out", done["adapter"])
    )
    for name, start in before.items():
        np.testing.assert_allclose(found[name], (start + ended[name]) / 2, rtol=0, atol=1e-7)
    assert any(np.abs(ended[name] - start).max() > 1e-3 for name, start in before.items())


def test_moments_are_kept(bundle: Path, tmp_path: Path) -> None:
    """The second night goes on with the first one's moments, and without them ends elsewhere."""
    state, cold = tmp_path / "state", tmp_path / "cold"
    learn(state, bundle, rows_of(30))
    shutil.copytree(state, cold)
    (cold / "versions/1/moments.safetensors").unlink()
    rows = [*rows_of(30), *rows_of(30, 30, "abcabc")]
    warm, other = (find(learn(folder, bundle, rows), "done") for folder in (state, cold))
    assert warm["version"] == other["version"] == 2 and adapter(warm) != adapter(other)
    moments = Path(warm["adapter"], "moments.safetensors")
    moments.write_bytes(moments.read_bytes()[:-8])
    data = write_rows(tmp_path / "more.jsonl", [*rows, *rows_of(9, 60)])
    assert "moments.safetensors" in failure("learn", bundle, "--state", state, "--data", data, *OPTIONS)


def test_refused(bundle: Path, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", rows_of(10))
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    assert "is not a learner's folder, and not empty" in failure("learn", bundle, "--state", full, "--data", data)
    assert (full / "mine").read_text() == "mine"
    state = tmp_path / "state"
    learn(state, bundle, rows_of(10))
    other = write_small_bundle(tmp_path / "other", type("Other", (TalkingModel,), {"__init__": _seeded}))
    assert "belongs to another model" in failure("learn", other, "--state", state, "--data", data)
    bad = write_rows(tmp_path / "bad.jsonl", [{"prompt": "a"}])
    before = contents(state)
    assert "bad.jsonl:1: " in failure("learn", bundle, "--state", state, "--data", bad)
    assert "--data" in failure("learn", bundle, "--state", state, "--data", data, "--forget", "row1")
    assert contents(state) == before
    assert "has no state.json" in failure("versions", tmp_path)
    whole = json.loads((state / "state.json").read_text())
    for broken in (
        "{",
        "{}",
        '{"format": 9}',
        json.dumps(whole | {"current": 5}),
        json.dumps(whole | {"rows_file": "../x"}),
        json.dumps(whole | {"nights": []}),
        json.dumps(whole | {"candidate": whole["versions"][0] | {"parent": 7}}),
    ):
        (state / "state.json").write_text(broken)
        assert "state.json" in failure("versions", state)


def _seeded(self: TalkingModel, config: Any, seed: int) -> None:
    TalkingModel.__init__(self, config, seed + 1)
