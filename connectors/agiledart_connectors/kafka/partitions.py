"""Which partitions of a topic a source reads, from where, to where, and how far it is: values and rules, without a broker.

share=2/3        partitions 1, 4, 7 …: each of three sources reads a third, whichever nodes they are on
from=earliest    what the topic still has (the usual without a group)
from=latest      what comes from now on
from=committed   where the group is, else as earliest (the usual with a group)
from=TIME        what is not older than an ISO time, as 2026-06-01T00:00:00Z
to=end           up to what is there when it begins: a bounded source
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError

_MAX_SHARES: Final = 1_024


class TopicOffsets(msgspec.Struct, frozen=True, array_like=True):
    """Position of a source in a topic.

    Attributes:
        at: partition → next offset to read.
        ends: partition → offset at which reading ends; None: it does not end.
    """

    at: dict[int, int]
    ends: dict[int, int] | None = None

    def encoded(self) -> bytes:
        """Return the offsets as a snapshot stores them."""
        return msgspec.msgpack.encode(self)


_OFFSETS_DECODER: Final = msgspec.msgpack.Decoder(TopicOffsets)


def parse_topic_offsets(position: bytes) -> TopicOffsets:
    """Return the offsets that `encoded` has written."""
    return _OFFSETS_DECODER.decode(position)


@dataclass(frozen=True)
class TopicSelection:
    """Selection of a topic's messages that a source reads.

    Attributes:
        begin: `earliest`, `latest`, `committed` or `time`.
        since_ms: milliseconds since the epoch of 1970, for `time`.
        ends: whether reading ends at the topic's end as of its start.
        share, shares: this source's number from 0, and the number of sources that share the topic.
    """

    begin: str
    since_ms: int
    ends: bool
    share: int
    shares: int

    def own_share(self, partitions: Iterable[int]) -> list[int]:
        """Those that this source reads: the same ones whenever and wherever it is asked."""
        return sorted(partition for partition in partitions if partition % self.shares == self.share)


def topic_selection_of(connector: Connector, group: str) -> TopicSelection:
    """Return the selection that a connector's options give. Raises `ConfigurationError`."""
    begin, since_ms = connector.option("from", "committed" if group else "earliest"), 0
    if begin == "committed" and not group:
        raise ConfigurationError(f"{connector.url()}: from=committed is where a group is: which one? Give group=NAME")
    if begin not in ("earliest", "latest", "committed"):
        begin, since_ms = "time", _time_ms(connector, begin)
    end = connector.option("to")
    if end not in ("", "end"):
        raise ConfigurationError(f"{connector.url()}: to=end, or nothing; not {end!r}")
    number, slash, count = connector.option("share", "1/1").partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count) <= _MAX_SHARES):
        raise ConfigurationError(
            f"{connector.url()}: share=2/3 is the second of three sources, not {connector.option('share')!r}"
        )
    return TopicSelection(begin, since_ms, end == "end", int(number) - 1, int(count))


def _time_ms(connector: Connector, text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{connector.url()}: from is earliest, latest, committed or a time as 2026-06-01T00:00:00Z, not {text!r}"
        ) from None
    milliseconds = int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000)
    if milliseconds < 0:
        raise ConfigurationError(f"{connector.url()}: a message has no time before 1970")
    return milliseconds


class PartitionMerge:
    """Messages of several partitions that end, in order of their times, then partition: the same order each time.

    Nothing comes out while a partition that has not ended has nothing here.

    Args:
        partitions: of which messages come.
    """

    def __init__(self, partitions: Iterable[int]) -> None:
        self._waiting: dict[int, deque[Any]] = {partition: deque() for partition in partitions}
        self._heads: list[tuple[int, int]] = []  # (time, partition) of those that have something
        self._open = set(self._waiting)

    def empty_partitions(self) -> list[int]:
        """Partitions without which it cannot go on."""
        return sorted(partition for partition in self._open if not self._waiting[partition])

    def put(self, partition: int, messages: Iterable[Any]) -> None:
        """They have come."""
        waiting = self._waiting[partition]
        was_empty = not waiting
        waiting.extend(messages)
        if was_empty and waiting:
            heapq.heappush(self._heads, (waiting[0].timestamp, partition))

    def end(self, partition: int) -> None:
        """None follows of it."""
        self._open.discard(partition)

    @property
    def is_over(self) -> bool:
        """All have ended and all is out."""
        return not self._open and not self._heads

    def take(self) -> list[Any]:
        """Return the messages that are due."""
        due: list[Any] = []
        missing = len(self.empty_partitions())
        while self._heads and not missing:
            _, partition = heapq.heappop(self._heads)
            waiting = self._waiting[partition]
            due.append(waiting.popleft())
            if waiting:
                heapq.heappush(self._heads, (waiting[0].timestamp, partition))
            elif partition in self._open:
                missing = 1
        return due


def new_partitions(known: Mapping[int, int], own_share: Iterable[int]) -> list[int]:
    """Partitions that are new to a source that knows some."""
    return sorted(partition for partition in own_share if partition not in known)
