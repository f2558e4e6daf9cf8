"""Messages, events and effects about the names of logs: each agent knows its own, and any agent asks all others for a reader."""

from typing import Annotated, Final

import msgspec

from agiledart_kernel.machine import Effect, Event, Message
from agiledart_kernel.name_patterns import LogWriterName
from agiledart_kernel.peer import Peer

MAX_LOGS_LISTED: Final = 2_048
"""Logs of one node in one answer."""

_Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=80)]


class LogName(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A log of a node, with the ownership on which the permission to read it depends."""

    name: str
    application: LogWriterName
    owner: bytes = b""


class QueryLogNames(Message, frozen=True, gc=False, tag=452):
    """Request for the logs of the receiver whose names fit a pattern with `*` and `?`."""

    request: int
    pattern: _Pattern


class LogNames(Message, frozen=True, gc=False, tag=453):
    """Logs of the sender; `known`: other nodes that it knows."""

    request: int
    logs: Annotated[tuple[LogName, ...], msgspec.Meta(max_length=MAX_LOGS_LISTED)] = ()
    known: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=1_024)] = ()


class FindLogs(Event, frozen=True, gc=False):
    """Request for all logs that fit a pattern. Answered by exactly one `LogsFound` with the same number (the driver's own)."""

    request: int
    pattern: str


class LogsFound(Effect, frozen=True, gc=False):
    """Logs that fit the pattern, each name once, in order. `silent`: number of agents that did not answer."""

    request: int
    logs: tuple[LogName, ...]
    silent: int = 0


class ReadLogNames(Effect, frozen=True, gc=False):
    """Read the names of this node's logs. `Completed.result`: tuple of `LogName`."""

    request: int


LogListMessage = QueryLogNames | LogNames
