"""[AgileDART] IV-C and appendix D: health score, secant step, trials of a phase; the oracles of the scaling specification §6, §7.4.

[Kalavri et al. 2018] §3: the other policy's equation.
"""

import pytest

from agiledart_experiments.scaling.fluid import FLUID_ROWS, fluid_run
from agiledart_experiments.scaling.secant_steps import CAPACITIES, STARTS, gain_of, phases, round_up
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import StageMeasures
from agiledart_scaling.policies.ds2 import Ds2, Ds2Settings
from agiledart_scaling.policies.paper import Paper, PaperSettings, least_with_score, trials_of_phase
from agiledart_scaling.score import ORIGIN, ScoredTrial, need_score, paper_score, secant_step

ROWS = [
    (30, 10, 600, 100, 0.5, 0.75, 13.333333, 14),
    (10, 30, 600, 100, 0.5, 1.583333, 6.315789, 7),
    (20, 20, 500, 400, 0.5, 0.45, 22.222222, 23),
    (30, 10, 900, 300, 0.5, 0.333333, 30.0, 30),
    (30, 10, 600, 100, 0.8, 0.6, 16.666667, 17),
    (30, 10, 300, 10, 0.5, 5.5, 1.818182, 2),
    (30, 10, 600, 0, 0.5, 0.5, 20.0, 20),
    (30, 10, 0, 50, 0.5, 2.0, 5.0, 5),
]
"""r, q, R, Q, α, f(10), x*, instances."""

NEEDS = [
    (30, 600, 100, 0.483871, 20.6667, 21),
    (20, 500, 400, 0.344828, 29.0, 29),
    (30, 300, 10, 0.993377, 10.0667, 11),
    (30, 600, 0, 0.5, 20.0, 20),
    (30, 0, 50, 30.0, 0.3333, 1),
]
"""r, R, Q, f(10), x*, instances; T = 5 s, ρ = 1."""


def score(x: float, row: tuple[float, ...]) -> float:
    """f(x) of a row, which is not idle."""
    rate, each, arriving, waiting, weight = row[:5]
    found = paper_score(x, rate, each, arriving, waiting, weight)
    assert found is not None
    return found


def stage(instances: int, rate: float, offered: float, backlog: float) -> StageMeasures:
    """Even shares, one second."""
    return StageMeasures((rate,) * instances, (1 / instances,) * instances, (offered,), (backlog,))


@pytest.mark.parametrize("row", ROWS)
def test_iv_c_health_score(row: tuple[float, ...]) -> None:
    """f(x) = α·x·r/R + (1-α)·x·q/Q, where a void term drops out."""
    assert score(10, row) == pytest.approx(row[5], abs=1e-6)
    assert score(20, row) == pytest.approx(2 * row[5], abs=2e-6), "linear through the origin"


def test_iv_c_an_idle_stage_has_no_score() -> None:
    assert paper_score(10, 30, 10, 0, 0) is None
    assert paper_score(10, 30, 10, 0, 50, 1.0) is None, "all weight is on a term that is void"
    assert need_score(300, 0, 0, 5, 1) is None


@pytest.mark.parametrize("row", ROWS)
def test_iv_c_one_secant_step_from_any_two_points_is_exact(row: tuple[float, ...]) -> None:
    """x₂ = x₁ + (1 - f₁)·(x₁ - x₀)/(f₁ - f₀)."""
    for first, second in ((0, 10), (4, 10), (4, 6), (6, 4), (10, 50)):
        step = secant_step(
            ScoredTrial(second, score(second, row)), ScoredTrial(first, score(first, row) if first else 0.0)
        )
        assert step.instances == pytest.approx(row[6], abs=1e-5)
        assert round_up(step.instances) == row[7]


@pytest.mark.parametrize("row", ROWS)
def test_iv_c_without_a_slope_it_is_the_proportional_rule(row: tuple[float, ...]) -> None:
    now = ScoredTrial(10, score(10, row))
    for before in (now, ORIGIN, ScoredTrial(9, now.score), ScoredTrial(11, now.score / 2)):
        step = secant_step(now, before)
        assert step.rule == "proportional"
        assert step.instances == pytest.approx(row[6], abs=1e-5)


def test_iv_c_a_score_of_zero_asks_for_one_more() -> None:
    assert secant_step(ScoredTrial(3, 0.0), ORIGIN).instances == 4


def test_iv_c_the_target_may_be_below_one() -> None:
    assert secant_step(ScoredTrial(10, 0.5), ORIGIN, 0.8).instances == pytest.approx(16)
    assert secant_step(ScoredTrial(10, 0.5), ScoredTrial(4, 0.2), 0.8).instances == pytest.approx(16)
    assert secant_step(ScoredTrial(10, 0.5), ScoredTrial(10, 0.5), 0.8).instances == pytest.approx(16)


@pytest.mark.parametrize("row", NEEDS)
def test_7_4_the_needs_are_added(row: tuple[float, ...]) -> None:
    """f(x) = ρ·C(x) / (R + Q/T)."""
    rate, offered, backlog, f, best, instances = row
    found = need_score(10 * rate, offered, backlog, 5, 1)
    assert found is not None
    assert found == pytest.approx(f, abs=1e-6)
    step = secant_step(ScoredTrial(10, found), ORIGIN)
    assert step.instances == pytest.approx(best, abs=1e-4)
    assert round_up(step.instances) == instances
    assert need_score(10 * rate, offered, backlog, 5, 0.8) == pytest.approx(0.8 * f, abs=1e-6)


def test_6_the_floor_keeps_a_stage_with_a_small_backlog_from_starving() -> None:
    """r = 30, q = 10, R = 300, Q = 10: the score alone wants 2 instances, which do 60 of 300 rows/s."""
    wanted = {}
    for floor in ("none", "rate", "drain"):
        settings = PaperSettings(floor=floor, backlog_each=10, max_factor=100, down_intervals=1, cooldown=0)
        wanted[floor] = Paper(settings).decide(stage(12, 30, 300, 10), Limits(1, 64), None).wanted
    assert wanted == {"none": 2, "rate": 10, "drain": 10}


@pytest.mark.parametrize("name", FLUID_ROWS)
def test_6_and_7_4_the_fluid_queue_to_the_digit(name: str) -> None:
    row = FLUID_ROWS[name]
    assert fluid_run(row.policy, len(row.published)) == row.published


def test_6_the_fluid_queue_with_small_capacities_for_backlogs() -> None:
    """q = 10: without a floor the backlog peaks at 1,950 and 19 instances are too many; with `drain` it peaks at 1,200."""
    settings = PaperSettings(floor="none", backlog_each=10, smoothing=1, down_intervals=1, cooldown=0, new_phase=0)
    trace = fluid_run(Paper(settings), 20)
    assert max(queue for _, queue in trace) == 1950
    assert max(instances for instances, _ in trace) == 19
    assert trace[-1] == (10, 0.0)
    drained = fluid_run(
        Paper(PaperSettings(backlog_each=10, smoothing=1, down_intervals=1, cooldown=0, new_phase=0)), 20
    )
    assert max(queue for _, queue in drained) == 1200
    assert drained[-1] == (10, 0.0)


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("starts", STARTS)
def test_appendix_d_every_phase_ends_at_its_optimum_within_three_trials(
    capacity: tuple[int, int], starts: tuple[int, int]
) -> None:
    """Figure 22: at most four iterations, whatever the capacities and the initial steps."""
    for phase in phases(7):
        gain = gain_of(capacity, phase)
        tried = trials_of_phase(gain, starts)
        best = least_with_score(gain)
        assert tried[-1] == best
        assert len(tried) <= 3
        assert gain * best >= 1 - 1e-8
        assert best == 1 or gain * (best - 1) < 1, "one instance less would not be enough"


@pytest.mark.parametrize(
    ("rate", "offered", "share", "wanted"), [(30, 600, 1.0, 20), (30, 600, 0.8, 25), (100, 1200, 0.9, 14)]
)
def test_ds2_demand_over_true_rate(rate: float, offered: float, share: float, wanted: int) -> None:
    policy = Ds2(Ds2Settings(busy_share=share))
    assert policy.decide(stage(4, rate, offered, 0), Limits(1, 128), None).wanted == wanted
