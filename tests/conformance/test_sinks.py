"""Requirements on every sink that keeps rows: order, visibility after a flush, closing twice, latencies, rows of none."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from agiledart import ReadTime
from agiledart_connectors.opening import open_sink
from agiledart_connectors.sink_origin import SinkOrigin
from agiledart_dataflow.plan.connectors import SinkWriter, parse_connector
from agiledart_sink_log.layout import log_directory
from agiledart_sink_log.log_reader import LogReader


class Row(NamedTuple):
    """A row with a latency."""

    number: int
    text: str
    read: ReadTime


@dataclass(frozen=True)
class Kept:
    """A sink, and how its rows' numbers are read back."""

    open: Callable[[], SinkWriter]
    numbers: Callable[[], list[int]]


@pytest.fixture(params=["csv", "jsonl", "log", "log?key"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    kind = str(request.param)
    if kind.startswith("log"):
        url = "log:here?partitions=1" + ("&key=text" if "key" in kind else "")
        origin = SinkOrigin("app", 1, tmp_path)

        def numbers() -> list[int]:
            reader = LogReader(log_directory(tmp_path, "here"))
            batches = reader.fetch(0, 0, 1_000_000, 8 << 20)[0]
            return [row[0] for batch in batches for row in msgspec.msgpack.decode(batch.body)]

        return Kept(lambda: open_sink(parse_connector(url), Row, time.time_ns, origin), numbers)
    path = tmp_path / "out"

    def number(line: str) -> int:
        return int(line.partition(",")[0]) if kind == "csv" else int(msgspec.json.decode(line)["number"])

    return Kept(
        lambda: open_sink(parse_connector(f"{kind}:{path}"), Row),
        lambda: [number(line) for line in path.read_text().splitlines()],
    )


def rows(first: int, count: int) -> list[Any]:
    return [Row(n, "x" * (n % 50), ReadTime(time.time_ns())) for n in range(first, first + count)]


def test_rows_stay_in_order_and_a_flush_makes_all_of_them_visible(kept: Kept) -> None:
    writer = kept.open()
    done = 0
    for count in (1, 0, 749, 750, 3, 2_500):
        writer.write(rows(done, count))
        done += count
        writer.flush()
        assert kept.numbers() == list(range(done))
    writer.flush()
    writer.close()
    assert kept.numbers() == list(range(done))
    assert writer.latency.samples == done


def test_closing_flushes_and_may_be_repeated(kept: Kept) -> None:
    writer = kept.open()
    writer.write(rows(0, 10))
    writer.close()
    writer.close()
    assert kept.numbers() == list(range(10))


def test_an_empty_sink_keeps_nothing(kept: Kept) -> None:
    writer = kept.open()
    writer.flush()
    writer.close()
    assert kept.numbers() == []
