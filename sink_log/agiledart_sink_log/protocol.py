"""What a reader of sink logs and an agent tell each other over a link with the service `sink_log`.

Any agent answers `Locate`; the agent that has the log's files answers `Ends` and `Fetch`. Each request carries a number of the
asker's own and is answered by exactly one message with that number. Offsets count rows within one partition, from 0; they are
never used twice. Source: design of the sink log, decision 0008.
"""

from typing import Annotated, Final

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId

MAX_SINK_NAME: Final = 64
MAX_LOG_NAME: Final = 80
"""Of a log that the system itself keeps: the name of an application and what it is about."""

SYSTEM_PREFIX: Final = "_"
"""Logs of these names belong to the system; applications cannot write them."""

MAX_PARTITIONS: Final = 64
"""Partitions of one log: each is a folder and an open file of its writer."""

MAX_FETCH_ROWS: Final = 1_000_000
MAX_FETCH_BYTES: Final = 8 << 20
"""Bytes of rows in one answer: half of the largest frame. A larger single batch cannot exist (`MAX_STORED_BYTES`)."""

MAX_STORED_BYTES: Final = 4 << 20
"""Bytes of one stored batch. A row that is larger alone is refused by the sink."""

MAX_WAIT_MS: Final = 30_000
"""Longest long poll; an asker that wants to wait longer asks again."""

UNKNOWN_SINK: Final = "unknown sink"
TRIMMED: Final = "trimmed"
NOT_ALLOWED: Final = "not allowed"
OVERLOADED: Final = "overloaded"
DAMAGED: Final = "damaged"
ELSEWHERE: Final = "elsewhere"
UNAVAILABLE: Final = "unavailable"
REFUSAL_REASONS: Final = (UNKNOWN_SINK, TRIMMED, NOT_ALLOWED, OVERLOADED, DAMAGED, ELSEWHERE, UNAVAILABLE)
"""Why a request is refused. `trimmed`: rows at the offset are no longer kept; `damaged`: they were stored but their checksum is
wrong, or a power cut took them; `elsewhere`: another node has the log now, locate it again; `unavailable`: the ring did not
answer, try again."""

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_LOG_NAME)]


class Locate(Message, frozen=True, gc=False, tag=230):
    """Which node has the log of this sink, and what are its rows? Any agent answers."""

    request: int
    sink: _Name


class Located(Message, frozen=True, gc=False, tag=231):
    """Where a sink's log is.

    Args:
        application, version: which run wrote it last.
        node_id, node, address: the agent that serves it: ring position, name, `host:port` as far as known now.
        log_id: random name of this log; another one under the same sink's name means that the log was begun anew.
        schema: JSON, `{"text": …, "fields": [{"name", "type", "nullable"}, …]}`; see `docs/reference/sink-log.md`.
        partitions: numbered from 0.
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


class Ends(Message, frozen=True, gc=False, tag=232):
    """How far are the partitions?

    Args:
        wait_ms: answer when a partition's committed end (latest end with `uncommitted`) lies beyond the one in `after`, or
            after so long; 0 answers at once.
        after: partition → offset that the asker knows already.
    """

    request: int
    sink: _Name
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)] = 0
    after: dict[int, Count] = {}
    uncommitted: bool = False


class PartitionEnds(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """First offset that is kept, and the offsets after the last committed row and after the last written row."""

    partition: int
    first: int
    committed: int
    latest: int


class EndsReply(Message, frozen=True, gc=False, tag=233):
    """Answer to `Ends`: every partition, in order.

    Args:
        is_open: an executor writes the log at this time; False means that no row will come until somebody writes again.
        ended: why the run that wrote it last has ended, where it did not finish: it has failed, or was stopped.
    """

    request: int
    log_id: str
    partitions: tuple[PartitionEnds, ...]
    is_open: bool = False
    ended: str = ""


class Fetch(Message, frozen=True, gc=False, tag=234):
    """Rows of a partition from an offset on.

    Args:
        max_rows, max_bytes: no further batch is added once these are reached; at least one comes when there is one.
        wait_ms: when there is no row yet, wait for one so long.
        uncommitted: also rows that are not committed yet and may still be withdrawn.
    """

    request: int
    sink: _Name
    partition: Annotated[int, msgspec.Meta(ge=0, lt=MAX_PARTITIONS)]
    offset: Count
    max_rows: Annotated[int, msgspec.Meta(ge=1, le=MAX_FETCH_ROWS)] = 100_000
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_FETCH_BYTES)] = 1 << 20
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)] = 0
    uncommitted: bool = False


class StoredBatch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Rows as they were stored together: `body` is the MessagePack array of `rows` rows, the first at `offset`.

    Args:
        at_ms: wall time of writing, milliseconds since 1970.
    """

    offset: int
    rows: int
    body: bytes
    at_ms: int = 0


class Fetched(Message, frozen=True, gc=False, tag=235):
    """Answer to `Fetch`.

    Batches are whole: the first may begin before the offset that was asked for, and rows before it are to be dropped; the last
    may go beyond `max_rows`. They follow each other without a gap.

    Args:
        batches: none when there was no row in time.
        next_offset: where to go on.
        end: committed end of the partition (latest end with `uncommitted`).
    """

    request: int
    partition: int
    batches: tuple[StoredBatch, ...]
    next_offset: int
    end: int
    log_id: str = ""


class LogRefused(Message, frozen=True, gc=False, tag=236):
    """A request is refused.

    Args:
        reason: one of `REFUSAL_REASONS`.
        text: for people, with what to do next.
        first_kept: for `trimmed`: the first offset that is kept; for `damaged`: the first good offset after the damage.
    """

    request: int
    reason: str
    text: str
    first_kept: int = 0


LogRequest = Locate | Ends | Fetch
LogAnswer = Located | EndsReply | Fetched | LogRefused
LogMessage = LogRequest | LogAnswer


def sink_name_fault(name: str) -> str:
    """Why a log cannot have this name, or "": it stands in folder names, labels and the scope of grants."""
    if not name:
        return "a log needs a name: log:NAME"
    longest = MAX_LOG_NAME if name.startswith(SYSTEM_PREFIX) else MAX_SINK_NAME
    if len(name) > longest:
        return f"the name of a log has at most {longest} characters, not {len(name)}"
    if not all(c.isascii() and (c.isalnum() or c in "-_.") for c in name) or name[0] in ".-":
        return f"{name!r} cannot be the name of a log: letters, digits, - _ . only, and no . or - at its beginning"
    return ""


def user_sink_name_fault(name: str) -> str:
    """Why an application cannot write a log of this name, or ""."""
    if name.startswith(SYSTEM_PREFIX):
        return f"{name!r} cannot be the name of a sink: names that begin with {SYSTEM_PREFIX} are those of the system's own logs"
    return sink_name_fault(name)


def latency_log_name(application: str, sink: int) -> str:
    """The system's log of the latencies sampled at a sink of an application: `_latency.APP`, of its second sink `_latency2.APP`.

    Each sink has its own, because two sinks may run on two nodes and a log has one writer.

    Args:
        sink: which of the application's sinks, from 0, in the order of its specification.
    """
    return f"{SYSTEM_PREFIX}latency{sink + 1 if sink else ''}.{application}"
