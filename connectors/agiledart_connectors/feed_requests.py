"""Requests of a source for rows of a feed, which the agent carries out: the feed may lie on any node."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from agiledart_sink_log.protocol import StoredBatch


@dataclass(frozen=True)
class FeedRows:
    """Answer to a request for rows of a feed.

    Attributes:
        log_id: of the log that holds the rows; another one than before means that the feed was created anew.
        fields: JSON of the log's fields.
        batches: stored batches; the first may begin before the requested offset.
        first: first retained offset, where rows at the requested one were removed; else 0.
        away: why there is no answer now; another request may get one.
        refused: why there never will be one.
    """

    log_id: str = ""
    fields: bytes = b""
    batches: tuple[StoredBatch, ...] = ()
    first: int = 0
    away: str = ""
    refused: str = ""


class FeedRequests(Protocol):
    """Requests for rows of feeds, carried out by the agent."""

    def fetch(self, feed: str, offset: int, take: Callable[[FeedRows], None]) -> None:
        """Ask for rows from an offset on, and call `take` once, later, on the event loop."""
        ...
