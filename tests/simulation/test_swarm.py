"""Hostile runs from fixed seeds: whatever happens to 3 to 25 nodes, afterwards everything must be right."""

import pytest

from agiledart_simulation.runner import run_seed
from agiledart_simulation.scenario import KINDS, draw

FAST = range(1, 61)
SLOW = range(61, 181)


def _check(seed: int) -> None:
    report = run_seed(seed)
    assert report.violations == (), f"replay: python -m agiledart_simulation.runner --seeds {seed}\n{draw(seed)}"


@pytest.mark.parametrize("first", range(FAST.start, FAST.stop, 10))
def test_swarm(first: int) -> None:
    for seed in range(first, first + 10):
        _check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SLOW.start, SLOW.stop, 40))
def test_swarm_deeper(first: int) -> None:
    for seed in range(first, first + 40):
        _check(seed)


def test_the_fast_seeds_draw_every_kind_of_fault() -> None:
    drawn = {kind for seed in FAST for kind in draw(seed).kinds}
    assert drawn == set(KINDS)
    assert min(draw(seed).nodes for seed in FAST) <= 4
    assert max(draw(seed).nodes for seed in FAST) >= 24
