"""With a real Kafka: rows there and back, a broker that is killed with SIGKILL, transactions, compression, passwords, dry runs."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart_connectors.probing import probe_sink, probe_source
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_kernel.errors import OperationFailed
from tests.authority import Authority
from tests.kafka_broker import KafkaBroker, needs_kafka
from tests.ports import lasting_port
from tests.unit.connectors.reading import SECONDS, Taken, taken, until

pytestmark = pytest.mark.xdist_group("kafka")

PATIENCE = 120.0


class Number(NamedTuple):
    """A row."""

    number: int
    text: str = ""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    needs_kafka()
    with KafkaBroker(tmp_path_factory.mktemp("broker"), "message.max.bytes=200000") as running:
        yield running


def asked(broker: KafkaBroker, question: Callable[[Any], Awaitable[Any]]) -> Any:
    """Answer to an administrator."""
    from aiokafka.admin import AIOKafkaAdminClient

    async def ask() -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.at)
        await admin.start()
        try:
            return await question(admin)
        finally:
            await admin.close()

    return asyncio.run(ask())


def made(broker: KafkaBroker, name: str, partitions: int = 3) -> str:
    """A topic; its URL."""
    from aiokafka.admin import NewTopic

    asked(broker, lambda admin: admin.create_topics([NewTopic(name, partitions, 1)]))
    return f"kafka://{broker.at}/{name}"


def sent(broker: KafkaBroker, topic: str, rows: list[Any], **how: Any) -> None:
    """Put messages there."""
    from aiokafka import AIOKafkaProducer

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.at, **how) as producer:
            for future in [await producer.send(topic, json.dumps(row).encode()) for row in rows]:
                await future

    asyncio.run(send())


def opened(url: str, kind: Any = Number) -> Any:
    from agiledart_connectors.opening import open_source

    return open_source(parse_connector(url), kind)


def writer(url: str) -> Any:
    from agiledart_connectors.opening import open_sink

    return open_sink(parse_connector(url), Number)


def written(sink: Any, rows: list[Number]) -> None:
    """Give a sink rows as an executor does."""
    until(sink.ready, PATIENCE)
    sink.write(rows)


def test_rows_are_written_and_read_back(broker: KafkaBroker) -> None:
    url = made(broker, "there")
    rows = [Number(n, f"k{n % 10}") for n in range(3_000)]
    sink = writer(f"{url}?key=text&batch=200")
    for start in range(0, len(rows), 500):
        written(sink, rows[start : start + 500])
    sink.close()
    back = taken(opened(f"{url}?to=end")).rows
    assert sorted(back) == rows
    for key in range(10):
        assert [row.number for row in back if row.text == f"k{key}"] == list(range(key, 3_000, 10)), "in order by key"
    shares = [taken(opened(f"{url}?to=end&share={n}/2")).rows for n in (1, 2)]
    assert sorted(shares[0] + shares[1]) == rows
    assert {row.text for row in shares[0]}.isdisjoint({row.text for row in shares[1]})


def test_a_groups_offset_is_committed_and_reading_resumes_there(broker: KafkaBroker) -> None:
    url = made(broker, "grouped")
    sent(broker, "grouped", [{"number": n} for n in range(100)])
    reader = opened(f"{url}?group=plant")
    Taken(reader).until(lambda it: len(it.rows) == 100)
    reader.close()
    told = asked(broker, lambda admin: admin.list_consumer_group_offsets("plant"))
    assert sum(one.offset for one in told.values()) == 100
    sent(broker, "grouped", [{"number": n} for n in range(100, 110)])
    assert sorted(row.number for row in taken(opened(f"{url}?group=plant&to=end")).rows) == list(range(100, 110))


@pytest.mark.soak
def test_a_broker_killed_during_reads_and_writes_loses_nothing(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:

    from agiledart_connectors.kafka import kafka_writer, topic_fetcher

    monkeypatch.setattr("agiledart_connectors.remote.connection_health.MAX_BACKOFF_SECONDS", 0.5)
    monkeypatch.setattr(topic_fetcher, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(kafka_writer, "TAKE_SECONDS", 1.0)
    url, count = made(broker, "killed", 4), 20_000
    sink, reader = writer(url), opened(url)
    here = Taken(reader)
    moment = random.Random(5).randrange(2_000, count - 2_000, 500)
    for start in range(0, count, 500):
        if start == moment:
            here.until(lambda it: bool(it.rows))
            broker.kill()
            written(sink, [Number(n) for n in range(count, count + 500)])
            here.until(lambda _: bool(reader.connection_status() and sink.connection_status()), PATIENCE)
            assert f"not connected to {broker.at} for " in reader.connection_status()
            assert "(refused)" in reader.connection_status()
            broker.start()
        while not sink.ready():
            here._read()
        written(sink, [Number(n) for n in range(start, start + 500)])
        here._read()
    told: list[Any] = []
    sink.when_delivered(told.append)
    until(lambda: told, PATIENCE)
    count += 500
    here.until(lambda it: len(it.rows) >= count, PATIENCE)
    sink.close()
    reader.close()
    assert sorted(row.number for row in here.rows) == list(range(count)), (
        "none lost, none twice: the producer is idempotent"
    )


def test_messages_of_an_aborted_transaction_are_not_read(broker: KafkaBroker) -> None:
    from aiokafka import AIOKafkaProducer

    url = made(broker, "transactions", 2)

    async def transactions() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.at, transactional_id="t") as producer:
            for number in range(6):
                await producer.begin_transaction()
                await producer.send_and_wait(
                    "transactions", json.dumps({"number": number}).encode(), partition=number % 2
                )
                await (producer.abort_transaction() if number in (2, 5) else producer.commit_transaction())

    asyncio.run(transactions())
    assert sorted(row.number for row in taken(opened(f"{url}?to=end")).rows) == [0, 1, 3, 4]


@pytest.mark.parametrize("form", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_messages_are_read(broker: KafkaBroker, form: str) -> None:
    url = made(broker, form, 1)
    sent(broker, form, [{"number": n} for n in range(50)], compression_type=form)
    assert [row.number for row in taken(opened(f"{url}?to=end")).rows] == list(range(50))


def test_new_partitions_are_discovered(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    from aiokafka.admin import NewPartitions

    from agiledart_connectors.kafka import kafka_client

    monkeypatch.setattr(kafka_client, "METADATA_SECONDS", 1)
    url = made(broker, "growing", 1)
    reader = opened(url)
    sent(broker, "growing", [{"number": 0}])
    here = Taken(reader).until(lambda it: len(it.rows) == 1)
    asked(broker, lambda admin: admin.create_partitions({"growing": NewPartitions(3)}))
    until(lambda: len(asked(broker, lambda admin: admin.describe_topics(["growing"]))[0]["partitions"]) == 3, PATIENCE)
    sent(broker, "growing", [{"number": n} for n in range(1, 60)])
    here.until(lambda it: len(it.rows) == 60)
    assert sorted(row.number for row in here.rows) == list(range(60))
    reader.close()


def test_dry_runs_check_brokers_and_topics(broker: KafkaBroker) -> None:
    url = made(broker, "tried", 5)
    assert probe_source(parse_connector(f"{url}?share=2/2"), Number).text == "connected, 2 of 5 partitions"
    assert probe_sink(parse_connector(url), Number, {}).text == "connected, 5 partitions"
    for probe in (probe_source, lambda connector, kind: probe_sink(connector, kind, {})):
        with pytest.raises(OperationFailed, match=r"has no topic nothing, or does not show it to us; make it first"):
            probe(parse_connector(f"kafka://{broker.at}/nothing"), Number)
        port = lasting_port()
        with pytest.raises(OperationFailed, match=rf"not connected to 127.0.0.1:{port} \(refused\)"):
            probe(parse_connector(f"kafka://127.0.0.1:{port}/tried"), Number)


def test_a_row_larger_than_the_broker_accepts_fails_with_a_message(broker: KafkaBroker) -> None:
    url = made(broker, "small", 1)
    sink = writer(f"{url}&rejected=fail" if "?" in url else f"{url}?rejected=fail")
    sink.write([Number(1, "x" * 300_000)])
    with pytest.raises(OperationFailed, match=r"topic small: a row is larger than a message may be"):
        sink.close()


def test_tls_and_passwords_are_supported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_kafka()
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    monkeypatch.setenv("AGILEDART_CREDENTIALS", str(credentials))
    for name, text in (("right", "plant:open sesame"), ("wrong", "plant:guess"), ("scram", "press:seal")):
        (credentials / name).write_text(text)
        (credentials / name).chmod(0o600)
    authority, stranger = Authority(tmp_path, "ca"), Authority(tmp_path, "stranger")
    server, client = authority.issue("server"), authority.issue("client")
    (tmp_path / "server.pem").write_bytes(server[1].read_bytes() + server[0].read_bytes())
    security = "org.apache.kafka.common.security"
    users = (
        f'{security}.plain.PlainLoginModule required username="plant" password="open sesame" user_plant="open sesame";'
    )
    settings = (
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        f"listener.name.client.plain.sasl.jaas.config={users}",
        f"listener.name.client.scram-sha-512.sasl.jaas.config={security}.scram.ScramLoginModule required;",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={tmp_path}/server.pem",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={authority.file}",
        "listener.name.client.ssl.client.auth=required",
        "listener.name.client.sasl_ssl.ssl.client.auth=required",
    )
    user = "SCRAM-SHA-512=[name=press,password=seal]"
    with KafkaBroker(tmp_path, *settings, protocol="SASL_SSL", user=user) as broker:
        url = f"kafkas://{broker.at}/t?ca={authority.file}&cert={client[0]}&cert_key={client[1]}"
        for more in ("credentials=right", "credentials=scram&sasl=scram-sha-512"):
            with pytest.raises(OperationFailed, match="has no topic t"):  # it answers
                probe_source(parse_connector(f"{url}&{more}"), Number)
        reader = opened(f"{url}&credentials=wrong")
        until(lambda: reader.read(1, 0) and reader.connection_status(), SECONDS)
        assert f"not connected to {broker.at} for " in reader.connection_status()
        assert "authentication" in reader.connection_status().lower(), reader.connection_status()
        assert "guess" not in reader.connection_status()
        reader.close()
        for ca, cert, told in (
            (stranger, client, "certificate"),
            (authority, stranger.issue("nobody"), "tls|certificate|answer|closed"),
        ):
            other = f"kafkas://{broker.at}/t?ca={ca.file}&cert={cert[0]}&cert_key={cert[1]}&credentials=right"
            with pytest.raises(OperationFailed, match=rf"not connected to {broker.at} \(.*({told})"):
                probe_sink(parse_connector(other), Number, {})
