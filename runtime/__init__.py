"""The C++ runtime from Python: the same Model and Trainer that `mft-run` uses, on numpy arrays."""

from pathlib import Path

from mobile_ft.runtime._core import (
    Model,
    RuntimeFailure,
    TokenFile,
    TrainConfig,
    Trainer,
    evaluate,
    kernels,
    process_memory,
)

__all__ = [
    "Model",
    "RuntimeFailure",
    "TokenFile",
    "TrainConfig",
    "Trainer",
    "evaluate",
    "kernels",
    "mft_run_path",
    "process_memory",
]


def mft_run_path() -> Path:
    """The native `mft-run` binary, which lies beside the compiled module."""
    from mobile_ft.runtime import _core

    return Path(_core.__file__).parent / "mft-run"
