"""Synchronous network client of feeds: a writer's requests to the agent that keeps a feed.

Like `SinkLogClient` it asks any agent for the location, and locates the feed again when its agent is unreachable. Each request may
be repeated: a piece that is staged already is ignored, and a batch is published once. Not thread-safe; never pickled.
"""

import ssl
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, TypeVar

import msgspec
from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.node_id import NodeId
from agiledart_sink_log.client import AgentConnection, ClientIdentity, ConnectionGone, SinkLogError, connection_key
from agiledart_sink_log.feed_protocol import (
    ELSEWHERE,
    FULL,
    OVERLOADED,
    UNAVAILABLE,
    BatchDropped,
    BatchPublished,
    DropBatch,
    FeedAnswer,
    FeedLocated,
    FeedRefused,
    FeedRequest,
    LocateFeed,
    PublishBatch,
    RowsStaged,
    StagePart,
    StageRows,
)
from agiledart_transport.certificates import make_credentials
from agiledart_transport.tls_contexts import client_context

A = TypeVar("A", bound=FeedAnswer)

ANSWER_SECONDS: Final = 60.0
"""Longest time for one answer: a publication forces up to 256 MiB to a slow disk."""

PAUSE_SECONDS: Final = 0.2
MAX_PAUSE_SECONDS: Final = 2.0
REPORT_SECONDS: Final = 10.0
"""Time between two reports of a writer that waits for room."""

_ANSWERS: Codec[FeedAnswer] = Codec(FeedAnswer)
_REQUESTS: Codec[FeedRequest] = Codec(FeedRequest)


class FeedError(OperationFailed):
    """A request failed finally; the text is one sentence for the user and says what to do. `reason`: one of `FEED_REASONS`."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason

    def __reduce__(self) -> tuple[type["FeedError"], tuple[str, str]]:
        return (FeedError, (str(self), self.reason))


class FeedClient:
    """A writer of feeds.

    Args:
        bootstrap: agents to ask, `host:port`; one that answers is enough.
        identity: of the writer.
        agent_timeout_s: seconds of retries while the agent is unreachable. While a disk is full it retries without end.
        report: takes a sentence for users, at most every `REPORT_SECONDS` while the client waits for room.

    All methods raise `FeedError`, and `SinkLogError` when an agent refuses the identity.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        identity: ClientIdentity,
        agent_timeout_s: float = 60.0,
        report: Callable[[str], None] = lambda _: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bootstrap, self._identity = tuple(bootstrap), identity
        self._agent_timeout_s, self._report, self._pause = agent_timeout_s, report, pause
        self._number = 0
        self._located: dict[str, FeedLocated] = {}
        self._connections: dict[str, AgentConnection] = {}
        self._context: ssl.SSLContext | None = None

    def __enter__(self) -> "FeedClient":
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

    def locate(self, feed: str) -> FeedLocated:
        """Return the location of a feed."""
        return self._retry(lambda: self._locate_once(feed), f"the feed {feed} cannot be found")

    def stage(
        self,
        feed: str,
        batch: tuple[str, int],
        task: tuple[int, int],
        piece: int,
        schema: bytes,
        body: bytes,
        rows: int,
    ) -> None:
        """Stage a piece of the rows of one task.

        Args:
            batch: (query, number of the batch); task: (partition, attempt).
            piece: number of the piece; body: MessagePack array of `rows` rows; schema: their fields, JSON.
        """
        self._ask_keeper(
            feed, lambda number: StageRows(number, feed, *batch, *task, piece, schema, body, rows), RowsStaged
        )

    def publish(self, feed: str, batch: tuple[str, int], schema: bytes, parts: tuple[StagePart, ...]) -> BatchPublished:
        """Publish the stages of a batch together; a batch that is published already gets the same answer."""
        return self._ask_keeper(feed, lambda number: PublishBatch(number, feed, *batch, schema, parts), BatchPublished)

    def drop(self, feed: str, batch: tuple[str, int]) -> None:
        """Drop the stages of a batch that will not be published."""
        self._ask_keeper(feed, lambda number: DropBatch(number, feed, *batch), BatchDropped)

    # ---- connections

    def _locate_once(self, feed: str) -> FeedLocated:
        reasons = []
        for address in self._bootstrap:
            try:
                answer = self._ask(address, None, LocateFeed(self._next_number(), feed))
            except ConnectionGone as gone:
                reasons.append(str(gone))
                continue
            if isinstance(answer, FeedLocated):
                if answer.ticket and not answer.relay:
                    answer = msgspec.structs.replace(answer, relay=address)
                self._located[feed] = answer
                return answer
            raise _refusal(answer)
        raise ConnectionGone(f"No agent answers ({'; '.join(reasons) or 'none was named'})")

    def _ask_keeper(self, feed: str, make: Callable[[int], FeedRequest], expects: type[A]) -> A:
        def ask() -> A:
            where = self._located.get(feed)
            if where is None or (where.ticket and self._key_of(where) not in self._connections):
                where = self._locate_once(feed)  # a ticket is good once
            try:
                request = make(self._next_number())
                answer = self._ask(where.address, where.node_id, request, (where.relay, where.ticket))
            except ConnectionGone:
                self._located.pop(feed, None)
                raise
            if isinstance(answer, FeedRefused) and answer.reason == ELSEWHERE:
                self._located.pop(feed, None)
            if not isinstance(answer, expects):
                raise _refusal(answer)
            return answer

        return self._retry(ask, f"the agent that keeps the feed {feed} is unreachable")

    def _retry(self, ask: Callable[[], A], what: str) -> A:
        """Return the answer. It retries while the agent is away, up to the time-out, and while there is no room, without end."""
        deadline, pause, reported = time.monotonic() + self._agent_timeout_s, PAUSE_SECONDS, 0.0
        while True:
            try:
                return ask()
            except ConnectionGone as gone:
                if time.monotonic() + pause > deadline:
                    text = f"{str(gone)[:1].upper()}{str(gone)[1:]}: {what}. Check that an agent runs there, and its address."
                    raise FeedError(text, UNAVAILABLE) from None
            except FeedError as error:
                if error.reason == FULL:
                    deadline = time.monotonic() + self._agent_timeout_s
                    if time.monotonic() >= reported + REPORT_SECONDS:
                        self._report(f"agiledart: the query waits: {error}")
                        reported = time.monotonic()
                elif error.reason not in (ELSEWHERE, OVERLOADED, UNAVAILABLE) or time.monotonic() + pause > deadline:
                    raise
            self._pause(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    @staticmethod
    def _key_of(where: FeedLocated) -> str:
        return connection_key(where.address, where.node_id, (where.relay, where.ticket))

    def _ask(
        self, address: str, expect: NodeId | None, request: FeedRequest, through: tuple[str, bytes] = ("", b"")
    ) -> FeedAnswer:
        key = connection_key(address, expect, through)
        connection = self._connections.get(key)
        if connection is not None and expect is not None and connection.node_id != expect:
            self._hang_up(key)
            connection = None
        if connection is None:
            try:
                connection = AgentConnection(address, self._identity, self._tls(), expect, "feed", through)
            except ValueError as error:
                raise FeedError(f"{error}; it should look like 192.168.1.20:9464.", UNAVAILABLE) from None
            self._connections[key] = connection
        try:
            return connection.exchange(request.request, _REQUESTS.encode(request), _ANSWERS, ANSWER_SECONDS)
        except (ConnectionGone, SinkLogError):
            self._hang_up(key)
            raise

    def _hang_up(self, address: str) -> None:
        if (connection := self._connections.pop(address, None)) is not None:
            connection.close()

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            key = ed25519.Ed25519PrivateKey.from_private_bytes(self._identity.seed)
            self._context = client_context(make_credentials(key, self._identity.network, int(time.time())))
        return self._context

    def _next_number(self) -> int:
        self._number += 1
        return self._number


def _refusal(answer: FeedAnswer) -> FeedError:
    if isinstance(answer, FeedRefused):
        return FeedError(answer.text, answer.reason)
    return FeedError(
        f"the agent answered with {type(answer).__name__}. Compare the versions of AgileDart.", UNAVAILABLE
    )
