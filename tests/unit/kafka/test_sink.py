"""The sink's rules, with a producer that a test answers for: order, keys, names, what is sent again and what ends it."""

import pytest

pytest.importorskip("aiokafka", reason="no aiokafka here: pip install 'agiledart[kafka]'")

import asyncio
from typing import Any, NamedTuple

from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from agiledart_connectors.kafka import kafka_writer as sinks
from agiledart_connectors.kafka.kafka_address import kafka_address
from agiledart_connectors.kafka.kafka_writer import KafkaWriter
from agiledart_connectors.latency_recorder import LatencyRecorder
from agiledart_connectors.remote import delivery_queue
from agiledart_connectors.remote.row_ids import RowIds
from agiledart_dataflow.plan.connector_abilities import ConfirmsDelivery, NumbersRows
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_kernel.errors import OperationFailed
from tests.unit.connectors.reading import until
from tests.unit.kafka.fake import refused


class Mean(NamedTuple):
    """A row."""

    room: str
    celsius: float


ROWS = [Mean("a", 1.5), Mean("b", 2.5), Mean("a", 3.5)]


class Topic:
    """Messages on the brokers, and errors before that: its number among all that were sent → an error.

    Attributes:
        faults: reported at once; `late`: reported by the future, once.
        hangs: numbers without any report while they stand there.
        name: of the topic that there is.
    """

    def __init__(self) -> None:
        self.kept: list[tuple[str, bytes | None, bytes, list[tuple[str, bytes]]]] = []
        self.faults: dict[int, KafkaError] = {}
        self.late: dict[int, KafkaError] = {}
        self.hangs: set[int] = set()
        self.sent = self.producers = 0
        self.is_up = True
        self.name = "means"

    async def fetch_all_metadata(self) -> "Topic":
        """As aiokafka's client."""
        if self.hangs:
            raise KafkaError("Unable to get cluster metadata")
        return self

    def topics(self) -> set[str]:
        """As its cluster."""
        return {self.name}


class FakeProducer:
    """As aiokafka's."""

    def __init__(self, topic: Topic) -> None:
        self.topic = self.client = topic
        topic.producers += 1

    async def start(self) -> None:
        if not self.topic.is_up:
            raise KafkaConnectionError("Unable to bootstrap")

    async def stop(self) -> None: ...

    async def send(self, name: str, value: bytes, *, key: bytes | None, headers: list[tuple[str, bytes]]) -> Any:
        topic, number = self.topic, self.topic.sent
        while topic.name != name:  # it waits until brokers have it
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        topic.sent += 1
        if fault := topic.faults.pop(number, None):
            raise fault
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def answer() -> None:
            if number in topic.hangs:
                loop.call_later(0.01, answer)
            elif fault := topic.late.pop(number, None):
                future.set_exception(fault)
            else:
                topic.kept.append((name, key, value, headers))
                future.set_result(None)

        loop.call_soon(answer)
        return future


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    monkeypatch.setattr("agiledart_connectors.remote.connection_health.MIN_BACKOFF_SECONDS", 0.01)
    monkeypatch.setattr(sinks, "TAKE_SECONDS", 0.2)
    monkeypatch.setattr(delivery_queue, "END_SECONDS", 1.0)
    return Topic()


def writer(topic: Topic, options: str = "") -> KafkaWriter:
    connector = parse_connector(f"kafka://broker:9092/means{options and '?' + options}")
    return KafkaWriter(
        connector, kafka_address(connector), Mean, LatencyRecorder(Mean, lambda: 0), RowIds(7, "report", Mean),
        connect=lambda _, __: FakeProducer(topic), reason=refused,
    )  # fmt: skip


def test_rows_are_written_with_keys_and_ids(topic: Topic) -> None:
    sink = writer(topic, "key=room")
    assert isinstance(sink, ConfirmsDelivery)
    assert isinstance(sink, NumbersRows)
    sink.resume_at(40)
    sink.write(ROWS)
    told: list[Any] = []
    sink.when_delivered(told.append)
    until(lambda: told)
    assert told == [None]
    assert [(name, key, value) for name, key, value, _ in topic.kept] == [
        ("means", b"a", b'{"room":"a","celsius":1.5}'),
        ("means", b"b", b'{"room":"b","celsius":2.5}'),
        ("means", b"a", b'{"room":"a","celsius":3.5}'),
    ]
    names = [dict(headers)["row-id"] for *_, headers in topic.kept]
    assert [name.rpartition(b"-")[0] for name in names] == [f"{7:016x}/report/{n}".encode() for n in (40, 41, 42)]
    sink.close()
    sink.close()


def test_several_fields_make_a_key_and_no_field_makes_none(topic: Topic) -> None:
    for options, keys in (("key=room,celsius&format=csv", [b"a,1.5", b"b,2.5", b"a,3.5"]), ("", [None] * 3)):
        topic.kept.clear()
        sink = writer(topic, options)
        sink.write(ROWS)
        sink.close()
        assert [key for _, key, _, _ in topic.kept] == keys


def test_delivered_rows_are_not_sent_again(topic: Topic) -> None:
    topic.late[1] = KafkaConnectionError("broken")
    sink = writer(topic)
    sink.write(ROWS)
    sink.close()
    assert sorted(value[9:10] for _, _, value, _ in topic.kept) == [b"a", b"a", b"b"]
    assert (topic.sent, topic.producers) == (4, 1)


def test_a_hanging_delivery_is_reported_waited_for_and_not_sent_again(topic: Topic) -> None:
    topic.hangs = {1}
    sink = writer(topic)
    sink.write(ROWS)
    until(lambda: sink.connection_status())
    assert sink.connection_status().startswith(
        "not connected to broker:9092 for 0 s (refused), 3 rows wait, next try in "
    )
    topic.hangs.clear()
    sink.close()
    assert (len(topic.kept), topic.sent) == (3, 3)


def test_a_producer_unknown_to_the_brokers_starts_anew(topic: Topic) -> None:
    topic.late[2] = OutOfOrderSequenceNumber()
    sink = writer(topic)
    sink.write(ROWS)
    sink.close()
    assert (len(topic.kept), topic.producers) == (3, 2)


def test_a_missing_topic_is_waited_for(topic: Topic) -> None:
    topic.faults[0] = UnknownTopicOrPartitionError()
    sink = writer(topic)
    sink.write(ROWS)
    sink.close()
    assert [value[9:10] for _, _, value, _ in topic.kept] == [b"a", b"b", b"a"]
    assert any("broker:9092 has no topic means" in note for note in sink.take_notices())


def test_a_topic_hidden_by_the_brokers_is_reported(topic: Topic) -> None:
    topic.name = "others"
    sink = writer(topic)
    sink.write(ROWS)
    until(
        lambda: "broker:9092 has no topic means, or does not show it to us, and makes none" in sink.connection_status()
    )
    topic.name = "means"
    sink.close()
    assert len(topic.kept) == 3


def test_absent_brokers_are_waited_for(topic: Topic) -> None:
    topic.is_up = False
    sink = writer(topic)
    sink.write(ROWS)
    until(lambda: sink.connection_status())
    topic.is_up = True
    sink.close()
    assert len(topic.kept) == 3


@pytest.mark.parametrize("late", [False, True])
def test_a_row_that_is_too_large_is_rejected_alone(topic: Topic, late: bool) -> None:
    (topic.late if late else topic.faults)[1] = MessageSizeTooLargeError()
    sink = writer(topic)
    sink.write(ROWS)
    sink.close()
    assert len(topic.kept) == len(ROWS) - 1
    assert sink.take_rejected() == 1
    assert "a row is larger than a message may be: here max_bytes=1048576" in sink.take_notices()[0]


@pytest.mark.parametrize("late", [False, True])
def test_a_fatal_delivery_error_fails_the_application(topic: Topic, late: bool) -> None:
    fault, told = TopicAuthorizationFailedError("means"), "broker:9092, topic means: "
    (topic.late if late else topic.faults)[1] = fault
    sink = writer(topic)
    sink.write(ROWS)
    heard: list[Any] = []
    sink.when_delivered(heard.append)
    until(lambda: heard)
    assert isinstance(heard[0], OperationFailed)
    with pytest.raises(OperationFailed) as error:
        sink.close()
    assert told in str(error.value)
