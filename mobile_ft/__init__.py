"""mobile-ft: on-device fine-tuning of 4-bit LLMs with LoRA.

The functions and classes below are the public API; docs/how-to/python.md shows how to use them. Each is imported when
it is first used, so `import mobile_ft` is fast. torch is imported only to build a training program, and by `convert` to
executorch and onnx-training.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from mobile_ft.api.bench import bench
    from mobile_ft.api.compare import compare
    from mobile_ft.api.convert import convert
    from mobile_ft.api.data import DataReport, inspect_data
    from mobile_ft.api.device_link import Device
    from mobile_ft.api.device_pack import pack_for_device
    from mobile_ft.api.device_run import pull_from_device, run_on_device
    from mobile_ft.api.evaluate import evaluate
    from mobile_ft.api.export import export_bundle
    from mobile_ft.api.generate import chat, generate
    from mobile_ft.api.info import info
    from mobile_ft.api.learn import forget, learn, versions
    from mobile_ft.api.model import LoadedModel, load
    from mobile_ft.api.plan import plan
    from mobile_ft.api.profile import profile_run
    from mobile_ft.api.results import (
        BenchResult,
        BenchRow,
        BundleInfo,
        CompareResult,
        ConvertResult,
        EvalResult,
        GenerateResult,
        LearnResult,
        PlanResult,
        ProfileResult,
        TrainResult,
    )
    from mobile_ft.api.train import train
    from mobile_ft.api.trust import trust
    from mobile_ft.errors import BusyError, MobileFtWarning, UserError

__all__ = [
    "BenchResult",
    "BenchRow",
    "BusyError",
    "BundleInfo",
    "CompareResult",
    "ConvertResult",
    "DataReport",
    "Device",
    "EvalResult",
    "GenerateResult",
    "LearnResult",
    "LoadedModel",
    "MobileFtWarning",
    "PlanResult",
    "ProfileResult",
    "TrainResult",
    "UserError",
    "bench",
    "chat",
    "compare",
    "convert",
    "evaluate",
    "export_bundle",
    "forget",
    "generate",
    "info",
    "inspect_data",
    "learn",
    "load",
    "pack_for_device",
    "plan",
    "profile_run",
    "pull_from_device",
    "run_on_device",
    "train",
    "trust",
    "versions",
]

# The module of each name. Names that are not listed are in api.results.
_HOMES = {
    "DataReport": "api.data",
    "Device": "api.device_link",
    "LoadedModel": "api.model",
    "BusyError": "errors",
    "MobileFtWarning": "errors",
    "UserError": "errors",
    "bench": "api.bench",
    "chat": "api.generate",
    "compare": "api.compare",
    "convert": "api.convert",
    "evaluate": "api.evaluate",
    "export_bundle": "api.export",
    "forget": "api.learn",
    "generate": "api.generate",
    "info": "api.info",
    "inspect_data": "api.data",
    "learn": "api.learn",
    "load": "api.model",
    "pack_for_device": "api.device_pack",
    "plan": "api.plan",
    "profile_run": "api.profile",
    "pull_from_device": "api.device_run",
    "run_on_device": "api.device_run",
    "train": "api.train",
    "trust": "api.trust",
    "versions": "api.learn",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("mobile-ft")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'api.results')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
