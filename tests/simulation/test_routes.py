"""Hostile runs of a channel whose rows find their way: nothing is lost, and in the end they go by a good way."""

import pytest

from agiledart_simulation.runs.campaign import Campaign, play
from agiledart_simulation.runs.routes_run import RoutesRun
from agiledart_simulation.runs.scenario import OF_ROUTES, draw

FAST = range(1, 21)
SOAK = range(21, 1_021)


def check(seed: int) -> None:
    scenario = draw(seed, name="routes")
    report = play(scenario)
    assert report.violations == (), f"replay: {scenario.command}"


@pytest.mark.parametrize("seed", FAST)
def test_whole_runs(seed: int) -> None:
    check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SOAK.start, SOAK.stop, 100))
def test_whole_runs_deeper(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


def test_an_acknowledgement_lost_on_the_reverse_path_stops_no_rows() -> None:
    """The window is full, so no frame goes out that would show the loss."""
    assert play(draw(9, name="routes", fixed={"steps": 400})).violations == ()


def test_a_low_claim_hides_no_link_of_an_honest_relay() -> None:
    """The relay announced no path to the asking node, so rows stayed with a path of twice the length."""
    check(152)


def test_a_relay_that_stalls_now_and_then_is_avoided() -> None:
    """Rows left it 185 times, and returned each time because its probes were fast."""
    run = RoutesRun(draw(381, name="routes"))
    assert run.run().violations == ()
    assert sum(run.moves.values()) <= 20


def test_the_fast_seeds_draw_every_kind_of_fault() -> None:
    assert {kind for seed in FAST for kind in draw(seed, name="routes").kinds} == set(OF_ROUTES)


@pytest.mark.soak
@pytest.mark.slow
def test_a_campaign_reaches_everything() -> None:
    campaign = Campaign("routes")
    campaign.run(range(1, 101), lambda scenario, report: not report.violations)
    assert campaign.failed == []
    assert campaign.unreached == []


@pytest.mark.parametrize("seed", [3, 8])
def test_the_same_seed_runs_the_same(seed: int) -> None:
    assert RoutesRun(draw(seed, name="routes")).run() == RoutesRun(draw(seed, name="routes")).run()


def test_without_faults_rows_go_directly_and_no_circuit_opens() -> None:
    run = RoutesRun(draw(2, name="routes", fixed={"steps": 0, "kinds": ("cut",)}))
    report = run.run()
    assert report.violations == ()
    assert run.moves == {}
    assert run.mode != ("auto",) or len(run.circuits) == 1


@pytest.mark.parametrize("seed", [24, 71])
def test_warm_takes_a_faster_relay(seed: int) -> None:
    """Seeds whose direct way works and takes at least a third more than the best."""
    run = RoutesRun(draw(seed, name="routes"))
    assert run.mode == ("warm",)
    assert run.run().violations == ()
    assert run.used.relay
