"""Plans random models with random options, and then trains them with the budget enforced by the kernel:
`python tools/random_runs.py --count 1000 --json FILE`.

Each run has a few steps in a memory cgroup of its budget (`mobile_ft.profile_run`). The budget is between the smallest
that works and the memory for storing everything. No run may be killed, or use more memory than planned. Runs with a
result in the JSON file are not repeated. A run is defined by its number.
"""

import argparse
import json
import math
import random
import shutil
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

import mobile_ft
from mobile_ft.api.files import write_json
from mobile_ft.model.formats import parse_format

Options = dict[str, Any]
Row = dict[str, Any]

RUNS_A_BUNDLE = 25  # an export takes as long as about ten runs
STEPS = 2
FAMILIES = ("llama", "mistral", "smollm3", "qwen2", "qwen3", "gemma3_text", "lfm2")
QUANTS = ("q4_0", "q4_1", "q4_0_g64", "q4_1_g128", "q8_0", "q8_0_g64", "nf4", "nf4_g16", "fp4", "iq4_nl", "f16")
TARGETS = ("all-linear", "q_proj,v_proj", "q_proj,k_proj,v_proj,o_proj", "gate_proj,up_proj,down_proj", "down_proj")
LFM2_TARGETS = ("all-linear", "w1,w3,w2", "w2")  # LFM2's names
MORE_FAMILIES = (
    *("qwen3_5_text", "gemma4_text", "gemma2", "granite_swa", "phi3", "olmo2", "lfm3", "exaone4", "glm4", "arcee"),
    *("granitemoehybrid", "nemotron_h", "falcon_h1", "olmo_hybrid", "qwen3_next", "olmoe", "lfm2_moe"),
)
# Their heads have hidden_size numbers together.
HEADS_FILL_HIDDEN = ("lfm2", "phi3", "olmo2", "exaone4", "olmo_hybrid", "olmoe", "lfm2_moe")
DELTA = ("qwen3_5_text", "qwen3_next", "olmo_hybrid")
EXPERTS = ("qwen3_next", "olmoe", "lfm2_moe")
BUCKETS = (0, 0.5, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # MB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--figure", type=Path, help="histogram as SVG")
    families = (*FAMILIES, *MORE_FAMILIES)
    parser.add_argument(
        "--families", nargs="+", choices=families, default=FAMILIES, metavar="NAME", help="draw from these"
    )
    parser.add_argument("--folder", type=Path, default=Path("build/random"), help="folder for one bundle at a time")
    args = parser.parse_args()
    warnings.simplefilter("ignore", mobile_ft.MobileFtWarning)
    rows: dict[str, Row] = json.loads(args.json.read_text()) if args.json.exists() else {}
    for number in track(range(args.count), "runs"):
        if str(number) not in rows:
            rows[str(number)] = run(number, bundle_of(args.folder, number // RUNS_A_BUNDLE, tuple(args.families)))
            write_json(args.json, rows)
    shutil.rmtree(args.folder, ignore_errors=True)
    report([rows[str(number)] for number in range(args.count)], args.figure)


# --- What is drawn -----------------------------------------------------------------------------


def draw_model(draw: random.Random, family: str) -> Options:
    """Returns values of a Transformers configuration."""
    head_dim = draw.choice((16, 32, 64, 96, 128))
    kv_heads = draw.choice((1, 2, 4))
    heads = kv_heads * draw.choice((1, 2, 3, 4))
    heads += -heads * head_dim // 16 % 2 * kv_heads  # heads x head_dim must be a multiple of 32
    step = heads * head_dim if family in HEADS_FILL_HIDDEN else math.lcm(heads, 32)
    layers = draw.randint(3 if family == "gemma4_text" else 1, 10)
    more: Options = {"block_auto_adjust_ff_dim": False} if family == "lfm2" else {}
    if family == "lfm2":
        more["layer_types"] = [draw.choice(("conv", "full_attention")) for _ in range(layers)]
    if family == "gemma3_text":
        more["query_pre_attn_scalar"] = head_dim
    if family in MORE_FAMILIES:
        more |= draw_own(draw, family, layers)
    values = more | {
        "hidden_size": step if family in HEADS_FILL_HIDDEN else step * draw.randint(1, max(1, 768 // step)),
        "intermediate_size": 32 * draw.randint(3, 64),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": draw.choice((257, 1000, 8192, 32000, 49152)),
        "max_position_embeddings": 2048,
        "tie_word_embeddings": draw.random() < 0.7,
        "pad_token_id": 0,
    }
    if family == "gemma4_text":
        values["vocab_size_per_layer_input"] = values["vocab_size"]
    if family == "granitemoehybrid":
        heads = values["hidden_size"] // 16
        values |= {"shared_intermediate_size": values["intermediate_size"], "mamba_n_heads": heads}
    if family == "nemotron_h":
        values |= {"tie_word_embeddings": False}
        del values["num_hidden_layers"]
    return values


def draw_own(draw: random.Random, family: str, layers: int) -> Options:
    """Returns settings that only some of MORE_FAMILIES have."""
    types = {
        **dict.fromkeys(("qwen3_5_text", "qwen3_next", "olmo_hybrid"), ("linear_attention", "full_attention")),
        "lfm2_moe": ("conv", "full_attention"),
        "lfm3": ("conv", "full_attention", "sliding_attention"),
    }.get(family, ("full_attention", "sliding_attention"))
    own: Options = {}
    if family in (*DELTA, "lfm3", "lfm2_moe", "gemma2", "granite_swa", "exaone4"):
        own["layer_types"] = [draw.choice(types) for _ in range(layers)]
    if family in ("lfm3", "gemma2", "granite_swa", "exaone4"):
        own["sliding_window"] = draw.choice((8, 100))
    if family == "gemma4_text":
        shared = draw.randint(0, layers - 2)
        owners = layers - shared
        own |= {
            "layer_types": [types[layer % 2] for layer in range(owners)] + [draw.choice(types) for _ in range(shared)],
            "num_kv_shared_layers": shared,
            "use_double_wide_mlp": draw.random() < 0.5,
            "hidden_size_per_layer_input": draw.choice((32, 64, 256)),
            "global_head_dim": draw.choice((32, 64, 256, 512)),
            "sliding_window": draw.choice((8, 100)),
        }
    if family == "olmo_hybrid":  # Transformers requires both
        own["layer_types"] = [*types, *own["layer_types"]][: max(layers, 2)]
        own["rope_parameters"] = {"rope_type": "default", "rope_theta": draw.choice((None, 10000.0))}
    if family in ("nemotron_h", "falcon_h1"):
        own |= draw_mamba(draw, family, layers)
    if family in EXPERTS:
        experts = draw.choice((2, 5, 16))
        own |= {
            "num_experts": experts,
            "num_experts_per_tok": draw.randint(1, min(experts, 4)),
            "norm_topk_prob": draw.random() < 0.5,
        }
        own |= {} if family == "olmoe" else {"moe_intermediate_size": 32 * draw.randint(1, 8)}
        own |= {"shared_expert_intermediate_size": 32 * draw.randint(1, 8)} if family == "qwen3_next" else {}
        own |= {"num_dense_layers": draw.randint(0, layers)} if family == "lfm2_moe" else {}
    if family in DELTA:
        keys = draw.choice((1, 2, 4))
        own |= {
            "linear_num_key_heads": keys,
            "linear_num_value_heads": keys * draw.choice((1, 2)),
            "linear_key_head_dim": draw.choice((32, 64, 128)),
            "linear_value_head_dim": draw.choice((32, 64, 128)),
        }
    if family == "granitemoehybrid":
        own |= {
            "layer_types": [draw.choice(("linear_attention", "full_attention")) for _ in range(layers)],
            "num_local_experts": 0,
            "position_embedding_type": draw.choice(("rope", "nope")),
            "mamba_n_groups": draw.choice((1, 2)),
            "mamba_d_state": draw.choice((32, 64, 128)),
            "residual_multiplier": 0.22,
        }
    if family == "granite_swa":
        own |= {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.1}
    return own


def draw_mamba(draw: random.Random, family: str, layers: int) -> Options:
    """Returns the sizes of Mamba-2 in the names of the family."""
    groups, size, state = draw.choice((1, 2)), draw.choice((16, 32, 64)), draw.choice((32, 64, 128))
    heads = groups * draw.choice((2, 4, 6))
    if family == "falcon_h1":
        sizes = {"mamba_n_heads": heads, "mamba_d_head": size, "mamba_d_ssm": heads * size}
        return sizes | {"mamba_n_groups": groups, "mamba_d_state": state, "ssm_out_multiplier": 0.5}
    types = [draw.choice(("linear_attention", "full_attention", "mlp")) for _ in range(layers)]
    sizes = {"mamba_num_heads": heads, "mamba_head_dim": size, "n_groups": groups, "ssm_state_size": state}
    return sizes | {"layers_block_type": types}


def draw_export(draw: random.Random, family: str, model: Options) -> Options:
    columns = [model[name] for name in ("hidden_size", "intermediate_size")]
    columns.append(model["num_attention_heads"] * model["head_dim"])
    targets = LFM2_TARGETS if family == "lfm2" else ("all-linear",) if family in MORE_FAMILIES else TARGETS
    if family in EXPERTS and model.get("num_dense_layers", 0) < model["num_hidden_layers"]:
        targets = ("all-linear", "all-linear,experts", "experts")
    if family in DELTA:
        columns.append(model["linear_num_value_heads"] * model["linear_value_head_dim"])
    if family == "gemma4_text":
        heads = model["num_attention_heads"] * model["global_head_dim"]
        columns += [heads, model["hidden_size_per_layer_input"]]
    if family in ("nemotron_h", "falcon_h1"):
        columns.append(model.get("mamba_d_ssm") or model["mamba_num_heads"] * model["mamba_head_dim"])
    columns += [model[name] for name in ("moe_intermediate_size", "shared_expert_intermediate_size") if name in model]
    fitting = [quant for quant in QUANTS if not any(n % parse_format(quant).group for n in columns)]
    return {
        "lora_rank": draw.choice((1, 4, 8, 16, 64)),
        "lora_targets": draw.choice(targets),
        "max_seq_len": draw.choice((64, 256, 512, 1024)),
        "activation": draw.choice(("exact", "int8", "int4", "approx2bit")),
        "quant": draw.choice(fitting),
        "quant_embedding": draw.choice(("q8_0", "q4_0", "f16")),
    }


def draw_options(draw: random.Random, most_tokens: int) -> Options:
    """Returns options of a training step."""
    batch_size = draw.choice((1, 1, 1, 2, 4))
    options: Options = {
        "batch_size": batch_size,
        "seq_len": draw.randint(16, most_tokens // batch_size),
        "grad_accum": draw.choice((1, 1, 2, 3)),
        "schedule": draw.choice(("full", "suffix", "lcsb", "lisa", "freeze", "dropbp")),
        "ratio": round(draw.uniform(0.1, 1), 2),
        "backward": draw.choice(("auto", "auto", "store", "recompute")),
        "optimizer": draw.choice(("adamw", "adamw8bit")),
        "max_grad_norm": draw.choice((0, 1)),
        "loss": draw.choice(("sft", "sft", "sft", "dpo")),
        "eval_every": draw.choice((0, 1)),
        "compute": draw.choice(("float32", "int8")),
        "threads": draw.choice((1, 2, 4)),
        "lora_train": draw.choice(("both", "both", "b")),
        "proximal_mu": draw.choice((0, 0, 1)),
    }
    if options["schedule"] == "lcsb":
        options["selection"] = draw.choice(("random", "contiguous", "strided"))
    if options["schedule"] == "full":
        del options["ratio"]
    return options


# --- Runs --------------------------------------------------------------------------------------


def bundle_of(folder: Path, number: int, families: tuple[str, ...]) -> Path:
    """Returns the bundle with this number, which replaces the previous one. Families take turns."""
    bundle = folder / str(number)
    if not bundle.exists():
        from transformers import AutoConfig, AutoModelForCausalLM

        shutil.rmtree(folder, ignore_errors=True)
        draw = random.Random(f"bundle {number}")
        family = families[number % len(families)]
        values = draw_model(draw, family)
        config = AutoConfig.for_model(family, **values)
        model = AutoModelForCausalLM.from_config(config)
        mobile_ft.export_bundle(model, bundle, progress=False, seed=number, **draw_export(draw, family, values))
    return bundle


def run(number: int, bundle: Path) -> Row:
    """Plans a run, and then trains it within its budget."""
    draw = random.Random(f"run {number}")
    found = mobile_ft.info(bundle)
    assert isinstance(found, mobile_ft.BundleInfo)
    options = draw_options(draw, found.max_seq_len)
    row: Row = {"bundle": int(bundle.name), "options": options}
    try:
        least = mobile_ft.plan(bundle, **options).smallest_budget_mb
        most = max(least, mobile_ft.plan(bundle, budget="100GB", **options).planned_mb)
    except mobile_ft.UserError as error:
        return row | {"refused": str(error)}
    # Often the smallest budget, which has the smallest tolerance.
    share = draw.choice((0.0, draw.random(), draw.random()))
    options["budget"] = f"{math.ceil(least + share * (most - least))}MB"
    result = mobile_ft.profile_run(bundle, steps=STEPS, **options)
    names = ("planned_total_mb", "planned_anon_mb", "peak_rss_mb", "peak_anon_mb", "cgroup_peak_mb", "budget_mb")
    kept = ("enforced_by", "survived", "failure", "mix", "resident_units")
    return row | {name: getattr(result, name) for name in names + kept}


# --- What came of them -------------------------------------------------------------------------


def report(rows: list[Row], figure: Path | None) -> None:
    ran = [row for row in rows if "refused" not in row]
    left = [row["planned_anon_mb"] - row["peak_anon_mb"] for row in ran]
    over = [row for row in ran if row["peak_anon_mb"] > row["planned_anon_mb"]]
    table = Table("", "runs", title="Random runs within their planned memory", title_justify="left")
    table.add_row("drawn", str(len(rows)))
    table.add_row("rejected before the start", str(len(rows) - len(ran)))
    for name, count in Counter(row["enforced_by"] for row in ran).items():
        table.add_row(f"limited by {name}", str(count))
    table.add_row("killed or failed", str(sum(not row["survived"] for row in ran)))
    table.add_row("more anonymous memory than planned", str(len(over)))
    table.add_row("RSS over the budget", str(sum(row["peak_rss_mb"] > row["budget_mb"] for row in ran)))
    console = Console()
    console.print(table)
    for row in [row for row in ran if not row["survived"]] + over:
        console.print(row)
    for reason, count in Counter(row["refused"] for row in rows if "refused" in row).most_common(10):
        console.print(f"rejected {count}: {reason}")
    spread = Table("planned minus peak anonymous memory, MB", "runs", title_justify="left")
    for low, high in zip(BUCKETS, (*BUCKETS[1:], math.inf), strict=True):
        spread.add_row(f"{low:g} to {high:g}", str(sum(low <= x < high for x in left)))
    console.print(spread)
    if figure is not None:
        draw_histogram(left, figure)


def draw_histogram(left: list[float], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    axes.hist(left, bins=60, color="tab:blue")
    axes.axvline(0, color="tab:red", linewidth=1)
    axes.set(xlabel="planned minus peak anonymous memory, MB", ylabel="runs")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
