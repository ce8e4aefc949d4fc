"""The Flower ServerApp: runs the rounds of the strategy in the run config.

Keys of the run config, besides those of devices (`mobile_ft.federated.settings`):

    rounds           total number of rounds, including those of an earlier run in `out`
    out              output folder; it is a PEFT adapter after each round
    strategy.name    fedavg, fedsvd, fedadam, fedmedian or fedtrimmedavg
    strategy.NAME    an argument of that strategy, such as fraction-train, min-available-nodes, eta (0.01), beta
    lora-train       both, or b: A is the bundle's on all devices, so the mean is exact (FFA-LoRA, arXiv 2403.12313)
    wire             number format of changes: float32, float16 or int8
    proximal-mu      mu of FedProx; 0: no proximal term
    lr-scheduler     constant, or cosine: devices' learning rates decay to 0 over the rounds
    largest-ratio    largest ratio of an update's norm, or number of targets, to the median
    timeout          seconds per round
    secure-aggregation, secure.NAME
                     the server sees only the sum of changes (`mobile_ft.federated.secure`)
    privacy.NAME     differential privacy (`mobile_ft.federated.privacy`)
"""

import inspect
import math
from collections.abc import Callable, Mapping
from logging import WARNING
from pathlib import Path
from typing import Any, cast

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian, FedTrimmedAvg
from flwr.supercore import log

from mobile_ft.bundle.description import read_bundle
from mobile_ft.errors import UserError
from mobile_ft.federated.checks import LARGEST_RATIO
from mobile_ft.federated.fedsvd import FedSvd
from mobile_ft.federated.history import History
from mobile_ft.federated.plot import plot_rounds
from mobile_ft.federated.privacy import with_privacy
from mobile_ft.federated.secure import SumOfDevices
from mobile_ft.federated.settings import is_secure
from mobile_ft.federated.strategy import WEIGHT, LoraStrategy
from mobile_ft.federated.wire import wire_of

STRATEGIES: dict[str, type[FedAvg]] = {
    "fedavg": FedAvg,
    "fedsvd": FedSvd,
    "fedadam": FedAdam,
    "fedmedian": FedMedian,
    "fedtrimmedavg": FedTrimmedAvg,
}
_PLOT = "rounds.svg"
_TIMEOUT = 3600.0


def server_app() -> ServerApp:
    """Returns the ServerApp, which runs the rounds of its run config."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        run_rounds(grid, context.run_config)

    return app


def run_rounds(grid: Grid, config: Mapping[str, Any]) -> None:
    """Runs the rounds, and writes the adapter, the record of the rounds and a plot to `out`. Raises UserError if a
    setting is wrong."""
    out, rounds = Path(str(_needed(config, "out"))), int(_needed(config, "rounds"))
    lora_train = str(config.get("lora-train", "both"))
    if lora_train not in ("both", "b"):
        raise UserError(f"lora-train {lora_train!r}: must be both or b")
    inner = _strategy(config)
    if isinstance(inner, FedSvd) and lora_train == "b":
        raise UserError(
            "strategy.name fedsvd: requires lora-train both; with lora-train b, use fedavg, whose mean is exact"
        )
    history = History(out, read_bundle(Path(str(_needed(config, "bundle")))), lora_train)
    private = with_privacy(inner, config)
    secure = is_secure(config)
    if secure:
        _check_secure(config, inner, private is not None)
    strategy = LoraStrategy(
        inner if private is None else private,
        history,
        lora_train=lora_train,
        wire=wire_of(str(config.get("wire", "float32"))),
        proximal_mu=float(config.get("proximal-mu", 0.0)),
        equal_weights=private is not None,
        # Noise hides a device's effect on the mean, but not its effect on the acceptance of other updates.
        largest_ratio=float("inf") if private is not None else float(config.get("largest-ratio", LARGEST_RATIO)),
        one_sum=secure,
        lr_factor=_lr_factor(str(config.get("lr-scheduler", "constant")), rounds),
    )
    over = cast(Grid, SumOfDevices(grid, history.adapter, config)) if secure else grid
    try:
        strategy.run(over, rounds, float(config.get("timeout", _TIMEOUT)))
    except PrivacyBudgetExhausted as error:
        log(WARNING, "no more rounds: %s", error)
    plot_rounds(history.records, out.with_name(f"{out.name}-{_PLOT}"))


def _check_secure(config: Mapping[str, Any], inner: FedAvg, private: bool) -> None:
    """Raises UserError, with the setting, if one requires individual changes."""
    wire = str(config.get("wire", "float32"))
    for name, given in {
        f"strategy.name {config.get('strategy.name')}": type(inner) is not FedAvg,
        "privacy": private,
        "largest-ratio": "largest-ratio" in config,
        f"wire {wire}": wire != "float32",
    }.items():
        if given:
            raise UserError(
                f"{name}: not supported with secure-aggregation, which only reveals a fixed-point sum of changes"
            )


def _lr_factor(scheduler: str, rounds: int) -> Callable[[int], float]:
    if scheduler == "constant":
        return lambda number: 1.0
    if scheduler == "cosine":
        return lambda number: 0.5 * (1 + math.cos(math.pi * (number - 1) / rounds))
    raise UserError(f"lr-scheduler {scheduler!r}: must be constant or cosine")


def _needed(config: Mapping[str, Any], name: str) -> Any:
    if name not in config:
        raise UserError(f"{name} is not set; set it in [tool.flwr.app.config] or with --run-config")
    return config[name]


def _strategy(config: Mapping[str, Any]) -> FedAvg:
    given = {k.removeprefix("strategy.").replace("-", "_"): v for k, v in config.items() if k.startswith("strategy.")}
    name = str(given.pop("name", "fedavg"))
    if name not in STRATEGIES:
        raise UserError(f"strategy.name {name!r}: must be one of {', '.join(STRATEGIES)}")
    kind = STRATEGIES[name]
    if kind is FedAdam:  # the value of the example's measurements; Flower's default is 0.1
        given = {"eta": 0.01} | given
    known = inspect.signature(kind).parameters
    for key in given:
        if key not in known:
            raise UserError(f"strategy.{key.replace('_', '-')}: unknown argument; {name} has {', '.join(known)}")
    return kind(**given, weighted_by_key=WEIGHT)
