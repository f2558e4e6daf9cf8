"""A topic in memory, and a consumer of it that behaves as aiokafka's."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError, OffsetOutOfRangeError

from agiledart_connectors.kafka.kafka_address import KafkaAddress, kafka_address
from agiledart_connectors.kafka.kafka_reader import KafkaReader
from agiledart_connectors.kafka.message_queue import MessageQueue
from agiledart_connectors.kafka.partitions import TopicOffsets, TopicSelection
from agiledart_connectors.kafka.topic_fetcher import TopicFetcher
from agiledart_dataflow.plan.connectors import parse_connector


class Number(NamedTuple):
    """A row."""

    number: int


@dataclass
class Message:
    """Of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    value: bytes | None


@dataclass
class Log:
    """A topic's messages, and what is known of groups.

    Attributes:
        is_up: whether brokers answer.
        floor: partition → offset below which messages were deleted.
        gaps: partition → offsets behind its last message that hold none, as of transactions.
    """

    partitions: dict[int, list[Message]] = field(default_factory=lambda: {0: []})
    name: str = "numbers"
    is_up: bool = True
    floor: dict[int, int] = field(default_factory=dict)
    gaps: dict[int, int] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)
    commits: list[dict[int, int]] = field(default_factory=list)
    sessions: int = 0

    def add(self, partition: int, values: Iterable[Any], time_ms: int = 0) -> None:
        """Messages, one for each value that JSON can hold; None and bytes as they are."""
        held = self.partitions.setdefault(partition, [])
        for value in values:
            payload = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            held.append(Message(self.name, partition, len(held), time_ms, payload))

    def end(self, partition: int) -> int:
        """Of a partition."""
        return len(self.partitions[partition]) + self.gaps.get(partition, 0)


class Found(NamedTuple):
    """As aiokafka's `OffsetAndTimestamp`."""

    offset: int
    timestamp: int


class FakeConsumer:
    """One consumer. It has nothing more at once than `most` messages."""

    def __init__(self, log: Log, most: int = 100) -> None:
        self.log, self.most = log, most
        self._assigned: set[TopicPartition] = set()
        self._at: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        self.log.sessions += 1
        if not self.log.is_up:
            raise KafkaConnectionError("Unable to bootstrap")

    async def stop(self) -> None: ...

    async def topics(self) -> set[str]:
        await self._answer()
        return {self.log.name}

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._assigned, self._at = set(partitions), {}

    def assignment(self) -> set[TopicPartition]:
        return self._assigned

    def partitions_for_topic(self, _topic: str) -> set[int]:
        return set(self.log.partitions)

    async def beginning_offsets(self, of: list[TopicPartition]) -> dict[TopicPartition, int]:
        await self._answer()
        return {tp: self.log.floor.get(tp.partition, 0) for tp in of}

    async def end_offsets(self, of: list[TopicPartition]) -> dict[TopicPartition, int]:
        await self._answer()
        return {tp: self.log.end(tp.partition) for tp in of}

    async def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, Found | None]:
        return {
            tp: next(
                (Found(m.offset, m.timestamp) for m in self.log.partitions[tp.partition] if m.timestamp >= time), None
            )
            for tp, time in times.items()
        }

    async def committed(self, tp: TopicPartition) -> int | None:
        return self.log.groups.get(tp.partition)

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        await self._answer()
        assert set(offsets) <= self._assigned
        found = {tp.partition: offset for tp, offset in offsets.items()}
        self.log.groups |= found
        self.log.commits.append(found)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        assert tp in self._assigned
        self._at[tp] = offset

    async def position(self, tp: TopicPartition) -> int:
        return self._at[tp]

    async def getmany(
        self, *of: TopicPartition, timeout_ms: int, max_records: int
    ) -> dict[TopicPartition, list[Message]]:
        await asyncio.sleep(0)
        if self.log.is_up:
            for tp in of or sorted(self._at):
                at = self._at[tp]
                if at < self.log.floor.get(tp.partition, 0):
                    raise OffsetOutOfRangeError({tp: at})
                found = self.log.partitions[tp.partition][at : at + min(self.most, max_records)]
                self._at[tp] = at + len(found) if found else self.log.end(tp.partition)
                if found:
                    return {tp: found}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(timeout_ms / 1_000, 0.01)):
                await asyncio.Event().wait()
        return {}

    async def _answer(self) -> None:
        await asyncio.sleep(0)
        if not self.log.is_up:
            raise NodeNotReadyError("gone")


async def refused(_address: KafkaAddress) -> str:
    """Reason for a missing answer."""
    return "refused"


def reader(log: Log, options: str = "", row_type: Any = Number, most: int = 100) -> KafkaReader:
    """A source of the topic."""

    def fetch(
        address: KafkaAddress,
        selection: TopicSelection,
        group: str,
        message_queue: MessageQueue,
        topic_offsets: TopicOffsets | None,
    ) -> TopicFetcher:
        return TopicFetcher(
            address,
            selection,
            group,
            message_queue,
            topic_offsets,
            connect=lambda _, __: FakeConsumer(log, most),
            reason=refused,
        )

    connector = parse_connector(f"kafka://broker:9092/{log.name}{options and '?' + options}")
    return KafkaReader(connector, kafka_address(connector), row_type, fetch)


def threads() -> int:
    """Of sources that run."""
    return sum(thread.name.startswith("kafka ") for thread in threading.enumerate())
