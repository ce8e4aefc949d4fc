"""Builds the ExecuTorch program: traces, splits and lowers units."""
