"""Reads the weights of checkpoints that other programs quantized."""
