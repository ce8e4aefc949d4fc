"""What a fleet learns together, beside what its devices learn alone: `python tools/bench_federated.py --json FILE`.

Eight devices with dialogues of their own topics (examples/federated/prepare.py), SmolLM2-135M, LoRA on all linear
layers. A fleet makes rounds x devices x steps; training on all rows together makes as many, a device alone its part of
them. Loss on the held-out rows of all devices. Results go into the JSON file, side by side; those in it are not run
again.
"""

import argparse
import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import mobile_ft
from mobile_ft.api.files import write_json
from mobile_ft.federated.plot import plot_rounds
from tests.federated.fleet import Fleet

ROOT = Path(__file__).parents[1]
ROUNDS, STEPS = 10, 5
TRAINING = {"lr": 1e-3, "lr-scheduler": "constant", "threads": 1, "seq-len": 256, "save-every": 1000}
COSINE = {"lr-scheduler": "cosine"}
FLEETS: dict[str, dict[str, Any]] = {
    "FedAvg": {},
    "FedAvg, cosine": COSINE,
    "FedAvg, cosine, lr 2e-3": COSINE | {"train.lr": 2e-3},
    "FedAvg, int8 on the wire": {"wire": "int8"},
    "FedAvg, float16 on the wire": {"wire": "float16"},
    "FFA-LoRA": {"lora-train": "b"},
    "mean of products (FedSvd)": {"strategy.name": "fedsvd"},
    "FedProx, mu 0.01": {"proximal-mu": 0.01},
    "FedAdam, eta 0.01": {"strategy.name": "fedadam", "strategy.eta": 0.01},
}
TOGETHER = {"all rows together": COSINE, "all rows together, lr constant": {}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--figure", type=Path, help="the first fleet's losses by rounds, as SVG")
    parser.add_argument("--only", default="", help="sides with this text in their name")
    parser.add_argument("--jobs", type=int, default=2, help="devices at once, one thread each (default: 2)")
    args = parser.parse_args()
    warnings.simplefilter("ignore", mobile_ft.MobileFtWarning)
    sys.path.insert(0, str(ROOT / "examples" / "federated"))
    from prepare import DEVICES, OUT
    from prepare import main as prepare

    if not OUT.exists():
        prepare()
    results: dict[str, Any] = json.loads(args.json.read_text()) if args.json.exists() else {}
    names = list(DEVICES)
    total = ROUNDS * STEPS * len(names)

    def keep(side: str, measure: Any) -> None:
        if side not in results and args.only in side:
            results[side] = measure()
            write_json(args.json, results)

    keep("untrained", lambda: {"loss": held_out(OUT, None)})
    for side, config in FLEETS.items():
        keep(side, lambda config=config: fleet(OUT, len(names), args.jobs, config))
    for side, config in TOGETHER.items():
        keep(side, lambda config=config: alone(OUT, OUT / "all", total, config))
    for number, name in enumerate(names):
        keep(f"{name} alone", lambda number=number: alone(OUT, OUT / "rows" / str(number), total // len(names), COSINE))
    report(results, names)
    if args.figure is not None:
        lines = {side: results[side]["loss"] for side in ("untrained", next(iter(TOGETHER)))}
        lines["the best device alone"] = min(results[f"{name} alone"]["loss"] for name in names)
        plot_rounds(results["FedAvg"]["rounds"], args.figure, lines)


def held_out(folder: Path, adapter: Path | None) -> float:
    return mobile_ft.evaluate(folder / "smollm2.bundle", folder / "all", adapter=adapter, progress=False).loss


def alone(folder: Path, rows: Path, steps: int, config: dict[str, Any]) -> dict[str, Any]:
    """Trained on the rows of one device, or on all."""
    out = folder / "alone"
    shutil.rmtree(out, ignore_errors=True)
    training = TRAINING | config | {"threads": 2, "steps": steps}
    options = {name.replace("-", "_"): value for name, value in training.items()}
    mobile_ft.train(folder / "smollm2.bundle", rows, out, **options)
    return {"loss": held_out(folder, out)}


def fleet(folder: Path, devices: int, jobs: int, config: dict[str, Any]) -> dict[str, Any]:
    for used in ("devices", "bench"):
        shutil.rmtree(folder / used, ignore_errors=True)
    settings: dict[str, Any] = {
        "bundle": str(folder / "smollm2.bundle"),
        "data": str(folder / "rows" / "{partition}"),
        "folder": str(folder / "devices" / "{partition}"),
        "out": str(folder / "bench"),
        "rounds": ROUNDS,
        "train.steps": STEPS,
    }
    settings |= {f"train.{name}": value for name, value in TRAINING.items()}
    rounds = Fleet(settings | config, devices, jobs).run(**{"out": settings["out"]}, **config)
    return {"loss": held_out(folder, folder / "bench"), "rounds": rounds}


def report(results: dict[str, Any], names: list[str]) -> None:
    table = Table("side", "held-out loss", "of all rows together", "MB up a device and round", "left out of the mean")
    together = results.get(next(iter(TOGETHER)), {}).get("loss")
    for side, result in results.items():
        more = "" if together is None else f"{100 * (result['loss'] / together - 1):+.1f} %"
        last = result["rounds"][-1] if "rounds" in result else {}
        up = f"{last['bytes_up'] / len(names) / 1e6:.2f}" if last else ""
        left_out = [record["left_out"] for record in result.get("rounds", []) if "left_out" in record]
        share = f"{100 * max(left_out):.1f} %" if left_out else ""
        table.add_row(side, f"{result['loss']:.4f}", more, up, share)
    Console().print(table)


if __name__ == "__main__":
    main()
