"""What is in a bundle."""

import os
from pathlib import Path

from mobile_ft.api.adapter import read_tensors
from mobile_ft.api.results import BundleInfo
from mobile_ft.bundle import WEIGHTS_FILE, Bundle, check_files, read_bundle
from mobile_ft.shapes import base_parameters


def info(bundle: str | os.PathLike[str], *, verify: bool = False) -> BundleInfo:
    """Describes a bundle. `verify` reads all of its files and checks them; otherwise only small ones are looked into.

    Raises UserError naming the file that is missing or damaged.
    """
    found = read_bundle(Path(bundle))
    if verify:
        check_files(found)
    return describe(found)


def describe(bundle: Bundle) -> BundleInfo:
    adapter = read_tensors(bundle.folder)
    sizes = {name: size for name, (size, _) in bundle.files.items()} | {WEIGHTS_FILE: bundle.weights.size}
    return BundleInfo(
        bundle=bundle.folder,
        model=bundle.model.to_json(),
        parameters=base_parameters(bundle.model),
        formats=list(bundle.formats),
        conversions=[conversion.to_json() for conversion in bundle.conversions],
        max_seq_len=bundle.max_seq_len,
        lora={
            "rank": bundle.lora.rank,
            "alpha": bundle.lora.alpha,
            "use_rslora": bundle.lora.use_rslora,
            "targets": list(bundle.lora.targets),
            "parameters": sum(tensor.size for tensor in adapter.values()),
        },
        files=dict(sorted(sizes.items())),
    )
