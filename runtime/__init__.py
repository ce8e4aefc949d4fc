"""The C++ runtime from Python: the same runs, models and generators that `mft-run` has, on numpy arrays."""

from pathlib import Path

from mobile_ft.runtime._core import (
    BusyError,
    ChatTemplate,
    DataConfig,
    Dataset,
    GenerateConfig,
    Generator,
    Model,
    Option,
    RowReader,
    RowText,
    RuntimeFailure,
    TokenFile,
    TrainConfig,
    Trainer,
    data_options,
    evaluate,
    generate_options,
    instruction_set,
    instruction_sets,
    learn_options,
    own_learn_options,
    pack,
    process_memory,
    quantize,
    renamed,
    resumed_options,
    run_training,
    train_options,
    trust_key,
)

__all__ = [
    "BusyError",
    "ChatTemplate",
    "DataConfig",
    "Dataset",
    "GenerateConfig",
    "Generator",
    "Model",
    "Option",
    "RowReader",
    "RowText",
    "RuntimeFailure",
    "TokenFile",
    "TrainConfig",
    "Trainer",
    "data_options",
    "evaluate",
    "generate_options",
    "instruction_set",
    "instruction_sets",
    "learn_options",
    "mft_run_path",
    "own_learn_options",
    "pack",
    "process_memory",
    "quantize",
    "renamed",
    "resumed_options",
    "run_training",
    "train_options",
    "trust_key",
]


def mft_run_path() -> Path:
    """The native `mft-run` binary, which lies beside the compiled module."""
    from mobile_ft.runtime import _core

    return Path(_core.__file__).parent / "mft-run"
