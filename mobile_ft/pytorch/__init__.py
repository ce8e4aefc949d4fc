"""LowMemoryBP, LCSB and DropBP for Hugging Face models in PyTorch, on CPU or GPU, with full fine-tuning or PEFT.

    from mobile_ft.pytorch import Schedule, apply

    applied = apply(model, activation="approx2bit", norm="memory_sharing", schedule=Schedule("lcsb", steps=1000))
    for step, batch in enumerate(batches):
        applied.scheduled.begin(step)     # in Trainer and TRL: `callback.ScheduleCallback` instead of `schedule`
        model(**batch).loss.backward()
        ...
    applied.undo()

Forward outputs do not change, within rounding, but autograd keeps less for the backward:

- for an activation, 2 bits per element (LowMemoryBP, arXiv 2406.16282);
- for a norm, only its output without weight; the backward applies the weight again (also LowMemoryBP);
- for branches that the schedule does not train at a step, nothing.
"""

from mobile_ft.pytorch.activations import ReGELU2, ReSiLU2
from mobile_ft.pytorch.apply import Applied, apply
from mobile_ft.pytorch.norms import ms_layer_norm, ms_rms_norm
from mobile_ft.pytorch.saved import SavedTensors
from mobile_ft.pytorch.schedule import Scheduled
from mobile_ft.pytorch.selection import Schedule

__all__ = [
    "Applied",
    "ReGELU2",
    "ReSiLU2",
    "SavedTensors",
    "Schedule",
    "Scheduled",
    "apply",
    "ms_layer_norm",
    "ms_rms_norm",
]
