"""Settings of a device: the app's run config, overridden by the device's own node config.

Both have these keys:

    bundle              path of the bundle
    data                path of the data
    folder              folder in which the device keeps its state between rounds
    minutes             time limit per round
    secure-aggregation  true: never send an individual change
    train.NAME          any option that `mft-run options` lists

In a path, {partition} is the number of a simulated device.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Context

from mobile_ft.api.options import train_settings
from mobile_ft.errors import UserError

_OPTION = "train."
_SERVERS = ("lora_train", "proximal_mu")  # set by the server, the same for all devices
_SECURE = "secure-aggregation"


@dataclass(frozen=True)
class Settings:
    """The settings of one device."""

    bundle: Path
    data: Path
    folder: Path
    minutes: float | None
    options: dict[str, str]  # training options, by names with underscores
    secure: bool = False  # whether individual changes are never sent


def settings_of(context: Context) -> Settings:
    """Reads the settings. Raises UserError if one is missing or wrong."""
    values: dict[str, object] = {**context.run_config, **context.node_config}

    def path(name: str) -> Path:
        given = values.get(name)
        if not isinstance(given, str):
            raise UserError(f"{name} is not set; set it with --node-config of flower-supernode or in the app's config")
        if "{partition}" in given and "partition-id" not in values:
            raise UserError(
                f"{name} is {given!r}, but only simulated devices have a {{partition}}; set {name} with --node-config"
            )
        return Path(given.replace("{partition}", str(values.get("partition-id"))))

    options = train_options(values)
    for name in _SERVERS:
        if name in options:
            raise UserError(f"{_OPTION}{name.replace('_', '-')}: is set by the server; leave it out")
    train_settings(options)
    minutes = values.get("minutes")
    if minutes is not None and (not isinstance(minutes, (int, float)) or not minutes > 0):
        raise UserError(f"minutes is {minutes!r}; it must be a positive number")
    return Settings(path("bundle"), path("data"), path("folder"), minutes, options, is_secure(values))


def is_secure(values: Mapping[str, object]) -> bool:
    """Whether individual changes must not be sent. Raises UserError if the setting is not a boolean."""
    given = values.get(_SECURE, False)
    if not isinstance(given, bool):
        raise UserError(f"{_SECURE} is {given!r}; it must be true or false, without quotes")
    return given


def train_options(values: Mapping[str, object]) -> dict[str, str]:
    """Returns the training options."""
    return {
        name.removeprefix(_OPTION).replace("-", "_"): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if name.startswith(_OPTION)
    }
