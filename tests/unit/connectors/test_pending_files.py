"""Rolled files of runs that are saved by epochs: whatever ends such a run where, each row is in one whole file, once."""

import os
import random
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart_connectors.files import parquet_writer
from agiledart_connectors.opening import open_sink, open_source
from agiledart_connectors.sink_origin import CommittedOutput, SinkOrigin
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_kernel.errors import BusyError, OperationFailed
from tests.unit.connectors.reading import taken

KINDS = ("csv", "jsonl", "parquet")
RUN = 0xABC


class Row(NamedTuple):
    """A row; `value` is sometimes left out, so that batches differ."""

    n: int
    value: int | None


def row(number: int) -> Row:
    return Row(number, None if number % 300 < 150 else 7 * number)


def opened(
    folder: Path,
    kind: str,
    keep: CommittedOutput | None = None,
    run: int = RUN,
    options: str = "?roll_bytes=4KiB",
    step: str = "out",
) -> Any:
    url = parse_connector(f"{kind}:{folder}/out.{kind}{options}" + ("&null=" if kind == "csv" else ""))
    return open_sink(url, Row, origin=SinkOrigin(by_epoch=True, keep=keep, run=run, step=step))


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def final(folder: Path) -> list[Row]:
    """The rows of all files that have their names; none of them is torn."""
    rows: list[Row] = []
    for name in names(folder):
        if not name.endswith(".part"):
            path = folder / name
            rows += taken(open_source(parse_connector(f"{path.suffix[1:]}:{path}"), Row)).rows
    return rows


class Run:
    """A run that writes the rows 0, 1, … and is restarted."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind
        self.sink = opened(folder, kind)
        self.number = 0
        self.committed = (self.sink.prepare(), 0)
        self.prepared: list[tuple[Any, int]] = []

    def write(self, count: int) -> None:
        self.sink.write([row(n) for n in range(self.number, self.number + count)])
        self.number += count

    def prepare(self) -> None:
        self.prepared.append((self.sink.prepare(), self.number))

    def commit(self, *, is_told: bool = True) -> None:
        """In the register; `is_told`: the sink is notified of it."""
        if self.prepared:
            self.committed = self.prepared.pop()
            self.prepared.clear()
            if is_told:
                self.sink.commit(self.committed[0], 1)

    def crash(self) -> None:
        """State after a kill -9: partial writes, stale locks."""
        sink = self.sink
        for name in ("_raw", "_journal"):
            file = getattr(sink, name, None)
            if file is not None:
                file.close()
        if getattr(sink, "_writer", None) is not None:
            sink._writer.is_open = False
        self.sink = opened(self.folder, self.kind, CommittedOutput(self.committed[0]))
        self.number, self.prepared = self.committed[1], []

    def end(self) -> None:
        self.sink.at_end_of_input()
        self.prepare()
        self.commit()
        self.sink.close()
        self.sink.close()


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_writer, "GROUP_ROWS", 100)


@pytest.fixture
def full_at() -> Iterator[Any]:
    """Makes files of this process end at a size, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_renamed_with_its_epoch_and_not_before(tmp_path: Path, kind: str) -> None:
    run = Run(tmp_path, kind)
    while len(names(tmp_path)) < (5 if kind == "parquet" else 3):  # parquet: rows beside each
        run.write(50)
        run.sink.flush()
        assert all(name.endswith(".part") for name in names(tmp_path)), "whole ones wait"
    assert final(tmp_path) == []
    run.prepare()
    assert final(tmp_path) == [], "prepared is not committed"
    run.commit()
    first = final(tmp_path)
    assert first == [row(n) for n in range(len(first))]
    assert first
    run.end()
    assert final(tmp_path) == [row(n) for n in range(run.number)]
    assert not [name for name in names(tmp_path) if name.endswith(".part")]
    assert names(tmp_path)[0] == f"out-00001.{kind}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_a_crash_at_any_point_leaves_each_row_once(tmp_path: Path, kind: str, seed: int) -> None:
    draw = random.Random(seed)
    run = Run(tmp_path, kind)
    seen: list[Row] = []
    for _ in range(120):
        way: Callable[[], None] = draw.choice(
            [
                lambda: run.write(draw.randrange(1, 130)),
                lambda: run.write(draw.randrange(1, 40)),
                lambda: run.sink.flush(),
                run.prepare,
                run.commit,
                lambda: run.commit(is_told=False),
                *([run.crash] if draw.random() < 0.4 else []),
            ]
        )
        way()
        found = final(tmp_path)
        assert found[: len(seen)] == seen, "rows seen before stay"
        assert len(found) <= run.committed[1], "nothing is seen that may be taken back"
        seen = found
    run.end()
    assert final(tmp_path) == [row(n) for n in range(run.number)]
    assert not [name for name in names(tmp_path) if name.endswith(".part")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_after_the_end_assigns_the_last_names(tmp_path: Path, kind: str) -> None:
    """In a run that goes on, as other sources have not ended. One that has finished: `test_ended_sink_files.py` of the agent."""
    run = Run(tmp_path, kind)
    run.write(10)
    run.sink.at_end_of_input()
    run.prepare()
    run.commit(is_told=False)
    assert final(tmp_path) == []
    run.crash()
    assert final(tmp_path) == [row(n) for n in range(10)]
    run.sink.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_abandons_the_epoch_and_loses_nothing(tmp_path: Path, kind: str, full_at: Any) -> None:
    run = Run(tmp_path, kind)
    run.write(40)
    run.prepare()
    run.commit()
    full_at(200)
    for _ in range(3):
        run.write(60)
        run.sink.flush()
        with pytest.raises(OperationFailed, match=r"cannot be written: file too large"):
            run.prepare()
    full_at(1 << 20)
    run.prepare()
    run.commit()
    run.crash()
    assert run.number == 220
    run.write(30)
    run.end()
    assert final(tmp_path) == [row(n) for n in range(250)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_pending_file_is_rolled_by_age_even_without_new_rows(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0
    monkeypatch.setattr("time.monotonic_ns", lambda: now)
    sink = opened(tmp_path, kind, options="?roll_age=1m")
    sink.write([row(1)])
    sink.flush()
    assert sink.prepare()[0] == 1
    now += 60_000_000_000
    sink.flush()
    assert sink.prepare() == (2, 0)
    sink.commit((2, 0), 1)
    assert names(tmp_path) == [f"out-00001.{kind}"]
    sink.close()


@pytest.mark.parametrize("kind", KINDS)
def test_foreign_files_are_not_touched(tmp_path: Path, kind: str) -> None:
    (tmp_path / f"out-00004.{kind}").write_text("")
    (tmp_path / f"out-00006.{kind}.00000000000000ff.part").write_text("another run's")
    mine = tmp_path / f"out-00009.{kind}.{RUN:016x}.out.part"
    mine.write_text("of a life of which nothing is known")
    (tmp_path / f"other-00001.{kind}").write_text("")
    run = Run(tmp_path, kind)
    assert not mine.exists()
    run.write(5)
    run.end()
    assert names(tmp_path) == [
        f"other-00001.{kind}",
        f"out-00004.{kind}",
        f"out-00006.{kind}.00000000000000ff.part",
        f"out-00007.{kind}",
    ]


def test_a_name_taken_by_a_foreign_file_is_reported(tmp_path: Path) -> None:
    run = Run(tmp_path, "csv")
    run.write(5)
    run.sink.flush()
    (tmp_path / "out-00001.csv").write_text("mine\n")
    run.sink.at_end_of_input()
    run.prepare()
    with pytest.raises(OperationFailed, match=r"out-00001\.csv exists: another program writes files of this name"):
        run.commit()
    assert (tmp_path / "out-00001.csv").read_text() == "mine\n"
    run.sink.close()


@pytest.mark.parametrize(("kind", "ending"), [("jsonl", ""), ("parquet", ".rows")])
def test_a_changed_or_open_file_is_not_continued(tmp_path: Path, kind: str, ending: str) -> None:
    run = Run(tmp_path, kind)
    run.write(10)
    run.prepare()
    run.commit()
    with pytest.raises(BusyError, match="is being written by another process"):
        opened(tmp_path, kind, CommittedOutput(run.committed[0]))
    run.sink.close()
    os.truncate(tmp_path / f"out-00001.{kind}.{RUN:016x}.out{ending}.part", 3)
    with pytest.raises(OperationFailed, match=r"has 3 bytes, and .* were committed: somebody has changed it"):
        opened(tmp_path, kind, CommittedOutput(run.committed[0]))


def test_one_parquet_file_is_written_without_rolling(tmp_path: Path) -> None:
    for count in (0, 250):
        sink = opened(tmp_path, "parquet", options="")
        sink.prepare()
        sink.write([row(n) for n in range(count)])
        ends = sink.prepare()
        sink.close()
        sink = opened(tmp_path, "parquet", CommittedOutput(ends), options="")
        sink.at_end_of_input()
        sink.commit(sink.prepare(), 2)
        sink.close()
        assert names(tmp_path) == ["out.parquet"]
        assert final(tmp_path) == [row(n) for n in range(count)]


@pytest.mark.parametrize("there", ["out.parquet", f"out.parquet.{RUN:016x}.out.rows.part"])
def test_one_parquet_file_is_not_overwritten_by_the_continuing_run(tmp_path: Path, there: str) -> None:
    url, origin = (
        parse_connector(f"parquet:{tmp_path}/out.parquet"),
        SinkOrigin(by_epoch=True, run=1, continues_run=True),
    )
    open_sink(url, Row, origin=origin).close()
    (tmp_path / there).touch()
    with pytest.raises(
        OperationFailed, match=r"cannot be gone on with: give the sink roll_bytes= or roll_age=, or another"
    ):
        open_sink(url, Row, origin=origin)
    open_sink(parse_connector(f"{url.url()}?roll_age=1h"), Row, origin=origin).close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("others", [{"run": RUN + 1}, {"step": "out.2"}], ids=["another run", "another sink"])
def test_writers_of_one_path_take_each_number_once(tmp_path: Path, kind: str, others: dict[str, Any]) -> None:
    """Both are opened before either has a file."""
    sinks = [opened(tmp_path, kind), opened(tmp_path, kind, **others)]
    number, ends = 0, [sink.prepare() for sink in sinks]
    for _ in range(6):
        for place, sink in enumerate(sinks):
            sink.write([row(n) for n in range(number, number + 90)])
            number += 90
            sink.flush()
            ends[place] = sink.prepare()
    sinks[1].close()
    sinks[1] = opened(tmp_path, kind, CommittedOutput(ends[1]), **others)
    for sink in sinks:
        sink.at_end_of_input()
        sink.commit(sink.prepare(), 1)
        sink.close()
    assert sorted(final(tmp_path)) == sorted(row(n) for n in range(number))
    assert not [name for name in names(tmp_path) if name.endswith(".part")]


def test_two_writers_that_take_a_number_at_once_both_advance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rival = tmp_path / f"out-00001.csv.{RUN + 1:016x}.out.part"
    run = Run(tmp_path, "csv")
    made = os.open

    def open_both(path: Any, flags: int, *more: Any) -> int:
        if flags & os.O_EXCL and not rival.exists():
            rival.touch()  # behind the look at what is there
        return made(path, flags, *more)

    monkeypatch.setattr(os, "open", open_both)
    run.write(5)
    run.sink.flush()
    assert names(tmp_path) == [rival.name, f"out-00002.csv.{RUN:016x}.out.part"]
    run.end()
    assert names(tmp_path) == [rival.name, "out-00002.csv"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_removed_complete_file_is_reported(tmp_path: Path, kind: str) -> None:
    run = Run(tmp_path, kind)
    run.write(5)
    run.sink.at_end_of_input()
    run.prepare()
    (tmp_path / f"out-00001.{kind}.{RUN:016x}.out.part").unlink()
    for _ in range(2):
        with pytest.raises(
            OperationFailed, match=r"\.out\.part is gone, and its rows with it: another program has removed it"
        ):
            run.sink.commit(run.prepared[-1][0], 1)
    run.sink.close()
