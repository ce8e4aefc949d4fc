"""Microsoft's Phi-3, Phi-3.5 and Phi-4-mini: fused q, k, v and fused gate, up."""

from mobile_ft.files.json_values import Values, json_object
from mobile_ft.model.families.llama import one_window
from mobile_ft.model.families.traits import DEFAULTS, FULL, LINEARS, NORMS, SLIDING, Family, without

FUSED_MLP = {"gate_up": "mlp.gate_up_proj"}
_CLASSES = {"AutoConfig": "Phi3Config", "AutoModelForCausalLM": "Phi3ForCausalLM"}  # Transformers' own


def _phi3(values: Values, layers: int) -> Values:
    """Older files call the type of rotary scaling "su" or "yarn". Published files name their repository's copies of
    Transformers' classes in `auto_map`."""
    for auto, name in json_object(values, "auto_map").items():
        if auto != "AutoTokenizer" and str(name).rpartition(".")[2] != _CLASSES.get(auto):
            raise ValueError(f"{auto} of auto_map is {name!r}; supported: {' and '.join(_CLASSES.values())}")
    usual = one_window(values, layers)
    for key in ("rope_scaling", "rope_parameters"):
        scaling = values.get(key)
        if isinstance(scaling, dict) and scaling.get("rope_type", scaling.get("type")) in ("su", "yarn"):
            usual[key] = scaling | {"rope_type": "longrope"}
    return usual


FAMILIES: dict[str, Family] = {
    "phi3": Family(
        norms=NORMS,
        linears=without(LINEARS, "q", "k", "v", "gate", "up") | {"qkv": "self_attn.qkv_proj"} | FUSED_MLP,
        layers=(FULL, SLIDING),
        usual=_phi3,
        defaults=DEFAULTS
        | {
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 4096,
            "original_max_position_embeddings": 4096,
            "partial_rotary_factor": 1.0,
            "sliding_window": None,
        },
        keys=("sliding_window", "original_max_position_embeddings", "partial_rotary_factor", "auto_map"),
        only={
            **dict.fromkeys(("resid_pdrop", "embd_pdrop"), (0.0,)),
            **dict.fromkeys(("full_attn_mod", "interpolate_factor"), (1,)),
            "lm_head_bias": (False,),
        },
    ),
}
