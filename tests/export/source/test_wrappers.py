"""Text models inside models with vision: the same logits as Transformers' whole model, and adapters that it loads."""

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForImageTextToText,
    Gemma4Config,
    Lfm2VlConfig,
    Lfm3VlConfig,
    Mistral3Config,
    PreTrainedConfig,
    Qwen2_5_VLConfig,
    Qwen3VLConfig,
    SmolVLMConfig,
)

from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.model.lora import LoraConfig, adapter_key, init_adapter, write_adapter
from mobile_ft.model.lora_layers import linear_names, lora_shapes
from mobile_ft.model.shapes import linear_shapes, unit_types
from tests.hf_models import FAMILIES
from tests.reference import reference_logits

TOKENS = torch.from_numpy(np.random.default_rng(0).integers(3, 230, 41))
_SIGLIP: dict[str, Any] = {
    **{"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1},
    **{"image_size": 16, "patch_size": 8},
}
_PIXTRAL: dict[str, Any] = _SIGLIP | {"model_type": "pixtral", "head_dim": 16}
_QWEN_VISION: dict[str, Any] = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 1,
    "out_hidden_size": 64,
}
_QWEN_TOKENS: dict[str, Any] = {
    **{"image_token_id": 240, "video_token_id": 241, "vision_start_token_id": 242, "vision_end_token_id": 243},
}
_GEMMA_TOKENS: dict[str, Any] = {
    **{"image_token_id": 240, "video_token_id": 241, "audio_token_id": 242, "boi_token_id": 243},
    **{"eoi_token_id": 244, "boa_token_id": 245, "eoa_token_index": 246},
}
_SECTIONS: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 4, 4]}


def _text(family: str, **changes: Any) -> dict[str, Any]:
    values = FAMILIES[family].to_dict() | changes
    windows = ("use_sliding_window", "sliding_window", "max_window_layers") if family == "qwen3" else ()
    return {key: value for key, value in values.items() if key not in windows}


WRAPPERS: dict[str, PreTrainedConfig] = {
    "smolvlm": SmolVLMConfig(
        text_config=_text("llama3"), vision_config=_SIGLIP, image_token_id=240, tie_word_embeddings=True
    ),
    "mistral3": Mistral3Config(
        text_config=_text("ministral3"), vision_config=_PIXTRAL, image_token_index=240, tie_word_embeddings=False
    ),
    "mistral3 of mistral": Mistral3Config(
        text_config=_text("mistral"), vision_config=_PIXTRAL, image_token_index=240, tie_word_embeddings=False
    ),
    "lfm2_vl": Lfm2VlConfig(
        text_config=_text("lfm2"), vision_config=_SIGLIP | {"model_type": "siglip2_vision_model"}, image_token_id=240
    ),
    "gemma4": Gemma4Config(
        text_config=_text("gemma4"),
        vision_config=_SIGLIP | {"model_type": "gemma4_vision", "num_key_value_heads": 1, "head_dim": 16},
        tie_word_embeddings=True,
        **_GEMMA_TOKENS,
    ),
    "lfm3_vl": Lfm3VlConfig(text_config=_text("lfm3"), image_token_id=240),
    "qwen2_5_vl": Qwen2_5_VLConfig(
        text_config=_text(
            "qwen2",
            model_type="qwen2_5_vl_text",
            head_dim=None,
            rope_parameters=_SECTIONS | {"mrope_section": [4, 2, 2]},
        ),
        vision_config=_QWEN_VISION | {"fullatt_block_indexes": [0]},
        tie_word_embeddings=True,
        **_QWEN_TOKENS,
    ),
    "qwen3_vl": Qwen3VLConfig(
        text_config=_text("qwen3", model_type="qwen3_vl_text", rope_parameters=_SECTIONS | {"mrope_interleaved": True}),
        vision_config=_QWEN_VISION | {"deepstack_visual_indexes": [0]},
        tie_word_embeddings=True,
        **_QWEN_TOKENS,
    ),
}


def random_wrapper(config: PreTrainedConfig) -> Any:
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.1 if "embed_tokens" in name else 0.15)
            parameter.copy_(parameter.half())
    return model


@pytest.fixture(scope="module", params=WRAPPERS)
def wrapped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder, and the model in it."""
    folder = tmp_path_factory.mktemp("wrapped")
    model = random_wrapper(WRAPPERS[request.param])
    model.save_pretrained(folder)
    return folder, model.double()


def test_logits(wrapped: tuple[Path, Any]) -> None:
    folder, model = wrapped
    with torch.no_grad():
        theirs = model(input_ids=TOKENS[None]).logits[0]
    ours = reference_logits(HfFolder(folder, "f16", "f16"), TOKENS)
    assert theirs.std() > 0.1
    assert (ours - theirs).abs().max() < 1e-4


def test_the_adapter_loads_on_the_whole_model(wrapped: tuple[Path, Any], tmp_path: Path) -> None:
    """All of its tensors are loaded, and none is missing; `target_modules` leaves the vision model alone."""
    from peft import PeftModel

    folder, model = wrapped
    source = HfFolder(folder, "q8_0", "q8_0")
    c, lora = source.config, LoraConfig(2, 4.0, linear_names(source.config))
    shapes = [
        (adapter_key(layer, name, source.base.modules), *lora_shapes(lora.rank, *shape))
        for layer in range(c.num_hidden_layers)
        for unit in unit_types(c, layer)
        for name, shape in linear_shapes(c, layer, unit).items()
    ]
    write_adapter(tmp_path, lora, source.base, init_adapter(shapes, 0))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*missing")  # PEFT warns of a missing tensor
        peft = PeftModel.from_pretrained(model, tmp_path)
    adapted = [name for name, module in peft.named_modules() if hasattr(module, "lora_A")]
    assert adapted and all(source.base.modules in name for name in adapted)
    assert len(adapted) == len(shapes)
    peft.unload()


@pytest.mark.parametrize("name", ["qwen2_5_vl", "mistral3"])
def test_tied_inside(name: str, tmp_path: Path) -> None:
    """Transformers 4 wrote tie_word_embeddings only into text_config."""
    config = copy.deepcopy(WRAPPERS[name])
    config.tie_word_embeddings = True
    random_wrapper(config).save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    del values["tie_word_embeddings"]
    values["text_config"]["tie_word_embeddings"] = True
    (tmp_path / "config.json").write_text(json.dumps(values))
    with torch.no_grad():
        theirs = AutoModelForImageTextToText.from_pretrained(tmp_path).double()(input_ids=TOKENS[None]).logits[0]
    ours = reference_logits(HfFolder(tmp_path, "f16", "f16"), TOKENS)
    assert (ours - theirs).abs().max() < 1e-4


def test_settings_beside_those_of_the_vision_model(tmp_path: Path) -> None:
    """As older files of Qwen2.5-VL have them."""
    model = random_wrapper(WRAPPERS["qwen2_5_vl"])
    model.save_pretrained(tmp_path)
    whole = json.loads((tmp_path / "config.json").read_text())
    text = whole.pop("text_config")
    del text["model_type"]
    rope = text.pop("rope_parameters")
    old = {"rope_theta": rope["rope_theta"], "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]}}
    (tmp_path / "config.json").write_text(json.dumps(text | whole | old))
    with torch.no_grad():
        theirs = model.double()(input_ids=TOKENS[None]).logits[0]
    ours = reference_logits(HfFolder(tmp_path, "f16", "f16"), TOKENS)
    assert (ours - theirs).abs().max() < 1e-4
