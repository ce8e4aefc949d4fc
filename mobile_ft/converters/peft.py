"""`--to peft`: the adapter in PEFT's format."""

from pathlib import Path

from mobile_ft.converters.fine_tuned import FineTuned
from mobile_ft.model.lora import CONFIG_FILE, WEIGHTS_FILE, write_adapter

FILES = (WEIGHTS_FILE, CONFIG_FILE)


def write(model: FineTuned, out: Path) -> None:
    """Writes FILES into the folder `out`."""
    write_adapter(out, model.bundle.lora, model.bundle.base, model.adapter)
