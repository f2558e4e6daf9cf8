"""The comparison of recoveries, without Flink: the next result, the ledger, CPU time of the dead, ratios and goals."""

import json
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from benchmarks.engines import setup
from benchmarks.engines.recovery import command, failure_runs, flink_run, report
from benchmarks.engines.recovery.attempt_rows import AttemptRows, AttemptRowsWatch, ledger, readings
from benchmarks.engines.recovery.failure_runs import FailureRun, Strike, Victim, load_of, strike
from benchmarks.engines.recovery.flink_cluster import flink_cluster
from benchmarks.engines.recovery.flink_run import host_of_state
from benchmarks.engines.recovery.our_run import Comeback
from benchmarks.engines.recovery.usage import Usage

from agiledart_experiments.recovery.plug_ledger import write_input
from agiledart_experiments.recovery.sink_watch import SinkWatch
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.randomness import RandomStream


def turn(engine: str, number: int, seconds: float, cpu: float = 10.0, twice: int = 0) -> FailureRun:
    return FailureRun(engine, number, Strike(seconds, seconds + 1, cpu, 30.0, 0.2, 1.0), 100, 0, twice)


def test_duplicate_rows_are_not_the_next_result() -> None:
    attempt_rows = AttemptRows()
    attempt_rows.saw(0, [10, 20, 30], 1.0)
    attempt_rows.saw(1, [20, 30], 5.0)
    assert attempt_rows.next_result(2.0) is None
    attempt_rows.saw(1, [30, 31], 6.0)
    assert attempt_rows.next_result(2.0) == pytest.approx(4.0)


def test_rows_in_transit_at_the_failure_are_not_the_next_result() -> None:
    attempt_rows = AttemptRows()
    attempt_rows.saw(0, [10, 20], 1.0)
    attempt_rows.saw(0, [30], 2.5)
    assert attempt_rows.next_result(2.0) is None
    attempt_rows.saw(1, [25], 5.0)
    attempt_rows.saw(0, [40], 5.5)
    attempt_rows.saw(1, [35, 40], 6.0)
    assert attempt_rows.next_result(2.0) is None, "a row of the life before came late"
    attempt_rows.saw(1, [41], 7.0)
    assert attempt_rows.next_result(2.0) == pytest.approx(5.0)


def test_a_partial_line_is_read_once_it_is_complete(tmp_path: Path) -> None:
    watch = AttemptRowsWatch(tmp_path)
    (tmp_path / "out-0.csv").write_text("10,1,1\n200")
    watch.look()
    assert watch.has_come(10)
    assert not watch.has_come(11)
    (tmp_path / "out-0.csv").write_text("10,1,1\n200,1,2\n")
    watch.look()
    assert watch.has_come(200)


def test_both_engines_read_the_same_rows(tmp_path: Path) -> None:
    write_input(tmp_path / "in.csv", 30, 100, 50, 2_000)
    lines = (tmp_path / "in.csv").read_text().splitlines()
    assert [tuple(map(int, line.split(","))) for line in lines] == list(islice(readings(30, 100, 2_000), 80))


@pytest.mark.parametrize(
    ("attempt_rows", "lost", "twice"),
    [
        (["0,0,0\n5,1,1\n10,0,0\n10,1,2\n"], 0, 0),
        (["0,0,0\n5,1,1\n", "5,1,1\n10,0,0\n10,1,2\n"], 0, 1),
        (["0,0,0\n", "10,0,0\n10,1,2\n"], 1, 0),
        (["0,0,0\n5,1,7\n10,0,0\n"], 1, 1),
    ],
)
def test_the_ledger_covers_all_attempts_but_the_last_millisecond(
    attempt_rows: list[str], lost: int, twice: int, tmp_path: Path
) -> None:
    for number, text in enumerate(attempt_rows):
        (tmp_path / f"out-{number}.csv").write_text(text)
    told = ledger(tmp_path.glob("out-*.csv"), readings(2, 10, 2_000))
    assert told == {"rows": 2, "lost": lost, "twice": twice}


def test_nodes_with_a_source_or_sink_are_not_killed() -> None:
    assert host_of_state({"readings": ["tm1"], "sums": ["tm1", "tm2"], "report": ["tm1"]}) == "tm2"
    with pytest.raises(OperationFailed, match="no TaskManager has state and neither source nor sink"):
        host_of_state({"readings": ["tm1"], "sums": ["tm1", "tm2"], "report": ["tm2"]})


def test_cpu_time_of_a_killed_process_counts() -> None:
    burn = "print(sum(range(3_000_000)), flush=True); input()"
    with Usage() as usage:
        process = subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        before = usage.seconds()
        process.kill()
        process.communicate()
        assert 0 < before <= usage.seconds()


def test_cpu_time_is_that_of_one_window_however_long_an_engine_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_runs, "STEADY_SECONDS", 0.1)
    monkeypatch.setattr(failure_runs, "WINDOW_SECONDS", 0.2)
    monkeypatch.setattr(failure_runs, "ASK_SECONDS", 0.01)
    struck: list[float] = []
    with Usage() as usage:

        def beyond() -> list[float]:
            return [when - struck[0] for when, _ in usage._looks if when >= struck[0] + 0.2]

        def choose() -> Victim:
            return Victim(
                lambda: struck.append(time.monotonic()),
                lambda: True if len(beyond()) > 2 else None,
                lambda _: 0.1,
                lambda: None,
            )

        told = strike(usage, RandomStream(1, "test"), 0, choose)
        assert told.window_s == pytest.approx(beyond()[0], abs=0.05)
        assert told.window_s < beyond()[2] <= told.committed_s + 0.05


def test_without_a_cut_the_next_result_is_beyond_the_end_of_the_recovery(
    tmp_path: Path,
) -> None:
    watch, ended = SinkWatch(tmp_path / "out.csv"), list[bool]()
    now = time.monotonic()
    watch._sizes += [(now - 9, 100), (now - 5, 150)]
    back = Comeback(watch, lambda: ended or None)
    assert back.next_result(now - 8) is None
    ended.append(True)
    assert back.next_result(now - 8) is None
    assert back.is_committed()
    watch._sizes.append((time.monotonic() + 1, 200))
    assert back.next_result(now - 8) == pytest.approx(watch._sizes[-1][0] - now + 8)


def test_ratios_are_taken_per_round_and_compared_by_their_median() -> None:
    failure_runs = [turn("flink-tuned", n, s) for n, s in enumerate((4.0, 8.0, 6.0))]
    failure_runs += [turn("ours", n, s) for n, s in enumerate((1.0, 5.0, 2.0))]
    found = {goal.what: goal for goal in report.evaluated(failure_runs)}
    assert found["seconds to the next result, ours ÷ flink-tuned"].found == pytest.approx(1 / 3, abs=1e-4)
    assert found["seconds to the next result, ours ÷ flink-tuned"].met
    assert not found["CPU seconds from the failure, ours ÷ flink-tuned"].met
    assert report.summary(failure_runs, "ours")["next_result_s"] == {"median": 2.0, "p95": 5.0}
    text = report.as_text(failure_runs, [])
    assert "met    seconds to the next result, ours ÷ flink-tuned: 0.33 (at most 0.5)" in text
    assert "MISSED CPU seconds from the failure" in text


def test_a_duplicate_row_of_ours_misses_the_goal() -> None:
    assert [goal.met for goal in report.evaluated([turn("ours", 0, 1.0)])] == [True, True]
    assert [goal.met for goal in report.evaluated([turn("ours", 0, 1.0, twice=1)])] == [True, False]


def test_missing_java_or_flink_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(name: str) -> None:
        raise setup.MissingError("Flink needs java and javac, 11 or later")

    monkeypatch.setattr(setup, "prepare", missing)
    assert command.main([]) == 2
    assert "Flink cannot take part: Flink needs java and javac, 11 or later" in capsys.readouterr().err


def test_an_interrupted_benchmark_reports_what_it_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def once(number: int, *_: Any) -> FailureRun:
        if number:
            raise KeyboardInterrupt
        return turn("ours", number, 1.5)

    monkeypatch.setattr(command, "ENGINES", {"ours": once})
    assert command.main(["--engines", "ours", "-o", "json"]) == 130
    assert json.loads(capsys.readouterr().out)["engines"]["ours"]["runs"] == 1


def test_a_failed_round_is_reported_and_the_others_continue(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def once(number: int, *_: Any) -> FailureRun:
        if not number:
            raise OperationFailed("not within 240 s: the next result")
        return turn("ours", number, 1.5)

    monkeypatch.setattr(command, "ENGINES", {"ours": once})
    assert command.main(["--engines", "ours", "--rounds", "2"]) == 1
    assert "failed: round 1, ours: not within 240 s: the next result" in capsys.readouterr().out


def test_settings_reach_the_cluster(tmp_path: Path) -> None:
    with flink_cluster(tmp_path, 2, 10, {"heartbeat.interval": "500 ms"}):
        told = (tmp_path / "config.yaml").read_text().splitlines()
    assert {
        "heartbeat.interval: 500 ms",
        "execution.checkpointing.interval: 10 s",
        "taskmanager.numberOfTaskSlots: 2",
    } <= set(told)


def test_flinks_output_is_kept_when_a_round_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(folder: Path, *_: Any) -> Strike:
        (folder / "jobmanager.log").write_text("why")
        raise OperationFailed("a process of Flink ended with 1")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(flink_run, "_struck", fails)
    said: list[str] = []
    with pytest.raises(OperationFailed):
        flink_run.turn("flink", {}, 0, load_of("small"), RandomStream(1, "test"), said.append)
    kept = list(tmp_path.glob("flink-*/jobmanager.log"))
    assert len(kept) == 1
    assert said == [f"logs are kept: {kept[0].parent}"]


def test_flink_is_asked_again_after_a_missing_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent() -> object:
        raise OperationFailed("Flink does not answer")

    monkeypatch.setattr(failure_runs, "ASK_SECONDS", 0.0)
    assert failure_runs.gently(silent) is None
    assert failure_runs.gently(lambda: 7) == 7
