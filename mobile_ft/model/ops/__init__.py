"""The custom ops (namespace `mobile_ft`): schema, PyTorch reference, shapes and autograd formula of each.

Tensors are float32 by default. Tokens, targets and positions are int64. Packed weights and 2-bit codes are uint8.
"""

from mobile_ft.model.ops.add import add
from mobile_ft.model.ops.add_bias import add_bias
from mobile_ft.model.ops.affine import affine
from mobile_ft.model.ops.attention import attention, attention_backward, attention_decode
from mobile_ft.model.ops.delta_net import delta_net, delta_net_backward, delta_net_decode
from mobile_ft.model.ops.experts import experts, experts_backward
from mobile_ft.model.ops.geglu import geglu, geglu_backward
from mobile_ft.model.ops.glu_2bit import geglu_2bit, geglu_2bit_backward, swiglu_2bit, swiglu_2bit_backward
from mobile_ft.model.ops.linear_cross_entropy import linear_cross_entropy, linear_cross_entropy_loss
from mobile_ft.model.ops.mamba2 import mamba2, mamba2_backward, mamba2_decode
from mobile_ft.model.ops.ms_rms_norm import ms_rms_norm, ms_rms_norm_backward
from mobile_ft.model.ops.packed_embedding import packed_embedding
from mobile_ft.model.ops.packed_linear import packed_linear, packed_linear_backward, packed_linear_lora_backward
from mobile_ft.model.ops.relu2 import relu2, relu2_backward
from mobile_ft.model.ops.rms_norm import rms_norm, rms_norm_backward
from mobile_ft.model.ops.rope import rope
from mobile_ft.model.ops.scale import scale
from mobile_ft.model.ops.short_conv import short_conv, short_conv_backward, short_conv_decode
from mobile_ft.model.ops.sigmoid_gate import sigmoid_gate, sigmoid_gate_backward
from mobile_ft.model.ops.softcap import softcap
from mobile_ft.model.ops.split import join, split
from mobile_ft.model.ops.swiglu import swiglu, swiglu_backward

__all__ = [
    "add",
    "add_bias",
    "affine",
    "attention",
    "attention_backward",
    "attention_decode",
    "delta_net",
    "delta_net_backward",
    "delta_net_decode",
    "experts",
    "experts_backward",
    "geglu",
    "geglu_2bit",
    "geglu_2bit_backward",
    "geglu_backward",
    "join",
    "linear_cross_entropy",
    "linear_cross_entropy_loss",
    "mamba2",
    "mamba2_backward",
    "mamba2_decode",
    "ms_rms_norm",
    "ms_rms_norm_backward",
    "packed_embedding",
    "packed_linear",
    "packed_linear_backward",
    "packed_linear_lora_backward",
    "relu2",
    "relu2_backward",
    "rms_norm",
    "rms_norm_backward",
    "rope",
    "scale",
    "short_conv",
    "short_conv_backward",
    "short_conv_decode",
    "sigmoid_gate",
    "sigmoid_gate_backward",
    "softcap",
    "split",
    "swiglu",
    "swiglu_2bit",
    "swiglu_2bit_backward",
    "swiglu_backward",
]
