"""Messages between a writer of a feed and an agent, over a link with the service `feed`.

A feed is a log that takes rows from writers. Any agent answers `LocateFeed`; the agent that keeps the feed answers the rest.
Rows are staged by (query, batch, partition, attempt), piece by piece, and published together by `PublishBatch`. The same
(query, batch) is published once: a second request gets the same answer. Source: decision 0034.
"""

from typing import Annotated, Final

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_sink_log.protocol import MAX_SINK_NAME, MAX_STORED_BYTES, user_sink_name_fault
from agiledart_transport.request_reasons import ELSEWHERE, NOT_ALLOWED, OVERLOADED, UNAVAILABLE

MAX_FEED_NAME: Final = 59
"""Greatest length of a feed's name: `feed:NAME` stands where the name of an application stands elsewhere."""

MAX_QUERY_NAME: Final = 128
MAX_STAGE_PARTS: Final = 4_096
"""Greatest number of partitions of one batch."""

MAX_SCHEMA_BYTES: Final = 64 << 10
MAX_PIECE_ROWS: Final = 100_000

UNKNOWN_FEED: Final = "unknown feed"
FULL: Final = "full"
INVALID: Final = "invalid"
LOST_STAGE: Final = "lost stage"
FEED_REASONS: Final = (UNKNOWN_FEED, NOT_ALLOWED, FULL, INVALID, LOST_STAGE, ELSEWHERE, OVERLOADED, UNAVAILABLE)
"""Reasons of refusals. `full`: the disk, or the bound of staged rows; try again later. `lost stage`: staged rows are gone, stage
them again. `elsewhere`: another node has the feed now."""

_Feed = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SINK_NAME)]
_Query = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_QUERY_NAME)]
_Part = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Schema = Annotated[bytes, msgspec.Meta(max_length=MAX_SCHEMA_BYTES)]


class LocateFeed(Message, frozen=True, gc=False, tag=250):
    """Request of the location of a feed; any agent answers."""

    request: int
    feed: _Feed


class FeedLocated(Message, frozen=True, gc=False, tag=251):
    """Location of a feed: the agent that keeps it, `host:port` if known; relay and ticket as in `Located`."""

    request: int
    feed: str
    node_id: NodeId
    node: str
    address: str
    relay: str = ""
    ticket: bytes = b""


class StageRows(Message, frozen=True, gc=False, tag=252):
    """Stage rows of one partition of a batch.

    Args:
        query, batch: name of the query and number of its batch.
        partition, attempt: of the task that writes them.
        piece: number of this piece in the stage, from 0; a piece that is there already is ignored.
        schema: JSON, the fields of the rows as in `Located.schema`.
        body, rows: MessagePack array of so many rows.
    """

    request: int
    feed: _Feed
    query: _Query
    batch: Count
    partition: _Part
    attempt: Count
    piece: _Part
    schema: _Schema
    body: Annotated[bytes, msgspec.Meta(max_length=MAX_STORED_BYTES)]
    rows: Annotated[int, msgspec.Meta(ge=0, le=MAX_PIECE_ROWS)]


class RowsStaged(Message, frozen=True, gc=False, tag=253):
    """Answer to `StageRows`: the rows are on the disk."""

    request: int


class StagePart(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Stage of one partition that is to be published, with the numbers of its pieces and rows."""

    partition: _Part
    attempt: Count
    pieces: _Part
    rows: Count


class PublishBatch(Message, frozen=True, gc=False, tag=254):
    """Publish the stages of a batch together, in the order of their partitions. `schema`: as in `StageRows`."""

    request: int
    feed: _Feed
    query: _Query
    batch: Count
    schema: _Schema
    parts: Annotated[tuple[StagePart, ...], msgspec.Meta(max_length=MAX_STAGE_PARTS)]


class BatchPublished(Message, frozen=True, gc=False, tag=255):
    """Answer to `PublishBatch`: the offsets of the rows in the feed's log.

    Args:
        is_repeat: the batch was published before; the offsets are those of then.
    """

    request: int
    first: int
    end: int
    is_repeat: bool = False


class DropBatch(Message, frozen=True, gc=False, tag=256):
    """Drop the stages of a batch that will not be published."""

    request: int
    feed: _Feed
    query: _Query
    batch: Count


class BatchDropped(Message, frozen=True, gc=False, tag=257):
    """Answer to `DropBatch`."""

    request: int


class FeedRefused(Message, frozen=True, gc=False, tag=258):
    """Refusal of a request: one of `FEED_REASONS`, and a sentence for users with what to do."""

    request: int
    reason: str
    text: str


FeedRequest = LocateFeed | StageRows | PublishBatch | DropBatch
FeedAnswer = FeedLocated | RowsStaged | BatchPublished | BatchDropped | FeedRefused


def feed_name_fault(name: str) -> str:
    """Return why a feed cannot have this name, else ""."""
    if fault := user_sink_name_fault(name):
        return fault
    if len(name) > MAX_FEED_NAME:
        return f"the name of a feed has at most {MAX_FEED_NAME} characters, not {len(name)}"
    return ""
