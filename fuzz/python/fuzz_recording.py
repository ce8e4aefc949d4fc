"""The trace of a run, through what `mobile-ft profile` makes of it."""

from pathlib import Path

from mobile_ft.api.files import write_json
from mobile_ft.profile.perfetto import perfetto_trace
from mobile_ft.profile.recording import Recording, read_buffers, read_calls
from mobile_ft.profile.report import html_report

_PARTS = {"code": 1.0, "weights_window": 1.0, "resident_weights": 0.0, "heap": 1.0}


def seeds() -> list[bytes]:
    return [
        b'{"buffer": "arena", "address": 4096, "bytes": 8192}\n'
        b'{"unit": "layers.0.attn", "method": "attn_forward", "begin": 1, "end": 2.5}\n{"unit": "half'
    ]


def run(data: bytes, folder: Path) -> None:
    (folder / "trace.jsonl").write_bytes(data)
    recording = Recording({"components_mb": _PARTS, "anonymous": []}, read_buffers(folder / "trace.jsonl"))
    recording.calls = read_calls(folder / "trace.jsonl")
    write_json(folder / "trace.json", perfetto_trace(recording))
    (folder / "report.html").write_text(html_report(recording, {}), encoding="utf-8")
