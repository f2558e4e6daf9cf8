"""Feeds on the disk: a batch is published whole and once, wherever its agent is killed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agiledart_kernel.errors import OperationFailed
from agiledart_sink_log import feed as feed_module
from agiledart_sink_log.feed import (
    Feed,
    FeedDescription,
    PublishedRange,
    SchemaMismatch,
    create_feed,
    feeds_in,
    remove_feed,
)
from agiledart_sink_log.feed_protocol import StagePart
from agiledart_sink_log.feed_stages import STAGE_SECONDS, FeedStages, StageLost, StagesFull, StageTooLarge
from agiledart_sink_log.layout import log_directory
from agiledart_sink_log.log_reader import LogReader
from agiledart_sink_log.log_writer import LogOptions, LogWriter

FIELDS = [
    {"name": "route", "type": "string", "nullable": False},
    {"name": "seconds", "type": "float", "nullable": True},
]
SCHEMA = msgspec.json.encode(FIELDS)
Rows = list[tuple[str, float]]


def packed(rows: Rows) -> bytes:
    return msgspec.msgpack.encode(rows)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    create_feed(tmp_path, FeedDescription("usual", "", 0, 1 << 20))
    return tmp_path


def stage(feed: Feed, batch: int, partition: int, rows: Rows, attempt: int = 0, query: str = "q") -> StagePart:
    half = len(rows) // 2
    for piece, part in enumerate((rows[:half], rows[half:])):
        feed.stage(query, batch, (partition, attempt), piece, SCHEMA, packed(part), len(part))
    return StagePart(partition, attempt, 2, len(rows))


def published_rows(root: Path) -> Rows:
    reader = LogReader(log_directory(root, "usual"))
    ends = reader.ends(0)
    batches, _, _ = reader.fetch(0, ends.first, 1_000_000, 8 << 20) if ends.committed > ends.first else ([], 0, 0)
    return [tuple(row) for batch in batches for row in msgspec.msgpack.decode(batch.body)]


def batch_rows(batch: int, partition: int) -> Rows:
    return [(f"{batch}/{partition}/{number}", float(number)) for number in range(5)]


def test_a_batch_is_published_in_the_order_of_its_partitions(root: Path) -> None:
    feed = Feed(root, "usual")
    parts = stage(feed, 0, 1, batch_rows(0, 1)), stage(feed, 0, 0, batch_rows(0, 0), attempt=3)
    stage(feed, 0, 0, batch_rows(9, 9), attempt=2)  # of a task that was killed
    assert feed.publish("q", 0, SCHEMA, parts) == (PublishedRange(0, 0, 10), False)
    assert published_rows(root) == [*batch_rows(0, 0), *batch_rows(0, 1)]
    assert feed.stages.staged_bytes == 0


def test_a_repeated_batch_gets_the_same_answer_and_adds_nothing(root: Path) -> None:
    feed = Feed(root, "usual")
    for batch in range(3):
        feed.publish("q", batch, SCHEMA, (stage(feed, batch, 0, batch_rows(batch, 0)),))
    other = feed.publish("other", 2, SCHEMA, (stage(feed, 2, 0, batch_rows(7, 0), query="other"),))
    for again in (feed, Feed(root, "usual")):
        assert again.publish("q", 2, SCHEMA, (stage(again, 2, 0, batch_rows(2, 0)),)) == (
            PublishedRange(2, 10, 15),
            True,
        )
        assert again.publish("q", 1, SCHEMA, ()) == (PublishedRange(1, 5, 10), True)
    assert other == (PublishedRange(2, 15, 20), False)
    assert len(published_rows(root)) == 20


def test_a_batch_without_rows_is_published_and_remembered(root: Path) -> None:
    feed = Feed(root, "usual")
    assert feed.publish("q", 0, SCHEMA, ()) == (PublishedRange(0, 0, 0), False)
    assert feed.publish("q", 0, SCHEMA, ()) == (PublishedRange(0, 0, 0), True)


DISK_CALLS = ("open", "write", "pwrite", "replace", "fsync", "fdatasync", "unlink", "ftruncate")


def published_in_a_process(feed: Feed, batch: int, parts: tuple[StagePart, ...], calls: int) -> bool:
    """Publish in a process that ends at once before its disk call number `calls`. Return whether it got to the end."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    left = [calls]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)
            return real(*arguments, **more)

        return call

    for name in DISK_CALLS:
        setattr(os, name, counted(getattr(os, name)))
    feed.publish("q", batch, SCHEMA, parts)
    os._exit(0)


def test_a_batch_is_published_once_wherever_its_agent_is_killed(root: Path) -> None:
    """After each kill the writer repeats the batch, as Spark does; readers see all its rows or none in between."""
    kills = 0
    for batch in range(200):
        feed = Feed(root, "usual")
        before = published_rows(root) if batch else []
        expected = [*batch_rows(batch, 0), *batch_rows(batch, 1)]
        parts = (stage(feed, batch, 0, batch_rows(batch, 0)), stage(feed, batch, 1, batch_rows(batch, 1)))
        if published_in_a_process(feed, batch, parts, calls=2 * batch):
            break
        kills += 1
        if (log_directory(root, "usual") / "log.json").exists():
            assert published_rows(root) in (before, [*before, *expected])
        again = Feed(root, "usual")
        parts = (stage(again, batch, 0, batch_rows(batch, 0), 1), stage(again, batch, 1, batch_rows(batch, 1), 1))
        answer, _ = again.publish("q", batch, SCHEMA, parts)
        assert (answer.first, answer.end) == (len(before), len(before) + 10)
        assert published_rows(root) == [*before, *expected]
    assert 20 < kills < 200


def test_rows_of_another_schema_are_refused_with_both_named(root: Path) -> None:
    feed = Feed(root, "usual")
    feed.publish("q", 0, SCHEMA, (stage(feed, 0, 0, batch_rows(0, 0)),))
    other = msgspec.json.encode([{"name": "route", "type": "int", "nullable": False}])
    with pytest.raises(SchemaMismatch, match=r"fields route: string, seconds: float; the rows have route: int"):
        feed.stage("q", 1, (0, 0), 0, other, msgspec.msgpack.encode([[1]]), 1)
    with pytest.raises(SchemaMismatch):
        feed.publish("q", 1, other, ())


@pytest.mark.parametrize(
    ("schema", "body", "rows"),
    [
        (SCHEMA, packed([("a", 1.0)]), 2),
        (SCHEMA, packed([("a", 1.0)])[:-1], 1),
        (SCHEMA, msgspec.msgpack.encode([["a", "text"]]), 1),
        (SCHEMA, msgspec.msgpack.encode([[None, 1.0]]), 1),
        (SCHEMA, msgspec.msgpack.encode([["a", 1.0, 2]]), 1),
        (b"[]", packed([]), 0),
        (b"{", packed([]), 0),
        (b'[{"name":"a","type":"colour","nullable":false}]', packed([]), 0),
        (b'[{"name":"a","type":{"list":{"nullable":true}},"nullable":false}]', packed([]), 0),
        (b'[{"name":"a","type":{"map":[]},"nullable":false}]', packed([]), 0),
        (b'[{"name":"a","type":{},"nullable":false}]', packed([]), 0),
        (b'[{"name":"a","type":{"struct":[3]},"nullable":false}]', packed([]), 0),
        (msgspec.json.encode([FIELDS[0], FIELDS[0]]), packed([]), 0),
    ],
)
def test_a_piece_that_does_not_fit_its_schema_is_not_staged(root: Path, schema: bytes, body: bytes, rows: int) -> None:
    feed = Feed(root, "usual")
    with pytest.raises(SchemaMismatch):
        feed.stage("q", 0, (0, 0), 0, schema, body, rows)
    assert feed.stages.staged_bytes == 0


def test_repeated_pieces_are_ignored_and_missing_ones_refused(tmp_path: Path) -> None:
    stages = FeedStages(tmp_path)
    stages.add("q", 0, (0, 0), 0, b"one", 1)
    stages.add("q", 0, (0, 0), 0, b"one", 1)
    stages.add("q", 0, (0, 0), 1, b"two", 2)
    with pytest.raises(StageLost):
        stages.add("q", 0, (0, 0), 3, b"four", 1)
    part = StagePart(0, 0, 2, 3)
    assert list(stages.pieces("q", 0, (part,))) == [(b"one", 1), (b"two", 2)]
    for wrong in (StagePart(0, 0, 2, 4), StagePart(0, 0, 3, 3), StagePart(1, 0, 1, 1), StagePart(0, 1, 1, 1)):
        with pytest.raises(StageLost):
            list(stages.pieces("q", 0, (wrong,)))


def test_a_torn_piece_is_cut_off_by_the_next_one(tmp_path: Path) -> None:
    FeedStages(tmp_path).add("q", 0, (0, 0), 0, b"one", 1)
    (path,) = (entry for entry in tmp_path.glob("*/*/*"))
    with open(path, "ab") as file:
        file.write(b"\0\0\0\1\0\0\0\5torn")
    stages = FeedStages(tmp_path)
    stages.add("q", 0, (0, 0), 1, b"two", 1)
    assert list(stages.pieces("q", 0, (StagePart(0, 0, 2, 2),))) == [(b"one", 1), (b"two", 1)]


def test_staged_bytes_are_bounded_and_room_returns(tmp_path: Path) -> None:
    stages = FeedStages(tmp_path, max_bytes=1_000)
    stages.add("a", 0, (0, 0), 0, b"x" * 600, 1)
    with pytest.raises(StagesFull, match="612 bytes"):
        stages.add("b", 0, (0, 0), 0, b"x" * 600, 1)
    with pytest.raises(StageTooLarge, match="maxRowsPerBatch"):
        stages.add("a", 0, (1, 0), 0, b"x" * 600, 1)
    stages.drop("a", 0)
    stages.add("b", 0, (0, 0), 0, b"x" * 600, 1)
    assert stages.staged_bytes == 612


def test_a_later_batch_drops_the_stages_of_earlier_ones(tmp_path: Path) -> None:
    stages = FeedStages(tmp_path)
    for batch in (4, 5):
        stages.add("q", batch, (0, 0), 0, b"rows", 1)
    stages.add("other", 1, (0, 0), 0, b"rows", 1)
    with pytest.raises(StageLost):
        list(stages.pieces("q", 4, (StagePart(0, 0, 1, 1),)))
    assert list(stages.pieces("q", 5, (StagePart(0, 0, 1, 1),))) == [(b"rows", 1)]
    assert list(stages.pieces("other", 1, (StagePart(0, 0, 1, 1),))) == [(b"rows", 1)]


def test_stages_without_news_for_a_day_expire(tmp_path: Path) -> None:
    stages = FeedStages(tmp_path)
    stages.add("q", 0, (0, 0), 0, b"rows", 1)
    changed = next(tmp_path.glob("*/*/*")).stat().st_mtime
    assert stages.expire(changed + STAGE_SECONDS - 1) == 0
    assert stages.expire(changed + STAGE_SECONDS + 1) == 1
    assert stages.staged_bytes == 0


def test_the_ledger_is_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "MAX_QUERIES", 2)
    monkeypatch.setattr(feed_module, "MAX_BATCHES", 2)
    feed = Feed(root, "usual")
    for batch in range(4):
        feed.publish("q", batch, SCHEMA, (stage(feed, batch, 0, batch_rows(batch, 0)),))
    assert feed.publish("q", 0, SCHEMA, ()) == (PublishedRange(0, 0, 0), True)  # older than what is remembered
    for query in ("a", "b"):
        feed.publish(query, 0, SCHEMA, ())
    assert set(msgspec.json.decode((root / "feeds/usual/published.json").read_bytes())["queries"]) == {"a", "b"}


def test_a_name_is_a_feed_or_a_log(root: Path) -> None:
    with pytest.raises(OperationFailed, match="already"):
        create_feed(root, FeedDescription("usual", "", 0, 1))
    LogWriter(root, "trips", LogOptions(), "int", [], "app", 1).close()
    with pytest.raises(OperationFailed, match="log of an application"):
        create_feed(root, FeedDescription("trips", "", 0, 1))


def test_a_removed_feed_leaves_nothing(root: Path) -> None:
    feed = Feed(root, "usual")
    feed.publish("q", 0, SCHEMA, (stage(feed, 0, 0, batch_rows(0, 0)),))
    stage(feed, 1, 0, batch_rows(1, 0))
    remove_feed(root, "usual")
    assert feeds_in(root) == []
    assert not [path for path in root.rglob("*") if path.is_file()]
