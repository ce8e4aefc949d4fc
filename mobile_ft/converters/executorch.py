"""`--to executorch`: the merged model as a float32 program for stock ExecuTorch, with XNNPACK and portable kernels."""

from pathlib import Path
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch.export import Dim, export

from mobile_ft.converters import tokenizer_files
from mobile_ft.converters.executorch_decoder import Decoder
from mobile_ft.converters.fine_tuned import FineTuned
from mobile_ft.converters.plain_decoder import check_plain
from mobile_ft.data.tokenizer import Tokenizer

PROGRAM_FILE = "model.pte"
FILES = (PROGRAM_FILE, *tokenizer_files.FILES)


def write(model: FineTuned, out: Path) -> None:
    """Writes FILES into the folder `out`. Needs memory for several copies of the model.

    The method `forward` takes tokens, int64 [1, sequence], and the number of earlier tokens, int64 [1]. It returns the
    logits of the last token, float32 [1, vocab]. Its key-value cache has the bundle's max_seq_len tokens.
    """
    check_plain(model.config, "executorch")
    model.check()
    tokenizer = tokenizer_files.write_tokenizer_files(model.bundle, out)
    length = model.bundle.max_seq_len
    sequence = Dim("sequence", min=1, max=length)
    example = (torch.zeros(1, min(3, length), dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    with torch.no_grad():
        exported = export(Decoder(model).eval(), example, dynamic_shapes=({1: sequence}, None))
    lowered = to_edge_transform_and_lower(
        exported, partitioner=[XnnpackPartitioner()], constant_methods=_metadata(model, tokenizer)
    )
    del exported
    with (out / PROGRAM_FILE).open("wb") as file:
        lowered.to_executorch().write_to_file(file)


def _metadata(model: FineTuned, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Returns the constants that ExecuTorch's text runner reads from a program."""
    length = model.bundle.max_seq_len
    values: dict[str, Any] = {
        "get_max_seq_len": length,
        "get_max_context_len": length,
        "get_vocab_size": model.config.vocab_size,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
        "enable_dynamic_shape": True,
    }
    if tokenizer is not None:
        values["get_eos_ids"] = tokenizer.end_ids
        if tokenizer.bos_id is not None:
            values["get_bos_id"] = tokenizer.bos_id
    return values
