"""What a training step computes: families, configurations, residual units, custom ops, LoRA, packed weights."""
