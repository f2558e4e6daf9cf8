"""Experiment `secant-steps`: deployed trials until a stage has the best number of instances, in phases of constant load.

The paper plots 50 phases and states that at most four iterations are needed; it does not give the ranges of rates and backlogs.
"""

from collections.abc import Callable

from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_experiments.scaling.noise import normal
from agiledart_kernel.randomness import RandomStream
from agiledart_scaling.policies.paper import least_with_score, trials_of_phase
from agiledart_scaling.score import ORIGIN, ScoredTrial, paper_score, secant_step

CAPACITIES = ((30, 10), (20, 20), (10, 30), (50, 50))
STARTS = ((0, 10), (0, 5), (5, 10), (1, 2), (10, 50))
"""Capacities r-q and starts x₀-x₁, as the figure labels them. Departs: only 30-10 and 0-10 are the paper's."""

PHASES = 50
SEEDS = {"small": 3, "paper": 20}
PUBLISHED_MOST = 4

NOISES = {0.0: (3.24, 4), 0.02: (3.27, 5), 0.05: (3.49, 8), 0.1: (4.11, 17), 0.2: (5.22, None)}
"""Mean and most iterations of an independent run of 2,000 phases, by deviation of the measured score."""

NOISY_PHASES = 2000
DEAD_BAND = 0.1
MOST_ITERATIONS = 20
MAX_FACTOR = 2.0

Phase = tuple[float, float]
"""Rate R in rows/s and backlog Q in rows of a phase."""


def phases(seed: int, count: int = PHASES) -> list[Phase]:
    """Draw `count` phases with rates of 100 to 1,000 rows/s and backlogs of 50 to 500 rows."""
    random = RandomStream(seed, "phases")
    return [(random.between(100, 1000), random.between(50, 500)) for _ in range(count)]


def gain_of(capacity: tuple[int, int], phase: Phase) -> float:
    """Return the amount that each instance adds to the paper's score."""
    score = paper_score(1, *capacity, *phase)
    assert score is not None, "rates and backlogs of phases are above 0"
    return score


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each capacity and start, each warm start, and each noise."""
    seeds = range(settings.seed, settings.seed + SEEDS[settings.scale])
    rows = [_steps(capacity, starts, seeds) for capacity in CAPACITIES for starts in STARTS]
    for row in rows:
        row["iterations_max_published"] = PUBLISHED_MOST
    warm = [_warm(seeds, name, before) for name, before in (("last phase", True), ("origin", False))]
    settings.progress(f"{NOISY_PHASES:,} phases for each of {len(NOISES)} noises")
    noisy = [_noisy(settings.seed, noise) for noise in NOISES]
    goals = (
        Goal("every phase ends at its optimum", all(row["optimum_reached"] == 1.0 for row in (*rows, *warm))),
        Goal("at most 3 iterations from cold starts", all(row["iterations_max"] <= 3 for row in rows)),
        Goal("at most 4 iterations anywhere, as published", all(row["iterations_max"] <= 4 for row in (*rows, *warm))),
        Goal("without noise the dead band is met within 5 iterations", noisy[0]["iterations_max"] <= 5),
    )
    parameters = {"phases": PHASES, "seeds": len(seeds), "rate": "100..1000", "backlog": "50..500", "alpha": 0.5}
    notes = (
        "an iteration is one deployed trial, the two that a phase starts with included",
        "warm: the first trial is the number of the phase before, paired with the last trial of that phase, or the origin",
        "noise: of each measured score; other_run: an independent run with another sequence (§6)",
    )
    return ExperimentReport(parameters, (*rows, *warm, *noisy), goals, notes)


def _steps(capacity: tuple[int, int], starts: tuple[int, int], seeds: range) -> Row:
    def tried(phase: Phase) -> list[int]:
        return trials_of_phase(gain_of(capacity, phase), starts)

    return _row(f"{capacity[0]}-{capacity[1]}", f"{starts[0]}-{starts[1]}", capacity, seeds, tried)


def _warm(seeds: range, name: str, uses_last_phase: bool) -> Row:
    """Run phases in sequence: the first trial of each is the number with which the phase before ended."""
    capacity = CAPACITIES[0]
    last = {"x": 10, "before": ScoredTrial(5, 0.5)}

    def tried(phase: Phase) -> list[int]:
        return _warm_trials(gain_of(capacity, phase), last, uses_last_phase)

    return _row(f"{capacity[0]}-{capacity[1]}", f"warm, {name}", capacity, seeds, tried)


def _warm_trials(gain: float, last: dict[str, object], uses_last_phase: bool) -> list[int]:
    """Return the trials from the present number; the pair's other point is of the phase before, or the origin."""
    x, before = last["x"], last["before"]
    assert isinstance(x, int)
    assert isinstance(before, ScoredTrial)
    best, tried = least_with_score(gain), [x]
    pair = before if uses_last_phase else ORIGIN
    while tried[-1] != best and len(tried) < MOST_ITERATIONS:
        now = ScoredTrial(tried[-1], gain * tried[-1])
        tried.append(max(1, round_up(secant_step(now, pair).instances)))
        pair = now
    last["x"], last["before"] = tried[-1], ScoredTrial(tried[-2], gain * tried[-2]) if len(tried) > 1 else pair
    return tried


def round_up(instances: float) -> int:
    """Return the least whole number of instances that suffices."""
    return -int(-(instances - 1e-9) // 1)


def _row(label: str, starts: str, capacity: tuple[int, int], seeds: range, tried: Callable[[Phase], list[int]]) -> Row:
    iterations, reached = [], 0
    for seed in seeds:
        for phase in phases(seed):
            trials = tried(phase)
            iterations.append(len(trials))
            reached += trials[-1] == least_with_score(gain_of(capacity, phase))
    return {
        "capacity": label,
        "start": starts,
        "noise": 0.0,
        "iterations_mean": round(sum(iterations) / len(iterations), 2),
        "iterations_max": max(iterations),
        "optimum_reached": reached / len(iterations),
        "phases": len(iterations),
    }


def _noisy(seed: int, noise: float) -> Row:
    """Run phases with noisy scores; a phase ends when a measured score is within the dead band. Return a row."""
    random = RandomStream(seed, "noise", noise)
    iterations, errors = [], []
    for number, phase in enumerate(phases(seed, NOISY_PHASES)):
        gain = gain_of(CAPACITIES[number % len(CAPACITIES)], phase)
        x, count = _noisy_phase(gain, noise, random)
        iterations.append(count)
        errors.append(abs(x * gain - 1))
    mean, most = NOISES[noise]
    iterations.sort()
    return {
        "capacity": "all",
        "start": "0-10",
        "noise": noise,
        "iterations_mean": round(sum(iterations) / len(iterations), 2),
        "iterations_mean_other_run": mean,
        "iterations_p99": iterations[len(iterations) * 99 // 100],
        "iterations_max": iterations[-1],
        "iterations_max_other_run": most,
        "final_error_mean": round(sum(errors) / len(errors), 3),
        "phases": len(iterations),
    }


def _noisy_phase(gain: float, noise: float, random: RandomStream) -> tuple[int, int]:
    """Return the final number of instances of a phase, and the number of trials."""
    before, x, count = ScoredTrial(0, 0.0), 10, 1
    while count < MOST_ITERATIONS:
        count += 1
        now = ScoredTrial(x, gain * x * max(0.0, normal(random, 1.0, noise)))
        if abs(now.score - 1) <= DEAD_BAND:
            break
        proposal = secant_step(now, before).instances
        following = max(1, round_up(max(x / MAX_FACTOR - 1, min(MAX_FACTOR * x + 1, proposal))))
        if following == x:
            break
        before, x = now, following
    return x, count
