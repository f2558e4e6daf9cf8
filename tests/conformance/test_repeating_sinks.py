"""Sinks of a run with `delivery="at-least-once"`: rows are seen when they are flushed, and none is taken back after a failure."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from agiledart import Topology, records
from agiledart_connectors.catalogue import SINKS
from agiledart_connectors.files.text_writer import TruncatingTextWriter
from agiledart_connectors.opening import open_sink
from agiledart_connectors.sink_guarantees import is_idempotent
from agiledart_connectors.sink_origin import CommittedOutput, SinkOrigin
from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.plan.connector_abilities import TransactionalSink
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_dataflow.plan.delivery import Delivery
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.program import compile_program
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.programs import launchable
from agiledart_executor.programs.launchable import Launchable
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_sink_log.late_commit import commit_late
from agiledart_sink_log.layout import log_directory
from agiledart_sink_log.log_reader import LogReader


class Row(NamedTuple):
    number: int


def rows(first: int, last: int) -> list[Row]:
    return [Row(number) for number in range(first, last)]


class Kind(NamedTuple):
    """A sink of one kind, and the numbers of the rows that are seen."""

    url: str
    seen: Callable[[], list[int]]


@pytest.fixture(params=["csv", "jsonl", "log", "log?key"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    name = str(request.param)
    if name.startswith("log"):

        def logged() -> list[int]:
            reader = LogReader(log_directory(tmp_path, "here"))
            batches = reader.fetch(0, 0, 1_000_000, 8 << 20)[0]
            return [row[0] for batch in batches for row in msgspec.msgpack.decode(batch.body)]

        return Kind("log:here?partitions=1" + ("&key=number" if "key" in name else ""), logged)
    path = tmp_path / "out"

    def number(line: str) -> int:
        return int(line) if name == "csv" else int(msgspec.json.decode(line)["number"])

    return Kind(f"{name}:{path}", lambda: [number(line) for line in path.read_text().splitlines()])


def opened(kind: Kind, root: Path, keep: CommittedOutput | None, *, shows: bool = True) -> Any:
    origin = SinkOrigin("app", 1, root, 0.0, by_epoch=True, keep=keep, run=7, step="out", emits_at_once=shows)
    writer = open_sink(parse_connector(kind.url), Row, origin=origin)
    assert isinstance(writer, TransactionalSink)
    return writer


@pytest.mark.parametrize("shows", [True, False])
def test_rows_after_the_last_epoch_stay_and_are_duplicated(kind: Kind, tmp_path: Path, shows: bool) -> None:
    first = opened(kind, tmp_path, None, shows=shows)
    first.write(rows(0, 5))
    first.flush()
    if shows:
        assert kind.seen() == [0, 1, 2, 3, 4], "before any epoch"
    ends = first.prepare()
    first.commit(ends, 1)
    first.write(rows(5, 9))
    first.flush()
    if shows:
        assert kind.seen() == list(range(9))
    first.close()

    second = opened(kind, tmp_path, CommittedOutput(ends), shows=shows)
    assert kind.seen() == (list(range(9)) if shows else [0, 1, 2, 3, 4])
    second.write(rows(5, 12))
    second.flush()
    later = second.prepare()
    second.commit(later, 2)
    second.close()
    assert kind.seen() == ([*range(9), *range(5, 12)] if shows else list(range(12)))
    assert later > ends


def test_a_line_that_its_process_did_not_finish_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("0\n1\n2\n" + "3" * 70_000)
    kind = Kind(f"csv:{path}", list)
    writer = opened(kind, tmp_path, CommittedOutput((2,)))
    assert isinstance(writer, TruncatingTextWriter)
    writer.write(rows(3, 4))
    writer.prepare()
    assert path.read_text() == "0\n1\n2\n3\n"
    writer.close()
    with pytest.raises(OperationFailed, match="somebody has changed it"):
        opened(kind, tmp_path, CommittedOutput((1_000,)))


def test_a_new_run_truncates_its_file(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("an older run's\n")
    opened(Kind(f"csv:{path}", list), tmp_path, None).close()
    assert path.read_text() == ""


def launched(tmp_path: Path, url: str, delivery: Delivery, *, moves: bool = False) -> RunningInstance:
    made = Topology("repeats", delivery=delivery, on_sink_lost="move" if moves else "wait")
    connector = parse_connector(url.format(here=tmp_path))
    made.source("readings", records([Row(1)], row_type=Row)).sink("out", connector)
    plan = plan_stages(made.specification())
    (sink,) = (stage.index for stage in plan.stages if stage.kind == "sink")
    code = Launchable(compile_program(made, plan), plan, {}, "repeats", 1, run=7, delivery=delivery)
    return asyncio.run(code.open_instance(sink, 0, by_epoch=True))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchable, "_ROOT", tmp_path)


class Bare:
    """A sink that does nothing but write."""

    latency = LatencyHistogram()

    def write(self, rows: list[Any]) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("kind", [name for name in SINKS if name != "collect"])
def test_a_sink_that_cannot_abort_is_accepted_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(launchable, "open_sink", lambda connector, row_type, origin: Bare())
    running = launched(tmp_path, f"{kind}:anywhere", Delivery.AT_LEAST_ONCE)
    assert running.emitted_rows is not None, "duplicates are counted"
    running.close()
    with pytest.raises(ConfigurationError, match="cannot withdraw rows"):
        launched(tmp_path, f"{kind}:anywhere", Delivery.EXACTLY_ONCE)


@pytest.mark.parametrize(
    ("url", "delivery", "is_counted"),
    [
        ("log:x", Delivery.AT_LEAST_ONCE, True),
        ("csv:{here}/x.csv", Delivery.AT_LEAST_ONCE, True),
        ("stdout:", Delivery.AT_LEAST_ONCE, True),
        ("csv:{here}/x.csv?roll_bytes=1000000", Delivery.AT_LEAST_ONCE, False),
        ("log:x", Delivery.EXACTLY_ONCE, False),
        ("csv:{here}/x.csv", Delivery.EXACTLY_ONCE, False),
    ],
)
def test_rows_are_counted_when_some_may_be_duplicates(
    tmp_path: Path, url: str, delivery: Delivery, is_counted: bool
) -> None:
    running = launched(tmp_path, url, delivery)
    assert (running.emitted_rows is not None) == is_counted
    assert running.instance is not None
    running.report()
    running.close()


def test_an_idempotent_row_is_not_counted() -> None:
    kind = SINKS["sql"].guarantee
    assert is_idempotent(parse_connector("sql:plant?table=rows&key=number"), kind)
    assert not is_idempotent(parse_connector("sql:plant?table=rows"), kind)


def test_a_movable_log_aborts_rows(tmp_path: Path) -> None:
    """Its readers could not distinguish rows emitted by the lost node only from duplicates."""
    running = launched(tmp_path, "log:moves", Delivery.AT_LEAST_ONCE, moves=True)
    assert running.writer is not None
    running.writer.write(rows(0, 3))
    running.writer.flush()
    assert LogReader(log_directory(tmp_path, "moves")).ends(0).committed == 0
    assert running.emitted_rows is None
    running.close()


def test_an_ended_run_leaves_its_emitted_rows(tmp_path: Path) -> None:
    """However it ended: the register's word is the least that its readers see."""
    kind = Kind("log:here?partitions=1", list)
    writer = opened(kind, tmp_path, None)
    writer.write(rows(0, 5))
    ends = writer.prepare()
    writer.write(rows(5, 9))
    writer.flush()
    identity = writer.identity
    writer.close()
    assert commit_late(tmp_path, identity, "app", 1, ends, "it failed")
    reader = LogReader(log_directory(tmp_path, "here"))
    assert (reader.ends(0).committed, reader.description.ended) == (9, "it failed")


def test_rows_wait_while_the_disk_of_a_log_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = opened(Kind("log:here?partitions=1", list), tmp_path, None)
    write, is_full = os.write, [True]

    def full(descriptor: int, data: bytes) -> int:
        if is_full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    writer.write(rows(0, 5))
    writer.flush()
    writer.flush()
    with pytest.raises(OperationFailed, match="no space left"):
        writer.prepare()
    reader = LogReader(log_directory(tmp_path, "here"))
    assert reader.ends(0).committed == 0
    is_full[0] = False
    assert writer.prepare() == (5,)
    writer.flush()
    assert reader.ends(0).committed == 5
    writer.close()
