"""A hub of models on 127.0.0.1: what huggingface_hub asks of one to list and download a model's files, and no more."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """`models` are files by repository; `private` ones want the token "secret". A GET of a file in `cut` ends, once,
    after so many bytes, and with `down` what comes after that is refused."""

    models: dict[str, dict[str, bytes]]
    private: set[str] = field(default_factory=set)
    revisions: tuple[str, ...] = ("main", COMMIT)
    cut: dict[str, int] = field(default_factory=dict)
    down: bool = False
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, range
    endpoint: str = ""

    def downloaded(self) -> list[str]:
        """Files that were asked for, each as often as it was."""
        return sorted(
            path.split("/resolve/")[1].partition("/")[2]
            for method, path, _ in self.requests
            if method == "GET" and "/resolve/" in path
        )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:  # noqa: N802
        self.do_GET()

    def do_GET(self) -> None:  # noqa: N802
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path, self.headers["Range"]))
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"] and len(parts) >= 6:
            repository, what, revision = "/".join(parts[2:4]), parts[4], "/".join(parts[5:])
        elif len(parts) >= 5 and parts[2] == "resolve":
            repository, what, revision = "/".join(parts[:2]), "resolve", parts[3]
        else:
            return self._refuse(404, "EntryNotFound")
        if repository not in self.hub.models:
            return self._refuse(401 if "Authorization" not in self.headers else 404, "RepoNotFound")
        if repository in self.hub.private and self.headers["Authorization"] != "Bearer secret":
            return self._refuse(401 if "Authorization" not in self.headers else 403, None)
        if revision not in self.hub.revisions:
            return self._refuse(404, "RevisionNotFound")
        files = self.hub.models[repository]
        if what == "revision":
            siblings = [{"rfilename": name} for name in files]
            return self._json(
                {"_id": "1", "id": repository, "modelId": repository, "sha": COMMIT, "siblings": siblings}
            )
        if what == "tree":
            return self._json([{"type": "file", "path": n, "size": len(x), "oid": _etag(x)} for n, x in files.items()])
        name = "/".join(parts[4:])
        if name not in files:
            return self._refuse(404, "EntryNotFound")
        self._file(name, files[name])

    def _file(self, name: str, content: bytes) -> None:
        start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-")) if self.headers["Range"] else 0
        if self.command == "GET" and self.hub.down and name not in self.hub.cut:
            return self._refuse(500, None)
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{_etag(content)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        end = self.hub.cut.pop(name, len(content))
        self.wfile.write(content[start:end])
        self.close_connection = end < len(content)

    def _json(self, value: object) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _refuse(self, status: int, code: str | None) -> None:
        self.send_response(status)
        if code is not None:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    """The hub at its `endpoint`, while the block lasts."""
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub})) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        hub.endpoint = f"http://127.0.0.1:{server.server_port}"
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
