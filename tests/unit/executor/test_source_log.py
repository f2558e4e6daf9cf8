"""A source's records are in a log before they leave, and are judged again as they were: rows, numbers, promises."""

from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart import Topology, log
from agiledart_connectors.opening import open_source
from agiledart_dataflow.data.batch import Batch, as_rows, listed
from agiledart_dataflow.plan.connectors import Connector, Reading
from agiledart_dataflow.plan.delivery import Delivery
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.program import Program, compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_executor.checkpointing.source_rewind import followed_again, rewind_of_step
from agiledart_executor.spool.chunk_files import HEADER
from agiledart_executor.spool.logged_reader import LoggedReader
from agiledart_executor.spool.source_log import SourceLog
from agiledart_kernel.errors import BusyError, ConfigurationError, OperationFailed
from agiledart_recovery.survival import Rewind

MIB = 1 << 20
SECOND = 1_000_000_000


class Row(NamedTuple):
    at: int
    value: int


class Live:
    """Rows that come once; their sender is notified when they are safe."""

    stamps = False
    holds = False

    def __init__(self) -> None:
        self.coming: list[list[Row]] = []
        self.over = False
        self.handed_out = self.acknowledged = 0

    def read(self, _max_rows: int, _wall_ns: int) -> Reading:
        if not self.coming:
            return Reading([], 0, {}, self.over)
        rows = self.coming.pop(0)
        self.handed_out += len(rows)
        return Reading(rows, len(rows))

    def receipt(self) -> int:
        return self.handed_out

    def acknowledge(self, receipt: int) -> None:
        self.acknowledged = receipt

    def close(self) -> None: ...


def program(speed: str = "", **source: Any) -> Program:
    """Two sources that are merged by position, so that numbers travel."""
    made = Topology("rows")
    options = (("speed", speed),) if speed else ()
    one, other = (
        made.source(name, Connector("tcp", "127.0.0.1:9", options), rows=Row, event_time=lambda row: row.at, **source)
        for name in ("rows", "others")
    )
    one.union(other, name="both").sink("out", log("out"))
    return compile_program(made, plan_stages(made.specification()))


class Source:
    """A source with a log, in a folder that survives it."""

    def __init__(
        self,
        folder: Path,
        *,
        fresh: bool = False,
        max_bytes: int = 8 * MIB,
        moves: bool = False,
        reads_ahead: bool = False,
        **source: Any,
    ) -> None:
        self.live = Live()
        self.log = SourceLog(folder, max_bytes, fresh=fresh)
        self.reader = LoggedReader(self.live, self.log, Row, moves=moves, reads_ahead=reads_ahead)
        self.instance = SourceInstance(program(**source), 0, self.reader)

    def poll(self, seconds: float) -> Batch | None:
        now = int(seconds * SECOND)
        return self.instance.poll(now, now).batch

    def all(self, seconds: float) -> list[tuple[Any, Row]]:
        """Rows that leave during a saving."""
        out: list[tuple[Any, Row]] = []
        while (batch := self.poll(seconds)) is not None and len(batch):
            out += zip(listed(batch.order), as_rows(batch.held), strict=True)
        return out

    def come(self, *times: int) -> None:
        self.live.coming.append([Row(at, 7 * at % 11) for at in times])


def test_rows_sent_before_a_restart_come_again_with_the_same_numbers(tmp_path: Path) -> None:
    first = Source(tmp_path, fresh=True)
    first.come(1, 2)
    first.all(1)
    snapshot, position = first.instance.snapshot(), first.reader.position()
    first.come(3, 4)
    first.come(5)
    behind = first.all(2)
    assert [row.at for _, row in behind] == [3, 4, 5]
    first.reader.close()  # as a kill leaves it: nothing was forced to the disk, and the files are there

    again = Source(tmp_path)
    again.instance.restore(snapshot)
    again.reader.seek(position)
    again.come(6)
    came = again.all(9)
    assert came[: len(behind)] == behind
    assert [row.at for _, row in came[len(behind) :]] == [6]
    assert again.instance.lines == 6


def test_a_movable_source_continues_without_the_log_of_the_other_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Source(tmp_path / "here", fresh=True)
    first.come(1, 2)
    first.all(1)
    snapshot, position = first.instance.snapshot(), first.reader.position()
    first.come(3)
    first.all(2)
    first.reader.close()
    refused = Source(tmp_path / "there")
    with pytest.raises(OperationFailed, match="does not reach to where it was"):
        refused.reader.seek(position)
    refused.reader.close()

    there = Source(tmp_path / "there", moves=True)
    there.instance.restore(snapshot)
    there.reader.seek(position)
    assert "behind line 2" in capsys.readouterr().err, "3 is lost, which is said"
    assert (first.reader.lost_behind, there.reader.lost_behind) == (None, 2)
    there.come(4)
    assert [row.at for _, row in there.all(9)] == [4]
    moved, lines = there.reader.position(), there.instance.lines
    assert lines == 3
    there.reader.close()

    # It comes back to the first node: bytes there belong to another stretch, wherever its offsets are.
    snapshot = there.instance.snapshot()
    again = Source(tmp_path / "here", moves=True)
    again.instance.restore(snapshot)
    again.reader.seek(moved)
    again.come(5)
    assert [row.at for _, row in again.all(12)] == [5]


def test_a_blocked_source_with_a_speed_reads_ahead_at_that_speed(tmp_path: Path) -> None:
    """Else the whole file would be a backlog, and come as a flood once the outputs are free."""
    source = Source(tmp_path, fresh=True, reads_ahead=True, speed="1")

    def blocked(seconds: float) -> None:
        now = int(seconds * SECOND)
        while (again := source.instance.take_in(now, now)) is None or again <= now:
            pass

    for at in range(0, 10_000, 100):
        source.come(at)
    assert [row.at for _, row in source.all(1)] == [0], "the first row sets the pace"
    for seconds in (1.5, 2.5, 4):
        blocked(seconds)
        due = int((seconds - 1) * 10) + 1
        assert due <= source.instance.lines + source.reader.lines_ahead <= due + 1
    batch = source.poll(4)
    assert batch is not None
    assert [row.at for row in as_rows(batch.held)] == list(range(100, 3_001, 100)), (
        "all at once, though read one by one"
    )
    assert [row.at for _, row in source.all(4.5)] == list(range(3_100, 3_501, 100)), "replayed rows keep the pace"


def test_records_judged_late_are_late_again_after_a_restart(tmp_path: Path) -> None:
    """The second attempt's clock is hours ahead, and it reads without a pause: both would say something else."""
    told: dict[str, Any] = {"clock": "wall", "max_out_of_order": timedelta(seconds=2)}
    first = Source(tmp_path, fresh=True, **told)
    first.poll(10)
    snapshot, position = first.instance.snapshot(), first.reader.position()
    first.come(9_000, 8_500)
    out = first.all(10)
    first.come(10_000)
    for at in (12, 13, 14.5):
        out += first.all(at)
    first.come(11_000, 14_000, 12_800)  # the first of them is late by then
    for at in (14.6, 15, 18):
        out += first.all(at)
    assert [row.at for _, row in out] == [8_500, 9_000, 10_000, 12_800, 14_000]
    statistics = first.instance.statistics().source
    assert statistics is not None
    assert statistics.late == 1
    first.reader.close()

    again = Source(tmp_path, **told)
    again.instance.restore(snapshot)
    again.reader.seek(position)
    replayed: list[Any] = []
    while again.instance._clock.replays:
        replayed += again.all(20_000)
    replayed += again.all(20_000)
    assert replayed == out
    statistics = again.instance.statistics().source
    assert statistics is not None
    assert statistics.late == 1


def test_rows_are_sent_only_once_they_are_on_the_disk(tmp_path: Path) -> None:
    source = Source(tmp_path, fresh=True)
    due: list[int] = []
    source.reader.written = lambda: due.append(1)
    assert source.live.holds
    source.come(1, 2)
    source.come(3)
    source.all(1)
    assert (due, source.live.acknowledged) == ([1], 0)
    receipt = source.reader.sync()
    source.come(4)
    source.all(1)
    source.reader.synced(receipt)
    assert source.live.acknowledged == 3


def test_a_full_log_stops_reading_until_an_epoch_is_committed(tmp_path: Path) -> None:
    source = Source(tmp_path, fresh=True, max_bytes=MIB)
    sent = 0
    while source.log.has_space():
        source.come(*range(sent, sent + 700))
        sent += len(source.all(1))
    source.come(sent)
    assert source.all(1) == []
    assert len(source.live.coming) == 1
    assert "its log is full" in source.reader.connection_status()
    source.reader.trim(source.reader.position())
    assert len(source.all(1)) == 1
    assert source.reader.connection_status() == ""


def test_a_torn_tail_is_truncated_and_a_gap_is_refused(tmp_path: Path) -> None:
    log_file = SourceLog(tmp_path, MIB, fresh=True)
    log_file.append(b"whole", 1)
    at = log_file.end
    log_file.append(b"torn", 1)
    log_file.close()
    (path,) = tmp_path.glob("*.log")
    raw = path.read_bytes()
    for tail in (raw[:-1], raw[:-1] + b"?", raw[:at] + bytes(40), raw[:at] + HEADER.pack(1 << 30, 0, 0)):
        path.write_bytes(tail)
        opened = SourceLog(tmp_path, MIB)
        assert (opened.start, opened.end) == (0, at)
        assert opened.read(0) == (b"whole", at)
        opened.close()
    source = Source(tmp_path)
    with pytest.raises(OperationFailed, match="does not reach to where it was"):
        source.reader.seek(b"\x93\xcd\xff\xff\x00\xc4\x00")


def test_unneeded_files_are_removed_and_a_new_run_begins_with_none(tmp_path: Path) -> None:
    kept = SourceLog(tmp_path, MIB, fresh=True)
    offsets = []
    for number in range(12):
        offsets.append(kept.end)
        kept.append(bytes([number]) * 60_000, 1)
    kept.sync()
    files = len(list(tmp_path.glob("*.log")))
    kept.trim(offsets[7])
    assert len(list(tmp_path.glob("*.log"))) < files
    assert kept.read(offsets[7])[0] == bytes([7]) * 60_000
    kept.close()
    again = SourceLog(tmp_path, MIB)
    assert again.end == kept.end
    assert again.read(offsets[11])[0] == bytes([11]) * 60_000
    again.close()
    assert SourceLog(tmp_path, MIB, fresh=True).end == 0
    assert list(tmp_path.glob("*.log")) == []


def test_a_log_is_locked_by_one_process_and_released_with_it(tmp_path: Path) -> None:
    """The previous attempt's executor may still flush when the next one comes, of an agent that was killed for instance."""
    before = SourceLog(tmp_path, MIB, fresh=True)
    for fresh in (True, False):
        with pytest.raises(BusyError, match="is being written by another process"):
            SourceLog(tmp_path, MIB, fresh=fresh)
    before.append(b"still comes", 1)
    before.close()
    assert SourceLog(tmp_path, MIB).read(0)[0] == b"still comes"


@pytest.mark.parametrize(
    ("url", "source", "has_log"),
    [
        ("tcp", {}, True),
        ("mqtt", {}, True),
        ("csv", {}, False),
        ("csv", {"idle_timeout": timedelta(seconds=1)}, True),
    ],
)
def test_sources_that_need_a_log_have_one(url: str, source: dict[str, Any], has_log: bool) -> None:
    made = Topology("rows")
    made.source("rows", Connector(url, "there"), rows=Row, event_time=lambda row: row.at, **source).sink(
        "out", log("out")
    )
    step = compile_program(made, plan_stages(made.specification())).steps(0)[0]
    assert (rewind_of_step(step, Delivery.EXACTLY_ONCE) is Rewind.LOG) is has_log


def test_shed_rows_cannot_be_replayed() -> None:
    made = Topology("rows")
    shedding = Connector("tcp", "there:9", (("overload", "shed_oldest"),))
    made.source("rows", shedding, rows=Row, event_time=lambda row: row.at).sink("out", log("out"))
    with pytest.raises(ConfigurationError, match="rows that are shed cannot be read again"):
        rewind_of_step(compile_program(made, plan_stages(made.specification())).steps(0)[0], Delivery.EXACTLY_ONCE)


@pytest.mark.parametrize(
    ("url", "options", "source", "what"),
    [
        ("tcp", (), {}, Rewind.LOST),
        ("tcp", (("overload", "spool"),), {}, Rewind.LOG),
        ("tcp", (("overload", "shed_oldest"),), {}, Rewind.LOST),
        ("mqtt", (), {}, Rewind.LOST),
        ("mqtt", (("qos", "1"),), {}, Rewind.LOG),
        ("http", (("listen", "127.0.0.1:9"),), {}, Rewind.LOG),
        ("http", (), {}, Rewind.LOST),
        ("csv", (), {}, Rewind.AGAIN),
        ("csv", (), {"idle_timeout": timedelta(seconds=1)}, Rewind.AGAIN),
        ("csv", (("follow", "1"),), {}, Rewind.FOLLOWED),
        ("kafka", (), {}, Rewind.AGAIN),
    ],
)
def test_a_run_that_saves_less_logs_confirmed_rows_only(
    url: str, options: tuple[tuple[str, str], ...], source: dict[str, Any], what: Rewind
) -> None:
    made = Topology("rows")
    made.source("rows", Connector(url, "there", options), rows=Row, event_time=lambda row: row.at, **source).sink(
        "out", log("out")
    )
    step = compile_program(made, plan_stages(made.specification())).steps(0)[0]
    assert rewind_of_step(step, Delivery.SURVIVE, merges=False) is what
    logs_for_merges = {Rewind.LOST: Rewind.LOG} if "shed_oldest" not in dict(options).values() else {}
    if not source:
        assert rewind_of_step(step, Delivery.SURVIVE, merges=True) is logs_for_merges.get(what, what)


def test_standard_input_is_not_refused_by_a_run_that_saves_less() -> None:
    made = Topology("rows")
    made.source("rows", Connector("csv", "-"), rows=Row, event_time=lambda row: row.at).sink("out", log("out"))
    step = compile_program(made, plan_stages(made.specification())).steps(0)[0]
    assert rewind_of_step(step, Delivery.SURVIVE, merges=False) is Rewind.LOST
    with pytest.raises(ConfigurationError, match="standard input"):
        rewind_of_step(step, Delivery.AT_LEAST_ONCE)


@pytest.mark.parametrize(("before", "after", "first"), [(3, 5, 3), (3, 3, None), (3, 2, 0)])
def test_a_followed_file_goes_on_or_begins_again_after_it_was_rotated(
    tmp_path: Path, before: int, after: int, first: int | None
) -> None:
    """`first`: the line that is read first after the restart; None: there is none yet."""
    path = tmp_path / "grows.csv"
    path.write_text("".join(f"{n}\n" for n in range(after)))
    opened = [open_source(Connector("lines", str(path), (("follow", "1"),)), str) for _ in range(2)]
    reader = followed_again(opened[0], before, lambda: opened[1], lambda: 0)
    rows = list(reader.read(100, 0).rows)
    assert rows == ([] if first is None else [str(n) for n in range(first, after)])
