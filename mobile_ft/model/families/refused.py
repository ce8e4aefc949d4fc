"""Model types that people ask for and that are refused, with what each of them needs and is missing here."""

_LAYER_NORM = "LayerNorm"
_LAYER_NORM_BIASES = "LayerNorm with biases"
_MLA = "latent attention (MLA)"
_MAMBA = "Mamba layers"
_EXPERTS = "experts"

MISSING: dict[str, str] = {
    "apertus": "xIELU",
    "bamba": _MAMBA,
    "cohere": _LAYER_NORM,
    "cohere2": _LAYER_NORM,
    "deepseek_v2": f"{_MLA}, {_EXPERTS}",
    "deepseek_v3": f"{_MLA}, {_EXPERTS}",
    "exaone_moe": _EXPERTS,
    "falcon": _LAYER_NORM_BIASES,
    "falcon_h1": _MAMBA,
    "falcon_mamba": _MAMBA,
    "gemma3n": "AltUp, LAuReL",
    "gemma3n_text": "AltUp, LAuReL",
    "gpt2": f"{_LAYER_NORM_BIASES}, learned positions",
    "gpt_bigcode": f"{_LAYER_NORM_BIASES}, learned positions",
    "gpt_neo": f"{_LAYER_NORM_BIASES}, learned positions",
    "gpt_neox": f"{_LAYER_NORM_BIASES}, parallel blocks",
    "gpt_oss": _EXPERTS,
    "granitemoeshared": _EXPERTS,
    "jamba": f"{_MAMBA}, {_EXPERTS}",
    "llama4": _EXPERTS,
    "llama4_text": _EXPERTS,
    "mamba": _MAMBA,
    "mamba2": _MAMBA,
    "minicpm3": _MLA,
    "mixtral": _EXPERTS,
    "nanochat": "norms without weight",
    "nemotron": _LAYER_NORM,
    "nemotron_h": _MAMBA,
    "olmo": f"{_LAYER_NORM} without weight",
    "olmo_hybrid": "separate convolutions of q, k and v in a delta net",
    "opt": f"{_LAYER_NORM_BIASES}, learned positions",
    "phi": f"{_LAYER_NORM_BIASES}, parallel blocks",
    "phimoe": _EXPERTS,
    "qwen2_moe": _EXPERTS,
    "qwen3_5_moe": _EXPERTS,
    "qwen3_5_moe_text": _EXPERTS,
    "qwen3_next": _EXPERTS,
    "stablelm": _LAYER_NORM_BIASES,
    "starcoder2": _LAYER_NORM_BIASES,
    "youtu": _MLA,
    "zamba2": _MAMBA,
}
