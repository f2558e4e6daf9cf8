"""HTTP/1.1 server of `/metrics`, `/livez` and `/readyz`, for Prometheus and for service managers.

With `agent.web` it redirects a browser from `/` to the page, which another process serves. It serves nothing else.

The port is for machines in one's own network and has no TLS; the default is loopback. A client can only occupy a place
for some seconds. A request is one head of at most `MAX_HEAD` bytes within `HEAD_SECONDS`, answered once, and the
connection closes.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Collection
from http import HTTPStatus
from ipaddress import ip_address
from typing import NamedTuple

from agiledart_kernel.errors import OperationFailed
from agiledart_transport.connecting import format_address

MAX_CLIENTS = 16
"""Connections at one time. For one more the oldest that has asked nothing is closed; else the new one is."""

MAX_HEAD = 8_192
"""Bytes of a request's first line and headers."""

HEAD_SECONDS = 5.0
BODY_SECONDS = 10.0
"""Time for a slow client to take an answer."""

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
"""Names under which a browser may request the page; under any other the request may come from a page of a stranger."""

PLAIN = "text/plain; charset=utf-8"

_NOT_OURS = b"Ask by address, or list this name in the agent's setting metrics_hosts.\n"


class MetricsServer:
    """Answers scrapes and probes.

    Args:
        render: Accept header → (content type, body) of `/metrics`.
        unready: returns why this node should get no work; empty when it may.
        count_refused: called with a reason from a bounded set for each client that does not get the requested answer.
        hosts: names under which /metrics may be requested, beside addresses and `localhost`.
        visit: returns the address of the page's server, and starts it; "" when it cannot be started. None: no page.
    """

    def __init__(
        self,
        render: Callable[[str], tuple[str, bytes]],
        unready: Callable[[], str],
        count_refused: Callable[[str], None],
        hosts: Collection[str] = (),
        visit: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self._visit = visit
        self._render, self._unready, self._count_refused = render, unready, count_refused
        self._hosts = frozenset(name.lower() for name in hosts)
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()
        self._silent: dict[int, asyncio.StreamWriter] = {}

    async def listen(self, host: str, port: int, tries: int = 1) -> int:
        """Take connections. Return the port. `tries`: ports to try, from this one on.

        Raises `OperationFailed` with a text for the user.
        """
        for candidate in range(port, min(port + tries, 1 << 16)):
            try:
                self._server = await asyncio.start_server(self._serve, host, candidate, limit=MAX_HEAD)
            except OSError as error:
                is_taken = error.errno == errno.EADDRINUSE
                if is_taken and candidate + 1 < port + tries:
                    continue
                problem = "is in use by another process" if is_taken else f"cannot be used ({error.strerror or error})"
                raise OperationFailed(
                    f"Port {port} of {host} for metrics {problem}. "
                    f'Give --metrics {host}:0 for any free one, or --metrics "" for none.'
                ) from None
            return candidate
        raise AssertionError("at least one port is tried")

    @property
    def address(self) -> str:
        """`host:port`; empty while it does not listen."""
        if self._server is None or not self._server.sockets:
            return ""
        host, port = self._server.sockets[0].getsockname()[:2]
        return format_address(host, port)

    async def close(self) -> None:
        """Stop listening, and cut all connections."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._clients):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= MAX_CLIENTS and self._silent:  # one that asks nothing keeps no other out
            self._count_refused("slow client")
            silent = self._silent.pop(next(iter(self._silent)))
            self._clients.discard(silent)
            silent.transport.abort()
        if len(self._clients) >= MAX_CLIENTS:
            self._count_refused("too many clients")
            writer.transport.abort()
            return
        self._clients.add(writer)
        self._silent[id(writer)] = writer
        try:
            answer = await self._answer(reader, lambda: self._silent.pop(id(writer), None))
            if answer is not None:
                writer.write(answer)
                writer.close()
                await asyncio.wait_for(writer.wait_closed(), BODY_SECONDS)
        except TimeoutError:
            self._count_refused("slow client")
        except OSError:
            pass  # the client has gone
        finally:
            self._clients.discard(writer)
            self._silent.pop(id(writer), None)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, asked: Callable[[], object]) -> bytes | None:
        """Return the whole response to one request; None when the client has gone or never completes its request.

        Args:
            asked: called once the request is here. Its answer may take as long as the page's process starts.
        """
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_SECONDS)
        except TimeoutError:
            self._count_refused("slow client")
            return response(HTTPStatus.REQUEST_TIMEOUT, PLAIN, b"The request did not arrive in time.\n")
        except asyncio.LimitOverrunError:
            self._count_refused("too large")
            return response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, PLAIN, b"The request is too large.\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                self._count_refused("garbage")
            return None
        asked()
        request = parse_head(head)
        if request is None:
            self._count_refused("garbage")
            return response(HTTPStatus.BAD_REQUEST, PLAIN, b"This is not HTTP/1.\n")
        method, path, accept, host, _ = request
        if method not in ("GET", "HEAD"):
            self._count_refused("method")
            return response(HTTPStatus.METHOD_NOT_ALLOWED, PLAIN, b"This port answers only GET.\n", allow=True)
        if path == "/metrics" and not self._is_ours(host):
            self._count_refused("host")
            return response(HTTPStatus.MISDIRECTED_REQUEST, PLAIN, _NOT_OURS)
        if self._visit is not None and method == "GET" and path == "/" and "text/html" in accept:
            return await self._redirect(request, self._visit)
        status, kind, body = self._page(path, accept)
        return response(status, kind, body, head_only=method == "HEAD")

    async def _redirect(self, request: "RequestHead", visit: Callable[[], Awaitable[str]]) -> bytes:
        """Send a browser on to the page. The fragment of its address, in which the secret stands, goes along."""
        if request.host.lower() not in LOOPBACK_NAMES or request.fetch_site not in ("", "none", "same-origin"):
            self._count_refused("host")
            return response(HTTPStatus.MISDIRECTED_REQUEST, PLAIN, b"Another page sent this request.\n")
        address = await visit()
        if not address:
            return response(HTTPStatus.SERVICE_UNAVAILABLE, PLAIN, b"The page could not be started.\n")
        return response(HTTPStatus.TEMPORARY_REDIRECT, PLAIN, b"", location=address)

    def _is_ours(self, host: str) -> bool:
        """Return whether /metrics may be requested under this name: a page that points its own name here could read it
        in a browser.
        """
        name = host.lower()
        return name in ("", "localhost") or name in self._hosts or _is_address(name)

    def _page(self, path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        match path:
            case "/metrics":
                kind, body = self._render(accept)
                return HTTPStatus.OK, kind, body
            case "/livez":
                return HTTPStatus.OK, PLAIN, b"alive\n"
            case "/readyz":
                reason = self._unready()
                status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
                return status, PLAIN, f"{reason or 'ready'}\n".encode()
            case _:
                self._count_refused("path")
                return HTTPStatus.NOT_FOUND, PLAIN, b"This port serves /metrics, /livez and /readyz.\n"


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _host_name(header: str) -> str:
    """Return the host of a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


class RequestHead(NamedTuple):
    """Head of a request: method, path without query, host without port, and the headers that an answer depends on."""

    method: str
    path: str
    accept: str
    host: str
    fetch_site: str


def parse_head(head: bytes) -> RequestHead | None:
    """Return the head of a request; None when it is not HTTP/1."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[0].isalpha() or not words[1].startswith("/") or words[2][:7] != "HTTP/1.":
        return None
    accepted, hosts, fetch_site = [], [], ""
    for line in lines:
        name, colon, value = line.partition(":")
        if not line:
            continue
        if not colon:
            return None
        if name.lower() == "accept":
            accepted.append(value.strip())
        elif name.lower() == "host":
            hosts.append(value.strip())
        elif name.lower() == "sec-fetch-site":
            fetch_site = value.strip()
    if len(hosts) > 1:
        return None
    path = words[1].partition("?")[0]
    return RequestHead(words[0], path, ",".join(accepted), _host_name("".join(hosts)), fetch_site)


def response(
    status: HTTPStatus, kind: str, body: bytes, *, head_only: bool = False, allow: bool = False, location: str = ""
) -> bytes:
    """Return a whole HTTP response that ends its connection."""
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *(["Allow: GET, HEAD"] if allow else []),
        *([f"Location: {location}"] if location else []),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (b"" if head_only else body)
