"""Source `http://HOST:PORT/PATH?listen=1` (and `https:`): rows that clients post.

    http://:8080/readings?listen=1                                   on loopback; write a host (0.0.0.0) to listen elsewhere
    https://0.0.0.0:8443/readings?listen=1&cert=…&key=…&credentials=sensors      Authorization: Bearer …, the text of the credential

A body is one payload of the format (`json`: an object or an array of them), or several payloads, one a line (`Content-Type:
application/x-ndjson`, or a format of lines). The server answers 202 when the rows are on their way through the application; with
exactly-once, when they are in the source's log on the disk.
A client that sends again until it reads 202 loses nothing, and may repeat. 429 with Retry-After: too much waits. 400: the body
holds no row.
401, 404, 405, 411, 413, 415 have their usual meaning. A body may come in chunks, and packed with gzip or deflate. Bounds exist for
waiting payloads, simultaneous clients and slow senders.
"""

import contextlib
import hmac
import json
import os
import socket
import ssl
import sys
import threading
import time
from collections import deque
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from agiledart_connectors.codecs.decoder import decoded
from agiledart_connectors.codecs.decoder_options import decoder_options
from agiledart_connectors.codecs.formats import open_decoder
from agiledart_connectors.codecs.malformed_examples import FORM, SIZE, MalformedExamples
from agiledart_connectors.credentials import secret
from agiledart_connectors.http.content_coding import CODINGS, BodyTooLargeError, read_chunks, unpacked
from agiledart_connectors.http.http_address import HttpAddress, http_address, server_context
from agiledart_connectors.options import ReadOptions, flag, number
from agiledart_connectors.remote.thread_errors import ThreadErrors, fault_text
from agiledart_dataflow.plan.connectors import Connector, Reading
from agiledart_kernel.errors import AgileDartError, ConfigurationError, OperationFailed

DEFAULT_MAX_BODY_BYTES: Final = 1 << 20
MAX_BODY_BYTES_LIMIT: Final = 64 << 20
MAX_WAITING: Final = 64
"""Bodies that wait to be read; beyond it is 429."""

MAX_WAITING_BYTES: Final = 16 << 20
MAX_CLIENTS: Final = 64
"""Connections at one time. For one more, a client that has asked nothing yet is closed, first one without credentials."""

MAX_HEAD_BYTES: Final = 16 << 10
"""Bytes of a request's first line and headers."""

PROOF_SECONDS: Final = 5.0
"""Time for the head of a request, where credentials are needed and the client has not shown them yet."""

ROOM_SECONDS: Final = 0.5
"""Time for the place of a client that was hung up on to become free."""

CLIENT_SECONDS: Final = 10.0
"""Timeout for a client's next bytes."""

REQUEST_SECONDS: Final = 60.0
"""Timeout for a whole request, and for the next one of a kept connection."""

SAFE_SECONDS: Final = 30.0
"""Timeout for rows to get on their way; then the answer is 503, and the client sends again."""

_RETRY_SECONDS: Final = 1
_LOOK_SECONDS: Final = 0.2
_MAX_NOTES: Final = 20
_LINED: Final = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")


class _PushedBody:
    """Body of one request, and its result."""

    __slots__ = ("done", "good", "is_lined", "malformed", "payload", "was_dropped")

    def __init__(self, payload: bytes, *, is_lined: bool) -> None:
        self.payload, self.is_lined = payload, is_lined
        self.done = threading.Event()
        self.good = self.malformed = 0
        self.was_dropped = False


class _Server(ThreadingHTTPServer):
    """The port. `source` answers its requests."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: HttpAddress, source: "PushReader", context: ssl.SSLContext | None) -> None:
        self.source, self._context = source, context
        self._client_slots = threading.BoundedSemaphore(MAX_CLIENTS)
        self._receiving: dict[Any, float] = {}
        self._proven: set[Any] = set()
        host = address.host or "127.0.0.1"
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, address.port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._client_slots.acquire(blocking=False):
            self._hang_up_on_idle()
            if not self._client_slots.acquire(timeout=ROOM_SECONDS):
                self.shutdown_request(request)
                return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            request.settimeout(CLIENT_SECONDS)
            if self._context is not None:
                request = self._context.wrap_socket(request, server_side=True)
            super().process_request_thread(request, client_address)
        except OSError:  # the client speaks no TLS, or went away
            self.shutdown_request(request)
        finally:
            self.has_received(request)
            self._proven.discard(request)
            self._client_slots.release()

    def _hang_up_on_idle(self) -> None:
        """Hang up on the client that has asked nothing for the longest time."""
        idle = list(self._receiving)
        for connection in [*(client for client in idle if client not in self._proven), *idle][:1]:
            self.has_received(connection)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def receives(self, connection: Any) -> None:
        """Expect a request on this connection within `REQUEST_SECONDS`, its head within `PROOF_SECONDS` of a client unknown."""
        is_known = connection in self._proven or not self.source.needs_proof
        self._receiving[connection] = time.monotonic() + (REQUEST_SECONDS if is_known else PROOF_SECONDS)

    def has_proven(self, connection: Any) -> None:
        """The client of this connection has shown its credentials."""
        self._proven.add(connection)
        if connection in self._receiving:
            self._receiving[connection] = time.monotonic() + REQUEST_SECONDS

    def has_received(self, connection: Any) -> None:
        """It is here."""
        self._receiving.pop(connection, None)

    def service_actions(self) -> None:
        """Hang up on clients that send a byte now and then to keep a connection; the server calls this again and again."""
        now = time.monotonic()
        for connection, deadline in list(self._receiving.items()):
            if now > deadline:
                self.has_received(connection)
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away; note anything else."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            self.source.note(f"POST {self.source.path}: {fault_text(error)}; the client got no answer")


class _BoundedHead:
    """File of a connection, of which a request's head takes `MAX_HEAD_BYTES` at most.

    The library alone would take 99 headers of 65 kB.
    """

    def __init__(self, file: Any) -> None:
        self._file, self._left = file, MAX_HEAD_BYTES

    def begin(self) -> None:
        """Begin a request."""
        self._left = MAX_HEAD_BYTES

    def readline(self, most: int = -1) -> bytes:
        """Return the next line of the head, or of a body in chunks. Raises LineTooLong, for which the library answers 431."""
        line: bytes = self._file.readline(self._left + 1 if most < 0 else min(most, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("head")
        return line

    def end(self) -> None:
        """The head is over: lines of a body in chunks are bounded by themselves."""
        self._left = sys.maxsize

    def read(self, size: int) -> bytes:
        """Return bytes of a body."""
        data: bytes = self._file.read(size)
        return data

    @property
    def closed(self) -> bool:
        """Return whether the connection's file is closed."""
        return bool(self._file.closed)

    def close(self) -> None:
        """Close the connection's file."""
        self._file.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "agiledart", ""
    wbufsize = -1  # an answer leaves in one piece: in two, the second waits 40 ms for the client's word of the first
    server: _Server

    def setup(self) -> None:
        super().setup()
        self._head = self.rfile = _BoundedHead(self.rfile)  # type: ignore[assignment]

    def handle_one_request(self) -> None:
        self.server.receives(self.connection)
        self._head.begin()
        try:
            super().handle_one_request()
        except LineTooLong:  # of the first line
            self.close_connection = True

    def do_POST(self) -> None:
        self._head.end()
        source = self.server.source
        lengths = self.headers.get_all("Content-Length", [])
        length = lengths[0] if lengths else ""
        codings = self.headers.get_all("Transfer-Encoding", [])
        in_chunks = [coding.strip().lower() for coding in codings] == ["chunked"]
        if len(lengths) > 1 or (codings and (lengths or not in_chunks)):
            self._answer(400, "say the length once", close=True)
        elif not in_chunks and not (length.isascii() and length.isdigit()):
            self._answer(411, "say Content-Length, or send chunks", close=True)
        elif not source.is_authorised(self.headers.get("Authorization", "")):
            self._answer(401, "missing or wrong credentials", close=True, more={"WWW-Authenticate": "Bearer"})
        elif self.path.partition("?")[0] != source.path:
            self._answer(404, "rows are not taken here", close=True)
        elif not in_chunks and int(length) > source.max_body:
            source.count_oversized(int(length))
            self._answer(413, f"at most {source.max_body} bytes at one time", close=True)
        else:
            self.server.has_proven(self.connection)
            self._receive(source, None if in_chunks else int(length))

    def _receive(self, source: "PushReader", length: int | None) -> None:
        """Read a body of a length, or in chunks (None)."""
        coding = self.headers.get("Content-Encoding", "")
        if coding.strip().lower() not in CODINGS:
            self._answer(415, f"the content coding {coding} is not known: gzip, deflate or none", close=True)
            return
        try:
            payload = read_chunks(self.rfile, source.max_body) if length is None else self.rfile.read(length)
            self.server.has_received(self.connection)
            if payload is None or (length is not None and len(payload) < length):
                self.close_connection = True
                return
            payload = unpacked(payload, coding, source.max_body)
        except BodyTooLargeError:
            source.count_oversized(source.max_body + 1)
            self._answer(413, f"at most {source.max_body} bytes at one time", close=True)
        except ValueError as error:
            source.count_broken(str(error))
            self._answer(400, str(error), close=True)
        else:
            kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            self._take(source, payload, is_lined=kind in _LINED)

    def do_GET(self) -> None:
        self._answer(405, "rows are posted", close=True, more={"Allow": "POST"})

    do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815  the library's names

    def _take(self, source: "PushReader", payload: bytes, *, is_lined: bool) -> None:
        body = _PushedBody(payload, is_lined=is_lined)
        if not source.take(body):
            self._answer(429, "too much waits", more={"Retry-After": str(_RETRY_SECONDS)})
        elif not body.done.wait(SAFE_SECONDS) or body.was_dropped:
            body.was_dropped = True
            self._answer(503, "not taken in time; send it again", more={"Retry-After": str(_RETRY_SECONDS)})
        elif body.malformed and not body.good:
            self._answer(400, f"nothing in it is a row ({body.malformed} malformed)")
        else:
            self._answer(202, "", accepted=body.good, malformed=body.malformed)

    def _answer(
        self, status: int, error: str, *, close: bool = False, more: dict[str, str] | None = None, **malformed: int
    ) -> None:
        body = json.dumps({"error": error} if error else malformed).encode() + b"\n"
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **(more or {}),
        }.items():
            self.send_header(name, value)
        if close:  # the unread rest of the request must not be taken for the next one
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the library's name
        """Clients' lines are not the application's log."""


class PushReader:
    """Reads rows that are posted."""

    stamps = True

    def __init__(self, connector: Connector, address: HttpAddress, row_type: Any) -> None:
        self.path = address.path
        self.max_body = number(connector, "max_bytes", DEFAULT_MAX_BODY_BYTES, 1, MAX_BODY_BYTES_LIMIT)
        form = connector.option("format", "json")
        self._decoder = open_decoder(form, row_type, decoder_options(connector))
        self._is_lined, self._is_csv = form in ("text", "raw"), form == "csv"
        self._token = secret(connector.option("credentials"), "the token") if connector.option("credentials") else ""
        self._examples = MalformedExamples()
        self.on_malformed = self._examples.on_malformed
        self._lock = threading.Lock()
        self._waiting: deque[_PushedBody] = deque()
        self._bytes = 0
        self._unacknowledged: deque[tuple[int, _PushedBody]] = deque()  # by number of the taking
        self._takings = 0
        self.holds = False
        self._left: list[Any] = []
        self._too_large: list[int] = []
        self._notes: list[str] = []
        self._broken: list[str] = []
        self._closed = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        context = server_context(connector) if address.tls else None
        try:
            self._server = _Server(address, self, context)
        except OSError as error:
            os.close(self._wake)
            raise OperationFailed(
                f"{connector.kind}: cannot listen on {address.server}: {error.strerror or error}"
            ) from None
        self.port = int(self._server.server_address[1])
        self._errors = ThreadErrors(f"the port {self.port}")
        self._failure: AgileDartError | None = None
        threading.Thread(target=self._serve, name="http source", daemon=True).start()

    # ---- for the server's threads

    def _serve(self) -> None:
        """Accept clients until the reader is closed."""
        while not self._closed:
            try:
                self._server.serve_forever(_LOOK_SECONDS)
            except BaseException as error:  # noqa: BLE001  a thread that ended unseen would look like a source without clients
                verdict = self._errors.verdict(error)
                if isinstance(verdict, AgileDartError):
                    self._failure = verdict
                    self.note("")
                    return
                self.note(str(verdict))

    def note(self, text: str) -> None:
        """Tell users."""
        with self._lock:
            if not self._closed:
                self._notes = [*self._notes[-_MAX_NOTES:], *filter(None, [text])]
                os.eventfd_write(self._wake, 1)

    @property
    def needs_proof(self) -> bool:
        """Return whether a client has to show credentials."""
        return bool(self._token)

    def is_authorised(self, authorization: str) -> bool:
        """Return whether this header proves that the client may post."""
        if not self._token:
            return True
        return hmac.compare_digest(authorization.encode(), f"Bearer {self._token}".encode())

    def take(self, body: _PushedBody) -> bool:
        """Queue a body; False when too much waits."""
        with self._lock:
            if self._closed or len(self._waiting) >= MAX_WAITING or self._bytes + len(body.payload) > MAX_WAITING_BYTES:
                return False
            self._waiting.append(body)
            self._bytes += len(body.payload)
            os.eventfd_write(self._wake, 1)
            return True

    def count_broken(self, text: str) -> None:
        """A body cannot be unpacked."""
        with self._lock:
            if not self._closed:
                self._broken.append(text)
                os.eventfd_write(self._wake, 1)

    def count_oversized(self, size: int) -> None:
        """A body is too large to be taken."""
        with self._lock:
            if not self._closed:
                self._too_large.append(size)
                os.eventfd_write(self._wake, 1)

    # ---- for the instance

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        malformed: dict[str, int] = {}
        with self._lock:
            self._clear()
            too_large, self._too_large = self._too_large, []
            notes, self._notes = self._notes, []
            broken, self._broken = self._broken, []
        if self._failure is not None and not self._waiting and not self._left:
            raise self._failure
        for note in notes:
            self._examples.note(note)
        for size in too_large:
            malformed[SIZE] = malformed.get(SIZE, 0) + 1
            limit = f"a body of {size:,} bytes; at most {self.max_body:,} are taken"
            self._examples.add(SIZE, f"POST {self.path}:", limit, None)
        for text in broken:
            malformed[FORM] = malformed.get(FORM, 0) + 1
            self._examples.add(FORM, f"POST {self.path}:", text, None)
        if not self._left:
            if not self.holds:
                self.acknowledge(self._takings)
            while not self._left and (body := self._next()) is not None:
                self._left = self._rows_of(body, wall_ns, malformed)
                self._takings += 1
                self._unacknowledged.append((self._takings, body))
        rows, self._left = self._left[:max_rows], self._left[max_rows:]
        with self._lock:
            more = bool(self._waiting or self._left)
            if (more or (self._unacknowledged and not self.holds)) and not self._closed:
                os.eventfd_write(self._wake, 1)  # look again soon: a client waits for its 202
        lines = len(rows) + sum(malformed.values())
        return Reading(rows, lines, malformed, False, not more, self._examples.take())

    def fileno(self) -> int:
        """Readable when bodies have come, or wait to be acknowledged."""
        return self._wake

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            # From here on no reading reports that the last rows got on their way.
            unsafe = [*(body for _, body in self._unacknowledged), *self._waiting]
            self._waiting.clear()
        for body in unsafe:
            body.was_dropped = True
            body.done.set()
        if self._failure is None:  # else its thread has ended, and would be waited for in vain
            self._server.shutdown()
        self._server.server_close()
        os.close(self._wake)

    def receipt(self) -> int:
        """A number for the bodies of which all rows were handed out."""
        return self._takings - bool(self._left)

    def acknowledge(self, receipt: int) -> None:
        """So far what was handed out is safe, or on its way."""
        while self._unacknowledged and self._unacknowledged[0][0] <= receipt:
            self._unacknowledged.popleft()[1].done.set()

    def _next(self) -> _PushedBody | None:
        """The next body whose client still waits."""
        with self._lock:
            while self._waiting:
                body = self._waiting.popleft()
                self._bytes -= len(body.payload)
                if not body.was_dropped:
                    return body
        return None

    def _rows_of(self, body: _PushedBody, wall_ns: int, malformed: dict[str, int]) -> list[Any]:
        is_lined = (body.is_lined or self._is_lined) and not self._is_csv  # the lines of CSV are cut by its decoder
        payloads = [line for line in body.payload.split(b"\n") if line.strip()] if is_lined else [body.payload]
        before = sum(malformed.values())
        place = f"POST {self.path}:"
        rows = decoded(
            self._decoder,
            payloads,
            wall_ns,
            malformed,
            self._examples,
            lambda index: place if self._is_csv else f"{place}{index + 1}",
        )
        body.good, body.malformed = len(rows), sum(malformed.values()) - before
        return rows

    def _clear(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return


def open_source(connector: Connector, row_type: Any, read_options: ReadOptions) -> PushReader:
    """The reader of an `http:` or `https:` connector."""
    address = http_address(connector)
    if not flag(connector, "listen"):
        raise ConfigurationError(
            f"{connector.url()}: rows come to a source that listens: add listen=1, and post to {connector.url()}"
        )
    return PushReader(connector, address, row_type)
