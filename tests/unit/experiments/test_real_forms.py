"""Forms `--real` of experiments: needed memory, limited uplinks, counted bytes, and restored states."""

import os
import subprocess
import sys
import time
from typing import Any

import pytest

from agiledart_experiments import overhead, real_deployments
from agiledart_experiments.recovery import real_dataflow_recovery, real_state_recovery
from agiledart_experiments.recovery.limited_file_server import LimitedUplink
from agiledart_experiments.registry import find, run_experiment
from agiledart_experiments.report import Settings
from agiledart_experiments.socket_bytes import parsed, sent_between
from agiledart_kernel.errors import ConfigurationError, OperationFailed

SS = """ESTAB 0 0 127.0.0.1:5 127.0.0.1:6 users:(("python",pid=17,fd=5),("python",pid=17,fd=4))
\t cubic rto:204 bytes_sent:{sent} bytes_acked:7 bytes_received:40
ESTAB 0 0 127.0.0.1:6 127.0.0.1:5 users:(("java",pid=18,fd=5))
\t cubic rto:204 bytes_sent:9 bytes_received:40
ESTAB 0 0 127.0.0.1:7 127.0.0.1:8
\t cubic bytes_sent:99
"""


def test_a_machine_that_is_too_small_gets_a_size_that_fits() -> None:
    real_deployments.check_memory((10, 50), 2_000)
    with pytest.raises(ConfigurationError, match=r"250 applications need about 1,600 MB.*Use --sizes 10,50\."):
        real_deployments.check_memory((10, 50, 250), 900)
    with pytest.raises(ConfigurationError, match="608 MB for two applications"):
        real_deployments.check_memory((10,), 600)


def test_a_large_state_is_refused_with_the_size_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_state_recovery, "available_mb", lambda: 100.0)
    with pytest.raises(ConfigurationError, match=r"256 MB needs 1,536 MB.*Use --sizes 16\."):
        find("state-recovery").run(Settings(real=True, sizes=(16, 256)))


def test_only_some_experiments_have_a_real_form() -> None:
    with pytest.raises(
        ConfigurationError, match="--real: hop-count has no form on agents; these have: deployment-latency"
    ):
        run_experiment(find("hop-count"), Settings(real=True))
    with pytest.raises(ConfigurationError, match="--real kills at most 4 agents"):
        run_experiment(find("dataflow-recovery"), Settings(real=True, sizes=(1, 8)))
    assert Settings(real=True).command("state-recovery").endswith("--seed 1 --scale small --real -o json")


def test_traffic_is_counted_by_process_over_open_connections() -> None:
    before, after = (parsed(SS.format(sent=sent).splitlines()) for sent in (100, 350))
    assert after == {("127.0.0.1:5", "127.0.0.1:6"): (17, 350), ("127.0.0.1:6", "127.0.0.1:5"): (18, 9)}
    assert sent_between(before, after, [17]) == 250
    assert sent_between({}, after, [17, 18]) == 359


def test_an_uplink_is_shared() -> None:
    uplink, began = LimitedUplink(1_000_000), time.monotonic()
    for _ in range(4):
        uplink.wait_for(25_000)
    assert time.monotonic() - began >= 0.099


def test_a_state_comes_back_from_fragment_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_state_recovery, "CODES", ((4, 2),))
    report = find("state-recovery").run(Settings(real=True, sizes=(2,)))
    (row,) = report.rows
    assert row["is_exact"]
    assert row["store_recover_seconds"] >= 0.16, "two megabytes leave an uplink of 100 Mbit/s in 0.16 s"
    assert row["recover_seconds"] >= 2_000_000 / 5 / 12_500_000


class StatusAnswers:
    """Client whose answers come from a list for each application; the last one stays."""

    def __init__(self, answers: dict[str, list[dict[str, Any]]]) -> None:
        self._answers = answers

    def ask(self, command: Any, **_: Any) -> Any:
        left = self._answers[command.name]
        return left.pop(0) if len(left) > 1 else left[0]


def _status(attempt: int, committed: int) -> dict[str, Any]:
    return {"state": "running", "epoch": {"attempt": attempt, "committed": committed}}


def test_an_application_has_recovered_with_the_first_commit_of_a_new_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_dataflow_recovery, "COMMIT_S", 0.2)
    late = [_status(1, 8), {"state": "recovering", "epoch": None}, _status(2, 7), _status(2, 8)]
    waiting = {"state": "minority", "epoch": None}
    client: Any = StatusAnswers({"a": late, "b": [_status(1, 9)], "c": [waiting]})
    old = {"attempt": 1, "committed": 7}
    came = real_dataflow_recovery._next_commits(client, dict.fromkeys("abc", old), time.monotonic())
    assert list(came) == ["a"], "b commits in its old attempt only, and c lost the majority of its voters"
    ended: Any = StatusAnswers({"a": [{"state": "failed", "reason": "no room", "epoch": None}]})
    with pytest.raises(OperationFailed, match="a is failed: no room"):
        real_dataflow_recovery._next_commits(ended, {"a": old}, time.monotonic())


class BusyEngine:
    """Engine with one daemon, this process, and one worker that works all the time."""

    name, workers_s = "busy", 0.0

    def __init__(self, worker: int) -> None:
        self._worker = worker

    def start(self, *_: Any) -> None: ...

    def stop(self, name: str) -> None: ...

    def processes(self) -> list[int]:
        return [os.getpid(), self._worker]


def test_daemons_and_workers_have_cpu_and_memory_of_their_own() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as worker:
        try:
            row = overhead._span(overhead.MeasuredEngine(BusyEngine(worker.pid), (os.getpid(),)), 0.5)
        finally:
            worker.kill()
    assert (row["daemons"], row["workers"]) == (1, 1)
    assert row["worker_cpu_share"] > row["daemon_cpu_share"]
    assert row["energy_cpu_s"] > 0
    assert row["daemon_pss_mb"] > 1
    assert row["control_bytes_s"] == row["data_bytes_s"] == 0
