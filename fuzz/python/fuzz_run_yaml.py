"""run.yaml, through what `mobile-ft train --config` makes of it."""

from pathlib import Path

from mobile_ft.api.options import option_texts, train_settings
from mobile_ft.api.run_file import read_run_file
from mobile_ft.runtime import train_options


def seeds() -> list[bytes]:
    return [
        b"bundle: /a\ndata: b\nlr: 2.0e-4\nsteps: 7\nbudget: 300MB\nsuffix_depths: [1, 2]\nthreads:\n",
        b"a: &a [x, x]\nb: *a\n<<: {seed: !!int '3'}\nlr: !!float .inf\nout: 2020-01-01\n? {}\n: !!binary YQ==\n",
    ]


def run(data: bytes, folder: Path) -> None:
    (folder / "run.yaml").write_bytes(data)
    values = read_run_file(folder / "run.yaml")
    paths = ("bundle", "data", "valid", "out", "adapter")
    train_settings(option_texts(train_options(), {name: x for name, x in values.items() if name not in paths}))
