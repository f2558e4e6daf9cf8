"""Synchronous network client of sink logs: sockets and `ssl`, no event loop; for Spark's worker processes and tools.

A client connects to any agent, asks for the location of a log, and connects to the agent that has it. When that agent is
unreachable (restart, another port), the client locates the log again until its timeout. Not thread-safe; create one per
thread. It holds sockets, so it
is never pickled: pickle `ClientIdentity` and the addresses instead.
"""

import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, TypeVar

import msgspec
from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed, Refused, RemoteProtocolError
from agiledart_kernel.frames import (
    FRAME_HEADER,
    LIMIT_BY_KIND,
    FrameKind,
    Hello,
    decode_close_reason,
    decode_hello,
    encode_hello,
    frame,
    negotiate,
)
from agiledart_kernel.limits import MAX_FRAME_BYTES, MAX_HELLO_BYTES
from agiledart_kernel.node_id import NodeId
from agiledart_sink_log.column_index import ZoneCondition
from agiledart_sink_log.protocol import (
    ELSEWHERE,
    NOT_ALLOWED,
    OVERLOADED,
    ROWS,
    UNAVAILABLE,
    Ends,
    EndsReply,
    Fetch,
    Fetched,
    FetchedParts,
    ListLogs,
    Locate,
    Located,
    LogAnswer,
    LogRefused,
    LogRequest,
    LogsListed,
    StoredPart,
)
from agiledart_transport.certificates import make_credentials
from agiledart_transport.circuits import preface
from agiledart_transport.connecting import parse_address
from agiledart_transport.local_peer_verifier import LocalPeerVerifier
from agiledart_transport.tls_contexts import client_context

A = TypeVar("A")


class Numbered(Protocol):
    """An answer with the number of its request."""

    @property
    def request(self) -> int: ...


N = TypeVar("N", bound=Numbered)

CONNECT_SECONDS = 5.0
PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 2.0
CONTEXT_SECONDS = 600.0
"""Time after which new connections get a new certificate; one is valid for longer."""

_ANSWERS: Codec[LogAnswer] = Codec(LogAnswer)
_REQUESTS: Codec[LogRequest] = Codec(LogRequest)
_PASSING = (ELSEWHERE, OVERLOADED, UNAVAILABLE)
"""Reasons of refusals after which the client retries a little later."""


@dataclass(frozen=True, repr=False)
class ClientIdentity:
    """Identity of a reader: its key and chain of grants. Secret; small enough to be pickled.

    Attributes:
        seed: the 32 bytes of the Ed25519 private key.
        token: the signed record of its token.
    """

    network: bytes
    seed: bytes
    chain: tuple[bytes, ...]
    token: bytes = b""

    def __repr__(self) -> str:
        return f"ClientIdentity(network={self.network.hex()[:8]}…)"


class SinkLogError(OperationFailed):
    """A request failed finally; the text is one sentence for the user and says what to do.

    Attributes:
        reason: one of `REFUSAL_REASONS`, or `no agent`: no agent was reachable before the timeout.
        first_kept: as in `LogRefused`.
    """

    def __init__(self, text: str, reason: str, first_kept: int = 0) -> None:
        super().__init__(text)
        self.reason, self.first_kept = reason, first_kept

    def __reduce__(self) -> tuple[Any, ...]:
        return (SinkLogError, (str(self), self.reason, self.first_kept))


NO_AGENT = "no agent"


@dataclass(frozen=True)
class ReceivedBatch:
    """Stored batch as received.

    Attributes:
        form: `ROWS`, `BY_COLUMNS` or `LEFT_OUT`.
        parts: the rows' MessagePack array, or the requested columns; empty for a column that the batch lacks.
        at_ms: wall time of storing, milliseconds since 1970.
        stored_bytes: size of the whole batch on the agent's disk.
    """

    offset: int
    rows: int
    form: int
    parts: tuple[memoryview, ...]
    at_ms: int = 0
    stored_bytes: int = 0


@dataclass(frozen=True)
class ReceivedRows:
    """Answer to `SinkLogClient.fetch_parts`, as `Fetched`."""

    batches: tuple[ReceivedBatch, ...]
    next_offset: int
    end: int


def connection_key(address: str, node: NodeId | None, through: tuple[str, bytes]) -> str:
    """Name a connection. A private address that a relay leads to may be another agent's here."""
    return f"{address} {node.hex}" if node is not None and through[1] else address


class ConnectionGone(Exception):
    """The connection is lost or was never usable; a retry may help."""


class AgentConnection:
    """Verified link to one agent, for requests of one service."""

    def __init__(
        self,
        address: str,
        identity: ClientIdentity,
        context: ssl.SSLContext,
        expect: NodeId | None,
        service: str = "sink_log",
        through: tuple[str, bytes] = ("", b""),
    ) -> None:
        self._service = service
        relay, ticket = through
        host, port = parse_address(relay or address)
        self._limit = MAX_HELLO_BYTES
        self._header = bytearray(FRAME_HEADER.size)
        try:
            raw = socket.create_connection((host, port), CONNECT_SECONDS)
        except OSError as error:
            raise ConnectionGone(f"{address}: {(error.strerror or str(error)).lower()}") from None
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if ticket:
                raw.sendall(preface(ticket))
            self._socket = context.wrap_socket(raw, server_hostname=None)
        except OSError as error:
            raw.close()
            raise ConnectionGone(f"{address}: {error.strerror or error}") from None
        try:
            self._greet(address, identity, expect)
        except OSError as error:
            self.close()
            raise ConnectionGone(f"{address}: {error.strerror or error}") from None
        except BaseException:
            self.close()
            raise

    def _greet(self, address: str, identity: ClientIdentity, expect: NodeId | None) -> None:
        mine = Hello(service=self._service, chain=identity.chain, name="reader", token=identity.token)
        self._socket.sendall(frame(FrameKind.HELLO, encode_hello(mine)))
        kind, body = self._next(time.monotonic() + CONNECT_SECONDS)
        if kind != FrameKind.HELLO:
            raise ConnectionGone(f"{address}: no HELLO")
        try:
            theirs = decode_hello(bytes(body))
            negotiate(mine, theirs)
            verifier = LocalPeerVerifier(identity.network, time.time)
            certificate = self._socket.getpeercert(binary_form=True) or b""
            peer = verifier.verify(certificate, theirs, self._service, serves=True)
        except Refused as error:
            raise SinkLogError(f"{address} is not an agent of this network ({error}).", NOT_ALLOWED) from None
        except RemoteProtocolError as error:
            raise ConnectionGone(f"{address}: {error}") from None
        if expect is not None and peer.node_id != expect:
            raise ConnectionGone(f"{address}: another node answers there")
        self.node_id = peer.node_id
        self._limit = MAX_FRAME_BYTES

    def _next(self, deadline: float) -> tuple[int, bytearray]:
        """Return the next frame. Raises `ConnectionGone`, or `SinkLogError` when the agent refuses the identity."""
        self._receive(memoryview(self._header), deadline)
        length, kind = FRAME_HEADER.unpack(self._header)
        if kind >= len(LIMIT_BY_KIND) or length > min(self._limit, LIMIT_BY_KIND[kind]):
            raise ConnectionGone(f"it sent a frame of kind {kind} with {length} bytes")
        body = bytearray(length)
        self._receive(memoryview(body), deadline)
        if kind == FrameKind.CLOSE:
            raise self._refusal_error(decode_close_reason(bytes(body)))
        return kind, body

    def _receive(self, view: memoryview, deadline: float) -> None:
        """Fill a buffer from the socket, each byte copied once. Raises `ConnectionGone`."""
        at, size = 0, len(view)
        if size:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))  # a system call: once for all TLS records
        while at < size:
            if time.monotonic() > deadline:
                raise ConnectionGone("it did not answer in time")
            try:
                count = self._socket.recv_into(view[at:])
            except OSError as error:
                raise ConnectionGone(error.strerror or str(error) or type(error).__name__) from None
            if not count:
                raise ConnectionGone("it hung up")
            at += count

    @staticmethod
    def _refusal_error(reason: str) -> Exception:
        if reason in ("done", "leaving", "crowded", "full", "lost", "slow", "internal", "descriptors", "timeout"):
            return ConnectionGone(reason)
        return SinkLogError(
            f"The agent refuses this identity: {reason}. Create a token at an agent of the network:  "
            f"agiledart token create --role reader",
            NOT_ALLOWED,
        )

    def ask(self, request: LogRequest, timeout: float) -> "tuple[LogAnswer, list[ReceivedBatch]]":
        """Send a request and return its answer, with the batches that follow a `FetchedParts`. Raises `ConnectionGone`."""
        deadline = time.monotonic() + timeout
        answer = self.exchange(request.request, _REQUESTS.encode(request), _ANSWERS, timeout)
        parts = answer.parts if isinstance(answer, FetchedParts) else ()
        return answer, [self._batch(part, deadline) for part in parts]

    def exchange(self, number: int, body: bytes, answers: Codec[N], timeout: float) -> N:
        """Send the body of a request and return the answer with its number. Raises `ConnectionGone`."""
        try:
            self._socket.settimeout(CONNECT_SECONDS)
            self._socket.sendall(frame(FrameKind.CONTROL, body))
        except OSError as error:
            raise ConnectionGone(error.strerror or str(error) or type(error).__name__) from None
        deadline = time.monotonic() + timeout
        while True:
            kind, content = self._next(deadline)
            if kind != FrameKind.CONTROL:
                continue
            try:
                answer = answers.decode(content)
            except RemoteProtocolError as error:
                raise ConnectionGone(str(error)) from None
            if answer.request == number:
                return answer

    def _batch(self, part: StoredPart, deadline: float) -> "ReceivedBatch":
        """Return the batch of a part, whose frame is the next one. Raises `ConnectionGone`."""
        kind, body = self._next(deadline) if any(part.sizes) else (int(FrameKind.DATA), bytearray())
        if kind != FrameKind.DATA or len(body) != sum(part.sizes):
            raise ConnectionGone(f"it sent a frame of kind {kind} with {len(body)} bytes in place of rows")
        view, at, cut = memoryview(body), 0, []
        for size in part.sizes:
            cut.append(view[at : at + size])
            at += size
        return ReceivedBatch(part.offset, part.rows, part.form, tuple(cut), part.at_ms, part.stored_bytes)

    def close(self) -> None:
        self._socket.close()


@dataclass
class SinkLogClient:
    """A reader of sink logs.

    Args:
        bootstrap: agents to ask, `host:port`; one that answers is enough.
        identity: of the reader; see `agiledart_agent.identity.reader_identity` for tokens and identity files.
        agent_timeout_s: seconds of retries while the agent is unreachable, before a `SinkLogError`.

    All methods raise `SinkLogError`.
    """

    bootstrap: Sequence[str]
    identity: ClientIdentity
    agent_timeout_s: float = 30.0
    answer_seconds: float = 20.0
    _number: int = field(default=0, init=False)
    _located: dict[str, Located] = field(default_factory=dict, init=False, repr=False)
    _connections: dict[str, AgentConnection] = field(default_factory=dict, init=False, repr=False)
    _context: ssl.SSLContext | None = field(default=None, init=False, repr=False)
    _context_until: float = field(default=0.0, init=False, repr=False)

    def __enter__(self) -> "SinkLogClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the client can be used again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # ---- requests of a reader

    def locate(self, sink: str) -> Located:
        """Return the location of the log and the schema of its rows; each call asks an agent."""
        return self._retry_until_timeout(lambda: self._locate_once(sink), f"the log {sink} cannot be found")

    def logs(self, pattern: str) -> tuple[str, ...]:
        """Return the names of the logs that fit a pattern with `*` and `?` and that this reader may read."""
        return self._retry_until_timeout(lambda: self._logs_once(pattern), f"the logs {pattern} cannot be listed")

    def _logs_once(self, pattern: str) -> tuple[str, ...]:
        reasons = []
        for address in self.bootstrap:
            try:
                answer, _ = self._ask(address, None, ListLogs(self._next_number(), pattern), self.answer_seconds)
            except ConnectionGone as gone:
                reasons.append(str(gone))
                continue
            if isinstance(answer, LogsListed):
                return answer.sinks
            raise _refusal(answer)
        raise ConnectionGone(f"No agent answers ({'; '.join(reasons) or 'none was named'})")

    def ends(
        self, sink: str, wait_ms: int = 0, after: Mapping[int, int] | None = None, *, uncommitted: bool = False
    ) -> EndsReply:
        """Return first, committed and latest offset of each partition; a long poll with `wait_ms` and `after`."""

        def make(number: int) -> LogRequest:
            return Ends(number, sink, wait_ms, dict(after or {}), uncommitted)

        answer, _ = self._at_log_node(sink, make, wait_ms)
        assert isinstance(answer, EndsReply)
        return answer

    def fetch(
        self,
        sink: str,
        partition: int,
        offset: int,
        *,
        max_rows: int = 100_000,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
        uncommitted: bool = False,
    ) -> Fetched:
        """Return stored batches from `offset` on; the first may begin before it (drop `offset - batch.offset` rows)."""

        def make(number: int) -> LogRequest:
            return Fetch(number, sink, partition, offset, max_rows, max_bytes, wait_ms, uncommitted)

        answer, _ = self._at_log_node(sink, make, wait_ms)
        assert isinstance(answer, Fetched)
        return answer

    def fetch_parts(
        self,
        sink: str,
        partition: int,
        offset: int,
        columns: Sequence[int],
        where: Sequence[ZoneCondition] = (),
        *,
        max_rows: int = 100_000,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
        uncommitted: bool = False,
    ) -> ReceivedRows:
        """Return stored batches as `fetch`, by columns where they are stored so.

        Args:
            columns: numbers of the columns to read; one more than the last field is the time of storing.
            where: conditions; batches of which no row can match come as `LEFT_OUT`. Agents of earlier releases ignore both.
        """

        def make(number: int) -> LogRequest:
            return Fetch(
                number, sink, partition, offset, max_rows, max_bytes, wait_ms, uncommitted, tuple(columns), tuple(where)
            )

        answer, batches = self._at_log_node(sink, make, wait_ms)
        if isinstance(answer, Fetched):
            batches = [
                ReceivedBatch(
                    stored.offset, stored.rows, ROWS, (memoryview(stored.body),), stored.at_ms, len(stored.body)
                )
                for stored in answer.batches
            ]
        assert isinstance(answer, Fetched | FetchedParts)
        return ReceivedRows(tuple(batches), answer.next_offset, answer.end)

    # ---- connections

    def _locate_once(self, sink: str) -> Located:
        reasons = []
        for address in self.bootstrap:
            try:
                answer, _ = self._ask(address, None, Locate(self._next_number(), sink), self.answer_seconds)
            except ConnectionGone as gone:
                reasons.append(str(gone))
                continue
            if isinstance(answer, Located):
                if answer.ticket and not answer.relay:
                    answer = msgspec.structs.replace(answer, relay=address)
                self._located[sink] = answer
                return answer
            raise _refusal(answer)
        raise ConnectionGone(f"No agent answers ({'; '.join(reasons) or 'none was named'})")

    def _at_log_node(
        self, sink: str, make: Callable[[int], LogRequest], wait_ms: int
    ) -> tuple[LogAnswer, list[ReceivedBatch]]:
        def ask() -> tuple[LogAnswer, list[ReceivedBatch]]:
            where = self._located.get(sink)
            if where is None or (where.ticket and not self._is_connected(where)):
                where = self._locate_once(sink)  # a ticket is good once
            try:
                answer, batches = self._ask(
                    where.address,
                    where.node_id,
                    make(self._next_number()),
                    self.answer_seconds + wait_ms / 1000,
                    (where.relay, where.ticket),
                )
            except ConnectionGone:
                self._located.pop(sink, None)
                raise
            if isinstance(answer, LogRefused):
                if answer.reason == ELSEWHERE:
                    self._located.pop(sink, None)
                raise _refusal(answer)
            return answer, batches

        return self._retry_until_timeout(ask, f"the agent that has the log {sink} is unreachable")

    def _is_connected(self, where: Located) -> bool:
        return connection_key(where.address, where.node_id, (where.relay, where.ticket)) in self._connections

    def _retry_until_timeout(self, ask: Callable[[], A], what: str) -> A:
        deadline = time.monotonic() + self.agent_timeout_s
        pause = PAUSE_SECONDS
        while True:
            try:
                return ask()
            except ConnectionGone as gone:
                if time.monotonic() + pause > deadline:
                    raise SinkLogError(
                        f"{str(gone)[:1].upper()}{str(gone)[1:]}: {what}. Check that an agent runs there, and its address.",
                        NO_AGENT,
                    ) from None
            except SinkLogError as error:
                if error.reason not in _PASSING or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _ask(
        self,
        address: str,
        expect: NodeId | None,
        request: LogRequest,
        timeout: float,
        through: tuple[str, bytes] = ("", b""),
    ) -> tuple[LogAnswer, list[ReceivedBatch]]:
        key = connection_key(address, expect, through)
        connection = self._connections.get(key)
        if connection is not None and (expect is None or connection.node_id == expect):
            try:
                return self._asked(key, connection, request, timeout)
            except ConnectionGone:  # the agent has closed it since: it restarted, or other readers needed the place
                pass
        self._hang_up(key)
        try:
            connection = AgentConnection(address, self.identity, self._tls(), expect, through=through)
        except ValueError as error:
            raise SinkLogError(f"{error}; it should look like 192.168.1.20:9464.", NO_AGENT) from None
        self._connections[key] = connection
        return self._asked(key, connection, request, timeout)

    def _asked(
        self, address: str, connection: AgentConnection, request: LogRequest, timeout: float
    ) -> tuple[LogAnswer, list[ReceivedBatch]]:
        try:
            return connection.ask(request, timeout)
        except BaseException:  # whatever interrupts an answer: the rest of it would be taken for the next one
            self._hang_up(address)
            raise

    def _hang_up(self, address: str) -> None:
        if (connection := self._connections.pop(address, None)) is not None:
            connection.close()

    def _tls(self) -> ssl.SSLContext:
        if self._context is None or time.monotonic() > self._context_until:
            self._context_until = time.monotonic() + CONTEXT_SECONDS
            key = ed25519.Ed25519PrivateKey.from_private_bytes(self.identity.seed)
            self._context = client_context(make_credentials(key, self.identity.network, int(time.time())))
        return self._context

    def _next_number(self) -> int:
        self._number += 1
        return self._number


def _refusal(answer: LogAnswer) -> SinkLogError:
    if isinstance(answer, LogRefused):
        return SinkLogError(answer.text, answer.reason, answer.first_kept)
    return SinkLogError(
        f"the agent answered with {type(answer).__name__}. Compare the versions of AgileDart.", UNAVAILABLE
    )
