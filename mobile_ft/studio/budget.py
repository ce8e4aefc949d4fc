"""The budget on the page: what `plan` says for a step, on this computer and on a phone."""

from typing import Any

from mobile_ft.api.device_estimate import known_devices
from mobile_ft.api.options import option_texts, step_options
from mobile_ft.api.plan import plan
from mobile_ft.studio.workspace import Workspace


def plan_step(studio: Workspace, model: str, device: str, options: dict[str, str]) -> dict[str, Any]:
    """A plan as `mobile-ft plan --json` writes it; with `device`, `there` has what `--device` adds."""
    bundle = studio.model(model)
    given = {name: value for name, value in options.items() if value != ""}
    option_texts(step_options(), given)  # before names that `plan` uses otherwise
    here = plan(bundle, **given)
    there = plan(bundle, device=device, **given) if device else None
    return {"plan": here.to_json(), "fits": here.fits, "there": None if there is None else there.to_json()}


def list_devices(studio: Workspace) -> dict[str, Any]:
    return {"devices": list(known_devices())}
