"""Hostile runs in which stages get new generations: committed rows equal those of a run without changes and failures."""

from functools import cache

import pytest

from agiledart_kernel.instants import MILLISECOND
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.wire.register_value import InstanceRole
from agiledart_simulation.runs.campaign import Campaign, play
from agiledart_simulation.runs.recovery_run import REACHED_BY_SCALING, RecoveryRun
from agiledart_simulation.runs.scenario import OF_SCALING, draw
from agiledart_simulation.world.latency_models import Draw

FAST = range(1, 51)
SOAK = range(51, 2_051)
OF_SCALING_CALM = ("grow", "shrink", "rebalance", "drain", "both", "silence")


@cache
def played(seed: int) -> tuple[str, ...]:
    """Events reached in a correct run."""
    scenario = draw(seed, name="scaling")
    report = play(scenario)
    assert report.violations == (), f"replay: {scenario.command}"
    return tuple(what for what, count in report.reached if count)


def check(seed: int) -> None:
    played(seed)


@pytest.mark.xdist_group("scaling")
@pytest.mark.parametrize("first", range(FAST.start, FAST.stop, 10))
def test_whole_runs(first: int) -> None:
    for seed in range(first, first + 10):
        check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SOAK.start, SOAK.stop, 100))
def test_whole_runs_deeper(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


@pytest.mark.xdist_group("scaling")
def test_the_fast_seeds_reach_everything_but_deaths_at_rare_moments() -> None:
    reached = {what: None for seed in FAST for what in played(seed)}
    wanted = [what for what in (*OF_SCALING, *REACHED_BY_SCALING) if " died while " not in what]
    assert [what for what in wanted if what not in reached] == []
    assert any(" died while " in what for what in reached)


@pytest.mark.soak
def test_a_campaign_reaches_every_step_with_every_death() -> None:
    campaign = Campaign("scaling")
    campaign.run(range(1, 601), lambda scenario, report: not report.violations)
    assert campaign.failed == []
    assert campaign.unreached == []


def test_without_faults_every_change_is_done_in_one_attempt() -> None:
    calm = {"kinds": OF_SCALING_CALM, "steps": 15, "loss": 0.0, "duplicate": 0.0, "reorder": 0.0, "step_ms": 1_000}
    done = 0
    for seed in range(1, 4):
        run = RecoveryRun(draw(seed, name="scaling", fixed=calm))
        report = run.run()
        value = run.ledger.newest
        assert report.violations == ()
        assert value is not None
        assert value.attempt == 1
        whys = {change.why for change in value.changes if change.fate != "done"}
        assert whys <= {"no capacity", "its input had ended"}
        done += sum(change.fate == "done" for change in value.changes)
    assert done > 5


class OneFar:
    """All nodes are 1 ms apart, but one of them."""

    def __init__(self, far_ms: int) -> None:
        self.far: NodeId | None = None
        self._far_ms = far_ms

    def place(self, node: NodeId, zone: str, draw: Draw) -> None:
        """It has one."""

    def distance_ns(self, a: NodeId, b: NodeId) -> int:
        """Of all but the far one the same."""
        return (self._far_ms if a != b and self.far in (a, b) else 1) * MILLISECOND


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_host_that_acknowledges_slowly_delays_no_change(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It learns of commits later than new owners build the committed state."""
    latency = OneFar(150)
    calm = {"kinds": OF_SCALING_CALM, "steps": 12, "loss": 0.0, "duplicate": 0.0, "reorder": 0.0, "step_ms": 1_000}
    run = RecoveryRun(draw(seed, name="scaling", fixed=calm), latency=latency)
    build = run._build

    def built() -> None:
        build()
        value = run.ledger.newest
        assert value is not None
        latency.far = value.plan.of(InstanceRole.SINK)[0].host.node

    monkeypatch.setattr(run, "_build", built)
    report = run.run()
    value = run.ledger.newest
    assert report.violations == ()
    assert value is not None
    assert value.attempt == 1
    assert {change.why for change in value.changes if change.fate != "done"} <= {"no capacity", "its input had ended"}
    assert sum(change.fate == "done" for change in value.changes) >= 3
