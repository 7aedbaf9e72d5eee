"""What stands before every request: is it from this server's own page, does it bear the token, is it small enough.

A web site that a person happens to visit can send requests to 127.0.0.1 as well. It cannot choose their Host and
Origin: a name that was bound to 127.0.0.1 later shows in Host, another site in Origin and Sec-Fetch-Site.
"""

import hmac
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from daydream.serve.refusal import Refusal

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
COOKIE = "daydream"
CHANGES_NOTHING = ("GET", "HEAD")
SAFE = {
    "content-security-policy": "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""What every answer says of itself: nothing from elsewhere is loaded, and nobody frames the page."""


@dataclass(frozen=True)
class Gate:
    """Whom the server lets in."""

    hosts: frozenset[str] | None = LOOPBACK
    """Names under which it may be asked for; None: any, as a token is needed."""
    token: str | None = None
    most: int = 2**29
    """Bytes of a request."""

    def check(self, scope: Scope) -> None:
        """Refuse a request that is another site's, without the token, or too large."""
        headers = Headers(scope=scope)
        self.check_origin(headers, scope)
        if self.token is not None and not hmac.compare_digest(given_token(headers).encode(), self.token.encode()):
            raise Refusal(401, "the token is missing or wrong: open the address that the server printed")
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            raise Refusal(400, "the request's Content-Length is no number")
        if int(length) > self.most:
            raise too_large(self.most)

    def check_origin(self, headers: Headers, scope: Scope) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not (name := name_of(hosts[0])):
            raise Refusal(400, "the request names no host")
        if self.hosts is not None and name not in self.hosts:
            raise Refusal(403, "the server is asked for by a name that is not its own: open it by 127.0.0.1")
        origin = headers.get("origin")
        if origin is not None and place_of(origin) != hosts[0].lower():
            raise Refusal(403, "the request comes from another web site")
        visit = scope["method"] in CHANGES_NOTHING and headers.get("sec-fetch-mode") == "navigate"
        own_page = visit and scope["path"] == "/"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not own_page:
            raise Refusal(403, "the request comes from another web site")


def name_of(host: str) -> str:
    """Return the name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def place_of(origin: str) -> str:
    """Return the host and port of an Origin header; nothing of one that is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def given_token(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else cookie_parser(headers.get("cookie", "")).get(COOKIE, "")


def too_large(most: int) -> Refusal:
    return Refusal(413, f"a request has at most {most / 2**20:,.0f} MiB: send fewer pictures at once")


class Guard:
    """The gate before an application."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self.app, self.gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        came = 0

        async def counted() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > self.gate.most:
                refused = too_large(self.gate.most)
                raise HTTPException(refused.status, str(refused))
            return message

        async def safe(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message.get("headers", ())}
                more = [(n.encode(), v.encode()) for n, v in SAFE.items() if n.encode() not in present]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        answer = self.entry(scope)
        await (self.app if answer is None else answer)(scope, counted, safe)

    def entry(self, scope: Scope) -> Response | None:
        """Return the answer to a request that goes no further; a visit with the right token gets it as a cookie."""
        try:
            token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            if self.gate.token is not None and scope["path"] == "/" and token:
                self.gate.check_origin(Headers(scope=scope), scope)
                if hmac.compare_digest(token.encode(), self.gate.token.encode()):
                    answer = RedirectResponse("/", 303)
                    answer.set_cookie(COOKIE, token, httponly=True, samesite="strict")
                    return answer
            self.gate.check(scope)
        except Refusal as refused:
            return JSONResponse({"error": str(refused)}, refused.status)
        return None
