"""Keeps everyone but the page's owner out, as Jupyter does: by a token, and by who asks.

A page of another site could send requests to this computer from the same browser. Its requests name that site as their
origin; or, if the site's name was made to lead to this computer (DNS rebinding), as their host.
"""

import hmac
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = {
    # Nothing comes from elsewhere, and nothing goes there.
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",  # the first address has the token
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Wraps an ASGI application. `hosts` are what the browser may call this server, with the port."""

    def __init__(self, app: ASGIApp, token: str, hosts: set[str]) -> None:
        self._app, self._token, self._hosts = app, token, hosts
        port = sorted(hosts)[0].rpartition(":")[2]
        self._cookie = f"mobile-ft-studio-{port}"  # browsers send cookies to all ports of a host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # there is no other protocol here
        answer = self._refusal(Headers(scope=scope), scope)
        await (self._app if answer is None else answer)(scope, receive, _with_headers(send))

    def _refusal(self, headers: Headers, scope: Scope) -> Response | None:
        """Returns the answer to a request that does not get through."""
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        if host not in self._hosts:
            return PlainTextResponse(f"host {host!r}: this server is not called so", 403)
        if origin is not None and origin != f"http://{host}":
            return PlainTextResponse(f"origin {origin}: only this server's own page may ask", 403)
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and self._is_token(given):
            answer = RedirectResponse("/", 303)  # an address without the token, for the history
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            return answer
        if not self._is_token(cookie_parser(headers.get("cookie", "")).get(self._cookie, "")):
            return PlainTextResponse("Open the address that `mobile-ft studio` printed; it has a token.", 403)
        return None

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


def address(host: str, token: str) -> str:
    return f"http://{host}/?{urlencode({'token': token})}"


def _with_headers(send: Send) -> Callable[[Message], Awaitable[None]]:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
        await send(message)

    return wrapped
