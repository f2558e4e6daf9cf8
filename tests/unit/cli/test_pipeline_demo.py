"""`agiledart pipeline demo` without a mesh and without Spark: its trips, its topology, when it is done, what it prints."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agiledart import ReadTime
from agiledart_cli.verbs.pipeline_demo import JAM_FACTOR, JAMMED, ROUTES, PipelineDemo, TripWriter, print_outcome
from agiledart_examples.slow_trips import CompareWithUsual, SlowTrip, TimedTrip, Usual, UsualDuration

SECOND = 1_000_000_000


def test_a_jam_makes_its_routes_slower(tmp_path: Path) -> None:
    path = tmp_path / "trips.jsonl"
    writer = TripWriter(path, seed=3)
    before = [writer._trip() for _ in range(4_000)]
    writer.jam_since_ms = 1
    inside = [writer._trip() for _ in range(4_000)]
    writer.close()

    def median(trips: list[dict[str, object]], route: str) -> float:
        seconds = sorted(cast(float, trip["seconds"]) for trip in trips if trip["route"] == route)
        return seconds[len(seconds) // 2]

    for route, usual in ROUTES.items():
        assert median(before, route) == pytest.approx(usual, rel=0.05)
        factor = JAM_FACTOR if route in JAMMED else 1.0
        assert median(inside, route) == pytest.approx(usual * factor, rel=0.05)


def test_trips_are_compared_with_the_newest_model_of_their_route() -> None:
    shared: dict[str, Usual] = {}
    operator = CompareWithUsual()
    at = ReadTime(SECOND)
    for until, seconds in ((2_000, 100.0), (1_000, 900.0), (3_000, 200.0)):  # models of one batch come in any order
        operator.on_broadcast(UsualDuration("a", seconds, 5, until, at), shared)
        flagged: list[SlowTrip] = []
        context = SimpleNamespace(shared=shared, emit=flagged.append)
        for route, trip_seconds in (("a", 301.0), ("a", 150.0), ("b", 9_000.0)):
            operator.on_record(route, TimedTrip(route, trip_seconds, at), 0, cast(Any, context))
        usual = 100.0 if until < 3_000 else 200.0
        assert flagged == [SlowTrip("a", 301.0, usual, max(until, 2_000), at)]


@pytest.fixture
def demo(tmp_path: Path) -> PipelineDemo:
    return PipelineDemo(cast(Any, SimpleNamespace(folder=tmp_path, count=1, agents=[])), window=15, seed=1)


def test_it_is_done_when_a_model_learned_wholly_in_the_jam_has_flagged(demo: PipelineDemo) -> None:
    route = JAMMED[0]
    demo._note([[route, 100.0, 5, 50_000]], [[route, 300.0, 100.0, 50_000]])
    assert not demo._is_done()
    demo._trips.jam_since_ms = 60_000
    demo._note([[route, 150.0, 5, 74_000]], [[route, 300.0, 150.0, 74_000]])
    assert not demo._is_done()
    demo._note([[route, 180.0, 5, 75_000]], [])
    assert not demo._is_done()
    demo._note([], [[route, 400.0, 180.0, 75_000]])
    assert demo._is_done()
    demo.close()
    document = demo._document(61.25)
    assert [model["in_jam"] for model in document["models"]] == [False, False, True]
    assert document["models"][0]["routes"][route] == {"usual_seconds": 100.0, "trips": 5, "flagged": 1}
    assert json.dumps(document)


def test_learned_and_flagged_stand_side_by_side(demo: PipelineDemo, capsys: pytest.CaptureFixture[str]) -> None:
    route = JAMMED[0]
    demo._trips.jam_since_ms = 60_000
    demo._note(
        [[route, 100.0, 5, 50_000], [route, 180.0, 5, 75_000]],
        [[route, 300.0, 100.0, 50_000]] * 3 + [[route, 400.0, 180.0, 75_000]],
    )
    print_outcome(demo._document(1.0))
    demo.close()
    line = next(line for line in capsys.readouterr().out.splitlines() if route in line)
    assert line.split()[-6:] == ["100", "s", "3", "180", "s", "1"]
