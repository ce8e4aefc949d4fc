"""What a device trains with: from the app's run config, over which goes the device's own node config.

The keys of both are `bundle` and `data`, paths; `folder`, where the device keeps what it needs from round to round;
`minutes`, at most so many a round; `secure-aggregation`, true where no change may be sent by itself; and `train.NAME`
for any option that `mft-run options` lists. In a path, {partition} is the number of a simulated device.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Context

from mobile_ft.api.options import train_settings
from mobile_ft.errors import UserError

_OPTION = "train."
_SERVERS = ("lora_train", "proximal_mu")  # the same for all devices
_SECURE = "secure-aggregation"


@dataclass(frozen=True)
class Settings:
    """One device's."""

    bundle: Path
    data: Path
    folder: Path
    minutes: float | None
    options: dict[str, str]  # of training, by their names with underscores
    secure: bool = False  # no change is sent by itself


def settings_of(context: Context) -> Settings:
    """Raises UserError where something is missing, or not as it has to be."""
    values: dict[str, object] = {**context.run_config, **context.node_config}

    def path(name: str) -> Path:
        given = values.get(name)
        if not isinstance(given, str):
            raise UserError(f"{name} is not set, by --node-config of flower-supernode or in the app's config")
        if "{partition}" in given and "partition-id" not in values:
            raise UserError(f"{name} is {given!r}: only simulated devices have a number; set {name} by --node-config")
        return Path(given.replace("{partition}", str(values.get("partition-id"))))

    options = train_options(values)
    for name in _SERVERS:
        if name in options:
            raise UserError(f"{_OPTION}{name.replace('_', '-')}: the server's to say")
    train_settings(options)
    minutes = values.get("minutes")
    if minutes is not None and (not isinstance(minutes, (int, float)) or not minutes > 0):
        raise UserError(f"minutes is {minutes!r}; it has to be a positive number")
    return Settings(path("bundle"), path("data"), path("folder"), minutes, options, is_secure(values))


def is_secure(values: Mapping[str, object]) -> bool:
    """Whether no change may be sent by itself. Raises UserError where that is not said clearly."""
    given = values.get(_SECURE, False)
    if not isinstance(given, bool):
        raise UserError(f"{_SECURE} is {given!r}; it has to be true or false, without quotes")
    return given


def train_options(values: Mapping[str, object]) -> dict[str, str]:
    """The options of training among them."""
    return {
        name.removeprefix(_OPTION).replace("-", "_"): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if name.startswith(_OPTION)
    }
