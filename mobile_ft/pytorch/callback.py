"""Schedules in Transformers' `Trainer`, and with it in TRL's."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from mobile_ft.pytorch.schedule import Scheduled
from mobile_ft.pytorch.selection import Schedule


class ScheduleCallback(TrainerCallback, ExportableState):
    """Trains by a schedule in Transformers' Trainer; the number of steps is the trainer's.

    Use it as `Trainer(..., callbacks=[ScheduleCallback(Schedule("dropbp", ratio=0.5))])`.

    Sensitivities are saved with the trainer's checkpoints. To resume with them, set
    `restore_callback_states_from_checkpoint=True` in `TrainingArguments`; otherwise they are measured again.
    """

    def __init__(self, schedule: Schedule | Mapping[str, Any]) -> None:
        self.schedule = schedule if isinstance(schedule, Schedule) else Schedule(**schedule)
        self.sensitivities: list[float] | None = None
        self.flops: list[float] | None = None
        self.scheduled: Scheduled | None = None  # set during a run

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.scheduled is not None:  # of a run that did not finish
            self.scheduled.undo()
        model: nn.Module = kwargs["model"]
        self.scheduled = Scheduled(model, replace(self.schedule, steps=state.max_steps))
        if self.sensitivities is not None and self.flops is not None:
            self.scheduled.use_sensitivities(self.sensitivities, self.flops)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        assert self.scheduled is not None
        self.scheduled.begin(state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        assert self.scheduled is not None
        self.sensitivities, self.flops = self.scheduled.sensitivities, self.scheduled.flops

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.scheduled is not None:
            self.scheduled.undo()
            self.scheduled = None

    def state(self) -> dict[str, Any]:
        """Returns the state to save in a checkpoint."""
        return {
            "args": {"schedule": asdict(self.schedule)},
            "attributes": {"sensitivities": self.sensitivities, "flops": self.flops},
        }
