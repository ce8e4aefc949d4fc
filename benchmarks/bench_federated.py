"""Compares federated training with training on each device alone: `bench_federated.py --json FILE`.

Eight devices have dialogues of their own topics (examples/federated/prepare.py) and train SmolLM2-135M with LoRA on all
linear layers. A federated run has rounds x devices x steps. Training on all rows together has as many steps, and a
device alone has its part of them. The loss is that on the held-out rows of all devices, averaged over seeds, which
define the order of rows. Results are saved in the JSON file and not computed again.
"""

import argparse
import json
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import mobile_ft
from mobile_ft.api.files import write_json
from mobile_ft.federated.plot import plot_rounds
from tests.federated.fleet import Fleet

ROOT = Path(__file__).parents[1]
ROUNDS, STEPS = 10, 5
RATES = {"lr": 1e-3, "lr-scheduler": "constant", "warmup-steps": 0}
TRAINING = RATES | {"threads": 1, "seq-len": 256, "save-every": 1000}
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
    "FedAvg, 7 rounds of 4, lr 2e-3": {"rounds": 7, "train.steps": 4, "train.lr": 2e-3},
    "FedAvg, 7 rounds of 4, cosine, lr 4e-3": COSINE | {"rounds": 7, "train.steps": 4, "train.lr": 4e-3},
    "FedAvg, 14 rounds of 2, lr 4e-3": {"rounds": 14, "train.steps": 2, "train.lr": 4e-3},
}
TOGETHER: dict[str, dict[str, Any]] = {
    "all rows together": COSINE,
    "all rows together, lr constant": {},
    "all rows together, 224 steps": COSINE | {"steps": 224},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--figure", type=Path, help="plot of the first federated run's losses by round, as SVG")
    parser.add_argument("--only", help="names of the sides to run", nargs="+")
    seeds = "seeds; a round adds its number, so they must differ by more than the number of rounds (default: 0)"
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help=seeds)
    parser.add_argument(
        "--jobs", type=int, default=2, help="number of devices that run at once, one thread each (default: 2)"
    )
    args = parser.parse_args()
    warnings.simplefilter("ignore", mobile_ft.MobileFtWarning)
    sys.path.insert(0, str(ROOT / "examples" / "federated"))
    from prepare import DEVICES, OUT
    from prepare import main as prepare

    if not OUT.exists():
        prepare()
    # side: seed: result
    results: dict[str, dict[str, Any]] = json.loads(args.json.read_text()) if args.json.exists() else {}
    names = list(DEVICES)
    total = ROUNDS * STEPS * len(names)

    def keep(side: str, seed: int, measure: Callable[..., dict[str, Any]], *arguments: Any) -> None:
        if str(seed) not in results.get(side, {}) and side in (args.only or [side]):
            results.setdefault(side, {})[str(seed)] = measure(*arguments)
            write_json(args.json, results)

    keep("untrained", 0, lambda: {"loss": held_out(OUT, None)})
    for seed in args.seeds:
        for side, config in FLEETS.items():
            keep(side, seed, fleet, OUT, len(names), args.jobs, config | {"train.seed": seed})
        for side, config in TOGETHER.items():
            keep(side, seed, alone, OUT, OUT / "all", {"steps": total, "seed": seed} | config)
        for number, name in enumerate(names):
            training = {"steps": total // len(names), "seed": seed} | COSINE
            keep(f"{name} alone", seed, alone, OUT, OUT / "rows" / str(number), training)
    report(results, names)
    if args.figure is not None:
        draw(results, names, args.figure)


def draw(results: dict[str, dict[str, Any]], names: list[str], path: Path) -> None:
    wanted = ["untrained", next(iter(TOGETHER)), *(f"{name} alone" for name in names)]
    for side in ("FedAvg", *wanted):
        if side not in results:
            raise SystemExit(f"bench_federated: the figure needs results of {side!r}; run that side first")
    lines = {side: mean_loss(results[side]) for side in wanted[:2]}
    lines["the best device alone"] = min(mean_loss(results[side]) for side in wanted[2:])
    plot_rounds(next(iter(results["FedAvg"].values()))["rounds"], path, lines)


def held_out(folder: Path, adapter: Path | None) -> float:
    return mobile_ft.evaluate(folder / "smollm2.bundle", folder / "all", adapter=adapter, progress=False).loss


def alone(folder: Path, rows: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Trains on the rows of one device, or on all rows."""
    out = folder / "alone"
    shutil.rmtree(out, ignore_errors=True)
    training = TRAINING | config | {"threads": 2}
    options: dict[str, Any] = {name.replace("-", "_"): value for name, value in training.items()}
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
    rounds = Fleet(settings | config, devices, jobs).run()
    return {"loss": held_out(folder, folder / "bench"), "rounds": rounds}


def mean_loss(seeds: dict[str, Any]) -> float:
    return float(np.mean([result["loss"] for result in seeds.values()]))


def report(results: dict[str, dict[str, Any]], names: list[str]) -> None:
    columns = (
        "side",
        "held-out loss",
        "seeds",
        "relative to all rows together",
        "MB sent per device and round",
        "truncated part of the mean",
    )
    table = Table(*columns)
    together = results.get(next(iter(TOGETHER)))
    for side, seeds in results.items():
        losses = [result["loss"] for result in seeds.values()]
        more = "" if together is None else f"{100 * (mean_loss(seeds) / mean_loss(together) - 1):+.1f} %"
        rounds = [record for result in seeds.values() for record in result.get("rounds", [])]
        up = f"{rounds[-1]['bytes_up'] / len(names) / 1e6:.2f}" if rounds else ""
        left_out = [record["left_out"] for record in rounds if "left_out" in record]
        share = f"{100 * max(left_out):.1f} %" if left_out else ""
        spread = f"{min(losses):.3f} to {max(losses):.3f}, {len(losses)}" if len(losses) > 1 else ""
        table.add_row(side, f"{mean_loss(seeds):.4f}", spread, more, up, share)
    Console().print(table)


if __name__ == "__main__":
    main()
