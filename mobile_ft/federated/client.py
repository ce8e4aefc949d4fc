"""The Flower ClientApp of a device: trains, and evaluates, within the device's own settings.

Rows stay where they are, and so does what errors say of them: the server hears no more than that there was one.
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

COULD_NOT = 1000  # the code of a reply without result


def client_app() -> ClientApp:
    """Its run config and node config: `mobile_ft.federated.settings`."""
    app = ClientApp()
    app.train()(train_message)
    app.evaluate()(evaluate_message)
    return app


def train_message(message: Message, context: Context) -> Message:
    """The change of the round's adapter and the metrics of its training."""

    def act(settings: Settings) -> RecordDict:
        if asks_for_sum(message):
            return add_to_sum(message, context, lambda wanted: train_round(settings, wanted))
        if settings.secure:
            raise UserError("the server asks for this device's change by itself; secure-aggregation is set here")
        reply = train_round(settings, read_round(message.content))
        return RecordDict({ARRAYS: file_record(reply.change), METRICS: MetricRecord({**reply.metrics})})

    return _reply(message, context, act)


def evaluate_message(message: Message, context: Context) -> Message:
    """Loss and targets of the device's held-out rows."""

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
    except Exception as error:  # Flower would tell the server of any other than this program's own
        # Here alone: it may quote a row.
        log(ERROR, "%s", error, exc_info=not isinstance(error, UserError))
        return Message(Error(COULD_NOT, "the device could not do its part; its own log says why"), reply_to=message)
