"""Model types that people ask for and that are refused, with what each of them needs and is missing here."""

_LAYER_NORM = "LayerNorm"
_LAYER_NORM_BIASES = "LayerNorm with biases"
_MLA = "latent attention (MLA)"
_MAMBA = "Mamba-1 layers"
_ONE_UNIT = "layers of one branch"
_SHARED = "experts beside an MLP that all tokens take"

MISSING: dict[str, str] = {
    "apertus": "xIELU",
    "bamba": "layers by attn_layer_indices",
    "cohere": _LAYER_NORM,
    "cohere2": _LAYER_NORM,
    "deepseek_v2": f"{_MLA}, {_SHARED}",
    "deepseek_v3": f"{_MLA}, {_SHARED}",
    "exaone_moe": _SHARED,
    "falcon": _LAYER_NORM_BIASES,
    "falcon_mamba": _MAMBA,
    "gemma3n": "AltUp, LAuReL",
    "gemma3n_text": "AltUp, LAuReL",
    "gpt2": f"{_LAYER_NORM_BIASES}, learned positions",
    "gpt_bigcode": f"{_LAYER_NORM_BIASES}, learned positions",
    "gpt_neo": f"{_LAYER_NORM_BIASES}, learned positions",
    "gpt_neox": f"{_LAYER_NORM_BIASES}, parallel blocks",
    "gpt_oss": "experts with biases and a clamped activation",
    "jamba": f"{_MAMBA}, experts in some layers",
    "llama4": _SHARED,
    "llama4_text": _SHARED,
    "mamba": _MAMBA,
    "mamba2": _ONE_UNIT,
    "minicpm3": _MLA,
    "nanochat": "norms without weight",
    "nemotron": _LAYER_NORM,
    "olmo": f"{_LAYER_NORM} without weight",
    "opt": f"{_LAYER_NORM_BIASES}, learned positions",
    "phi": f"{_LAYER_NORM_BIASES}, parallel blocks",
    "phimoe": f"{_LAYER_NORM_BIASES}, a router of its own",
    "stablelm": _LAYER_NORM_BIASES,
    "starcoder2": _LAYER_NORM_BIASES,
    "youtu": _MLA,
    "zamba2": "attention layers that share weights",
}
