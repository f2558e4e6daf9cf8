"""Base of clients that ask agents without an event loop: any agent locates what is asked for, its agent answers the rest.

When that agent is unreachable (restart, another port), the client locates again until its timeout. Not thread-safe; one for each
thread. It holds sockets, so it is never pickled: pickle `ClientIdentity` and the addresses instead.
"""

import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import ClassVar, Final, Generic, Protocol, Self, TypeVar

from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.node_id import NodeId
from agiledart_transport.agent_connection import AgentConnection, ClientIdentity, ConnectionGone, IdentityNotAccepted
from agiledart_transport.certificates import make_credentials
from agiledart_transport.request_reasons import ELSEWHERE, NO_AGENT, NOT_ALLOWED, PASSING_REASONS
from agiledart_transport.tls_contexts import client_context

PAUSE_SECONDS: Final = 0.2
MAX_PAUSE_SECONDS: Final = 2.0
CONTEXT_SECONDS: Final = 600.0
"""Time after which new connections get a new certificate; one is valid for longer."""


class Location(Protocol):
    """Answer of an agent: which agent has it. Fields as in `agiledart_sink_log.protocol.Located`."""

    @property
    def node_id(self) -> NodeId: ...
    @property
    def address(self) -> str: ...
    @property
    def relay(self) -> str: ...
    @property
    def ticket(self) -> bytes: ...


class RequestFailure(OperationFailed):
    """A request failed finally; the text is one sentence for the user and says what to do. `reason`: a word of its protocol."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason

    def __reduce__(self) -> tuple[type["RequestFailure"], tuple[object, ...]]:
        return type(self), (str(self), self.reason)


L = TypeVar("L", bound=Location)
R = TypeVar("R")


class AgentClient(ABC, Generic[L]):
    """A client of one service.

    Args:
        bootstrap: agents to ask, `host:port`; one that answers is enough.
        agent_timeout_s: seconds of retries while the agent is unreachable.
        pause: waits seconds.

    Attributes:
        service: logical port of the agents.
        role: of the grants with which that service is used.
        failure: class of the errors that its methods raise.
    """

    service: ClassVar[str]
    role: ClassVar[str]
    failure: ClassVar[type[RequestFailure]] = RequestFailure

    def __init__(
        self,
        bootstrap: Sequence[str],
        identity: ClientIdentity,
        agent_timeout_s: float = 30.0,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.bootstrap, self.identity, self.agent_timeout_s = tuple(bootstrap), identity, agent_timeout_s
        self._pause = pause
        self._number = 0
        self._located: dict[str, tuple[L, tuple[str, bytes]]] = {}
        self._connections: dict[str, AgentConnection] = {}
        self._context: ssl.SSLContext | None = None
        self._context_until = 0.0

    def __enter__(self) -> Self:
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

    # ---- of each protocol

    @abstractmethod
    def _ask_location(self, connection: AgentConnection, name: str, number: int) -> L:
        """Return where something is; `number`: of the request. Raises `RequestFailure`, and as `AgentConnection.exchange`."""

    def _is_awaited(self, error: RequestFailure) -> bool:
        """Return whether a refusal ends by itself, however long it takes."""
        return False

    # ---- requests

    def _locate(self, name: str, what: str) -> L:
        """Return the location; each call asks an agent. `what`: of what has failed, for the error."""
        return self._retry_until_timeout(lambda: self._locate_once(name), what)

    def _locate_once(self, name: str) -> L:
        def ask(address: str) -> L:
            located = self._ask(address, None, lambda connection, number: self._ask_location(connection, name, number))
            relay = (
                (located.relay or address) if located.ticket else ""
            )  # no relay named: the agent that answers is one
            self._located[name] = located, (relay, located.ticket)
            return located

        return self._ask_any(ask)

    def _ask_any(self, ask: Callable[[str], R]) -> R:
        """Return the answer of the first agent that answers. Raises `ConnectionGone` when there is none."""
        reasons = []
        for address in self.bootstrap:
            try:
                return ask(address)
            except ConnectionGone as gone:
                reasons.append(str(gone))
        raise ConnectionGone(f"No agent answers ({'; '.join(reasons) or 'none was named'})")

    def _ask_owner(self, name: str, use: Callable[[AgentConnection, int], R], what: str) -> R:
        """Return what `use` returns, given a connection to the agent that has something, and the number of a request.

        Args:
            what: of what has failed, for the error.
        """

        def ask() -> R:
            if not self._is_usable(name):
                self._locate_once(name)
            where, through = self._located[name]
            try:
                return self._ask(where.address, where.node_id, use, through)
            except ConnectionGone:
                self._located.pop(name, None)
                raise
            except RequestFailure as error:
                if error.reason == ELSEWHERE:
                    self._located.pop(name, None)
                raise

        return self._retry_until_timeout(ask, what)

    def _retry_until_timeout(self, ask: Callable[[], R], what: str) -> R:
        deadline, pause = time.monotonic() + self.agent_timeout_s, PAUSE_SECONDS
        while True:
            try:
                return ask()
            except ConnectionGone as gone:
                if time.monotonic() + pause > deadline:
                    text = f"{str(gone)[:1].upper()}{str(gone)[1:]}: {what}. Check that an agent runs there, and its address."
                    raise self.failure(text, NO_AGENT) from None
            except IdentityNotAccepted as error:
                raise self.failure(str(error), NOT_ALLOWED) from None
            except RequestFailure as error:
                if self._is_awaited(error):
                    deadline = time.monotonic() + self.agent_timeout_s
                elif error.reason not in PASSING_REASONS or time.monotonic() + pause > deadline:
                    raise
            self._pause(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    # ---- connections

    def _ask(
        self,
        address: str,
        expect: NodeId | None,
        use: Callable[[AgentConnection, int], R],
        through: tuple[str, bytes] = ("", b""),
    ) -> R:
        key = connection_key(address, expect, through)
        connection = self._connections.get(key)
        if connection is not None and (expect is None or connection.node_id == expect):
            try:
                return self._used(key, connection, use)
            except ConnectionGone:  # the agent has closed it since: it restarted, or other clients needed the place
                if through[1]:
                    raise  # a ticket is good once
        self._hang_up(key)
        try:
            connection = AgentConnection(
                address, self.identity, self._tls(), expect, (self.service, self.role), through
            )
        except ValueError as error:
            raise self.failure(f"{error}; it should look like 192.168.1.20:9464.", NO_AGENT) from None
        self._connections[key] = connection
        return self._used(key, connection, use)

    def _used(self, key: str, connection: AgentConnection, use: Callable[[AgentConnection, int], R]) -> R:
        self._number += 1
        try:
            return use(connection, self._number)
        except RequestFailure:  # a whole answer: the connection is good
            raise
        except BaseException:  # whatever interrupts an answer: the rest of it would be taken for the next one
            self._hang_up(key)
            raise

    def _hang_up(self, key: str) -> None:
        if (connection := self._connections.pop(key, None)) is not None:
            connection.close()

    def _is_usable(self, name: str) -> bool:
        """Return whether the location is known, and leads there: a ticket is good once."""
        if name not in self._located:
            return False
        where, through = self._located[name]
        return not through[1] or connection_key(where.address, where.node_id, through) in self._connections

    def _tls(self) -> ssl.SSLContext:
        if self._context is None or time.monotonic() > self._context_until:
            self._context_until = time.monotonic() + CONTEXT_SECONDS
            key = ed25519.Ed25519PrivateKey.from_private_bytes(self.identity.seed)
            self._context = client_context(make_credentials(key, self.identity.network, int(time.time())))
        return self._context


def connection_key(address: str, node: NodeId | None, through: tuple[str, bytes]) -> str:
    """Name a connection. A private address that a relay leads to may be another agent's here."""
    return f"{address} {node.hex}" if node is not None and through[1] else address
