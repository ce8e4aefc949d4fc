"""Model -> ExecuTorch training bundle: load, trace, lower, write."""
