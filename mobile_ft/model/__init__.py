"""The computation of a training step: families, configurations, residual units, custom ops, LoRA, packed weights."""
