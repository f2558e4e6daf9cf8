"""Requests for rows of feeds, by the agent, which has the grant to read them and checks that the application may."""

from collections.abc import Callable

from agiledart_connectors.feed_requests import FeedRows
from agiledart_executor.wire.agent_messages import FeedFetched, FetchFeed


class AgentFeedRequests:
    """Requests for rows that the agent carries out.

    Args:
        send: sends a request to the agent.
    """

    def __init__(self, send: Callable[[FetchFeed], None]) -> None:
        self._send = send
        self._open: dict[int, Callable[[FeedRows], None]] = {}
        self._number = 0

    def fetch(self, feed: str, offset: int, take: Callable[[FeedRows], None]) -> None:
        """Ask for rows of a feed from an offset on; `take` gets the answer."""
        self._number += 1
        self._open[self._number] = take
        self._send(FetchFeed(self._number, feed, offset))

    def receive_answer(self, answer: FeedFetched) -> None:
        """Hand the agent's answer to the source that waits for it."""
        take = self._open.pop(answer.request, None)
        if take is not None:
            take(FeedRows(answer.log_id, answer.fields, answer.batches, answer.first, answer.away, answer.refused))
