"""The ExecuTorch program: units traced, split and lowered."""
