"""LowMemoryBP, LCSB and DropBP for any Hugging Face model in PyTorch, on CPU or GPU, full fine-tuning or PEFT.

    from mobile_ft.pytorch import Schedule, apply

    applied = apply(model, activation="approx2bit", norm="memory_sharing", schedule=Schedule("lcsb", steps=1000))
    for step, batch in enumerate(batches):
        applied.scheduled.begin(step)     # or `callback.ScheduleCallback` in Trainer and TRL, and no schedule here
        model(**batch).loss.backward()
        ...
    applied.undo()

Forward outputs stay what they were within rounding. What autograd keeps for the backward gets smaller: of an
activation 2 bits an element, of a norm nothing beside its output without weight, from which the weight is applied
again where it is needed (LowMemoryBP, arXiv 2406.16282); of branches that a schedule does not train at a step, nothing.
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
