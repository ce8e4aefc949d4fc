"""Training data: where rows are, what becomes of them as tokens."""
