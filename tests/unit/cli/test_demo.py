"""The demo's parts that need no agents: input checks, figures, the live picture, the report."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from agiledart_cli.demo.demo import check_input, check_plug, result_folder, source_text
from agiledart_cli.demo.demo_report import FREQUENT, PROFITABLE, DemoResult, memory_line, print_report
from agiledart_cli.demo.demo_view import DemoView, Picture, Rates, areas, drawn, last_result, routes
from agiledart_cli.processes import MemoryWatch, children_of, peak_memory_mb
from agiledart_kernel.errors import ConfigurationError


def _status(read: int, results: int, *, paced: bool = True) -> dict[str, Any]:
    return {
        "state": "finished",
        "placement": {"trips": ["a1"], "count": ["a2", "a3"]},
        "seconds_to_running": 0.5,
        "stages": [{"name": "count", "instances": [{"queued_rows": 3}, {"queued_rows": 4}]}],
        "summary": {
            "records_in": read,
            "malformed": {"number": 2, "time": 1},
            "late": 4,
            "outliers": 10,
            "paced": paced,
            "results": {"report": results},
            "latency_ms": {"report": {"samples": 9, "p50": 1.5, "p95": 2.5, "p99": 3.5, "largest": 4.0}},
            "steps": {
                "trips": {"rows_in": read, "rows_out": read, "dropped": 0},
                "count": {"rows_in": 50, "rows_out": 5, "dropped": 0},
            },
        },
    }


@pytest.fixture
def result(tmp_path: Path) -> DemoResult:
    found = DemoResult(5, 1, 1, "trips.csv", tmp_path, {FREQUENT: _status(1000, 20), PROFITABLE: _status(1000, 30)})
    found.seconds = {"wall": 12.0, "ring": 1.0, "flow": 4.0}
    found.memory = {"a1": 44.2, "a2": 51.9, "a1/executor-1": 31.0}
    return found


def test_the_json_object_has_the_documented_fields(result: DemoResult) -> None:
    body = result.document()
    assert body["agents"] == 5
    assert body["records_in"] == 1000
    assert body["malformed"] == {"number": 2, "time": 1}
    assert body["late"] == 4
    assert body["outliers"] == {FREQUENT: 10, PROFITABLE: 10}
    assert body["results"] == {FREQUENT: 20, PROFITABLE: 30}
    assert body["latency_ms"][FREQUENT] == {"p50": 1.5, "p95": 2.5, "p99": 3.5}
    assert body["paced"] is True
    assert body["placement"][f"{FREQUENT}/count"] == ["a2", "a3"]
    assert body["wall_seconds"] == 12.0
    assert body["rss_mb"]["a1/executor-1"] == 31.0


def test_the_report_adds_up(result: DemoResult, capsys: pytest.CaptureFixture[str]) -> None:
    print_report(result)
    text = capsys.readouterr().out
    assert "1,000 trips read = 983 counted + 10 outside the grid + 4 late + 3 malformed" in text
    assert "latency p50 1.5 ms" in text
    assert "agents 44–52 MB, executors 31 MB" in text
    assert "(250 + 250 trips/s of frequent-routes + profitable-areas)" in text
    assert "for itself" not in text
    result.status = {FREQUENT: _status(1000, 20), PROFITABLE: _status(800, 30)}
    print_report(result)
    text = capsys.readouterr().out
    assert "(250 + 200 trips/s of frequent-routes + profitable-areas)" in text
    assert "each query reads its own copy of the stream" in text


def test_an_unpaced_run_reports_a_backlog(result: DemoResult, capsys: pytest.CaptureFixture[str]) -> None:
    result.status = {FREQUENT: _status(10, 1, paced=False), PROFITABLE: _status(10, 1, paced=False)}
    assert result.document()["paced"] is False
    print_report(result)
    assert "backlog (the input was not paced) p50" in capsys.readouterr().out


def test_unknown_memory_is_reported() -> None:
    assert memory_line({}) == "peak memory: unknown"


def test_an_input_is_checked_before_anything_starts(tmp_path: Path) -> None:
    for name, text in (("nothing.csv", "does not exist"), (".", "is a folder")):
        with pytest.raises(ConfigurationError, match=text):
            check_input(tmp_path / name, name)
    bad = tmp_path / "bad.csv.gz"
    for content in (b"no gzip", b"", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\xff\xff"):
        bad.write_bytes(content)
        with pytest.raises(ConfigurationError, match="is not a gzip file"):
            check_input(bad, "bad.csv.gz")
    bad.write_bytes(gzip.compress(b"a,b\n"))
    check_input(bad, "bad.csv.gz")


def test_the_source_is_paced_only_when_it_should_be(tmp_path: Path) -> None:
    file = tmp_path / "a b.csv"
    file.write_text("")
    assert source_text(None, None, 7) == "taxi:?seed=7&speed=600"
    assert source_text(str(file), None, 7) == f"csv:{tmp_path}/a b.csv"
    assert source_text(str(file), 60.0, 7) == f"csv:{tmp_path}/a b.csv?speed=60"


def test_old_results_are_removed(tmp_path: Path) -> None:
    old = tmp_path / "deep" / "results"
    old.mkdir(parents=True)
    (old / f"{FREQUENT}.csv").write_text("old\n")
    (old / "notes.txt").write_text("mine\n")
    assert [path.name for path in sorted(result_folder(str(old)).iterdir())] == ["notes.txt"]
    with pytest.raises(ConfigurationError, match="cannot be used"):
        result_folder(str(old / "notes.txt"))


def test_the_last_complete_line_is_displayed(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    assert last_result(file) == []
    file.write_text("half a li")
    assert last_result(file) == []
    file.write_text("1,2\n3,4\n5,")
    assert last_result(file) == ["3", "4"]
    file.write_text("x" * 5000 + "\n")
    assert last_result(file) == []


def test_result_lines_are_readable() -> None:
    first = ["2013-01-01 00:00:00", "2013-01-01 00:02:00", "1.2", "3.4", "NULL", "NULL", "1.5"]
    assert routes(first) == ["1.2 → 3.4", ""]
    second = [
        "t",
        "t",
        "312.321",
        "1",
        "11.4",
        "11.4",
        "309.333",
        "2",
        "19.5",
        "9.75",
        "NULL",
        "NULL",
        "NULL",
        "NULL",
        "2",
    ]
    assert areas(second) == ["312.321  $11.40  ($11.40, 1 empty taxi)", "309.333  $9.75  ($19.50, 2 empty taxis)", ""]


def test_rates_are_differences_of_sums() -> None:
    rates = Rates()
    rates.look(10.0, {FREQUENT: _status(1000, 1), PROFITABLE: _status(500, 1)})
    assert rates.stages == {}
    rates.look(10.5, {FREQUENT: _status(9999, 1), PROFITABLE: _status(500, 1)})
    assert rates.stages == {}
    rates.look(12.0, {FREQUENT: _status(2000, 1), PROFITABLE: _status(700, 1)})
    assert rates.stages[FREQUENT, "trips"] == 500.0
    assert rates.stages[PROFITABLE, "trips"] == 100.0


def test_the_picture_can_be_drawn_from_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    empty = Picture(
        {FREQUENT: {"state": "running"}, PROFITABLE: {"state": "running"}}, {}, {FREQUENT: [], PROFITABLE: []}
    )
    full = Picture(
        {FREQUENT: _status(1000, 20), PROFITABLE: _status(900, 30)},
        {(FREQUENT, "count"): 77.0, (FREQUENT, "trips"): 1234.4},
        {FREQUENT: ["2013-01-07 08:00:00", "2013-01-07 08:21:40", "1.1", "2.2", "5"], PROFITABLE: []},
    )
    console = Console(width=80, color_system=None)
    console.print(drawn(empty))
    console.print(drawn(full))
    text = capsys.readouterr().out
    assert "--:--:--" in text
    assert "08:21:40  trips/s 1,234 + 0   read 1,000 + 900" in text
    assert "1.1 → 2.2" in text
    assert "count ×2" in text
    assert "77" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    with DemoView() as view:
        view.show(full)
        view.show(full)
    told = capsys.readouterr().err
    assert told.count("trips/s") == 1
    assert "a + b: frequent-routes + profitable-areas" in told


def test_a_narrow_terminal_drops_columns_and_no_values(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    area = ["2013-01-07 08:00:00", "2013-01-07 08:21:40", "312.321", "12", "11.4", "1234.5", "9"]
    picture = Picture(
        {FREQUENT: _status(1000, 20), PROFITABLE: _status(900, 30)},
        {(FREQUENT, "count"): 12345.0},
        {FREQUENT: ["2013-01-07 08:00:00", "2013-01-07 08:21:40", "101.202", "103.204", "5"], PROFITABLE: area},
    )
    for width in (30, 40, 50):
        Console(width=width, color_system=None).print(drawn(picture, width))
        text = capsys.readouterr().out
        assert "…" not in text
        assert "101.202 → 103.204" in text
        assert "Most profitable" not in text
        assert "count ×2" in text
    assert "12,345" in text


def test_memory_of_processes_is_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    here = os.getpid()
    assert (peak_memory_mb(here) or 0) > 5
    assert peak_memory_mb(2**22 + 1) is None
    assert here in children_of([os.getppid()])[os.getppid()]
    watch = MemoryWatch()
    figures = {10: 40.0, 11: 30.0, 12: 31.0}
    monkeypatch.setattr("agiledart_cli.processes.children_of", lambda _: {10: [11, 12]})
    monkeypatch.setattr("agiledart_cli.processes.peak_memory_mb", figures.get)
    watch.look({"a1": 10})
    figures |= {10: 45.0, 11: None}  # type: ignore[dict-item]  # one has ended
    watch.look({"a1": 10})
    assert watch.peaks() == {"a1": 45.0, "a1/executor-1": 30.0, "a1/executor-2": 31.0}


def test_the_killed_agent_and_the_cost_are_reported(result: DemoResult, capsys: pytest.CaptureFixture[str]) -> None:
    print_report(result)
    assert " was killed" not in capsys.readouterr().out
    result.plug = {"killed": "a2", "seconds_to_next_result": 2.25, "history": ["restarted, attempt 2: count on a4"]}
    assert result.document()["plug"]["killed"] == "a2"
    print_report(result)
    assert "a2 was killed: 2.25 s to the next result; restarted, attempt 2: count on a4" in capsys.readouterr().out


def test_plug_needs_an_agent_to_kill_and_a_successor() -> None:
    check_plug(4)
    with pytest.raises(ConfigurationError, match="at least 4 agents"):
        check_plug(3)
