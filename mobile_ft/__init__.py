"""mobile-ft: on-device fine-tuning of 4-bit LLMs with LoRA."""

__version__ = "0.1.0"
