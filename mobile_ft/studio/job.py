"""The process of a job: `python -m mobile_ft.studio.job FOLDER ARGUMENTS` runs `mobile-ft ARGUMENTS`.

It writes its process id to the folder as soon as SIGINT reaches it well, and its exit status at the end. It takes one
SIGINT alone: a second one, by a second click, would end a training before its checkpoint is saved.
"""

import os
import runpy
import signal
import sys
from pathlib import Path
from types import FrameType

PID_FILE, STATUS_FILE = "pid.txt", "status.txt"
_INTERRUPTED = 130  # the exit status of shells for Ctrl-C


def main() -> None:
    folder = Path(sys.argv[1])
    signal.signal(signal.SIGINT, _interrupt)
    (folder / PID_FILE).write_text(f"{os.getpid()}\n")
    sys.argv = ["mobile-ft", *sys.argv[2:]]
    status: object = _INTERRUPTED
    try:
        runpy.run_module("mobile_ft.cli.main", run_name="__main__")
    except SystemExit as ended:
        status = ended.code or 0
        raise
    except KeyboardInterrupt:  # while it was loading
        sys.exit(_INTERRUPTED)
    except BaseException:
        status = 1
        raise
    finally:
        (folder / STATUS_FILE).write_text(f"{status}\n")


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
