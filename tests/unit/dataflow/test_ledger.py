"""The ledger: balanced after every run, and no lost, repeated or miscounted row stays unnoticed."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pytest

from agiledart import Topology, collect, tumbling
from agiledart_dataflow.counts.statistics import InstanceStatistics, SourceCounts
from agiledart_dataflow.runtime.ledger import audit
from agiledart_executor.local_runs import local_run
from agiledart_executor.local_runs.local_run import LocalRun, run_topology
from agiledart_kernel.errors import LocalProtocolError


class Row(NamedTuple):
    """A row."""

    at: int
    value: int


def halved(row: Row) -> Row | None:
    return None if row.value % 3 == 0 else Row(row.at, row.value // (row.value % 5))


def topology() -> Topology:
    """Late rows, malformed ones, rows that raise, rows that are dropped, several rows of one, a window."""
    made = Topology("ledger")
    rows = [Row(at if at % 11 else at - 7, at % 13) for at in range(300)]
    source = made.source(
        "rows",
        rows,
        event_time=lambda row: row.at,
        check=lambda row: "odd" if row.value == 12 else None,
        max_out_of_order=timedelta(milliseconds=3),
    )
    kept = source.flat_map(halved, on_error="skip").map(
        lambda row: Row(row.at, 10 // (row.value - 1)), "ten", returns=Row, on_error="dead_letter"
    )
    twice = kept.filter(lambda row: row.value != 2, "not-two").flat_map(lambda row: [row] * 2, "twice", returns=Row)
    twice.key_by(lambda row: row.value).window(tumbling(timedelta(milliseconds=20))).count("counted").sink(
        "out", collect
    )
    return made


def run(parallelism: int = 2, seed: int | None = 5) -> tuple[LocalRun, Topology]:
    made = topology()
    return run_topology(made, parallelism=parallelism, schedule_seed=seed), made


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_the_ledger_of_a_run_is_balanced(parallelism: int, seed: int | None) -> None:
    done, made = run(parallelism, seed)
    assert audit(made.specification(), done.statistics, done.plan) == []
    counts = done.summary.steps
    assert counts["halved"].skipped > 0
    assert counts["ten"].dead_letters > 0
    assert done.summary.late > 0
    assert done.summary.malformed["odd"] > 0


def of_stage(done: LocalRun, name: str) -> InstanceStatistics:
    stage = done.plan.stage_named(name).index
    return next(one for one in done.statistics if one.stage == stage)


def lose_on_the_way(done: LocalRun) -> None:
    one = of_stage(done, "counted")
    edge, source, rows = one.received[0]
    one.received[0] = (edge, source, rows - 1)
    one.steps["counted"].rows_in -= 1
    one.steps["counted"].taken -= 1


def lose_at_the_end(done: LocalRun) -> None:
    one = of_stage(done, "counted")
    one.sent[0] = (*one.sent[0][:2], one.sent[0][2] - 1)


def repeat(done: LocalRun) -> None:
    of_stage(done, "out").steps["out"].rows_in += 1


def forget_an_error(done: LocalRun) -> None:
    of_stage(done, "ten").steps["ten"].dead_letters -= 1


def lose_between_steps(done: LocalRun) -> None:
    counts = of_stage(done, "not-two").steps["not-two"]
    counts.rows_in -= 1
    counts.dropped -= 1


def forget_a_late_line(done: LocalRun) -> None:
    source = of_stage(done, "rows").source
    assert source is not None
    source.late -= 1


def lose_in_a_window(done: LocalRun) -> None:
    of_stage(done, "counted").steps["counted"].taken -= 1


def make_windows_of_nothing(done: LocalRun) -> None:
    counts = of_stage(done, "counted").steps["counted"]
    counts.rows_out += counts.taken


def leave_a_window_open(done: LocalRun) -> None:
    of_stage(done, "counted").state_keys = 1


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lose_on_the_way, "rows sent, "),
        (lose_at_the_end, "counted 0: sent "),
        (repeat, "out 0: took "),
        (forget_an_error, "ten 0: "),
        (lose_between_steps, "not-two 0: took "),
        (forget_a_late_line, "rows: 300 lines, but "),
        (lose_in_a_window, "counted 0: "),
        (make_windows_of_nothing, " windows out of "),
        (leave_a_window_open, "counted 0: 1 keys are left in windows"),
    ],
)
def test_every_loss_is_named(damage: Callable[[LocalRun], None], words: str) -> None:
    done, made = run()
    damage(done)
    found = audit(made.specification(), done.statistics, done.plan)
    assert any(text.startswith(words) or words in text for text in found), found


def test_figures_of_running_instances_are_not_compared() -> None:
    done, made = run()
    lose_on_the_way(done)
    running = [msgspec.structs.replace(one, finished=False) for one in done.statistics]
    assert audit(made.specification(), running) == []


def test_waiting_rows_are_part_of_a_source_ledger() -> None:
    counts = SourceCounts(10, 3, 1, {"columns": 2}, 1, shed={"oldest": 1}, spooled=2)
    made = topology().specification()
    assert audit(made, [InstanceStatistics(0, 0, {}, counts)]) == []
    counts.spooled = 1
    assert audit(made, [InstanceStatistics(0, 0, {}, counts)]) == [
        "source: 10 lines, but 3 records + 1 late + 2 malformed + 1 shed + 1 spooled + 1 waiting is 9"
    ]


def test_a_run_whose_ledger_does_not_add_up_fails(monkeypatch: Any) -> None:
    monkeypatch.setattr(local_run, "audit", lambda *_: ["out 0: took 3 of 4 rows"])
    with pytest.raises(LocalProtocolError, match="ledger: the ledger does not add up: out 0: took 3 of 4 rows"):
        run()
