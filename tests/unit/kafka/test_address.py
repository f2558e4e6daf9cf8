"""Brokers, partitions and start positions in a URL; an invalid one is reported with the right form."""

import pytest

pytest.importorskip("aiokafka", reason="no aiokafka here: pip install 'agiledart[kafka]'")

from pathlib import Path
from typing import Any, NamedTuple

from agiledart import Retained, kafka
from agiledart_connectors.kafka.kafka_address import kafka_address
from agiledart_connectors.kafka.partitions import PartitionMerge, topic_selection_of
from agiledart_connectors.opening import open_sink, open_source
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from tests.unit.kafka.fake import Message, Number


class Kept(NamedTuple):
    """A row that Kafka cannot fill."""

    kept: Retained


def test_brokers_and_topic_are_parsed() -> None:
    address = kafka_address(parse_connector("kafka://one:1,two,[::1]:3/plant.readings"))
    assert address.brokers == (("one", 1), ("two", 9092), ("::1", 3))
    assert (address.topic, address.broker, address.tls) == ("plant.readings", "one:1,two:9092,[::1]:3", False)
    assert kafka_address(parse_connector("kafkas://one/t")).tls


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("kafka:broker/t", "write kafka://HOST:PORT"),
        ("kafka://broker:9092", "which topic"),
        ("kafka://broker:9092/a/b", "which topic"),
        ("kafka://broker:0/t", "no HOST:PORT"),
        ("kafka://broker:http/t", "no HOST:PORT"),
        ("kafka://a,,b/t", "no HOST:PORT"),
        ("kafka://user:secret@broker/t", "never stands in a URL"),
        ("kafka://broker/t?sasl=digest&credentials=c", "sasl is one of plain"),
        ("kafka://broker/t?sasl=plain", "sasl=plain of whom"),
        ("kafka://broker/t?from=committed", "which one? Give group=NAME"),
        ("kafka://broker/t?from=yesterday", "a time as 2026-06-01T00:00:00Z"),
        ("kafka://broker/t?from=1960-01-01", "before 1970"),
        ("kafka://broker/t?to=noon", "to=end"),
        ("kafka://broker/t?share=3/2", "share=2/3 is the second of three"),
        ("kafka://broker/t?share=0/2", "share=2/3 is the second of three"),
        ("kafka://broker/t?offset=3", "has no option 'offset'"),
        ("kafka://broker/t?format=xml", "no format 'xml'"),
    ],
)
def test_invalid_source_options_are_rejected(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        open_source(parse_connector(url), Number)
    assert told in str(error.value)


def test_invalid_sink_options_are_rejected(tmp_path: Path) -> None:
    for url, told in (
        ("kafka://broker/t?key=room", "rows have no field 'room'; its fields are number"),
        ("kafka://broker/t?format=senml", "format is one of json"),
        ("kafka://broker/t?batch=0", "batch is a number from 1"),
        ("kafka://broker/t?from=latest", "has no option 'from'"),
    ):
        with pytest.raises(ConfigurationError) as error:
            open_sink(parse_connector(url), Number)
        assert told in str(error.value)
    with pytest.raises(OperationFailed, match=r"none\.pem cannot be read here"):
        open_sink(parse_connector(f"kafkas://broker/t?ca={tmp_path}/none.pem"), Number)
    with pytest.raises(ConfigurationError, match="Retained says nothing"):
        open_source(parse_connector("kafka://broker/t"), Kept)


def test_the_default_start_depends_on_a_group() -> None:
    assert topic_selection_of(parse_connector("kafka://b/t"), "").begin == "earliest"
    assert topic_selection_of(parse_connector("kafka://b/t"), "plant").begin == "committed"
    since = topic_selection_of(parse_connector("kafka://b/t?from=2026-06-01T00:00:00Z"), "")
    assert (since.begin, since.since_ms) == ("time", 1_780_272_000_000)
    assert topic_selection_of(parse_connector("kafka://b/t?from=2026-06-01T02:00:00%2B02:00"), "") == since


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_partition_shares_are_disjoint_and_complete(count: int) -> None:
    for partitions in range(20):
        shares = [
            topic_selection_of(parse_connector(f"kafka://b/t?share={n + 1}/{count}"), "").own_share(range(partitions))
            for n in range(count)
        ]
        assert sorted(one for share in shares for one in share) == list(range(partitions))


def test_merging_gives_one_order_in_any_arrival_order() -> None:
    def message(partition: int, offset: int, time: int) -> Any:
        return Message("t", partition, offset, time, b"")

    every = {
        0: [message(0, 0, 5), message(0, 1, 9), message(0, 2, 7)],
        1: [message(1, 0, 5), message(1, 1, 6)],
        2: [],
    }
    orders = []
    for size in (1, 2, 3):
        merged, out = PartitionMerge(every), []
        left = {partition: list(messages) for partition, messages in every.items()}
        while not merged.is_over:
            for partition in merged.empty_partitions():
                if left[partition]:
                    merged.put(partition, left[partition][:size])
                    del left[partition][:size]
                else:
                    merged.end(partition)
            out += merged.take()
        orders.append([(one.partition, one.offset) for one in out])
    assert orders[0] == [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2)]
    assert orders[0] == orders[1] == orders[2]


def test_the_python_function_equals_the_url() -> None:
    made = kafka("kafka://broker:9092/readings", group="plant", begin="latest", share="1/2", at="a1")
    assert made == parse_connector("kafka://broker:9092/readings?from=latest&group=plant&share=1/2@a1")
    with pytest.raises(ConfigurationError, match="no address of Kafka"):
        kafka("broker:9092/readings")
