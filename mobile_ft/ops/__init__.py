"""The custom ops (namespace `mobile_ft`): schema, PyTorch reference, shapes and autograd formula of each.

Every tensor is float32 unless said otherwise; tokens, targets and positions are int64; packed weights are uint8.
"""

from mobile_ft.ops.add import add
from mobile_ft.ops.attention import attention, attention_backward, attention_decode
from mobile_ft.ops.embedding_q import embedding_q
from mobile_ft.ops.linear_cross_entropy import linear_cross_entropy, linear_cross_entropy_loss
from mobile_ft.ops.linear_q4 import linear_q4, linear_q4_backward, linear_q4_lora_backward
from mobile_ft.ops.rms_norm import rms_norm, rms_norm_backward
from mobile_ft.ops.rope import rope
from mobile_ft.ops.swiglu import swiglu, swiglu_backward

__all__ = [
    "add",
    "attention",
    "attention_backward",
    "attention_decode",
    "embedding_q",
    "linear_cross_entropy",
    "linear_cross_entropy_loss",
    "linear_q4",
    "linear_q4_backward",
    "linear_q4_lora_backward",
    "rms_norm",
    "rms_norm_backward",
    "rope",
    "swiglu",
    "swiglu_backward",
]
