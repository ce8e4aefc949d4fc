"""Differential privacy of devices: each one's change clipped to a norm, noise on the mean, and what that amounts to.

Keys of the run config:

    privacy.clipping-norm      L2 norm that a device's change is cut to
    privacy.noise-multiplier   standard deviation of the noise on the sum, in clipping norms; 0: no privacy at all
    privacy.devices            how many take part in a round; one in which fewer answer changes nothing
    privacy.delta              for which epsilon is told
    privacy.max-epsilon        no round that would go beyond it is begun; may be left out

The guarantee is of what is published after each round, the adapter, against whoever sees that; the server itself sees
single changes, and losses and counts of targets that devices report are not covered. Epsilon is worked out by Google's
dp-accounting (Renyi), without amplification by sampling.
"""

from collections.abc import Mapping
from typing import Any

from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.privacy_accounting import NeighboringRelation, PrivacyConfig, SamplingMethod
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

from mobile_ft.errors import UserError

_KEYS = ("clipping-norm", "noise-multiplier", "devices", "delta")


def with_privacy(inner: FedAvg, config: Mapping[str, Any]) -> DifferentialPrivacyServerSideFixedClipping | None:
    """Around `inner`; None where the config asks for none. Raises UserError where settings lack or do not fit."""
    given = {k.removeprefix("privacy."): v for k, v in config.items() if k.startswith("privacy.")}
    for key in given:
        if key not in (*_KEYS, "max-epsilon"):
            raise UserError(f"privacy.{key}: known are {', '.join(_KEYS)}, max-epsilon")
    if given.get("noise-multiplier", 0) == 0:
        return None
    for key in _KEYS:
        if key not in given:
            raise UserError(f"privacy.{key} is not set; differential privacy needs {', '.join(_KEYS)}")
    if type(inner) is not FedAvg:
        raise UserError(
            f"privacy: its noise is that of a mean, so strategy.name has to be fedavg, not {type(inner).__name__}"
        )
    try:
        devices = int(given["devices"])
        # No more and no fewer, however many are there.
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
