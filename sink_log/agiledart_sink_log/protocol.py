"""Messages between a reader of sink logs and an agent, over a link with the service `sink_log`.

Any agent answers `Locate`; the agent that has the log's files answers `Ends` and `Fetch`. Each request has a number of the
reader, and gets exactly one answer with that number. Offsets count rows within one partition, from 0; they are never reused.
Source: design of the sink log, decision 0008.
"""

from typing import Annotated, Final

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_sink_log.column_index import MAX_COLUMNS, MAX_CONDITIONS, ZoneCondition
from agiledart_transport.request_reasons import ELSEWHERE, NOT_ALLOWED, OVERLOADED, UNAVAILABLE

MAX_SINK_NAME: Final = 64
MAX_LOG_NAME: Final = 80
"""Greatest length of the name of a system log: the name of an application and its subject."""

SYSTEM_PREFIX: Final = "_"
"""Prefix of the names of system logs, which applications cannot write."""

MAX_PARTITIONS: Final = 64
"""Greatest number of partitions of a log; each is a folder and an open file of its writer."""

MAX_FETCH_ROWS: Final = 1_000_000
MAX_FETCH_BYTES: Final = 8 << 20
"""Greatest size of rows in one answer, bytes: half of the largest frame. No single batch is larger (`MAX_STORED_BYTES`)."""

MAX_STORED_BYTES: Final = 4 << 20
"""Greatest size of a stored batch, bytes. The sink refuses a larger row."""

MAX_WAIT_MS: Final = 30_000
"""Longest long poll; a reader that waits longer sends a new request."""

UNKNOWN_SINK: Final = "unknown sink"
TRIMMED: Final = "trimmed"
DAMAGED: Final = "damaged"
REFUSAL_REASONS: Final = (UNKNOWN_SINK, TRIMMED, NOT_ALLOWED, OVERLOADED, DAMAGED, ELSEWHERE, UNAVAILABLE)
"""Reasons of refusals. `trimmed`: the rows at the offset were removed; `damaged`: they were stored but their checksum is
wrong, or a power cut took them; `elsewhere`: another node has the log now, locate it again; `unavailable`: the ring did not
answer, try again."""

ROWS: Final = 0
BY_COLUMNS: Final = 1
LEFT_OUT: Final = 2
"""Forms of a `StoredPart`."""

_Column = Annotated[int, msgspec.Meta(ge=0, lt=MAX_COLUMNS)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_LOG_NAME)]


class Locate(Message, frozen=True, gc=False, tag=230):
    """Request of the location of a sink's log and the schema of its rows; any agent answers."""

    request: int
    sink: _Name


class Located(Message, frozen=True, gc=False, tag=231):
    """Location of a sink's log.

    Args:
        application, version: of the run that wrote it last.
        node_id, node, address: of the agent that serves it: ring position, name, `host:port` if known.
        log_id: random name of this log; another log_id under the same name means a new log.
        schema: JSON, `{"text": …, "fields": [{"name", "type", "nullable"}, …]}`; see `docs/reference/sink-log.md`.
        partitions: numbered from 0.
        relay, ticket: with a ticket, the reader reaches that agent through a relay, at this address: it connects there,
            says the preface with the ticket once and within 5 s, and continues as with the agent itself. An empty
            address: the relay is the agent that answers.
    """

    request: int
    sink: str
    application: str
    version: int
    node_id: NodeId
    node: str
    address: str
    log_id: str
    schema: bytes
    partitions: int
    relay: str = ""
    ticket: bytes = b""


class Ends(Message, frozen=True, gc=False, tag=232):
    """Request of the ends of all partitions.

    Args:
        wait_ms: longest wait until a partition's committed end (latest end with `uncommitted`) is beyond the one in `after`;
            0 answers at once.
        after: partition → offset that the reader knows.
    """

    request: int
    sink: _Name
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)] = 0
    after: dict[int, Count] = {}
    uncommitted: bool = False


class PartitionEnds(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """First retained offset, and the offsets after the last committed row and after the last written row."""

    partition: int
    first: int
    committed: int
    latest: int


class EndsReply(Message, frozen=True, gc=False, tag=233):
    """Answer to `Ends`: every partition, in order.

    Args:
        is_open: an executor is writing the log; False: no row comes until another run writes.
        ended: reason why the last run failed or was stopped; empty: it has finished.
    """

    request: int
    log_id: str
    partitions: tuple[PartitionEnds, ...]
    is_open: bool = False
    ended: str = ""


class Fetch(Message, frozen=True, gc=False, tag=234):
    """Request of rows of a partition from an offset on.

    Args:
        max_rows, max_bytes: limits after which no batch is added; the first batch is always sent.
        wait_ms: longest wait for the first row.
        uncommitted: also rows that are not committed yet and may still be withdrawn.
        columns: numbers of the fields that the reader wants; one more than the last field is the time of storing. None: the reader
            takes rows only and gets `Fetched`; else it gets `FetchedParts` from agents that know columns.
        where: conditions; the agent leaves out batches of which no row can match. The reader applies them to the rest.
    """

    request: int
    sink: _Name
    partition: Annotated[int, msgspec.Meta(ge=0, lt=MAX_PARTITIONS)]
    offset: Count
    max_rows: Annotated[int, msgspec.Meta(ge=1, le=MAX_FETCH_ROWS)] = 100_000
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_FETCH_BYTES)] = 1 << 20
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)] = 0
    uncommitted: bool = False
    columns: Annotated[tuple[_Column, ...], msgspec.Meta(max_length=MAX_COLUMNS)] | None = None
    where: Annotated[tuple[ZoneCondition, ...], msgspec.Meta(max_length=MAX_CONDITIONS)] = ()


class StoredBatch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Rows that were stored together: `body` is the MessagePack array of `rows` rows, the first at `offset`.

    Args:
        at_ms: wall time of writing, milliseconds since 1970.
    """

    offset: int
    rows: int
    body: bytes
    at_ms: int = 0


class Fetched(Message, frozen=True, gc=False, tag=235):
    """Answer to `Fetch`.

    Batches are whole: the first may begin before the requested offset, and the reader skips rows before it; the last may exceed
    `max_rows`. Batches have no gaps between them.

    Args:
        batches: none when there was no row in time.
        next_offset: offset of the next request.
        end: committed end of the partition (latest end with `uncommitted`).
    """

    request: int
    partition: int
    batches: tuple[StoredBatch, ...]
    next_offset: int
    end: int
    log_id: str = ""


class StoredPart(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Description of a stored batch, whose bytes follow in a DATA frame of their own; a batch without bytes has no frame.

    Args:
        form: `ROWS`: MessagePack as in `StoredBatch`; `BY_COLUMNS`: the requested columns; `LEFT_OUT`: no row matches, no bytes.
        sizes: of the parts of the frame: one for rows, one for each requested column. 0: the batch lacks that column, which
            can be the time of storing only: then `at_ms` is that of all rows.
        at_ms: wall time of writing, milliseconds since 1970.
        stored_bytes: size of the whole batch on the disk.
    """

    offset: int
    rows: int
    form: int
    sizes: tuple[Count, ...] = ()
    at_ms: int = 0
    stored_bytes: int = 0


class FetchedParts(Message, frozen=True, gc=False, tag=240):
    """Answer to a `Fetch` with `columns`, as `Fetched`. The DATA frames of its parts follow, in their order."""

    request: int
    partition: int
    parts: tuple[StoredPart, ...]
    next_offset: int
    end: int
    log_id: str = ""


class ListLogs(Message, frozen=True, gc=False, tag=241):
    """Request of the names of all logs that fit a pattern with `*` and `?`, of all nodes; any agent answers.

    Args:
        sink: the pattern.
    """

    request: int
    sink: _Name


class LogsListed(Message, frozen=True, gc=False, tag=242):
    """Answer to `ListLogs`: the logs that the reader may read, in order.

    Args:
        silent: number of agents that did not answer; their logs may be missing.
    """

    request: int
    sinks: tuple[str, ...]
    silent: int = 0


class LogRefused(Message, frozen=True, gc=False, tag=236):
    """Refusal of a request.

    Args:
        reason: one of `REFUSAL_REASONS`.
        text: sentence for users, with what to do.
        first_kept: for `trimmed` the first retained offset; for `damaged` the first valid offset after the damage.
    """

    request: int
    reason: str
    text: str
    first_kept: int = 0


LogRequest = Locate | Ends | Fetch | ListLogs
LogAnswer = Located | EndsReply | Fetched | FetchedParts | LogsListed | LogRefused
LogMessage = LogRequest | LogAnswer


def sink_name_fault(name: str) -> str:
    """Return why a log cannot have this name, else "". Folder names, labels and scopes of grants contain it."""
    if not name:
        return "a log needs a name: log:NAME"
    longest = MAX_LOG_NAME if name.startswith(SYSTEM_PREFIX) else MAX_SINK_NAME
    if len(name) > longest:
        return f"the name of a log has at most {longest} characters, not {len(name)}"
    if not all(c.isascii() and (c.isalnum() or c in "-_.") for c in name) or name[0] in ".-":
        return f"{name!r} cannot be the name of a log: use letters, digits, - _ . only, and no . or - at the beginning"
    return ""


def user_sink_name_fault(name: str) -> str:
    """Return why an application cannot write a log of this name, else ""."""
    if name.startswith(SYSTEM_PREFIX):
        return f"{name!r} cannot be the name of a sink: names that begin with {SYSTEM_PREFIX} are those of the system's own logs"
    return sink_name_fault(name)


def latency_log_name(application: str, sink: int) -> str:
    """Return the name of the latency log of a sink: `_latency.APP`, of the second sink `_latency2.APP`.

    Each sink has its own, because two sinks may run on two nodes and a log has one writer.

    Args:
        sink: index of the sink, from 0, in the order of the specification.
    """
    return f"{SYSTEM_PREFIX}latency{sink + 1 if sink else ''}.{application}"
