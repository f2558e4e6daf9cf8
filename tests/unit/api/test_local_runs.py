"""A run in one process: pacing, Ctrl-C, several sources, errors with names."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart import (
    ConfigurationError,
    OperationFailed,
    ReadTime,
    Topology,
    UserCodeError,
    collect,
    csv,
    jsonl,
    mean_of,
    records,
    tumbling,
)
from agiledart_dataflow.counts.statistics import Summary
from agiledart_executor.local_runs import local_run
from agiledart_executor.local_runs.local_run import run_topology


class Row(NamedTuple):
    """A row."""

    at: int
    name: str


class Timed(NamedTuple):
    """A row that knows when it was read."""

    at: int
    read_at: ReadTime


def passing(connector: Any, sink: Any = collect, rows: Any = Row) -> Topology:
    """Source to sink."""
    topology = Topology("passing")
    topology.source("rows", connector, rows=rows, event_time=lambda row: row.at).sink("out", sink)
    return topology


def test_sources_are_merged_in_order_of_event_time() -> None:
    topology = Topology("two")
    left = topology.source("left", records([Row(i, "l") for i in range(0, 3_000, 2)]), event_time=lambda row: row.at)
    right = topology.source("right", records([Row(i, "r") for i in range(0, 3_000, 3)]), event_time=lambda row: row.at)
    left.union(right, name="both").sink("out", collect)
    run = run_topology(topology)
    assert [row.at for row in run.collected["out"]] == sorted(row.at for row in run.collected["out"])
    assert run.collected == run_topology(topology, schedule_seed=3).collected
    assert run.summary.records_in == 2_500


def test_a_source_far_ahead_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_run, "MAX_QUEUED_ROWS", 100)
    test_sources_are_merged_in_order_of_event_time()


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 10**9
        self.slept = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)
        self.slept += seconds

    def monotonic_ns(self) -> int:
        return self.now

    def time_ns(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1e9


def test_speed_paces_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = Clock()
    monkeypatch.setattr(local_run, "time", clock)
    path = tmp_path / "rows.csv"
    path.write_text("0,a\n10000,b\n20000,c\n")
    seen: list[Summary] = []
    run = run_topology(passing(csv(str(path), speed=10.0)), on_progress=seen.append)
    assert clock.slept == pytest.approx(2.0, abs=0.05)
    assert run.summary.paced
    assert len(run.collected["out"]) == 3
    assert 5 <= len(seen) <= 12


def test_ctrl_c_keeps_written_rows(tmp_path: Path) -> None:
    def rows() -> Any:
        yield from (Row(i, "x") for i in range(10_000))
        raise KeyboardInterrupt

    out = tmp_path / "out.jsonl"
    run = run_topology(passing(records(rows, row_type=Row), jsonl(str(out))))
    assert run.interrupted
    assert out.read_text().count("\n") == run.summary.results["out"] > 0


def test_an_input_that_cannot_be_opened_names_the_step(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match=r"^rows: .*missing\.csv cannot be read: no such file"):
        run_topology(passing(csv(str(tmp_path / "missing.csv"))))
    with pytest.raises(OperationFailed, match=r"^out: .* cannot be written"):
        run_topology(passing(records([Row(1, "a")]), csv(str(tmp_path / "no" / "out.csv"))))
    with pytest.raises(OperationFailed, match=r"^out: /dev/full cannot be written: no space"):
        run_topology(passing(records([Row(1, "a")]), csv("/dev/full")))


def test_latency_is_measured_from_reading_to_writing() -> None:
    run = run_topology(passing(records([Timed(i, ReadTime(0)) for i in range(5)]), rows=Timed))
    summary = run.summary.latency["out"]
    assert summary.samples == 5
    assert 0 < summary.p50 <= summary.p99 <= summary.largest < 10_000


def test_rows_without_a_read_time_have_no_latency() -> None:
    assert run_topology(passing(records([Row(1, "a")]))).summary.latency == {}


@pytest.mark.parametrize("seed", [None, 1])
def test_rows_that_do_not_match_their_type_are_reported_in_a_local_run(seed: int | None) -> None:
    topology = Topology("wrong")
    rows = topology.source("rows", records([Row(1, "a")]), event_time=lambda row: row.at)
    rows.map(lambda row: Row(row.at, 5), name="number", returns=Row).sink("out", collect)  # type: ignore[arg-type]
    with pytest.raises(
        UserCodeError, match=r"^test_local_runs\.py:\d+ in number: its rows are not Row\(.*Expected `str`"
    ):
        run_topology(topology, schedule_seed=seed)


@pytest.mark.parametrize("seed", [None, 1])
def test_a_batch_may_be_larger_than_a_frame(seed: int | None) -> None:
    """They travel in pieces, as on the mesh."""
    topology = Topology("large")
    rows = topology.source("rows", records([Row(i, "a") for i in range(20)]), event_time=lambda row: row.at)
    rows.map(lambda row: row.name * 300_000, name="m", returns=str).sink("out", collect)
    assert [len(row) for row in run_topology(topology, schedule_seed=seed).collected["out"]] == [300_000] * 20


@pytest.mark.parametrize("seed", [None, 1])
def test_a_row_larger_than_a_frame_is_reported(seed: int | None) -> None:
    topology = Topology("large")
    rows = topology.source("rows", records([Row(1, "a")]), event_time=lambda row: row.at)
    rows.map(lambda row: row.name * 5_000_000, name="m", returns=str).sink("out", collect)
    with pytest.raises(
        UserCodeError, match=r"^test_local_runs\.py:\d+ in m: one row has 5,000,0\d\d bytes; at most 4 MiB can travel$"
    ):
        run_topology(topology, schedule_seed=seed)


def joined(source: Path, *sinks: Any) -> Topology:
    """A source and its sinks."""
    topology = Topology("joined")
    rows = topology.source("trips", csv(str(source)), rows=Row, event_time=lambda row: row.at)
    for number, sink in enumerate(sinks):
        rows.sink(f"report{number}", sink)
    return topology


def test_a_result_never_replaces_its_input(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("1,a\n")
    (tmp_path / "symbolic").symlink_to(path)
    (tmp_path / "hard").hardlink_to(path)
    for sink in (csv(str(path)), jsonl(str(tmp_path / "symbolic")), csv(str(tmp_path / "hard"), at="pi2")):
        with pytest.raises(ConfigurationError) as error:
            run_topology(joined(path, csv(str(tmp_path / "other")), sink))
        assert str(error.value) == (f"report1 would overwrite what trips reads ({sink.url()}). Give it another file.")
    assert path.read_text() == "1,a\n"
    assert not (tmp_path / "other").exists()


def test_two_results_need_two_files(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("1,a\n")
    new, link = tmp_path / "new", tmp_path / "link"
    link.symlink_to(new)
    with pytest.raises(ConfigurationError, match=r"^report1 would write over what report0 writes \(jsonl:.*/link\)"):
        run_topology(joined(path, csv(str(new)), jsonl(str(link))))
    assert not new.exists()
    assert run_topology(joined(path, csv("/dev/null"), csv("/dev/null"))).summary.results == {
        "report0": 1,
        "report1": 1,
    }


def leave(*_: Any) -> Any:
    """Calls that user code must not make."""
    sys.exit()


def test_user_code_that_exits_is_named() -> None:
    def generated() -> Any:
        yield Row(1, "a")
        sys.exit(3)

    rows = records([Row(1, "a")])
    stepwise, keyed, counted = Topology("step"), Topology("key"), Topology("aggregate")
    stepwise.source("rows", rows, event_time=lambda row: row.at).map(leave, name="m", returns=str).sink("out", collect)
    stream = keyed.source("rows", rows, event_time=lambda row: row.at).key_by(leave, returns=str)
    stream.window(tumbling(timedelta(seconds=1))).count("n").sink("out", collect)
    stream = counted.source("rows", rows, event_time=lambda row: row.at).key_by(lambda row: row.name)
    panes = stream.window(tumbling(timedelta(seconds=1)))
    panes.aggregate("mean", mean_of(lambda row: float(leave(row)))).sink("out", collect)
    for topology, words in (
        (stepwise, r"^test_local_runs\.py:\d+ in m: SystemExit for record Row\("),
        (keyed, r"in key_by of n: SystemExit for record"),
        (counted, r"in mean: SystemExit for record"),
        (passing(records(generated, row_type=Row)), r"in rows: SystemExit: 3"),
        (passing(records(leave, row_type=Row)), r"in rows: SystemExit"),
    ):
        with pytest.raises(UserCodeError, match=words):
            run_topology(topology, parallelism=2)


@pytest.mark.slow
def test_results_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from agiledart import null, taxi; from agiledart.testing import run_local\n"
        "from agiledart import collect; from agiledart_examples.debs2015 import profitable_areas\n"
        "rows = run_local(profitable_areas(taxi(count=300), collect), parallelism=3)\n"
        "print(len(rows), [row._replace(delay=0) for row in rows])"
    )
    answers = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert answers[0] == answers[1]
    assert int(answers[0].split()[0]) > 20
