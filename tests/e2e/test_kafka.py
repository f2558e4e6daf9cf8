"""Messages of Kafka into a file, exactly once, while the broker, executors and the source's agent are killed with SIGKILL."""

import asyncio
import contextlib
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart_dataflow.plan.connectors import parse_connector
from tests.e2e.mesh import Mesh, cli, executors_of, mesh, wait_for
from tests.e2e.plug import pull_the_plug
from tests.kafka_broker import KafkaBroker, needs_kafka

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("kafka")]

CODE = """
from typing import Any, NamedTuple

from agiledart import Sink, Source, Topology


class Reading(NamedTuple):
    number: int
    celsius: float


def doubled(reading: Reading) -> Reading:
    return Reading(reading.number, reading.celsius * 2)


def numbers(readings: Source[Reading], report: Sink[Any]) -> Topology:
    topology = Topology("numbers", delivery="exactly-once")
    topology.source("readings", readings).map(doubled, name="doubled").sink("report", report)
    return topology
"""
PATIENCE = 240.0
PARTITIONS = 4


class Reading(NamedTuple):
    """A sent message."""

    number: int
    celsius: float


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "2")
        with mesh(3) as made:
            yield made


def topic(broker: KafkaBroker, name: str) -> None:
    """Make it."""
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    async def make() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.at)
        await admin.start()
        await admin.create_topics([NewTopic(name, PARTITIONS, 1)])
        await admin.close()

    asyncio.run(make())


def group_is_at(broker: KafkaBroker, group: str) -> int:
    """The sum of the group's committed offsets."""
    from aiokafka.admin import AIOKafkaAdminClient

    async def ask() -> int:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.at)
        await admin.start()
        try:
            return sum(one.offset for one in (await admin.list_consumer_group_offsets(group)).values())
        finally:
            await admin.close()

    return asyncio.run(ask())


def kill_an_executor(ring: Mesh) -> None:
    running = [pid for agent in ring.living() for pid in executors_of(agent)]
    if running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(random.choice(running), signal.SIGKILL)


@pytest.mark.parametrize(
    ("count", "kills"), [(20_000, 1), pytest.param(400_000, 6, marks=[pytest.mark.soak, pytest.mark.timeout(1_800)])]
)
def test_each_message_is_in_the_file_once(ring: Mesh, tmp_path: Path, count: int, kills: int) -> None:
    needs_kafka()
    from agiledart_connectors.opening import open_sink

    out, state_dir = tmp_path / "out.csv", str(ring.agents[0].state_dir)
    (tmp_path / "plant.py").write_text(CODE)

    def status() -> Any:
        return json.loads(cli("status", "numbers", "--agent", state_dir, "-o", "json").stdout)

    def lines() -> list[str]:
        return out.read_text().splitlines() if out.exists() else []

    with KafkaBroker(tmp_path) as broker:
        topic(broker, "numbers")

        def begin_again() -> None:
            broker.kill()
            broker.start()

        def plug() -> None:
            agent = ring.agent("a2")
            pull_the_plug(agent)
            agent.start()
            agent.ready()

        ways: list[Callable[[], None]] = [lambda: kill_an_executor(ring), begin_again, plug]
        submit = (
            "submit", "plant.py:numbers", "--set", f"readings=kafka://{broker.at}/numbers?group=plant@a2", "--set",
            f"report=csv:{out}@a3", "--agent", state_dir,
        )  # fmt: skip
        tried = cli(*submit, "--dry-run", cwd=tmp_path)
        assert f"connected, {PARTITIONS} partitions" in tried.stdout, tried.stdout + tried.stderr
        told = cli(*submit, cwd=tmp_path)
        assert told.returncode == 0, told.stderr
        moments = sorted(random.Random(21).sample(range(count // 20, count, 500), len(ways) * kills))
        writer: Any = open_sink(parse_connector(f"kafka://{broker.at}/numbers"), Reading)
        for start in range(0, count, 500):
            while moments and moments[0] < start:
                moments.pop(0)
                wait_for(lambda: lines(), PATIENCE, "rows arrive")
                ways[len(moments) % len(ways)]()
            wait_for(writer.ready, PATIENCE, "the broker takes rows")
            writer.write([Reading(number, number / 2) for number in range(start, start + 500)])
        writer.close()
        try:
            wait_for(lambda: len(lines()) >= count, PATIENCE, "all rows in the file")
            wait_for(
                lambda: group_is_at(broker, "plant") == count, PATIENCE, "the offset of the last epoch is committed"
            )
        except AssertionError:
            raise AssertionError(f"{len(lines()):,} of {count:,}: {json.dumps(status())[:3_000]}") from None
        assert any("restarted, attempt" in entry["text"] for entry in status()["history"]), "nothing was killed in time"
    wait_for(
        lambda: "not connected to 127.0.0.1" in json.dumps(status()["stages"][0]),
        60,
        "status says that the broker is gone",
    )
    cli("stop", "numbers", "--agent", state_dir)
    assert sorted(int(line.split(",")[0]) for line in lines()) == list(range(count)), "each once"


@pytest.mark.soak
def test_messages_of_a_sink_are_complete_and_duplicates_share_one_id(ring: Mesh, tmp_path: Path) -> None:
    needs_kafka()
    count = 20_000
    (tmp_path / "plant.py").write_text(CODE)
    rows = (json.dumps({"number": number, "celsius": number / 2}) for number in range(count))
    (tmp_path / "in.jsonl").write_text("".join(f"{row}\n" for row in rows))
    state_dir = str(ring.agents[0].state_dir)

    def state() -> str:
        return str(json.loads(cli("status", "numbers", "--agent", state_dir, "-o", "json").stdout)["state"])

    with KafkaBroker(tmp_path) as broker:
        topic(broker, "report")
        told = cli(
            "submit", "plant.py:numbers", "--set", f"readings=jsonl:{tmp_path}/in.jsonl@a2", "--set",
            f"report=kafka://{broker.at}/report?key=number&duplicates=1&batch=100@a3", "--agent", state_dir, cwd=tmp_path,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        for part in (0.1, 0.3, 0.6):
            wait_for(partial(has_so_many, broker, "report", int(part * count)), PATIENCE, "messages arrive")
            for pid in executors_of(ring.agent("a3")):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if part == 0.3:
                broker.kill()
                broker.start()
        wait_for(lambda: state() == "finished", PATIENCE, "it ends")
        found = messages(broker, "report")
    assert {json.loads(value)["number"] for _, value in found} == set(range(count)), "none is lost"
    values: dict[bytes, bytes] = {}
    for name, value in found:
        assert values.setdefault(name, value) == value, "no two rows have one name"
    assert len(values) == count, "a row that came twice has one name"
    assert len(found) > count, "nothing came twice: the kills proved nothing"


def has_so_many(broker: KafkaBroker, name: str, count: int) -> bool:
    return sum(ends(broker, name).values()) >= count


def ends(broker: KafkaBroker, name: str) -> dict[Any, int]:
    """The ends of a topic's partitions."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def ask() -> dict[Any, int]:
        async with AIOKafkaConsumer(bootstrap_servers=broker.at) as consumer:
            of = [TopicPartition(name, number) for number in range(PARTITIONS)]
            consumer.assign(of)
            return dict(await consumer.end_offsets(of))

    return asyncio.run(ask())


def messages(broker: KafkaBroker, name: str) -> list[tuple[bytes, bytes]]:
    """(name of the row, value) of all that a topic has."""
    from aiokafka import AIOKafkaConsumer

    to = ends(broker, name)

    async def read() -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        async with AIOKafkaConsumer(bootstrap_servers=broker.at, auto_offset_reset="earliest") as consumer:
            consumer.assign(list(to))
            while len(found) < sum(to.values()):
                for some in (await consumer.getmany(timeout_ms=1_000)).values():
                    found += [(dict(one.headers)["row-id"], one.value) for one in some]
        return found

    return asyncio.run(read())
