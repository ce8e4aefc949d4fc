"""Describes a bundle as a BundleInfo."""

from mobile_ft.api.adapter import read_tensors
from mobile_ft.api.results import BundleInfo
from mobile_ft.bundle.description import WEIGHTS_FILE, Bundle
from mobile_ft.model.lora import WEIGHTS_FILE as ADAPTER_FILE
from mobile_ft.model.shapes import base_parameters


def describe(bundle: Bundle) -> BundleInfo:
    adapter = read_tensors(bundle.verified(ADAPTER_FILE))
    sizes = {name: size for name, (size, _) in bundle.files.items()} | {WEIGHTS_FILE: bundle.weights.size}
    return BundleInfo(
        bundle=bundle.folder,
        model=bundle.model.to_json(),
        parameters=base_parameters(bundle.model),
        formats=sorted(set(bundle.formats.values())),
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
