"""How checkpoints of other quantizers store their weights, unpacked."""
