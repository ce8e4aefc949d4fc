"""Fuzzers of every file that the Python side reads: `fuzz_<format>.py`, run by `python -m fuzz.python.harness`."""
