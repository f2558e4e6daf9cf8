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

from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed, Refused, RemoteProtocolError
from agiledart_kernel.frames import (
    FrameKind,
    FrameReader,
    Hello,
    decode_close_reason,
    decode_hello,
    encode_hello,
    frame,
    negotiate,
)
from agiledart_kernel.limits import MAX_FRAME_BYTES, MAX_HELLO_BYTES
from agiledart_kernel.node_id import NodeId
from agiledart_sink_log.protocol import (
    ELSEWHERE,
    NOT_ALLOWED,
    OVERLOADED,
    UNAVAILABLE,
    Ends,
    EndsReply,
    Fetch,
    Fetched,
    Locate,
    Located,
    LogAnswer,
    LogRefused,
    LogRequest,
)
from agiledart_transport.certificates import make_credentials
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
    ) -> None:
        self._service = service
        host, port = parse_address(address)
        self._frames = FrameReader(MAX_HELLO_BYTES)
        try:
            raw = socket.create_connection((host, port), CONNECT_SECONDS)
        except OSError as error:
            raise ConnectionGone(f"{address}: {(error.strerror or str(error)).lower()}") from None
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
            theirs = decode_hello(body)
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
        self._frames.limit = MAX_FRAME_BYTES

    def _next(self, deadline: float) -> tuple[int, bytes]:
        """Return the next frame. Raises `ConnectionGone`, or `SinkLogError` when the agent refuses the identity."""
        while True:
            try:
                frame_read = self._frames.next()
            except RemoteProtocolError as error:
                raise ConnectionGone(str(error)) from None
            if frame_read is not None:
                if frame_read[0] == FrameKind.CLOSE:
                    raise self._refusal_error(decode_close_reason(frame_read[1]))
                return frame_read
            left = deadline - time.monotonic()
            if left <= 0:
                raise ConnectionGone("it did not answer in time")
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(1 << 18)
            except OSError as error:
                raise ConnectionGone(error.strerror or str(error) or type(error).__name__) from None
            if not data:
                raise ConnectionGone("it hung up")
            self._frames.feed(data)

    @staticmethod
    def _refusal_error(reason: str) -> Exception:
        if reason in ("done", "leaving", "crowded", "full", "lost", "slow", "internal", "descriptors", "timeout"):
            return ConnectionGone(reason)
        return SinkLogError(
            f"The agent refuses this identity: {reason}. Create a token at an agent of the network:  "
            f"agiledart token create --role reader",
            NOT_ALLOWED,
        )

    def ask(self, request: LogRequest, timeout: float) -> LogAnswer:
        """Send a request and return its answer. Raises `ConnectionGone`."""
        return self.exchange(request.request, _REQUESTS.encode(request), _ANSWERS, timeout)

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

    def ends(
        self, sink: str, wait_ms: int = 0, after: Mapping[int, int] | None = None, *, uncommitted: bool = False
    ) -> EndsReply:
        """Return first, committed and latest offset of each partition; a long poll with `wait_ms` and `after`."""

        def make(number: int) -> LogRequest:
            return Ends(number, sink, wait_ms, dict(after or {}), uncommitted)

        answer = self._at_log_node(sink, make, wait_ms)
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

        answer = self._at_log_node(sink, make, wait_ms)
        assert isinstance(answer, Fetched)
        return answer

    # ---- connections

    def _locate_once(self, sink: str) -> Located:
        reasons = []
        for address in self.bootstrap:
            try:
                answer = self._ask(address, None, Locate(self._next_number(), sink), self.answer_seconds)
            except ConnectionGone as gone:
                reasons.append(str(gone))
                continue
            if isinstance(answer, Located):
                self._located[sink] = answer
                return answer
            raise _refusal(answer)
        raise ConnectionGone(f"No agent answers ({'; '.join(reasons) or 'none was named'})")

    def _at_log_node(self, sink: str, make: Callable[[int], LogRequest], wait_ms: int) -> LogAnswer:
        def ask() -> LogAnswer:
            where = self._located.get(sink) or self._locate_once(sink)
            try:
                answer = self._ask(
                    where.address, where.node_id, make(self._next_number()), self.answer_seconds + wait_ms / 1000
                )
            except ConnectionGone:
                self._located.pop(sink, None)
                raise
            if isinstance(answer, LogRefused):
                if answer.reason == ELSEWHERE:
                    self._located.pop(sink, None)
                raise _refusal(answer)
            return answer

        return self._retry_until_timeout(ask, f"the agent that has the log {sink} is unreachable")

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

    def _ask(self, address: str, expect: NodeId | None, request: LogRequest, timeout: float) -> LogAnswer:
        connection = self._connections.get(address)
        if connection is not None and expect is not None and connection.node_id != expect:
            self._hang_up(address)
            connection = None
        if connection is None:
            try:
                connection = AgentConnection(address, self.identity, self._tls(), expect)
            except ValueError as error:
                raise SinkLogError(f"{error}; it should look like 192.168.1.20:9464.", NO_AGENT) from None
            self._connections[address] = connection
        try:
            return connection.ask(request, timeout)
        except (ConnectionGone, SinkLogError):
            self._hang_up(address)
            raise

    def _hang_up(self, address: str) -> None:
        if (connection := self._connections.pop(address, None)) is not None:
            connection.close()

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
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
