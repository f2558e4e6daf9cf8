"""Cost of reading or writing a record, by kind of source and sink: records per second, and CPU time per record in microseconds.

    python -m benchmarks.connectors                 a table
    python -m benchmarks.connectors -o json         lines of JSON
    python -m benchmarks.connectors --only mqtt     kinds whose names begin so

CPU time is that of this process with all its threads; broker, publisher and client are other processes. `lost` counts records that
were sent and did not arrive. The machine's load is printed with the figures: rates of a busy machine say little, CPU time more.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import select
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from agiledart_connectors.opening import open_sink, open_source
from agiledart_connectors.options import ReadOptions
from agiledart_dataflow.data.schema import Topic
from agiledart_dataflow.plan.connectors import Connector, parse_connector

TIMEOUT_S: Final = 60.0
PER_POST: Final = 100


class BenchReading(NamedTuple):
    """Row that the benchmark sends and receives."""

    at: int
    room: str
    celsius: float
    number: int | None


class BenchReadingWithTopic(NamedTuple):
    """The same row with the topic on which it arrived."""

    at: int
    room: str
    celsius: float
    number: int | None
    topic: Topic


class Figure(NamedTuple):
    """One line of the table of results."""

    kind: str
    records: int
    lost: int
    per_second: int
    cpu_us: float
    per_core: int
    """Records a second that a core would take that did nothing else."""

    load: float


def row(number: int) -> dict[str, Any]:
    """Return a typical reading with this number."""
    return {
        "at": 1_780_000_000_000 + number,
        "room": f"room-{number % 50}",
        "celsius": number % 400 / 10,
        "number": number,
    }


def measured(kind: str, count: int, work: Callable[[], int]) -> Figure:
    """Run `work` and return its cost; `work` returns the number of its records."""
    cpu, wall = time.process_time(), time.monotonic()
    done = work()
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    per = cpu / max(done, 1)
    return Figure(
        kind, done, count - done, round(done / wall), round(per * 1e6, 2), round(1 / max(per, 1e-9)), os.getloadavg()[0]
    )


def drained(reader: Any, count: int, max_rows: int = 1_000) -> int:
    """Read so many records, stopping early at the end of the input or when no record arrives for long."""
    done, deadline = 0, time.monotonic() + TIMEOUT_S
    while done < count and time.monotonic() < deadline:
        reading = reader.read(max_rows, 0)
        done += len(reading.rows)
        if reading.rows is not None and len(reading.rows):
            deadline = time.monotonic() + TIMEOUT_S
        elif reading.exhausted:
            break
        elif reading.drained:
            select.select([reader.fileno()], [], [], 0.5)
    return done


# ---- files


def files(folder: Path, count: int) -> Iterator[Figure]:
    """Measure JSON, CSV and Parquet files, as rows and as columns."""
    (folder / "r.jsonl").write_text("".join(json.dumps(row(i)) + "\n" for i in range(count)))
    (folder / "r.csv").write_text("".join(",".join(map(str, row(i).values())) + "\n" for i in range(count)))
    cases: list[tuple[str, str, Any, bool]] = [
        ("jsonl, NamedTuple", "jsonl:r.jsonl", BenchReading, False),
        ("jsonl, dict", "jsonl:r.jsonl", dict[str, Any], False),
        ("csv, rows", "csv:r.csv", BenchReading, False),
        ("csv, columns", "csv:r.csv", BenchReading, True),
    ]
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        print("without pyarrow: no Parquet", file=sys.stderr)
    else:
        pq.write_table(pa.Table.from_pylist([row(i) for i in range(count)]), folder / "r.parquet")
        cases += [
            ("parquet, rows", "parquet:r.parquet", BenchReading, False),
            ("parquet, columns", "parquet:r.parquet", BenchReading, True),
        ]
    for name, url, kind, columns in cases:
        connector = parse_connector(url.replace(":r.", f":{folder}/r."))

        def work(connector: Connector = connector, kind: Any = kind, columns: bool = columns) -> int:
            from agiledart_connectors.catalogue import SOURCES
            from agiledart_connectors.opening import named_function

            reader = named_function(SOURCES[connector.kind].opens)(connector, kind, ReadOptions(columns))
            done = drained(reader, count)
            reader.close()
            return done

        yield measured(name, count, work)


# ---- HTTP


def post(port: int, count: int, size: int) -> None:
    """Post rows as an HTTP client, so many per request; repeat a request until the answer is 202."""
    client = http.client.HTTPConnection("127.0.0.1", port)
    for start in range(0, count, size):
        rows = [row(i) for i in range(start, min(start + size, count))]
        body = json.dumps(rows if size > 1 else rows[0])
        while True:
            client.request("POST", "/in", body)
            answer = client.getresponse()
            answer.read()
            if answer.status == 202:
                break


def posted(folder: Path, count: int) -> Iterator[Figure]:
    """Measure rows that a client posts: many per request, and one per request."""
    for per_post, records in ((PER_POST, count), (1, count // 20)):
        reader: Any = open_source(parse_connector("http://:0/in?listen=1"), BenchReading)
        client = multiprocessing.get_context("spawn").Process(target=post, args=(reader.port, records, per_post))
        client.start()
        first = drained(reader, 1, 1)

        def work(reader: Any = reader, records: int = records, first: int = first) -> int:
            return first + drained(reader, records - first)

        yield measured(f"http, {per_post} a request", records, work)
        while client.is_alive():
            reader.read(10, 0)
            select.select([reader.fileno()], [], [], 0.05)
        client.join()
        reader.close()


# ---- MQTT


def publish(port: int, count: int, qos: int) -> None:
    """Publish rows as fast as the broker accepts them."""
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(20)
    client.connect("127.0.0.1", port)
    client.loop_start()
    for number in range(count):
        handle = client.publish(f"rooms/{number % 50}/t", json.dumps(row(number)), qos)
        if number % 1_000 == 999:
            handle.wait_for_publish(TIMEOUT_S)
    handle.wait_for_publish(TIMEOUT_S)
    client.disconnect()
    client.loop_stop()


@contextmanager
def broker(folder: Path) -> Iterator[int]:
    """Run a mosquitto broker; yield its port."""
    from tests.broker import Broker

    with Broker(folder) as running:
        yield running.port


def messages(folder: Path, count: int) -> Iterator[Figure]:
    """Measure JSON over MQTT: read messages queued at the broker as fast as they arrive, then write rows as messages."""
    from tests.broker import PROGRAM

    if PROGRAM is None:
        print("without mosquitto: no MQTT", file=sys.stderr)
        return
    context = multiprocessing.get_context("spawn")
    with broker(folder) as port:
        for qos, kind, name in (
            (1, BenchReading, "NamedTuple"),
            (1, dict[str, Any], "dict"),
            (1, BenchReadingWithTopic, "with Topic"),
            (2, BenchReading, "QoS 2"),
        ):
            url = f"mqtt://127.0.0.1:{port}/rooms/+/t?qos={qos}&session=s{qos}{name.replace(' ', '')}"
            reader: Any = open_source(parse_connector(url), kind)
            while reader.connection_status():
                select.select([reader.fileno()], [], [], 0.1)
                reader.read(1, 0)
            time.sleep(0.5)  # until it has subscribed
            reader.close()
            sender = context.Process(target=publish, args=(port, count, qos))
            sender.start()
            sender.join()
            reader = open_source(parse_connector(url), kind)
            first = drained(reader, 1, 1)

            def work(reader: Any = reader, first: int = first) -> int:
                return first + drained(reader, count - first)

            yield measured(f"mqtt QoS 1, {name}" if qos == 1 else "mqtt QoS 2, NamedTuple", count, work)
            reader.read(1, 0)
            reader.close()
        for qos in (0, 1):
            writer: Any = open_sink(parse_connector(f"mqtt://127.0.0.1:{port}/out?qos={qos}"), BenchReading)

            def write(writer: Any = writer) -> int:
                for start in range(0, count, 500):
                    while not writer.ready():
                        time.sleep(0.001)
                    writer.write([BenchReading(*row(i).values()) for i in range(start, min(start + 500, count))])
                writer.close()
                return count

            yield measured(f"mqtt sink, QoS {qos}", count, write)


# ---- Kafka


def topic(folder: Path, count: int) -> Iterator[Figure]:
    """Measure JSON over Kafka, three partitions: write keyed messages, then read them all as they arrive and in order of time."""
    from tests.kafka_broker import KafkaBroker, jars

    if jars() is None:
        print("without Kafka's jars: no Kafka", file=sys.stderr)
        return
    with KafkaBroker(folder, "auto.create.topics.enable=true", "num.partitions=3") as running:
        url = f"kafka://{running.at}/rooms"
        writer: Any = open_sink(parse_connector(f"{url}?key=room"), BenchReading)

        def write() -> int:
            for start in range(0, count, 500):
                while not writer.ready():
                    time.sleep(0.001)
                writer.write([BenchReading(*row(i).values()) for i in range(start, min(start + 500, count))])
            writer.close()
            return count

        yield measured("kafka sink", count, write)
        for name, options, kind in (
            ("NamedTuple", "", BenchReading),
            ("dict", "", dict[str, Any]),
            ("up to the end", "?to=end", BenchReading),
        ):
            reader: Any = open_source(parse_connector(url + options), kind)
            first = drained(reader, 1, 1)

            def work(reader: Any = reader, first: int = first) -> int:
                return first + drained(reader, count - first)

            yield measured(f"kafka, {name}", count, work)
            reader.close()


PARTS: Final[dict[str, tuple[Callable[[Path, int], Iterator[Figure]], int]]] = {
    "files": (files, 200_000),
    "http": (posted, 100_000),
    "mqtt": (messages, 50_000),
    "kafka": (topic, 200_000),
}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--only", default="", help="parts whose names begin so: " + ", ".join(PARTS))
    parser.add_argument("--scale", type=float, default=1.0, help="how many records, in parts of the usual")
    given = parser.parse_args()
    figures: list[Figure] = []
    for name, (part, count) in PARTS.items():
        if name.startswith(given.only):
            with tempfile.TemporaryDirectory() as folder:
                for figure in part(Path(folder), max(100, int(count * given.scale))):
                    figures.append(figure)
                    if given.output == "json":
                        print(json.dumps(figure._asdict()), flush=True)
    if given.output == "table":
        print("| | records | lost | records/s | CPU µs a record | records/s a core |\n|---|---|---|---|---|---|")
        for line in figures:
            print(
                f"| {line.kind} | {line.records:,} | {line.lost} | {line.per_second:,} | {line.cpu_us} | {line.per_core:,} |"
            )


if __name__ == "__main__":
    main()
