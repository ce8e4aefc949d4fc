"""The server of the page: actions by name, uploads, answers as they are written, and downloads."""

import inspect
import json
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from mobile_ft.errors import BusyError, UserError
from mobile_ft.studio import answers, budget, data, made, models, runs
from mobile_ft.studio.workspace import Workspace, found, free_place

MOST_UPLOAD = 256 << 20  # bytes of a data file; a larger one is opened by its path
_MOST_REQUEST = 4 << 20  # bytes of any other request
_PAGE = Path(__file__).parent / "page"

# What the page can ask for. Each takes the workspace and the values of the request's JSON, by name.
ACTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    action.__name__: action
    for action in (
        models.list_models,
        models.describe_model,
        models.describe_source,
        models.add_model,
        models.remove_model,
        data.list_data,
        data.link_data,
        data.add_row,
        data.remove_data,
        data.look_at_data,
        budget.list_devices,
        budget.plan_step,
        runs.list_options,
        runs.commands,
        runs.start_run,
        runs.list_runs,
        runs.read_run,
        runs.stop_run,
        runs.resume_run,
        runs.remove_run,
        answers.thumb,
        answers.compare_runs,
        made.make,
    )
}


class _TooLargeError(Exception):
    pass


def make_app(studio: Workspace) -> Starlette:
    """The application without its guard."""
    speaker = answers.Answers(studio)

    async def act(request: Request) -> Response:
        action = ACTIONS.get(request.path_params["action"])
        if action is None:
            return _error("there is no such action", 404)
        values = await _json(request)
        _check(action, values)
        return JSONResponse(await run_in_threadpool(action, studio, **values))

    async def upload(request: Request) -> Response:
        name = request.path_params["name"]
        free_place(studio.data, name)  # fails early if it is not a name
        with tempfile.NamedTemporaryFile(dir=studio.data, prefix=".", suffix=".partial") as file:
            async for piece in _pieces(request, MOST_UPLOAD):
                file.write(piece)
            file.flush()
            await run_in_threadpool(os.fsync, file.fileno())
            target = free_place(studio.data, name)
            os.link(file.name, target)  # never over another file
        return JSONResponse({"name": target.name})

    async def answer(request: Request) -> Response:
        values = await _json(request)
        _check(speaker.stream, values)
        return StreamingResponse(speaker.stream(**values), media_type="application/x-ndjson")

    async def download(request: Request) -> Response:
        file = found(studio.made, request.path_params["name"])
        if not file.is_file():
            raise UserError(f"made {file.name}: is a folder")
        return FileResponse(file, filename=file.name)

    async def index(request: Request) -> Response:
        return FileResponse(_PAGE / "index.html")

    return Starlette(
        routes=[
            Route("/", index),
            Mount("/page", StaticFiles(directory=_PAGE)),
            Route("/do/{action}", act, methods=["POST"]),
            Route("/upload/{name}", upload, methods=["PUT"]),
            Route("/answer", answer, methods=["POST"]),
            Route("/made/{name}", download),
        ],
        exception_handlers={
            UserError: _on_error(400),
            ValueError: _on_error(400),  # a number that is none
            BusyError: _on_error(409),
            _TooLargeError: _on_error(413),
            Exception: _on_error(500),  # such as a full disk
        },
    )


def _on_error(status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handler(request: Request, error: Exception) -> Response:
        return _error(str(error), status)

    return handler


def _error(message: str, status: int) -> Response:
    return JSONResponse({"error": message}, status)


def _check(action: Callable[..., Any], values: Mapping[str, Any]) -> None:
    """Raises UserError if a request's values are not those that the action takes, by name and type."""
    wanted = {name: each for name, each in inspect.signature(action).parameters.items() if name != "studio"}
    for name in values:
        if name not in wanted:
            raise UserError(f"{name}: unknown value; known: {', '.join(wanted)}")
    for name, each in wanted.items():
        kind = get_origin(each.annotation) or each.annotation
        kind = list if kind is Sequence else kind
        value = values.get(name)
        if name not in values and each.default is inspect.Parameter.empty:
            raise UserError(f"{name}: is missing")
        if name in values and type(value) is not kind:
            raise UserError(f"{name}: must be of type {kind.__name__}")
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if get_args(each.annotation)[-1:] == (str,) and not all(isinstance(part, str) for part in parts):
            raise UserError(f"{name}: its values must be text")


async def _json(request: Request) -> dict[str, Any]:
    text = b"".join([piece async for piece in _pieces(request, _MOST_REQUEST)])
    try:
        values = json.loads(text or b"{}")
    except (ValueError, RecursionError) as error:
        raise UserError(f"the request is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise UserError("the request is not a JSON object")
    return values


async def _pieces(request: Request, most: int) -> Any:
    """Yields a request's body, and raises _TooLargeError before it exceeds `most` bytes."""
    message = f"more than {most >> 20} MiB; name the path of a larger file instead"
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise _TooLargeError(message)
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise _TooLargeError(message)
        yield piece
