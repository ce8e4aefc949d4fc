"""bitsandbytes' own 4-bit weights, saved and in memory, against its own dequantization."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bitsandbytes
import numpy as np
import pytest
import torch
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig

from mobile_ft.errors import UserError
from mobile_ft.export.source.hf_checkpoint import HfCheckpoint
from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.export.source.hf_model import HfModel
from mobile_ft.model.formats import unpack
from tests.hf_models import FAMILIES, random_model

# 352 columns are no multiple of a block, and 352 blocks are more than share a scale of absmax.
CONFIG = LlamaConfig(**{**FAMILIES["llama3"].to_dict(), "intermediate_size": 352, "tie_word_embeddings": False})
DOWN = "model.layers.0.mlp.down_proj.weight"


def random_llama() -> Any:
    return random_model(copy.deepcopy(CONFIG))  # which the model would keep


def quantized(folder: Path, kind: str, double: bool) -> Any:
    """A model that bitsandbytes quantized, all but q_proj of every layer."""
    random_llama().save_pretrained(folder / "plain")
    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=kind,
        bnb_4bit_use_double_quant=double,
        llm_int8_skip_modules=["q_proj", "lm_head"],
    )
    return AutoModelForCausalLM.from_pretrained(folder / "plain", quantization_config=config, dtype=torch.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    quantized(tmp_path, "nf4", True).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def dequantized(linear: bitsandbytes.nn.Linear4bit) -> np.ndarray:
    """By bitsandbytes for any device: the kernel for AVX-512 begins a block with every row, which no other does."""
    packed: Any = linear.weight
    state, data = packed.quant_state, packed.data
    absmax = state.absmax
    if state.nested:
        absmax = bitsandbytes.functional.dequantize_blockwise(absmax, state.state2) + state.offset
    generic = _dequantize_4bit_compute(data.view(-1), absmax, state.code, state.blocksize, state.shape, state.dtype)
    if state.shape[1] % state.blocksize == 0:
        assert torch.equal(generic, bitsandbytes.functional.dequantize_4bit(data, state))
    return generic.numpy()


def weight(source: HfCheckpoint, name: str, rows: int, cols: int) -> np.ndarray:
    return unpack(source.packed(name, cols, rows).data, source.format_of(name), rows)


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_every_weight_to_the_bit(tmp_path: Path, kind: str, double: bool, in_memory: bool) -> None:
    model = quantized(tmp_path, kind, double)
    if in_memory:
        source: HfCheckpoint = HfModel(model, None, "q4_1", "q8_0")
    else:
        model.save_pretrained(tmp_path / "model", max_shard_size="20KB")
        source = HfFolder(tmp_path / "model", "q4_1", "q8_0")
    assert source.format_of("model.layers.1.mlp.up_proj.weight") == f"{kind}_g64"
    assert source.format_of(DOWN) == kind  # blocks of 64 go on in the next row
    assert source.format_of("model.layers.0.self_attn.q_proj.weight") == "q4_1"
    assert source.format_of("lm_head.weight") == "q8_0"
    linears = {n: x for n, x in model.named_modules() if isinstance(x, bitsandbytes.nn.Linear4bit)}
    assert len(linears) == 6 * 2
    for name, linear in linears.items():
        packed: Any = linear.weight
        assert np.array_equal(weight(source, f"{name}.weight", *packed.quant_state.shape), dequantized(linear))
    assert {(c.source, c.format, c.error) for c in source.conversions.to_list()} == {
        ("bitsandbytes", f"{kind}_g64", 0.0),
        ("bitsandbytes", kind, 0.0),
    }


@pytest.mark.parametrize("block", [32, 128, 256, 4096])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_blocks(kind: str, block: int) -> None:
    """Narrower than a row of 352 or wider, of 1024 rows at once and some more."""
    model, data = random_llama(), torch.randn(1040, 352, generator=torch.Generator().manual_seed(0))
    linear = bitsandbytes.nn.Linear4bit(352, 1040, bias=False, quant_type=kind)
    linear.weight = bitsandbytes.nn.Params4bit(
        data, requires_grad=False, blocksize=block, quant_type=kind, compress_statistics=True, module=linear
    )
    model.model.layers[0].mlp.down_proj = linear.to("cpu")
    model.config.quantization_config = BitsAndBytesConfig(load_in_4bit=True)
    source = HfModel(model, None, "q4_1", "q8_0")
    assert source.format_of(DOWN) == kind
    assert np.array_equal(weight(source, DOWN, 1040, 352), dequantized(linear))


def _rewrite(change: Callable[[torch.Tensor], torch.Tensor | None], suffix: str = "") -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        changed = change(tensors.pop(DOWN + suffix))
        save_file(tensors | ({} if changed is None else {DOWN + suffix: changed}), folder / "model.safetensors")

    return write


def _state(**changes: Any) -> Callable[[Path], None]:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        text = json.dumps(json.loads(bytes(tensor.numpy())) | changes)
        return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)

    return _rewrite(change, STATE)


def _config(**changes: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        config["quantization_config"] |= changes
        (folder / "config.json").write_text(json.dumps(config))

    return write


STATE = ".quant_state.bitsandbytes__nf4"
HARM: dict[str, tuple[Callable[[Path], None], str]] = {
    "8 bits": (_config(load_in_4bit=False), "load_in_4bit of the quantization is False; supported: True"),
    "hqq": (_config(quant_method="hqq"), "quant_method is 'hqq'; supported: bitsandbytes, gptq, awq, mlx, fp8"),
    "no method": (_config(quant_method=["gptq"]), "quant_method is ['gptq']; supported"),
    "storage": (_rewrite(lambda x: x.view(-1, 4).view(torch.int32)), "is I32 [2816, 1]; it must be U8 [11264, 1]"),
    "short": (_rewrite(lambda x: x[:-1]), "is U8 [11263, 1]; it must be U8 [11264, 1]"),
    "codebook": (_rewrite(lambda x: x * 2, ".quant_map"), "quant_map is not the codebook of nf4"),
    "no absmax": (_rewrite(lambda x: None, ".absmax"), f"tensor {DOWN}.absmax is missing"),
    "few absmax": (_rewrite(lambda x: x[:-1], ".absmax"), "absmax is U8 [351]; it must be U8 [352]"),
    "absmax of floats": (_rewrite(lambda x: x.float(), ".absmax"), "absmax is F32 [352]; it must be U8 [352]"),
    "few scales": (_rewrite(lambda x: x[:-1], ".nested_absmax"), "nested_absmax is F32 [1]; it must be F32 [2]"),
    "no number": (_rewrite(lambda x: x * torch.nan, ".nested_absmax"), "has scales that are not finite"),
    "no JSON": (_rewrite(lambda x: x * 0, STATE), "is not JSON"),
    "long JSON": (_rewrite(lambda x: x.repeat(1000), STATE), "it must be a JSON text of at most 65536"),
    "no object": (_rewrite(lambda x: x[:0] + 0, STATE), "is not JSON"),
    "other shape": (_state(shape=[128, 176]), "has shape [128, 176]; config.json requires [64, 352]"),
    "no shape": (_state(shape=[64]), "shape is [64]; it must be [rows, columns]"),
    "huge shape": (_state(shape=[64, 2**40]), "shape has 1099511627776; it must be from 1 to 4294967296"),
    "no block": (_state(blocksize=0), "blocksize has 0; it must be from 1 to"),
    "odd block": (_state(blocksize=40), "352 columns in groups of 40 do not fit any nf4"),
    "huge block": (_state(blocksize=2**64), "blocksize has 18446744073709551616; it must be from 1 to"),
    "no mean": (_state(nested_offset=float("nan")), "nested_offset is nan; it must be a float32 number"),
    "huge mean": (_state(nested_offset=1e300), "nested_offset is 1e+300; it must be a float32 number"),
}


@pytest.mark.parametrize("harm", HARM)
def test_refused(folder: Path, harm: str) -> None:
    change, message = HARM[harm]
    change(folder)
    with pytest.raises(UserError) as error:
        HfFolder(folder, "q4_1", "q8_0").packed(DOWN, 352, 64)
    assert message in str(error.value)
