"""LowMemoryBP (arXiv 2406.16282) for any Hugging Face model in PyTorch, on CPU or GPU, full fine-tuning or PEFT.

    from mobile_ft.pytorch import apply

    applied = apply(model, activation="approx2bit", norm="memory_sharing")
    ...                                   # train as before: Trainer, TRL, or a loop
    applied.undo()

Forward outputs stay what they were within rounding. What autograd keeps for the backward gets smaller: of an
activation 2 bits an element, of a norm nothing beside its output without weight, from which the weight is applied again
where it is needed.
"""

from mobile_ft.pytorch.activations import ReGELU2, ReSiLU2
from mobile_ft.pytorch.apply import Applied, apply
from mobile_ft.pytorch.norms import ms_layer_norm, ms_rms_norm
from mobile_ft.pytorch.saved import SavedTensors

__all__ = ["Applied", "ReGELU2", "ReSiLU2", "SavedTensors", "apply", "ms_layer_norm", "ms_rms_norm"]
