"""HTTP server of the page on loopback: files of the page, a stream of events, and requests as JSON.

Every client is bounded: connections, the time of a request, its size, and the time of a viewer to take an event.
"""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agiledart_cli.web.mesh_watcher import MeshWatcher
from agiledart_cli.web.page_access import PageAccess
from agiledart_cli.web.page_requests import PageRequests
from agiledart_kernel.errors import AgileDartError

MAX_CONNECTIONS = 64
"""Connections at one time; more are closed at once."""

MAX_VIEWERS = 8
"""Open pages at one time."""

MAX_BODY = 64 * 1024
"""Bytes of a request's body."""

CLIENT_SECONDS = 10.0
"""Longest wait for a client, to send a request or to take data."""

KEEP_ALIVE_SECONDS = 5.0
"""Longest silence in a stream of events; a comment then shows whether the viewer is still there."""

FILES: Mapping[str, tuple[str, str]] = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    **{
        f"/{name}": (name, "text/javascript; charset=utf-8")
        for name in ("page.js", "elements.js", "drawings.js", "views.js")
    },
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""Path → file of the page and its type."""

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class PageServer(ThreadingHTTPServer):
    """The server. It listens on loopback as soon as it is made.

    Args:
        port: port to listen on; 0: any free one.
        watcher: source of events.
        requests: answers to requests of the page.

    Raises OSError when the port cannot be used.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, port: int, watcher: MeshWatcher, requests: PageRequests, clock: Any) -> None:
        self.watcher, self.requests = watcher, requests
        self._places = threading.Semaphore(MAX_CONNECTIONS)
        self.viewers = threading.Semaphore(MAX_VIEWERS)
        self.refused = 0
        super().__init__(("127.0.0.1", port), _PageHandler)
        self.access = PageAccess(self.server_address[1], clock)

    @property
    def address(self) -> str:
        """Return the page's address with a token that works once."""
        return f"http://127.0.0.1:{self.server_address[1]}/#{self.access.new_token()}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread; close it when there are too many."""
        if not self._places.acquire(blocking=False):
            self.refused += 1
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection, and give its place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that has gone or is too slow; its connection is closed."""


@contextlib.contextmanager
def serving(server: PageServer) -> Iterator[None]:
    """Serve in a thread; afterwards close the server, its watcher and its requests."""
    threading.Thread(target=server.serve_forever, name="page server", daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        server.watcher.close()
        server.requests.close()


class _PageHandler(BaseHTTPRequestHandler):
    """One request of a browser; the connection closes after it."""

    timeout = CLIENT_SECONDS
    server_version = "agiledart"
    sys_version = ""
    server: PageServer

    def do_GET(self) -> None:
        """Answer with a file of the page, or with the stream of events."""
        path, query = self._target()
        if not self._is_local():
            return
        if path in FILES:
            name, kind = FILES[path]
            self._answer(HTTPStatus.OK, kind, (files("agiledart_cli.web") / "static" / name).read_bytes())
        elif path == "/events" and self._has_session():
            self._stream(query.get("application", [""])[-1][:256])
        elif path != "/events":
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such page here.")

    def do_POST(self) -> None:
        """Begin a session, or answer a request of the page."""
        path, _ = self._target()
        if not self._is_local():
            return
        if not self.server.access.is_own_origin(self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site")):
            self._refuse(HTTPStatus.FORBIDDEN, "Another page sent this request.")
            return
        if (body := self._body()) is None:
            return
        if path == "/session":
            self._begin_session(body)
        elif self._has_session():
            self._request(path, body)

    def _request(self, path: str, body: Mapping[str, Any]) -> None:
        kind, _, what = path.strip("/").partition("/")
        try:
            if kind == "read":
                self._json(HTTPStatus.OK, self.server.requests.read(what, body))
            elif kind == "write":
                self._json(HTTPStatus.OK, self.server.requests.write(what, body))
            else:
                self._refuse(HTTPStatus.NOT_FOUND, "There is no such request here.")
        except AgileDartError as error:
            self._refuse(HTTPStatus.CONFLICT, str(error))

    def _begin_session(self, body: Mapping[str, Any]) -> None:
        token = body.get("token")
        session = self.server.access.begin_session(token) if isinstance(token, str) else None
        if session is None:
            self._refuse(
                HTTPStatus.FORBIDDEN,
                "This address was used already. Press Enter where `agiledart web` runs: it prints a new one.",
            )
            return
        self._json(
            HTTPStatus.OK,
            {"may_write": self.server.requests.may_write},
            {"Set-Cookie": self.server.access.set_cookie(session)},
        )

    def _stream(self, application: str) -> None:
        """Send events until the viewer goes or becomes too slow."""
        if not self.server.viewers.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_VIEWERS} pages are open already; close one.")
            return
        viewer, number = object(), 0
        self.server.watcher.enter(viewer, application)
        try:
            self._head(HTTPStatus.OK, "text/event-stream", {})
            while True:
                newer = self.server.watcher.wait(number, KEEP_ALIVE_SECONDS)
                if newer is None:
                    self.wfile.write(b": still here\n\n")
                    continue
                number, event = newer
                text = json.dumps({**event, "may_write": self.server.requests.may_write}, separators=(",", ":"))
                self.wfile.write(b"data: " + text.encode() + b"\n\n")
        except OSError:
            pass  # the viewer has gone, or took no data for too long
        finally:
            self.server.watcher.leave(viewer)
            self.server.viewers.release()

    def _target(self) -> tuple[str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        return parts.path, parse_qs(parts.query, max_num_fields=8)

    def _is_local(self) -> bool:
        if self.server.access.is_own_host(self.headers.get("Host", "")):
            return True
        self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "This server has another name.")
        return False

    def _has_session(self) -> bool:
        is_own = self.headers.get("Sec-Fetch-Site") in (None, "same-origin")
        if is_own and self.server.access.is_session(self.headers.get("Cookie", "")):
            return True
        self._refuse(
            HTTPStatus.UNAUTHORIZED, "This browser has no session. Open the address that `agiledart web` printed."
        )
        return False

    def _body(self) -> dict[str, Any] | None:
        """Return the JSON object of a request; None after a refusal."""
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length) > MAX_BODY:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request is too large.")
            return None
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            self._refuse(HTTPStatus.BAD_REQUEST, "The request is no JSON object.")
            return None
        return body

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self._json(status, {"error": text})

    def _json(self, status: HTTPStatus, body: Any, more: Mapping[str, str] | None = None) -> None:
        self._answer(status, "application/json", json.dumps(body).encode(), more)

    def _answer(self, status: HTTPStatus, kind: str, body: bytes, more: Mapping[str, str] | None = None) -> None:
        self._head(status, kind, {"Content-Length": str(len(body)), **(more or {})})
        self.wfile.write(body)

    def _head(self, status: HTTPStatus, kind: str, more: Mapping[str, str]) -> None:
        self.send_response_only(status)
        for name, value in {"Content-Type": kind, **HEADERS, **more, "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is of the base class
        """Print nothing: a browser's requests are no news."""
