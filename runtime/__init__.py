"""The C++ runtime from Python: the same runs, models and generators that `mft-run` has, on numpy arrays."""

from pathlib import Path

from mobile_ft.runtime._core import (
    Dataset,
    GenerateConfig,
    Generator,
    Model,
    Option,
    RuntimeFailure,
    TokenFile,
    TrainConfig,
    Trainer,
    evaluate,
    generate_options,
    instruction_set,
    instruction_sets,
    pack,
    process_memory,
    quantize,
    run_training,
    train_options,
    trust_key,
)

__all__ = [
    "Dataset",
    "GenerateConfig",
    "Generator",
    "Model",
    "Option",
    "RuntimeFailure",
    "TokenFile",
    "TrainConfig",
    "Trainer",
    "evaluate",
    "generate_options",
    "instruction_set",
    "instruction_sets",
    "mft_run_path",
    "pack",
    "process_memory",
    "quantize",
    "run_training",
    "train_options",
    "trust_key",
]


def mft_run_path() -> Path:
    """The native `mft-run` binary, which lies beside the compiled module."""
    from mobile_ft.runtime import _core

    return Path(_core.__file__).parent / "mft-run"
