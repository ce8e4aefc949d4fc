"""`mobile-ft studio`: a local page to fine-tune, watch and compare."""

import argparse
import os
import secrets
import socket
import tempfile
import webbrowser
from pathlib import Path

from mobile_ft.cli.arguments import Subparsers
from mobile_ft.errors import UserError, check_installed

_PORT, _MOST_PORT = 8642, 65535
_LOCAL = ("127.0.0.1", "localhost")


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "studio",
        help="open a local page to fine-tune, watch and compare",
        description="Opens a page on this computer. Ctrl-C ends its server; a training that was started there goes on.",
    )
    parser.add_argument(
        "folder",
        metavar="DIR",
        type=Path,
        nargs="?",
        default=Path("mobile-ft-studio"),
        help="folder for models, data and runs (default: mobile-ft-studio)",
    )
    parser.add_argument("--port", metavar="N", type=int, default=_PORT, help=f"port (default: {_PORT}; 0: any)")
    parser.add_argument(
        "--host",
        metavar="HOST",
        default=_LOCAL[0],
        help="address to listen on (default: 127.0.0.1, which only this computer reaches); anyone who reaches another "
        "one and has the token can use this computer's files",
    )
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    for package in ("starlette", "uvicorn"):
        check_installed(package, "studio")
    import uvicorn

    from mobile_ft.studio.guard import Guard, address
    from mobile_ft.studio.runs import running_runs
    from mobile_ft.studio.server import make_app
    from mobile_ft.studio.workspace import Workspace

    studio = Workspace(args.folder.resolve())
    listener = _listen(args.host, args.port)
    port = listener.getsockname()[1]
    hosts = {f"{name.lower()}:{port}" for name in {*_LOCAL, args.host}}
    token = secrets.token_urlsafe(24)
    app = Guard(make_app(studio), token, hosts)
    link = address(f"{args.host}:{port}", token)
    print(f"{studio.folder}: open {link}", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ws="none"))
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".html") as page:
            if not args.no_browser:
                # All users can read a browser's arguments, but only this one can read the file.
                page.write(f'<meta http-equiv="refresh" content="0; url={link}">')
                page.flush()
                webbrowser.open(Path(page.name).as_uri())
            server.run(sockets=[listener])
    finally:
        for name in running_runs(studio):
            print(f"the training {name} goes on; open the studio again to watch it")


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= _MOST_PORT:
        raise UserError(f"--port {port}: must be from 0 to {_MOST_PORT}")
    if host in ("0.0.0.0", "") or ":" in host:
        raise UserError(f"--host {host}: name one IPv4 address or name of this computer, by which it is opened")
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise UserError(f"{host}:{port}: {why}; choose another with --host or --port") from error
    return listener
