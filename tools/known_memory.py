"""Writes mobile_ft/model/known_memory.json, which `mobile-ft models` shows: run after a change of the plan or of the
known models. Takes some minutes, because it exports every known model's program."""

import json
import math
from pathlib import Path

import mobile_ft
from mobile_ft.model.hf_config import known_models

TARGET = Path(mobile_ft.__file__).parent / "model" / "known_memory.json"
TOKENS = 256


def memory(name: str) -> dict[str, int]:
    """The memory of a step, and the smallest budget for it, in MB."""
    plan = mobile_ft.plan(name, seq_len=TOKENS)
    return {
        "planned_mb": math.ceil(plan.planned_mb),
        "smallest_budget_mb": math.ceil(plan.smallest_budget_mb),
    }


def main() -> None:
    rows = []
    for name in known_models():
        rows.append(f'  "{name}": {json.dumps(memory(name))}')
        print(rows[-1], flush=True)
    TARGET.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
