"""Who is let in, what is served, and how much is taken."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mobile_ft.studio import server
from mobile_ft.studio.workspace import Workspace
from tests.mobile_ft.studio.serving import Site, served


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("guard") / "studio")


@pytest.fixture
def site(studio: Workspace) -> Iterator[Site]:
    with served(studio) as site:
        yield site


def test_only_who_has_the_token(site: Site) -> None:
    for path in ("/", "/?token=", "/?token=wrong", "/page/main.js", "/made/x", "/page/main.js?token=secret"):
        answer = site.send("GET", path)
        assert answer.status == 403 and b"mobile-ft studio" in answer.body, path
    assert site.ask("list_runs").status == 403
    site.headers["Cookie"] = f"mobile-ft-studio-{site.port}=wrong"
    assert site.ask("list_runs").status == 403
    site.enter()
    cookie = site.send("GET", "/?token=secret").headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    # Cookies of other servers of this computer come along.
    site.headers["Cookie"] = 'prefs={"a": 1}; a@b[]=5; ' + site.headers["Cookie"] + "; x y z"
    assert site.ask("list_runs").json == {"runs": []} and b"<title>" in site.send("GET", "/").body


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example"]
)
def test_another_host(host: str, site: Site) -> None:
    """A name that was made to lead to this computer."""
    site.enter()
    answer = site.send("GET", "/", host=host)
    assert answer.status == 403 and host.encode() in answer.body
    assert site.send("GET", "/?token=secret", host=host).status == 403
    assert site.send("GET", "/", host=f"localhost:{site.port}").status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1"])
def test_another_origin(origin: str, site: Site) -> None:
    site.enter()
    answer = site.send("POST", "/do/list_runs", b"{}", {"Origin": origin.format(port=site.port)})
    assert answer.status == 403 and b"only this server's own page" in answer.body
    assert site.send("POST", "/do/list_runs", b"{}", {"Origin": f"http://127.0.0.1:{site.port}"}).status == 200


def test_nothing_from_elsewhere(site: Site) -> None:
    site.enter()
    headers = site.send("GET", "/").headers
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert headers["referrer-policy"] == "no-referrer" and headers["cache-control"] == "no-store"
    page = Path(server.__file__).parent / "page"
    for file in page.iterdir():
        text = file.read_text().replace("http://www.w3.org/", "")
        assert "http:" not in text and "https:" not in text and "//cdn" not in text, file


def test_paths_outside(studio: Workspace, site: Site) -> None:
    site.enter()
    secret = studio.folder.parent / "secret.txt"
    secret.write_text("secret words")
    os.symlink(secret, studio.made / "link.txt")  # someone who can do that can read the file, too
    paths = (
        "../server.py",
        "%2e%2e/server.py",
        "..%2fserver.py",
        "%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/etc/passwd",
    )
    for path in paths:
        for root in ("/page/", "/made/", "/do/", "/upload/"):
            answer = site.send("GET" if root in ("/page/", "/made/") else "POST", root + path, b"{}")
            assert answer.status in (400, 404, 405) and b"import " not in answer.body and b"root:" not in answer.body
    for name in ("../secret.txt", "/etc/passwd", "..", ".hidden", "", "a/b", "a\0b", "x" * 200, 7, None):
        wrong: dict[str, dict[str, object]] = {
            "describe_model": {"model": name},
            "read_run": {"run": name, "start": 0},
            "look_at_data": {"model": "x", "data": name, "options": {}},
            "remove_run": {"run": name},
            "make": {"run": name, "target": "peft"},
            "add_row": {"data": name, "row": {}} if name != "" else {"data": "/", "row": {}},
        }
        for action, values in wrong.items():
            answer = site.ask(action, **values)
            assert answer.status == 400 and "error" in answer.json, (action, name)
    assert secret.read_text() == "secret words" and not (studio.folder.parent / "etc").exists()


def test_too_much(studio: Workspace, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.enter()
    gigabyte = site.send("PUT", "/upload/big.jsonl", None, {"Content-Length": str(1 << 30)})
    assert gigabyte.status == 413 and "more than 256 MiB" in gigabyte.json["error"]
    monkeypatch.setattr(server, "MOST_UPLOAD", 1 << 20)
    piece = b"%x\r\n" % (1 << 18) + b"x" * (1 << 18) + b"\r\n"
    chunked = site.send("PUT", "/upload/big.jsonl", piece * 5 + b"0\r\n\r\n", {"Transfer-Encoding": "chunked"})
    assert chunked.status == 413
    assert site.send("POST", "/do/list_runs", b" " * (5 << 20)).status == 413
    assert not any(studio.data.iterdir())
    assert site.send("PUT", "/upload/small.jsonl", b"{}\n").status == 200
    assert site.send("PUT", "/upload/small.jsonl", b"{}\n").json == {"name": "small-2.jsonl"}


def test_wrong_requests(site: Site) -> None:
    site.enter()
    assert site.send("POST", "/do/nothing", b"{}").status == 404
    assert site.send("GET", "/do/list_runs").status == 405
    for body in (b"[]", b"{", b"[" * 100_000, b"\xff", b"3"):
        assert site.send("POST", "/do/list_runs", body).status == 400, body[:9]
    assert site.ask("list_runs", more=1).json["error"].startswith("more: unknown value")
    assert site.ask("read_run").json["error"] == "run: is missing"
    assert site.ask("read_run", run="x", start="0").json["error"] == "start: must be of type int"
    assert site.send("POST", "/answer", b'{"model": []}').json["error"] == "model: must be of type str"
