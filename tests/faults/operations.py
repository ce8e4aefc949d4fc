"""What the tests of faults run in Python: a process that imports everything once and forks for each run.

A line of JSON asks for a run, a line answers how it ended. What a run has done it prints, as a promise.
"""

import ctypes
import functools
import gc
import json
import logging
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

import mobile_ft
import mobile_ft.api.auto_schedule
import mobile_ft.api.reporting
import mobile_ft.api.run_file
import mobile_ft.converters.gguf
import mobile_ft.converters.gguf_lora
import mobile_ft.converters.hf
import mobile_ft.converters.peft
import mobile_ft.export.bundle as bundles
import mobile_ft.federated.history as history
from mobile_ft.api.convert import Target
from mobile_ft.bundle.description import read_bundle
from mobile_ft.errors import UserError
from mobile_ft.model.lora import LoraConfig
from mobile_ft.runtime import Dataset, RuntimeFailure
from tests.small_bundle import CONFIG, TalkingModel
from tests.targets import ALL_LINEAR


class Model(TalkingModel):
    def write_tokenizer(self, folder: Path) -> None:
        """Copies its files, as of a Hugging Face folder."""
        with tempfile.TemporaryDirectory() as made:
            super().write_tokenizer(Path(made))
            for file in sorted(Path(made).iterdir()):
                shutil.copyfile(file, folder / file.name)


def export(out: str, seed: int) -> None:
    bundles.write_bundle(Model(CONFIG, seed), LoraConfig(4, 8.0, ALL_LINEAR), 64, seed, Path(out))


def convert(bundle: str, adapter: str, out: str, to: Target) -> None:
    mobile_ft.convert(bundle, adapter, out, to=to, progress=False)


def train(bundle: str, rows: list[Any], out: str, resume: bool, options: dict[str, Any]) -> None:
    def tell(event: dict[str, Any]) -> None:
        print(event["event"], flush=True)

    mobile_ft.train(bundle, rows, out, resume=resume, in_process=True, progress=False, callbacks=[tell], **options)


def add_rows(bundle: str, path: str, rows: list[str]) -> None:
    """Adds rows and tells which were taken; goes on behind one that was not, as an app would."""
    dataset = Dataset(bundle, path)
    failed = None
    for number, row in enumerate(rows):
        try:
            dataset.add(row)
            print(number, flush=True)
        except RuntimeFailure as error:
            failed = error
    if failed:
        raise failed


def end_round(bundle: str, out: str, number: int) -> None:
    """What a federated server saves of a round, unless it is there already."""
    module: Any = history
    module.time = SimpleNamespace(monotonic=lambda: 0.0)  # rounds tell how long they took
    found = history.History(Path(out), read_bundle(Path(bundle)), "both")
    if found.rounds < number:
        found.adapter = {name: x + np.float32(number) for name, x in found.adapter.items()}
        found.end_round(number, cast(Any, None))


RUNS: dict[str, Callable[..., None]] = {
    "export": export,
    "convert": convert,
    "train": train,
    "add_rows": add_rows,
    "end_round": end_round,
}


def _run(request: dict[str, Any]) -> int:
    try:
        journal, call, kind = request["fault"]
        ctypes.CDLL(None).faults_arm(journal.encode(), call, kind)
        RUNS[request["name"]](**request["arguments"])
        print("done", flush=True)
        return 0
    except (UserError, RuntimeFailure) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    except BaseException:
        traceback.print_exc()
        return 2


def _forked(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(error.fileno(), 2)
            os._exit(_run(request))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        error.seek(0)
        return {"code": code, "out": out.read(), "error": error.read()}


def main() -> None:
    # All runs export the same program, and to build it takes a thousand times as long as to write a bundle.
    with tempfile.TemporaryDirectory() as folder:
        module: Any = bundles
        module.cached_program = functools.cache(module.cached_program)
        logging.getLogger("flwr").setLevel(logging.ERROR)  # an error is all that is told
        warm = False
        for line in sys.stdin:
            request = json.loads(line)
            if request["name"] == "export" and not warm:
                export(f"{folder}/bundle", 0)
                gc.freeze()  # else the first collection of each fork would copy all there is
                warm = True
            print(json.dumps(_forked(request)), flush=True)


if __name__ == "__main__":
    main()
