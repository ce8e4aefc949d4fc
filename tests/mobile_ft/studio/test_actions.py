"""What the page asks for: plans equal to the command line's, runs that outlive the server, rows, answers, adapters."""

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from mobile_ft.api.plan import plan
from mobile_ft.cli.main import main
from mobile_ft.errors import UserError
from mobile_ft.studio import jobs, server
from mobile_ft.studio.workspace import Workspace
from tests.mobile_ft.studio.serving import Site, served
from tests.small_bundle import TalkingModel, write_small_bundle

ROWS = [{"id": i, "prompt": f"{i}?", "completion": f"hello{i % 3}"} for i in range(20)]
OPTIONS = {"seq_len": "48", "threads": "1", "save_every": "1"}
MEASURED = {"step_seconds", "read_seconds", "relative_time"}  # on this machine, each time


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bundle(tmp_path_factory.mktemp("studio") / "small", TalkingModel)


@pytest.fixture
def studio(bundle: Path, tmp_path: Path) -> Workspace:
    studio = Workspace(tmp_path / "studio")
    os.symlink(bundle, studio.models / "small")
    (studio.data / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return studio


@pytest.fixture
def site(studio: Workspace) -> Iterator[Site]:
    with served(studio) as site:
        site.enter()
        yield site


def wait(of: Callable[[], Any], seconds: float = 300) -> Any:
    """Returns what `of` finds, as soon as it finds anything."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := of():
            return found
        time.sleep(0.05)
    raise AssertionError("took too long")


def run_of(site: Site, name: str) -> dict[str, Any]:
    return next(run for run in site.ask("list_runs").json["runs"] if run["name"] == name)


def steps_of(site: Site, name: str) -> list[dict[str, Any]]:
    events = site.ask("read_run", run=name, start=0).json["events"]
    return [event for event in events if event["event"] == "step"]


def start(site: Site, name: str, **options: str) -> None:
    answer = site.ask("start_run", model="small", data="rows.jsonl", name=name, options=OPTIONS | options)
    assert answer.status == 200, answer.json


def test_plans_are_the_command_lines(site: Site, bundle: Path, tmp_path: Path) -> None:
    smallest = plan(bundle, seq_len=48).smallest_budget_mb

    # Not near the smallest budget: there, the pages of code that a process has when it plans decide about a unit.
    for share in [0.5, 0.6, 0.7, 0.8] + [1.3 + 0.1 * i for i in range(16)]:
        budget = str(int(1e6 * smallest * share))
        found = site.ask("plan_step", model="small", device="", options={"seq_len": "48", "budget": budget}).json
        main(["plan", str(bundle), "--seq-len", "48", "--budget", budget, "--json", str(tmp_path / "plan.json")])
        assert found["fits"] == (share > 1)
        assert is_same(found["plan"], json.loads((tmp_path / "plan.json").read_text())), budget


def is_same(found: Any, expected: Any) -> bool:
    """Whether two plans are the same, up to 1 MB of code that one process has touched and the other has not."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            is_same(found[key], expected[key]) for key in expected.keys() - MEASURED
        )
    if isinstance(expected, list):
        pairs = zip(found, expected, strict=True)
        return all(is_same(one, other) for one, other in pairs)
    return found == pytest.approx(expected, abs=1) if isinstance(expected, float) else bool(found == expected)


def test_a_phone(site: Site) -> None:
    device = site.ask("list_devices").json["devices"][0]
    there = site.ask("plan_step", model="small", device=device, options={"seq_len": "48"}).json["there"]
    assert there["device"]["name"] == device and there["step_seconds"] > 0
    assert "unknown option" in site.ask("plan_step", model="small", device="", options={"sequence": "1"}).json["error"]


def test_a_run(site: Site, studio: Workspace) -> None:
    start(site, "first", steps="6", lr="0.005")
    ended = wait(lambda: run_of(site, "first")["status"] == "ended" and run_of(site, "first"))
    assert ended["trained"] and not ended["can_resume"] and ended["model"] == "small"
    steps = steps_of(site, "first")
    assert [event["step"] for event in steps] == [1, 2, 3, 4, 5, 6] and steps[0]["lr"] > 0 and "trained" not in steps[0]
    # The same by the copied command line, in another folder.
    shown = site.ask(
        "commands", model="small", data="rows.jsonl", name="again", options=OPTIONS | {"steps": "6", "lr": "0.005"}
    ).json
    line = shown["shell"].split()
    assert line[0] == "mobile-ft" and main(line[1:]) == 0
    log = [json.loads(line) for line in (studio.runs / "again" / "log.jsonl").read_text().splitlines()]
    assert [event["loss"] for event in log if event["event"] == "step"] == [event["loss"] for event in steps]
    code = shown["python"].replace("runs/again'", "runs/third'")
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert (studio.runs / "third" / "adapter_model.safetensors").read_bytes() == (
        studio.runs / "first" / "adapter_model.safetensors"
    ).read_bytes()
    # Part of a log, from where the last answer ended.
    whole = site.ask("read_run", run="first", start=0).json
    assert site.ask("read_run", run="first", start=whole["next"]).json["events"] == []
    assert site.ask("remove_run", run="first").status == 200 and not (studio.runs / "first").exists()


def test_pause_and_resume(site: Site) -> None:
    start(site, "long", steps="100000")
    wait(lambda: len(steps_of(site, "long")) > 2)
    second = site.ask("start_run", model="small", data="rows.jsonl", name="other", options={})
    assert second.status == 400 and "run long: is training" in second.json["error"]
    assert "stop it first" in site.ask("remove_run", run="long").json["error"]
    site.ask("stop_run", run="long")
    stopped = wait(lambda: run_of(site, "long")["status"] == "stopped" and run_of(site, "long"))
    assert stopped["can_resume"]
    before = steps_of(site, "long")[-1]["step"]
    site.ask("resume_run", run="long")
    wait(lambda: steps_of(site, "long")[-1]["step"] > before + 1)
    site.ask("stop_run", run="long")
    wait(lambda: run_of(site, "long")["status"] == "stopped")
    numbers = [event["step"] for event in steps_of(site, "long")]
    assert numbers == sorted(set(numbers))  # saved after each step, none was repeated


def test_a_run_that_fails(site: Site) -> None:
    start(site, "small-budget", budget="1MB")
    failed = wait(lambda: run_of(site, "small-budget")["status"] == "failed" and run_of(site, "small-budget"))
    assert "budget 1MB is too small" in failed["error"] and not failed["trained"]
    assert "has no checkpoint" in site.ask("resume_run", run="small-budget").json["error"]
    assert "has no adapter yet" in site.ask("make", run="small-budget", target="peft").json["error"]
    assert (
        "unknown option"
        in site.ask("start_run", model="small", data="rows.jsonl", name="x", options={"x": "1"}).json["error"]
    )
    assert (
        "is taken"
        in site.ask("start_run", model="small", data="rows.jsonl", name="small-budget", options={}).json["error"]
    )


def test_a_run_outlives_its_server(studio: Workspace, tmp_path: Path) -> None:
    """The server is killed. Another one finds the run, watches it and ends it."""
    command = [sys.executable, "-m", "mobile_ft.cli.main", "studio", str(studio.folder), "--port", "0", "--no-browser"]

    def serve() -> tuple["subprocess.Popen[str]", Site]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        link = process.stdout.readline().split()[-1]
        site = Site(int(link.split(":")[2].split("/")[0]))
        answer = site.send("GET", link[link.index("/?") :])
        site.headers["Cookie"] = answer.headers["set-cookie"].split(";")[0]
        return process, site

    process, site = serve()
    start(site, "survivor", steps="100000", budget="40MB")
    wait(lambda: len(steps_of(site, "survivor")) > 2)
    process.kill()
    process.wait()
    process, site = serve()
    try:
        assert run_of(site, "survivor")["status"] == "running"
        before = len(steps_of(site, "survivor"))
        wait(lambda: len(steps_of(site, "survivor")) > before)
        assert max(event["rss_mb"] for event in steps_of(site, "survivor")) <= 40
        site.ask("stop_run", run="survivor")
        wait(lambda: run_of(site, "survivor")["status"] == "stopped")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def test_a_damaged_job(studio: Workspace) -> None:
    folder = studio.runs / "old"
    folder.mkdir()
    assert jobs.state(folder) == jobs.JobState(False, False, "its process was killed", "", None)
    for damaged in ("", "{}", "[]", '{"pid": "x"}', '{"arguments": 3}'):
        (folder / jobs.JOB_FILE).write_text(damaged)
        assert not jobs.state(folder).running and jobs.arguments_of(folder) == []
        jobs.interrupt(folder)


def test_a_run_that_cannot_be_written_down(site: Site, studio: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started whose folder is then removed."""
    started: list[Any] = []

    def write_nothing(path: Path, values: Any) -> None:
        raise UserError(f"{path}: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "write_json", write_nothing)
        patch.setattr(subprocess, "Popen", lambda *arguments, **options: started.append(arguments))
        answer = site.ask("start_run", model="small", data="rows.jsonl", name="full", options=OPTIONS)
    assert answer.status == 400 and answer.json["error"].endswith("full/job.json: No space left on device")
    assert "is training" not in answer.json["error"]
    assert not started and not (studio.runs / "full").exists()


def test_a_long_line_of_a_log(site: Site, studio: Workspace) -> None:
    """That of a run of many steps has all their losses."""
    folder = studio.runs / "long"
    folder.mkdir()
    lines = [{"event": "step", "step": 1}, {"event": "done", "losses": [0.5] * 400_000}, {"event": "saved", "step": 2}]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"event": "st')
    events, position = [], 0
    for _ in range(3):
        answer = site.ask("read_run", run="long", start=position).json
        events += answer["events"]
        position = answer["next"]
    assert [event["event"] for event in events] == ["step", "done", "saved"]


def test_two_clicks(site: Site) -> None:
    """Several starts at once are one; a second pause does not keep the first from saving."""
    with ThreadPoolExecutor() as pool:
        values = {
            "model": "small",
            "data": "rows.jsonl",
            "options": OPTIONS | {"steps": "100000", "save_every": "90000"},
        }
        answers = list(pool.map(lambda i: site.ask("start_run", name=f"run-{i}", **values).status, range(6)))
    assert sorted(answers) == [200, *[400] * 5]
    (name,) = [run["name"] for run in site.ask("list_runs").json["runs"]]
    wait(lambda: len(steps_of(site, name)) > 2)
    for _ in range(5):
        site.ask("stop_run", run=name)
    stopped = wait(lambda: run_of(site, name)["status"] != "running" and run_of(site, name))
    assert stopped["status"] == "stopped" and stopped["can_resume"]


def test_a_run_that_is_killed(site: Site, studio: Workspace) -> None:
    start(site, "killed", steps="100000")
    wait(lambda: len(steps_of(site, "killed")) > 2)
    os.kill(int((studio.runs / "killed" / "pid.txt").read_text()), signal.SIGKILL)
    killed = wait(lambda: run_of(site, "killed")["status"] == "failed" and run_of(site, "killed"))
    assert killed["error"] == "its process was killed" and killed["can_resume"]
    with (studio.runs / "killed" / "log.jsonl").open("a") as log:
        log.write('{"event": "step", "st\n{"event": "eval", "step": 1, "loss": NaN}\n3\n')
    events = site.ask("read_run", run="killed", start=0).json["events"]
    assert events[-1] == {"event": "eval", "step": 1, "loss": None}
    before = len(steps_of(site, "killed"))
    wait(lambda: site.ask("resume_run", run="killed").status == 200)  # mft-run ends a little after its parent
    wait(lambda: len(steps_of(site, "killed")) > before)
    site.ask("stop_run", run="killed")
    wait(lambda: run_of(site, "killed")["status"] == "stopped")


@pytest.mark.parametrize(
    ("action", "values", "message"),
    [
        ("link_data", {"path": "~nosuch/x"}, "~nosuch/x: "),
        ("link_data", {"path": "x" * 5000}, "File name too long"),
        ("commands", {"name": "../../x"}, "name '../../x': use letters"),
        ("plan_step", {"device": "", "options": {"bundle": "x"}}, "bundle: unknown option"),
        ("plan_step", {"device": "", "options": {"seq_len": [1]}}, "options: its values must be text"),
        ("look_at_data", {"options": {"rows": "1"}}, "rows: unknown option of data"),
        ("look_at_data", {"options": {"seq_len": "x"}}, "invalid literal"),
        ("start_run", {"name": "x", "options": {"x": "1"}}, "x: unknown option"),
        ("compare_runs", {"runs": [3]}, "runs: its values must be text"),
    ],
)
def test_wrong_values(action: str, values: dict[str, Any], message: str, site: Site) -> None:
    known = {"model": "small", "data": "rows.jsonl", "options": {}}
    wanted = signature(server.ACTIONS[action]).parameters
    answer = site.ask(action, **{name: value for name, value in known.items() if name in wanted} | values)
    assert answer.status in (400, 500) and message in answer.json["error"]


def test_data(site: Site, studio: Workspace, tmp_path: Path) -> None:
    looked = site.ask("look_at_data", model="small", data="rows.jsonl", options={"seq_len": "40", "loss": "sft"}).json
    train = looked["splits"]["train"]
    assert looked["seq_len"] == 40 and train["rows"] == 20 and sum(count for _, _, count in train["histogram"]) == 20
    learned = [run["text"] for run in train["first_rows"][0]["sides"][0] if run["learned"]]
    assert "hello0" in "".join(learned)
    (tmp_path / "with spaces.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"wrong": 1}\n')
    assert site.ask("link_data", path=str(tmp_path / "with spaces.jsonl")).json == {"name": "with-spaces.jsonl"}
    bad = site.ask("look_at_data", model="small", data="with-spaces.jsonl", options={}).json["splits"]["train"]
    assert bad["bad"] == 1 and ":2:" in bad["bad_rows"][0]
    assert "does not exist" in site.ask("link_data", path=str(tmp_path / "nothing")).json["error"]
    assert "lies outside" in site.ask("add_row", data="with-spaces.jsonl", row={}).json["error"]
    for i in range(2):
        assert (
            site.ask("add_row", data="typed", row={"prompt": f"é{i}", "completion": "b"}).json["name"] == "typed.jsonl"
        )
    typed = studio.data / "typed.jsonl"
    assert [json.loads(line)["prompt"] for line in typed.read_text().splitlines()] == ["é0", "é1"]
    typed.write_text('{"prompt": "a", "completion": "b"}')  # without the end of the line
    site.ask("add_row", data="typed.jsonl", row={"prompt": "c", "completion": "d"})
    assert [json.loads(line)["prompt"] for line in typed.read_text().splitlines()] == ["a", "c"]
    assert site.send("PUT", "/upload/" + quote("训练.jsonl"), b"{}").json == {"name": "训练.jsonl"}
    assert site.send("PUT", "/upload/" + quote("训练.jsonl"), b"{}").json == {"name": "训练-2.jsonl"}
    for name in ("训练.jsonl", "训练-2.jsonl", "with-spaces.jsonl"):
        assert name not in site.ask("remove_data", data=name).json["data"]
    assert (tmp_path / "with spaces.jsonl").exists()
    assert set(site.ask("list_data").json["data"]) == {"rows.jsonl", "typed.jsonl"}


def test_models(site: Site, studio: Workspace, bundle: Path, tmp_path: Path) -> None:
    assert site.ask("describe_model", model="small").json["rows"]["longest sequence"] == "64 tokens"
    assert "small" in site.ask("add_model", source=str(bundle), name="linked", options={}).json["models"]
    assert (studio.models / "linked").resolve() == bundle.resolve()
    assert "is taken" in site.ask("add_model", source=str(bundle), name="linked", options={}).json["error"]
    assert "unknown option" in site.ask("add_model", source="x", name="y", options={"x": "1"}).json["error"]
    (tmp_path / "broken.gguf").write_bytes(b"GGUF, but no more")
    site.ask("add_model", source=str(tmp_path / "broken.gguf"), name="broken", options={"lora_rank": "4"})

    def ended() -> Any:
        state = site.ask("list_models").json["exports"]["broken"]
        return not state["running"] and state

    assert "broken.gguf" in wait(ended)["error"]
    assert "broken" not in site.ask("remove_model", model="broken").json["exports"]
    assert "linked" not in site.ask("remove_model", model="linked").json["models"] and bundle.exists()
    assert "broken.gguf" in site.ask("describe_source", source=str(tmp_path / "broken.gguf")).json["error"]


def test_answers_and_adapters(site: Site, studio: Workspace) -> None:
    start(site, "tuned", steps="30", lr="0.02")
    wait(lambda: run_of(site, "tuned")["status"] == "ended")
    values = {"model": "small", "sides": ["base", "tuned"], "prompt": "3?", "options": {"max_tokens": "8"}}
    answer = site.send("POST", "/answer", json.dumps(values).encode())
    lines = [json.loads(line) for line in answer.body.splitlines()]
    texts = {
        side: "".join(line.get("text", "") for line in lines if line["side"] == side) for side in ("base", "tuned")
    }
    assert texts["tuned"].startswith("hello") and texts["base"] != texts["tuned"]
    assert [line["side"] for line in lines if line.get("end")] == ["base", "tuned"]
    for wrong, message in (
        ({"prompt": " "}, "prompt: is empty"),
        ({"sides": ["x"]}, "none of this name"),
        ({"options": {"x": "1"}}, "unknown option"),
    ):
        answer = site.send("POST", "/answer", json.dumps(values | wrong).encode())
        assert message in json.loads(answer.body.splitlines()[-1])["error"]

    assert site.ask("thumb", prompt="3?", answer="hello0", label=True).json == {"name": "thumbs.jsonl"}
    assert site.ask("thumb", prompt="3?", answer="xyz", label=False).status == 200
    rows = [json.loads(line) for line in (studio.data / "thumbs.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == [True, False] and rows[0]["messages"][1]["content"] == "hello0"
    looked = site.ask("look_at_data", model="small", data="thumbs.jsonl", options={"loss": "kto"}).json
    assert looked["splits"]["train"]["rows"] == 2

    compared = site.ask("compare_runs", model="small", runs=["tuned"], data="rows.jsonl").json
    assert "base -> tuned" in compared["rows"] and "20 rows better" in compared["rows"]["base -> tuned"]
    file = site.ask("make", run="tuned", target="peft").json["file"]
    archive = zipfile.ZipFile(io.BytesIO(site.send("GET", f"/made/{file}").body))
    assert {"adapter_config.json", "adapter_model.safetensors"} <= set(archive.namelist())
    gguf = site.ask("make", run="tuned", target="gguf").json["file"]
    assert site.send("GET", f"/made/{gguf}").body[:4] == b"GGUF"
    phone = site.ask("make", run="tuned", target="phone", data="rows.jsonl").json
    if "error" in phone:  # this machine has built no runtime for phones
        assert "make aarch64" in phone["error"]
    else:
        assert (Path(phone["folder"]) / "run.sh").is_file()
    assert site.ask("make", run="tuned", target="floppy").json["error"].endswith("must be peft, gguf or phone")
