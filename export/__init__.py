"""Exports a model to an ExecuTorch training bundle: loads, traces, lowers and writes it."""
