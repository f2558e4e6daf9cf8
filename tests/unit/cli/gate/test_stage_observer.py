"""Stages as a gate's policy sees them: the time of a row from its work and the rows before it, declared or measured levels."""

from typing import Any

import pytest

from agiledart_cli.gate.stage_observer import MOST_MS, StageObserver, without_room


def scaling(rate: float | None, backlog: int | None, busy: float, **row: Any) -> dict[str, Any]:
    measures = {"true_rate": rate, "backlog": backlog, "busy": busy}
    stage = {
        "name": "clean+work",
        "scales": True,
        "instances": 2,
        "limits": [1, 6],
        "keeps_number": False,
        "measures": measures,
    }
    return {"stages": [{**stage, **row}]}


def status(**levels: float) -> dict[str, Any]:
    rows = [{"step": step, "slo_ms": slo_ms} for step, slo_ms in levels.items()]
    instances = [{"node": "a1"}, {"node": "a1"}, {"node": "a2"}]
    return {"stages": [{"name": "clean+work", "instances": instances}], "summary": {"service_levels": rows}}


def test_the_time_of_a_row_is_its_work_and_the_rows_before_it() -> None:
    (stage,) = StageObserver().of_application("app", scaling(100.0, 50, 0.5), status(work=80.0, clean=20.0, other=7.0))
    assert stage.duration_ms == pytest.approx(10 + 500)  # 10 ms of work; 50 rows wait, 100 a second are served
    assert (stage.name, stage.slo_ms, stage.queue, stage.low, stage.high) == ("app/clean+work", 100.0, 50.0, 1, 6)
    assert stage.instances == {"a1": 2, "a2": 1}


def test_a_stage_that_wants_more_instances_than_nodes_have_room_for_is_demand() -> None:
    refusal = "No node has room for one more instance of work: a1 (3 of 3). Start another agent, or stop something."
    row = {"wanted": 4, "waits_for": refusal}
    assert without_room("app", scaling(100.0, 50, 1.0, **row)) == [
        "app/clean+work wants 4 instances, has 2, and no node has room"
    ]
    assert without_room("app", scaling(100.0, 50, 1.0, wanted=4, waits_for="its node is silent")) == []
    assert without_room("app", scaling(100.0, 50, 1.0, wanted=2, waits_for=refusal)) == []


def test_without_a_declared_level_twice_the_shortest_work_counts() -> None:
    measures = StageObserver()
    for rate in (100.0, 200.0, 50.0):
        (stage,) = measures.of_application("app", scaling(rate, 0, 0.5), status())
    assert stage.slo_ms == 10.0
    assert stage.durations_ms == (10.0, 5.0, 20.0)


def test_a_stage_that_serves_nothing_while_rows_wait_is_as_late_as_can_be_and_one_without_measures_unknown() -> None:
    (stuck,) = StageObserver().of_application("app", scaling(100.0, 9, 0.0), status())
    assert stuck.duration_ms == MOST_MS
    (unknown,) = StageObserver().of_application("app", scaling(None, 300, 0.0), status())
    assert (unknown.duration_ms, unknown.queue) == (None, 300.0)
    assert StageObserver().of_application("app", scaling(1.0, 0, 0.0, scales=False), status()) == []
    nothing = StageObserver().of_application("app", scaling(100.0, None, 0.0), status())
    assert nothing == [], "an unknown queue is not an empty one"
