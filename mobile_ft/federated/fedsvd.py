"""Aggregates LoRA's two matrices as one product."""

from collections.abc import Iterable
from math import sqrt
from typing import cast

from flwr.app import Array, ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg

from mobile_ft.errors import UserError
from mobile_ft.federated.mean_product import mean_product

_A, _B = ".lora_A.weight", ".lora_B.weight"


class FedSvd(FedAvg):
    """Aggregates by the weighted mean of the clients' products B A, truncated to the adapter's rank
    (`mobile_ft.federated.mean_product`).

    FedAvg's mean of A times its mean of B is a different matrix, which has products B_i A_j of different clients.
    `round_metrics` has the truncated part of the last mean, relative to the norm of the mean, over all layers.
    """

    round_metrics: dict[str, float]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        self.round_metrics = {}
        if not valid:
            return None, None
        contents = [reply.content for reply in valid]
        weights = [cast(float, next(iter(x.metric_records.values()))[self.weighted_by_key]) for x in contents]
        shares = [w / sum(weights) for w in weights]
        clients = [next(iter(x.array_records.values())) for x in contents]
        arrays, left_out, whole = ArrayRecord(), 0.0, 0.0
        for name in clients[0]:
            if not name.endswith(_A):
                continue
            other = name.removesuffix(_A) + _B
            if other not in clients[0]:
                raise UserError(f"{name} has no {other}; FedSvd requires both")
            product = mean_product([x[name].numpy() for x in clients], [x[other].numpy() for x in clients], shares)
            arrays[name], arrays[other] = Array(product.a), Array(product.b)
            left_out += product.left_out**2
            whole += product.norm**2
        self.round_metrics["left_out"] = sqrt(left_out / whole) if whole > 0 else 0.0
        return arrays, self.train_metrics_aggr_fn(contents, self.weighted_by_key)
