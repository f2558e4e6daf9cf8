"""Hostile runs from fixed seeds: whatever happens to 3 to 25 nodes, afterwards everything must be right."""

import pytest

from agiledart_simulation.runs.ring_run import RingRun
from agiledart_simulation.runs.scenario import KINDS, PERMANENT, draw

FAST = range(1, 51)
SLOW = range(51, 211)


def check(seed: int) -> None:
    scenario = draw(seed)
    report = RingRun(scenario).run()
    assert report.violations == (), f"replay: {scenario.command}"


@pytest.mark.parametrize("first", range(FAST.start, FAST.stop, 10))
def test_swarm(first: int) -> None:
    for seed in range(first, first + 10):
        check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SLOW.start, SLOW.stop, 40))
def test_swarm_deeper(first: int) -> None:
    for seed in range(first, first + 40):
        check(seed)


def test_the_fast_seeds_draw_every_kind_of_fault() -> None:
    drawn = [draw(seed) for seed in FAST]
    assert {kind for scenario in drawn for kind in scenario.kinds} == set(KINDS)
    assert {scenario.permanent for scenario in drawn} == set(PERMANENT)
    assert {scenario.queue for scenario in drawn} == {"heap", "wheel"}
    assert {scenario.id_bits for scenario in drawn} == {8, 16, 128}
    assert min(scenario.nodes for scenario in drawn) <= 4
    assert max(scenario.nodes for scenario in drawn) >= 24
