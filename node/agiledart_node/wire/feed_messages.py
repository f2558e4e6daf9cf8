"""Messages between agents about feeds: commands on their way to the node of a feed, and lists of feeds."""

from typing import Annotated

import msgspec

from agiledart_kernel.machine import Effect, Message
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.commands import CreateFeed, RemoveFeed

MAX_FEEDS_LISTED = 1_024
"""Feeds of one node in one answer."""


class RequestFeedChange(Message, frozen=True, gc=False, tag=446):
    """Request to create or remove a feed, as the signed command says. Answered by `FeedChanged`."""

    request: int
    command: CreateFeed | RemoveFeed
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""


class FeedChanged(Message, frozen=True, gc=False, tag=447):
    """Reason of a refusal; empty: the request succeeded."""

    request: int
    refusal: str = ""


class FeedInfo(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A feed of a node.

    Args:
        owner: key of the submitter that created it; empty: an admin did, and all applications may read it.
        rows: number of published rows, with those that were trimmed.
        log_bytes, staged_bytes: disk space of its rows, and of rows that wait to be published.
        published_ms: wall time of the last publication; 0: none yet.
    """

    name: str
    owner: bytes
    rows: int
    log_bytes: int
    staged_bytes: int
    published_ms: int


class QueryFeeds(Message, frozen=True, gc=False, tag=448):
    """Request for the feeds of the receiver."""

    request: int


class FeedList(Message, frozen=True, gc=False, tag=449):
    """All feeds of the sender; `known`: other nodes that it knows."""

    request: int
    feeds: Annotated[tuple[FeedInfo, ...], msgspec.Meta(max_length=MAX_FEEDS_LISTED)] = ()
    known: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=1_024)] = ()


class ChangeFeed(Effect, frozen=True, gc=False):
    """Create or remove a feed on this node for a requester. `Completed`, or `Failed` with a reason."""

    request: int
    command: CreateFeed | RemoveFeed
    principal: Principal


class ReadFeeds(Effect, frozen=True, gc=False):
    """Read the feeds of this node. `Completed.result`: tuple of `FeedInfo`."""

    request: int


FeedMessage = RequestFeedChange | FeedChanged | QueryFeeds | FeedList
