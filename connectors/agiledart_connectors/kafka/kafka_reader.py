"""Source `kafka://HOST:PORT/TOPIC`: messages of a topic, in any format.

    kafka://broker:9092/readings                         the whole topic, then new messages
    kafka://broker:9092/readings?group=plant             from the group's offsets; commits its own to the group
    kafka://broker:9092/readings?share=2/3               the second of three sources that share the partitions
    kafka://broker:9092/readings?to=end                  up to the end, in order of the messages' times: also for `reference`
    kafkas://broker:9093/readings?credentials=plant      over TLS, as a user (SASL)

A position is an offset of each partition, so a restarted run continues from its last epoch. It commits offsets to the group with
each epoch; a run without epochs commits every few seconds.
Messages of one partition keep their order; those of several come as they arrive.
A field of type `Topic` holds the topic.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from agiledart_connectors.codecs.decoder import decoded
from agiledart_connectors.codecs.decoder_options import decoder_options
from agiledart_connectors.codecs.formats import open_decoder
from agiledart_connectors.codecs.malformed_examples import SIZE, MalformedExamples
from agiledart_connectors.kafka.kafka_address import KafkaAddress, kafka_address
from agiledart_connectors.kafka.message_queue import MessageQueue
from agiledart_connectors.kafka.partitions import TopicOffsets, TopicSelection, parse_topic_offsets, topic_selection_of
from agiledart_connectors.kafka.topic_fetcher import TopicFetcher
from agiledart_connectors.options import ReadOptions
from agiledart_dataflow.data.schema import Retained, Topic, fields_of, is_named_tuple
from agiledart_dataflow.plan.connectors import Connector, Reading
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.limits import MAX_LINE_BYTES

COMMIT_SECONDS: Final = 5.0
"""Interval of commits to the group in runs without epochs."""

Fetch = Callable[[KafkaAddress, TopicSelection, str, MessageQueue, TopicOffsets | None], TopicFetcher]


class KafkaReader:
    """Reads messages as typed rows; one that is none is counted by reason. Its thread begins with the first reading."""

    stamps = True

    def __init__(self, connector: Connector, address: KafkaAddress, row_type: Any, fetch: Fetch = TopicFetcher) -> None:
        self._decoder = open_decoder(connector.option("format", "json"), row_type, decoder_options(connector))
        self._group = connector.option("group")
        self._selection = topic_selection_of(connector, self._group)
        self._examples = MalformedExamples()
        self.on_malformed = self._examples.on_malformed
        types = {field.type: field.name for field in fields_of(row_type)}
        if Retained in types:
            raise ConfigurationError(
                f"{connector.url()}: Kafka keeps all messages: a field of type Retained says nothing"
            )
        self._topic_field = types.get(Topic)
        if self._topic_field and not is_named_tuple(row_type):
            raise ConfigurationError(f"{connector.url()}: rows with a Topic are NamedTuples, not {row_type!r}")
        self._address, self._fetch = address, fetch
        self._message_queue = MessageQueue(address.broker)
        self._fetching: TopicFetcher | None = None
        self._topic_offsets: TopicOffsets | None = None
        self._by_epochs = self._closed = False
        self._keep_beginning: Callable[[bytes], None] = lambda position: None
        self._committed_at = time.monotonic()
        self._committed_offsets: dict[int, int] = {}

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        if self._fetching is None:
            self._fetching = self._fetch(
                self._address, self._selection, self._group, self._message_queue, self._topic_offsets
            )
        if not self._by_epochs and time.monotonic() - self._committed_at > COMMIT_SECONDS:
            self._commit_to_group()  # rows handed out before are on their way
        for note in self._message_queue.health.take_notices():
            self._examples.note(note)
        taken, is_over = self._message_queue.take(max_rows)
        if (
            begun := self._message_queue.take_start()
        ) is not None:  # looked for after taking messages: the thread sets it before them
            self._topic_offsets = begun
            self._keep_beginning(begun.encoded())
        malformed: dict[str, int] = {}
        rows = self._rows(taken, wall_ns, malformed)
        lines = len(rows) + sum(malformed.values())
        return Reading(rows, lines, malformed, is_over, not taken, self._examples.take())

    def fileno(self) -> int:
        """Readable when messages have come."""
        return self._message_queue.fileno()

    def connection_status(self) -> str:
        """Return why the brokers cannot be reached; empty when all is well."""
        return self._message_queue.health.connection_status()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._fetching is not None:
            if not self._by_epochs:
                self._commit_to_group()
            self._fetching.close()
        self._message_queue.close()

    # ---- for epochs

    def saved_by_epochs(self, beginning: bytes, keep: Callable[[bytes], None]) -> None:
        """Commit offsets to the group with each epoch from now on, because the run is saved by epochs.

        Args:
            beginning: where an earlier attempt of the run began; empty when there was none.
            keep: called with the position where this attempt begins, before the first row.
        """
        self._by_epochs = True
        self._keep_beginning = keep
        if beginning:
            self.seek(beginning)

    def position(self) -> bytes:
        """The offsets behind what was handed out; nothing before it has begun."""
        return b"" if self._topic_offsets is None else self._topic_offsets.encoded()

    def seek(self, position: bytes) -> None:
        """Go there; called before the first reading."""
        if position:
            self._topic_offsets = parse_topic_offsets(position)

    def trim(self, position: bytes) -> None:
        """An epoch is committed there."""
        if position and self._fetching is not None:
            self._fetching.commit(parse_topic_offsets(position).at)

    # ----

    def _commit_to_group(self) -> None:
        self._committed_at = time.monotonic()
        if (
            self._topic_offsets is not None
            and self._fetching is not None
            and self._topic_offsets.at != self._committed_offsets
        ):
            self._committed_offsets = dict(self._topic_offsets.at)
            self._fetching.commit(self._committed_offsets)

    def _rows(self, taken: list[Any], wall_ns: int, malformed: dict[str, int]) -> list[Any]:
        if not taken:
            return []
        assert self._topic_offsets is not None
        at = self._topic_offsets.at
        for message in taken:
            at[message.partition] = message.offset + 1
        payloads = [message.value or b"" for message in taken]
        if any(len(payload) > MAX_LINE_BYTES for payload in payloads):
            for message in taken:
                if len(message.value or b"") > MAX_LINE_BYTES:
                    malformed[SIZE] = malformed.get(SIZE, 0) + 1
                    self._examples.add(SIZE, _place(message), f"a message of {len(message.value):,} bytes")
            taken = [message for message in taken if len(message.value or b"") <= MAX_LINE_BYTES]
            payloads = [message.value or b"" for message in taken]
        rows = decoded(self._decoder, payloads, wall_ns, malformed, self._examples, lambda index: _place(taken[index]))
        if self._topic_field is None:
            return rows
        topic_value = {self._topic_field: self._address.topic}
        return [row._replace(**topic_value) for row in rows]


def _place(message: Any) -> str:
    return f"{message.topic}/{message.partition}@{message.offset}:"


def open_source(connector: Connector, row_type: Any, read_options: ReadOptions) -> KafkaReader:
    """The reader of a `kafka://` connector."""
    return KafkaReader(connector, kafka_address(connector), row_type)
