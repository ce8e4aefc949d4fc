"""What the page makes of an adapter: a PEFT archive, a GGUF file, or a folder for a phone."""

import shutil
from pathlib import Path
from typing import Any

from mobile_ft.api.convert import convert
from mobile_ft.api.device_pack import pack_for_device
from mobile_ft.errors import UserError
from mobile_ft.studio.answers import adapter_of
from mobile_ft.studio.runs import bundle_of
from mobile_ft.studio.workspace import Workspace


def make(studio: Workspace, run: str, target: str, data: str = "") -> dict[str, Any]:
    """Returns the name of a file to download, or the path of a folder for a phone."""
    adapter, bundle = adapter_of(studio, run), bundle_of(studio, run)
    if target == "phone":
        folder = pack_for_device(bundle, studio.rows(data), studio.made / f"{run}-phone", adapter=adapter)
        return {"folder": str(folder)}
    if target == "gguf":
        file = studio.made / f"{run}.gguf"
        convert(bundle, adapter, file, to="gguf", quant="q8_0", progress=False)
        return {"file": file.name}
    if target == "peft":
        folder = studio.made / f"{run}-peft"
        convert(bundle, adapter, folder, to="peft", progress=False)
        return {"file": Path(shutil.make_archive(str(folder), "zip", folder)).name}
    raise UserError(f"target {target}: must be peft, gguf or phone")
