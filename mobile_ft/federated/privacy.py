"""Differential privacy of devices: clips each change to a norm, adds noise to the mean, and accounts for epsilon.

Keys of the run config:

    privacy.clipping-norm      L2 norm to which a device's change is clipped
    privacy.noise-multiplier   standard deviation of the noise on the sum, relative to the clipping norm; 0: no privacy
    privacy.devices            number of devices per round; a round with fewer replies changes nothing
    privacy.delta              delta for which epsilon is reported
    privacy.max-epsilon        no round starts that would exceed it; optional

The guarantee covers the adapter that is published after each round. It does not cover the server, which sees single
changes, or the losses and numbers of targets that devices report. Epsilon is computed by Google's dp-accounting
(Renyi), without amplification by sampling.
"""

from collections.abc import Mapping
from typing import Any

from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.privacy_accounting import NeighboringRelation, PrivacyConfig, SamplingMethod
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

from mobile_ft.errors import UserError

_KEYS = ("clipping-norm", "noise-multiplier", "devices", "delta")


def with_privacy(inner: FedAvg, config: Mapping[str, Any]) -> DifferentialPrivacyServerSideFixedClipping | None:
    """Wraps `inner`. Returns None if the config does not request privacy. Raises UserError if settings are missing or
    wrong."""
    given = {k.removeprefix("privacy."): v for k, v in config.items() if k.startswith("privacy.")}
    for key in given:
        if key not in (*_KEYS, "max-epsilon"):
            raise UserError(f"privacy.{key}: unknown setting; known: {', '.join(_KEYS)}, max-epsilon")
    if given.get("noise-multiplier", 0) == 0:
        return None
    for key in _KEYS:
        if key not in given:
            raise UserError(f"privacy.{key} is not set; differential privacy requires {', '.join(_KEYS)}")
    if type(inner) is not FedAvg:
        raise UserError(
            f"privacy: the noise is computed for a mean, so strategy.name must be fedavg, not {type(inner).__name__}"
        )
    try:
        devices = int(given["devices"])
        # Exactly this number, regardless of the number of connected devices.
        inner.fraction_train, inner.min_train_nodes = 1e-9, devices
        inner.min_available_nodes = max(inner.min_available_nodes, devices)
        limit = given.get("max-epsilon")
        accountant = RdpAccountant(
            PrivacyConfig(
                target_delta=float(given["delta"]),
                population_size=devices,
                neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
                sampling_method=SamplingMethod.NO_AMPLIFICATION,
                max_epsilon=None if limit is None else float(limit),
            )
        )
        return DifferentialPrivacyServerSideFixedClipping(
            inner,
            float(given["noise-multiplier"]),
            float(given["clipping-norm"]),
            devices,
            accountant=accountant,
        )
    except (ValueError, TypeError) as error:
        raise UserError(f"privacy: {error}") from error
