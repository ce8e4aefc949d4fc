"""PEFT's adapters with values of their own."""

from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model


def random_adapter(model: Any, **settings: Any) -> PeftModel:
    """Neither A nor B is zero."""
    adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **settings))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if ".lora_" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return adapted
