"""Network client of feeds without an event loop: a writer's requests to the agent that keeps a feed; see `AgentClient`.

Each request may be repeated: a piece that is staged already is ignored, and a batch is published once.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from agiledart_kernel.codec import Codec
from agiledart_sink_log.feed_protocol import (
    FULL,
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
from agiledart_transport.agent_client import AgentClient, RequestFailure
from agiledart_transport.agent_connection import AgentConnection, ClientIdentity
from agiledart_transport.request_reasons import UNAVAILABLE

A = TypeVar("A", bound=FeedAnswer)

ANSWER_SECONDS: Final = 60.0
"""Longest time for one answer: a publication forces up to 256 MiB to a slow disk."""

REPORT_SECONDS: Final = 10.0
"""Time between two reports of a writer that waits for room."""

_ANSWERS: Codec[FeedAnswer] = Codec(FeedAnswer)
_REQUESTS: Codec[FeedRequest] = Codec(FeedRequest)


class FeedError(RequestFailure):
    """A request failed finally. `reason`: one of `FEED_REASONS`, or `no agent`: no agent was reachable before the timeout."""


class FeedClient(AgentClient[FeedLocated]):
    """A writer of feeds.

    Args:
        bootstrap, identity, agent_timeout_s, pause: as of `AgentClient`. While a disk is full it retries without end.
        report: takes a sentence for users, at most every `REPORT_SECONDS` while the client waits for room.

    All methods raise `FeedError`.
    """

    service = "feed"
    role = "writer"
    failure = FeedError

    def __init__(
        self,
        bootstrap: Sequence[str],
        identity: ClientIdentity,
        agent_timeout_s: float = 60.0,
        report: Callable[[str], None] = lambda _: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(bootstrap, identity, agent_timeout_s, pause)
        self._report, self._reported_at = report, float("-inf")

    def locate(self, feed: str) -> FeedLocated:
        """Return the location of a feed."""
        return self._locate(feed, f"the feed {feed} cannot be found")

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

    def _ask_keeper(self, feed: str, make: Callable[[int], FeedRequest], expects: type[A]) -> A:
        def ask(connection: AgentConnection, number: int) -> A:
            return _asked(connection, make(number), expects)

        return self._ask_owner(feed, ask, f"the agent that keeps the feed {feed} is unreachable")

    def _ask_location(self, connection: AgentConnection, name: str, number: int) -> FeedLocated:
        return _asked(connection, LocateFeed(number, name), FeedLocated)

    def _is_awaited(self, error: RequestFailure) -> bool:
        """Return whether there is no room, which is reported."""
        if error.reason != FULL:
            return False
        if time.monotonic() >= self._reported_at + REPORT_SECONDS:
            self._report(f"agiledart: the query waits: {error}")
            self._reported_at = time.monotonic()
        return True


def _asked(connection: AgentConnection, request: FeedRequest, expects: type[A]) -> A:
    """Return the answer to a request. Raises `FeedError` for a refusal."""
    answer = connection.exchange(request.request, _REQUESTS.encode(request), _ANSWERS, ANSWER_SECONDS)
    if isinstance(answer, expects):
        return answer
    if isinstance(answer, FeedRefused):
        raise FeedError(answer.text, answer.reason)
    raise FeedError(f"the agent answered with {type(answer).__name__}. Compare the versions of AgileDart.", UNAVAILABLE)
