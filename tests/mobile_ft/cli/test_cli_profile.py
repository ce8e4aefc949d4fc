import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mobile_ft.profile.limit import CgroupLimit, memory_limit
from tests.mobile_ft.conftest import Cli, Result

PROFILE_FIELDS = {
    *("planned_mb", "measured_mb", "planned_total_mb", "planned_anon_mb", "peak_rss_mb", "peak_anon_mb", "budget_mb"),
    *("enforced_by", "survived", "step_seconds_median", "samples", "schedule", "backward", "seq_len", "optimizer"),
}
# Blocks that a full backward that recomputes fills to the last byte.
FILLED = ("lora", "gradients", "optimizer", "checkpoints")
PAGE_MB = 4096 / 1e6

Run = Callable[..., tuple[Result, dict[str, Any]]]


@pytest.fixture
def profile(cli: Cli, small_bundle: Path, tmp_path: Path) -> Run:
    """Runs `mobile-ft profile` on the small bundle: the result, and what --json holds."""

    def run(*options: object) -> tuple[Result, dict[str, Any]]:
        report = tmp_path / "profile.json"
        result = cli("profile", small_bundle, "--seq-len", 64, "--steps", 10, *options, "--json", report)
        return result, json.loads(report.read_text())

    return run


@pytest.fixture
def no_cgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mobile_ft.profile.limit.cgroup_parents", lambda mounts, own: [])


def has_cgroup() -> bool:
    with memory_limit(1 << 30) as limit:
        return isinstance(limit, CgroupLimit)


needs_cgroup = pytest.mark.skipif(not has_cgroup(), reason="no memory cgroup can be made here")


def test_measured_memory_is_within_the_plan(profile: Run) -> None:
    result, values = profile("--backward", "recompute")
    assert (result.code, result.err) == (0, "")
    assert set(values) >= PROFILE_FIELDS
    assert (values["enforced_by"], values["survived"], values["budget_mb"]) == ("sampling", True, None)
    assert values["measured_mb"].keys() == values["planned_mb"].keys()
    assert all(size >= 0 for size in values["measured_mb"].values())
    assert 0 < values["peak_rss_mb"] <= values["planned_total_mb"]
    assert 0 < values["peak_anon_mb"] <= values["planned_anon_mb"]
    assert values["samples"] >= values["steps"] == 10
    for name in FILLED:
        planned, measured = values["planned_mb"][name], values["measured_mb"][name]
        assert planned <= measured <= planned + PAGE_MB, name
    assert 0 < values["files_mb"]["weights.ptd"] < 0.3
    assert 0 < values["files_mb"]["program.pte"] < 0.1
    assert sum(values["planned_mb"].values()) == pytest.approx(values["planned_total_mb"])
    assert "nothing; memory was only measured" in result.out


def test_components_make_up_the_kernels_total(profile: Run, small_bundle: Path, tmp_path: Path) -> None:
    """At every moment, and not by construction: pages are counted in another file than totals are."""
    trace = tmp_path / "trace.json"
    _, values = profile("--backward", "recompute", "--trace-out", trace)
    events = json.loads(trace.read_text())["traceEvents"]
    series: dict[str, list[float]] = {}
    for event in events:
        if event["ph"] == "C":
            series.setdefault(event["name"], []).append(event["args"]["MB"])
    heap = series.pop("heap")
    anonymous = [sizes for name, sizes in series.items() if name not in ("code", "weights")]
    last = heap[-1] + sum(sizes[-1] for sizes in anonymous)
    assert last == pytest.approx(values["peak_anon_mb"], abs=0.1)
    assert 0 < heap[-1] < values["planned_mb"]["heap"]


@needs_cgroup
def test_a_budget_that_fits_is_survived_in_a_cgroup(profile: Run) -> None:
    result, values = profile("--budget", "30MB")
    assert (result.code, result.err) == (0, "")
    assert values["enforced_by"] in ("cgroup-v1", "cgroup-v2")
    assert values["survived"]
    assert 0 < values["cgroup_peak_mb"] <= 30


@needs_cgroup
def test_a_cgroup_that_is_too_small_ends_the_run(profile: Run, tmp_path: Path) -> None:
    report, trace = tmp_path / "report.html", tmp_path / "trace.json"
    result, values = profile("--budget", "1MB", "--report", report, "--trace-out", trace)
    assert result.code == 1
    warning, error = result.err.splitlines()
    assert warning.startswith("mobile-ft: warning: budget 1MB: the plan needs ")
    planned = f"{values['planned_total_mb']:.0f}"
    assert error.startswith("mobile-ft: error: the limit of 1 MB ended the training process in step ")
    assert f"the plan needs {planned} MB" in error
    assert not values["survived"]
    assert report.exists() and trace.exists()


@pytest.mark.usefixtures("no_cgroup")
def test_without_a_cgroup_there_is_rlimit_data(profile: Run) -> None:
    result, values = profile("--budget", "1MB")
    assert (result.code, values["enforced_by"], values["survived"]) == (1, "rlimit-data", False)
    assert "the limit of 1 MB ended the training process in step 1; the plan needs " in result.err
    result, values = profile("--budget", "100MB")
    assert (result.code, values["enforced_by"], values["survived"]) == (0, "rlimit-data", True)


def test_another_system_is_an_error(cli: Cli, small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mobile_ft.api.profile.sys", SimpleNamespace(platform="darwin"))
    result = cli("profile", small_bundle)
    assert result.code == 1
    assert "profile: needs Linux" in result.err


def test_other_errors_are_not_the_limits(cli: Cli, small_bundle: Path) -> None:
    result = cli("profile", small_bundle, "--seq-len", 64, "--budget", "100MB", "--max-grad-norm", -1)
    assert result.code == 1
    assert "max_grad_norm -1: must not be negative" in result.err
    assert "ended the training process" not in result.err


def test_report_needs_nothing_else(profile: Run, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    _, values = profile("--budget", "30MB", "--report", report)
    text = report.read_text()
    assert "http" not in text
    assert not re.search(r"<(link|img|iframe)|src=|@import|url\(", text)
    script = re.search(r'<script id="data"[^>]*>(.*?)</script>', text, re.DOTALL)
    assert script
    data = json.loads(script[1])
    assert data["result"] == values
    assert len(data["times"]) == values["samples"]
    assert all(len(sizes) == len(data["times"]) for sizes in data["series"].values())
    assert data["times"] == sorted(data["times"])
    assert [step[0] for step in data["steps"]] == list(range(1, 11))
    assert data["units"][0] == "embed" and data["units"][-1] == "head" and len(data["units"]) == 10
    # A step calls each unit forward and backward.
    assert len(data["calls"]) == 10 * (1 + 8 + 1 + 8)


def test_trace_is_what_perfetto_opens(profile: Run, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    profile("--trace-out", trace)
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    assert all(event["ts"] >= 0 for event in events if event["ph"] in "XC")
    complete = [event for event in events if event["ph"] == "X"]
    assert all(event["dur"] >= 0 for event in complete)
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {tracks[event["tid"]] for event in complete} == {"step", "forward", "head", "backward"}
    by_track = {name: [e for e in complete if tracks[e["tid"]] == name] for name in tracks.values()}
    assert len(by_track["step"]) == len(by_track["head"]) == 10
    assert len(by_track["backward"]) == 10 * 8
    assert all("_backward" in event["args"]["method"] for event in by_track["backward"])
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert counters >= {"lora", "optimizer", "heap", "code"}


def test_folders_are_checked_first(cli: Cli, tmp_path: Path) -> None:
    for option in ("--report", "--trace-out", "--json"):
        result = cli("profile", tmp_path / "missing", option, "nowhere/x")
        assert result.err == f"mobile-ft: error: {option} nowhere/x: the folder nowhere does not exist\n"


def test_nothing_is_left_behind(profile: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    profile("--budget", "30MB")
    assert list(scratch.iterdir()) == []
    with memory_limit(1 << 30) as limit:
        folder = getattr(limit, "_folder", Path("/none"))
    assert not folder.exists()


@pytest.mark.parametrize(
    "options",
    [
        ["--eval-every", 2],
        ["--loss", "dpo"],
        ["--loss", "kto"],
        ["--loss", "simpo"],
        ["--loss", "kto", "--seq-len", 16, "--batch-size", 4],
    ],
)
def test_validation_and_preferences_are_within_the_plan(profile: Run, options: list[object]) -> None:
    result, values = profile("--backward", "recompute", *options)
    assert (result.code, result.err, values["steps"]) == (0, "", 10)
    assert values["peak_rss_mb"] <= values["planned_total_mb"]
    assert values["peak_anon_mb"] <= values["planned_anon_mb"]
