"""`python examples/federated/prepare.py`: writes a bundle of SmolLM2-135M and the rows of eight devices to fleet-out/.

Each device has dialogues of its own topics. fleet-out/all has the dialogues of all devices, for comparison.
"""

import shutil
import sys
from pathlib import Path

import mobile_ft

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from dialogues import write_data  # noqa: E402

OUT = Path("fleet-out")
DEVICES = {
    "computers": ("ai", "computers", "tech_support"),
    "emotion": ("emotion",),
    "psychology": ("psychology", "health"),
    "arts": ("humor", "literature", "movies"),
    "trivia": ("trivia",),
    "world": ("science", "history", "politics"),
    "talk": ("greetings", "conversations", "botprofile", "gossip"),
    "life": ("money", "food", "sports"),
}


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    for number, topics in enumerate(DEVICES.values()):
        write_data(OUT / "rows" / str(number), topics)
    write_data(OUT / "all", [topic for topics in DEVICES.values() for topic in topics])
    mobile_ft.export_bundle("smollm2-135m", OUT / "smollm2.bundle", max_seq_len=256)


if __name__ == "__main__":
    main()
