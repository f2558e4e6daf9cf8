"""Connection to one agent without an event loop: a socket and `ssl`; for Spark's worker processes, threads and tools."""

import socket
import ssl
import time
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

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
from agiledart_transport.blocking_tls import BlockingTls
from agiledart_transport.circuits import preface
from agiledart_transport.connecting import parse_address
from agiledart_transport.local_peer_verifier import LocalPeerVerifier

CONNECT_SECONDS: Final = 5.0

_PASSING: Final = (
    *("done", "leaving", "crowded", "full", "too many links", "lost", "slow", "internal", "descriptors", "timeout"),
)
"""Reasons of agents that close a connection and may take the next one."""


class Numbered(Protocol):
    """An answer with the number of its request."""

    @property
    def request(self) -> int: ...


N = TypeVar("N", bound=Numbered)


@dataclass(frozen=True, repr=False)
class ClientIdentity:
    """Identity of a client: its key and chain of grants. Secret; small enough to be pickled.

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


class ConnectionGone(Exception):
    """The connection is lost or was never usable; a retry may help."""


class IdentityNotAccepted(OperationFailed):
    """One end does not accept the other: the agent is of another network, or it refuses this identity."""


class AgentConnection:
    """Verified link to one agent, for requests of one service.

    Args:
        expect: the node that must answer; None: any of the network.
        purpose: service, and role of the grants with which it is used.
        through: address of a relay and its ticket, where the agent takes no connections.

    Raises `ConnectionGone`, `IdentityNotAccepted`, ValueError for an address of another form.
    """

    def __init__(
        self,
        address: str,
        identity: ClientIdentity,
        context: ssl.SSLContext,
        expect: NodeId | None,
        purpose: tuple[str, str],
        through: tuple[str, bytes] = ("", b""),
    ) -> None:
        self._service, self._role = purpose
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
            self._tls = BlockingTls(raw, context)
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
        mine = Hello(service=self._service, chain=identity.chain, name=self._role, token=identity.token)
        self._tls.send(frame(FrameKind.HELLO, encode_hello(mine)))
        kind, body = self.next_frame(time.monotonic() + CONNECT_SECONDS)
        if kind != FrameKind.HELLO:
            raise ConnectionGone(f"{address}: no HELLO")
        try:
            theirs = decode_hello(bytes(body))
            negotiate(mine, theirs)
            verifier = LocalPeerVerifier(identity.network, time.time)
            peer = verifier.verify(self._tls.certificate(), theirs, self._service, serves=True)
        except Refused as error:
            raise IdentityNotAccepted(f"{address} is not an agent of this network ({error}).") from None
        except RemoteProtocolError as error:
            raise ConnectionGone(f"{address}: {error}") from None
        if expect is not None and peer.node_id != expect:
            raise ConnectionGone(f"{address}: another node answers there")
        self.node_id = peer.node_id
        self._limit = MAX_FRAME_BYTES

    def exchange(self, number: int, body: bytes, answers: Codec[N], timeout: float) -> N:
        """Send the body of a request and return the answer with its number.

        Raises:
            ConnectionGone, IdentityNotAccepted: the agent has closed the connection, for a passing reason or for good.
        """
        try:
            self._tls.set_timeout(CONNECT_SECONDS)
            self._tls.send(frame(FrameKind.CONTROL, body))
        except OSError as error:
            raise ConnectionGone(error.strerror or str(error) or type(error).__name__) from None
        deadline = time.monotonic() + timeout
        while True:
            kind, content = self.next_frame(deadline)
            if kind != FrameKind.CONTROL:
                continue
            try:
                answer = answers.decode(content)
            except RemoteProtocolError as error:
                raise ConnectionGone(str(error)) from None
            if answer.request == number:
                return answer

    def next_frame(self, deadline: float) -> tuple[int, bytearray]:
        """Return kind and body of the next frame. Raises `ConnectionGone`, `IdentityNotAccepted`.

        Args:
            deadline: monotonic seconds.
        """
        self._receive(memoryview(self._header), deadline)
        length, kind = FRAME_HEADER.unpack(self._header)
        if kind >= len(LIMIT_BY_KIND) or length > min(self._limit, LIMIT_BY_KIND[kind]):
            raise ConnectionGone(f"it sent a frame of kind {kind} with {length} bytes")
        body = bytearray(length)
        self._receive(memoryview(body), deadline)
        if kind == FrameKind.CLOSE:
            raise self._refusal(decode_close_reason(bytes(body)))
        return kind, body

    def _receive(self, view: memoryview, deadline: float) -> None:
        """Fill a buffer from the socket, each byte copied once. Raises `ConnectionGone`."""
        at, size = 0, len(view)
        if size:
            self._tls.set_timeout(max(0.001, deadline - time.monotonic()))  # a system call: once for all TLS records
        while at < size:
            if time.monotonic() > deadline:
                raise ConnectionGone("it did not answer in time")
            try:
                count = self._tls.receive_into(view[at:])
            except OSError as error:
                raise ConnectionGone(error.strerror or str(error) or type(error).__name__) from None
            if not count:
                raise ConnectionGone("it hung up")
            at += count

    def _refusal(self, reason: str) -> Exception:
        """Return the error for the reason with which the agent closes the connection."""
        if reason in _PASSING:
            return ConnectionGone(reason)
        return IdentityNotAccepted(
            f"The agent refuses this identity: {reason}. Create a token at an agent of the network:  "
            f"agiledart token create --role {self._role}"
        )

    def close(self) -> None:
        """Close the socket."""
        self._tls.close()
