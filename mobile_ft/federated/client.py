"""The Flower ClientApp of a device: trains and evaluates within the device's own settings.

Rows never leave the device. Neither do error messages, which may quote rows: the server only learns that an error
occurred.
"""

import tempfile
from collections.abc import Callable
from logging import ERROR
from pathlib import Path

from flwr.app import Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore import log

from mobile_ft.api.evaluate import evaluate
from mobile_ft.bundle.description import read_bundle
from mobile_ft.errors import UserError
from mobile_ft.federated.messages import ARRAYS, METRICS, file_record, read_round
from mobile_ft.federated.round import train_round, whole_adapter, write_peft
from mobile_ft.federated.secure import add_to_sum, asks_for_sum
from mobile_ft.federated.settings import Settings, settings_of

COULD_NOT = 1000  # the error code of a reply without a result


def client_app() -> ClientApp:
    """Returns the ClientApp. `mobile_ft.federated.settings` describes its run config and node config."""
    app = ClientApp()
    app.train()(train_message)
    app.evaluate()(evaluate_message)
    return app


def train_message(message: Message, context: Context) -> Message:
    """Trains, and returns the change of the round's adapter and the metrics of the training."""

    def act(settings: Settings) -> RecordDict:
        if asks_for_sum(message):
            return add_to_sum(message, context, lambda wanted: train_round(settings, wanted))
        if settings.secure:
            raise UserError(
                "the server requests this device's individual change, but secure-aggregation is set on this device"
            )
        reply = train_round(settings, read_round(message.content))
        return RecordDict({ARRAYS: file_record(reply.change), METRICS: MetricRecord({**reply.metrics})})

    return _reply(message, context, act)


def evaluate_message(message: Message, context: Context) -> Message:
    """Evaluates, and returns the loss and the number of targets of the device's held-out rows."""

    def act(settings: Settings) -> RecordDict:
        wanted, bundle = read_round(message.content), read_bundle(settings.bundle)
        with tempfile.TemporaryDirectory(prefix="mobile-ft-") as folder:
            adapter = Path(folder) / "adapter"
            write_peft(adapter, bundle, whole_adapter(bundle, wanted))
            seq_len = settings.options.get("seq_len")
            found = evaluate(
                bundle.folder,
                settings.data,
                adapter=adapter,
                seq_len=None if seq_len is None else int(seq_len),
                progress=False,
            )
        return RecordDict({METRICS: MetricRecord({"loss": found.loss, "targets": found.tokens})})

    return _reply(message, context, act)


def _reply(message: Message, context: Context, act: Callable[[Settings], RecordDict]) -> Message:
    try:
        return Message(act(settings_of(context)), reply_to=message)
    except Exception as error:  # Flower would send any other exception to the server
        # Only logged on the device, because it may quote a row.
        log(ERROR, "%s", error, exc_info=not isinstance(error, UserError))
        return Message(Error(COULD_NOT, "the device failed; see the device's own log"), reply_to=message)
