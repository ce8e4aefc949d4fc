"""A studio's server for tests, and requests to it as a browser would send them, or as it would not."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from mobile_ft.studio.guard import Guard
from mobile_ft.studio.server import make_app
from mobile_ft.studio.workspace import Workspace

TOKEN = "secret"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Site:
    port: int
    headers: dict[str, str] = field(default_factory=dict)

    def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, host: str = ""
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, path, skip_host=True)
        sent = {"Host": host or f"127.0.0.1:{self.port}", **self.headers, **(headers or {})}
        if isinstance(body, bytes) and "Transfer-Encoding" not in sent:
            sent["Content-Length"] = str(len(body))
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders()
        if isinstance(body, bytes):
            connection.send(body)
        found = connection.getresponse()
        answer = Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
        connection.close()
        return answer

    def ask(self, action: str, **values: Any) -> Answer:
        return self.send("POST", f"/do/{action}", json.dumps(values).encode(), {"Content-Type": "application/json"})

    def enter(self) -> None:
        """Opens the address with the token, as a person does."""
        answer = self.send("GET", f"/?token={TOKEN}")
        assert answer.status == 303 and answer.headers["location"] == "/"
        self.headers["Cookie"] = answer.headers["set-cookie"].split(";")[0]


@contextmanager
def served(studio: Workspace) -> Iterator[Site]:
    """A server in this process, as the command line makes it."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    app = Guard(make_app(studio), TOKEN, {f"127.0.0.1:{port}", f"localhost:{port}"})
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield Site(port)
    finally:
        server.should_exit = True
        thread.join()
