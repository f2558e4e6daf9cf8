"""The paper's policy: `paper` as written, `paper-floor` with a floor that keeps a stage from starving.

The score is a weighted mean, measured rates and backlogs are means, and the policy grows without waiting.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agiledart_kernel.errors import ConfigurationError
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import StageMeasures
from agiledart_scaling.scaling_policy import ScalingDecision
from agiledart_scaling.score import ORIGIN, ScoredTrial, paper_score, secant_step

FLOORS = ("drain", "rate", "none")
"""`drain`: enough to clear arriving rows and the backlog in time; `rate`: enough for the arriving rows; `none`: the paper."""

LEAST_BACKLOG_S = 0.1
"""A backlog shorter than this time's arriving rows counts for nothing in the floor `drain`."""


@dataclass(frozen=True, slots=True)
class PaperSettings:
    """Settings of the policy.

    Attributes:
        weight: α, of the rates in the score.
        target: of the score; below 1 trades health for throughput.
        drain_s: T, seconds within which the floor `drain` plans to clear the backlog.
        backlog_each: q, rows that one instance may hold; None: the rows that it processes in `drain_s`.
        busy_share: ρ, that the floor plans with.
        dead_band: no action within this distance from the target.
        max_factor: κ, from x/κ - 1 to κ·x + 1 in one step.
        smoothing: λ, weight of the newest rate and backlog; 1: none.
        down_intervals: successive intervals that must ask for fewer instances.
        cooldown: intervals after a change without shrinking.
        new_phase: when a rate or backlog moves by more than this share, the previous trial is dropped.
        floor: one of `FLOORS`.
    """

    weight: float = 0.5
    target: float = 1.0
    drain_s: float = 5.0
    backlog_each: float | None = None
    busy_share: float = 1.0
    dead_band: float = 0.1
    max_factor: float = 2.0
    smoothing: float = 0.5
    down_intervals: int = 3
    cooldown: int = 2
    new_phase: float = 0.2
    floor: str = "drain"

    def __post_init__(self) -> None:
        if self.floor not in FLOORS:
            raise ConfigurationError(f"paper: floor = {self.floor!r}: use one of {', '.join(FLOORS)}.")
        if self.drain_s <= 0 or not 0 < self.busy_share <= 1 or not 0 < self.smoothing <= 1 or self.max_factor < 1:
            raise ConfigurationError(
                "paper: set drain_s > 0, 0 < busy_share ≤ 1, 0 < smoothing ≤ 1 and max_factor ≥ 1."
            )
        if not 0 <= self.weight <= 1 or self.target <= 0:
            raise ConfigurationError("paper: set 0 ≤ weight ≤ 1 and target > 0.")


@dataclass(frozen=True, slots=True)
class PaperMemory:
    """Knowledge of the policy about a stage from earlier intervals.

    Attributes:
        arriving, waiting: R and Q, smoothed; None before the first interval.
        before: the trial before this one, of this phase.
        last: the last trial.
        longs: successive intervals that asked for fewer.
        since: intervals since the number changed.
    """

    arriving: float | None = None
    waiting: float = 0.0
    before: ScoredTrial = ORIGIN
    last: ScoredTrial | None = None
    longs: int = 0
    since: int = 0


@dataclass(frozen=True, slots=True)
class Paper:
    """The policy `paper`.

    Source: [AgileDART] IV-C. When rate or backlog moved, the pair of trials begins again with the origin: the older score was
    measured under other rates, and a line through both means nothing.
    """

    settings: PaperSettings = PaperSettings()

    def decide(self, measures: StageMeasures, limits: Limits, memory: object) -> ScalingDecision:
        """Return the decision; see `ScalingPolicy`."""
        s, x = self.settings, measures.instances
        known = memory if isinstance(memory, PaperMemory) else PaperMemory(since=s.cooldown)
        arriving = self._smooth(measures.offered_mean, known.arriving)
        waiting = self._smooth(measures.backlog[-1], known.waiting if known.arriving is not None else None)
        # A jump of rate or backlog begins a new phase: the previous trial was measured under other rates.
        is_new_phase = known.arriving is None or any(
            abs(new - old) > s.new_phase * old for new, old in ((arriving, known.arriving), (waiting, known.waiting))
        )
        rate = measures.mean_rate
        backlog_each = rate * s.drain_s if s.backlog_each is None else s.backlog_each
        f = paper_score(x, rate, backlog_each, arriving, waiting, s.weight)
        changed = known.last is not None and known.last.instances != x
        known = replace(known, arriving=arriving, waiting=waiting, since=0 if changed else known.since + 1)
        terms = {
            "offered": arriving,
            "backlog": waiting,
            "capacity": rate * x,
            "rate_each": rate,
            "backlog_each": backlog_each,
            "weight": s.weight,
        }
        if x != limits.clamp(x):
            return ScalingDecision(limits.clamp(x), f"outside its limits {limits.low}..{limits.high}", terms, known)
        if f is None:
            return ScalingDecision(
                limits.low, "idle: no row comes, none waits", terms, replace(known, last=ScoredTrial(x, 0.0), longs=0)
            )
        terms["f"] = f
        before = ORIGIN if is_new_phase else known.last if changed and known.last else known.before
        now = ScoredTrial(x, f)
        known = replace(known, before=before, last=now)
        floor = self._floor(arriving, waiting, rate)
        # Inside the dead band nothing changes, unless the floor asks for more instances.
        if abs(f - s.target) <= s.dead_band and limits.clamp(floor) <= x:
            return ScalingDecision(x, f"f {f:.2f}: enough", terms, replace(known, longs=0))
        step = secant_step(now, before, s.target)
        # One step is bounded in both directions, because the line through two trials may overshoot.
        proposal = max(x / s.max_factor - 1, min(s.max_factor * x + 1, step.instances))
        wanted = limits.clamp(max(math.ceil(proposal - 1e-9), floor))
        why = f"{step.rule}: f {f:.2f}" if wanted > floor else f"f {f:.2f}, at least {floor} by the floor {s.floor}"
        return self._decide(x, wanted, why, terms, known)

    def _decide(self, x: int, wanted: int, why: str, terms: dict[str, float], known: PaperMemory) -> ScalingDecision:
        """Return more instances at once, fewer only after enough intervals asked for them."""
        s = self.settings
        if wanted >= x:
            return ScalingDecision(wanted, why, terms, replace(known, longs=0))
        longs = known.longs + 1
        if longs < s.down_intervals or known.since < s.cooldown:
            return ScalingDecision(
                x, f"{why}, for {longs} of {s.down_intervals} intervals", terms, replace(known, longs=longs)
            )
        return ScalingDecision(wanted, why, terms, replace(known, longs=0))

    def _smooth(self, new: float, old: float | None) -> float:
        share = self.settings.smoothing
        return new if old is None else share * new + (1 - share) * old

    def _floor(self, arriving: float, waiting: float, rate: float) -> int:
        """Return the least number of instances that keeps up.

        Departs: [AgileDART] IV-C has none; while the backlog is small its score asks for less capacity than arrives.
        """
        s = self.settings
        if s.floor == "none":
            return 0
        counts = s.floor == "drain" and waiting > LEAST_BACKLOG_S * arriving
        due = arriving + (waiting / s.drain_s if counts else 0.0)
        return math.ceil(due / (rate * s.busy_share) - 1e-9)


def least_with_score(gain: float, target: float = 1.0) -> int:
    """Return the least number of instances whose score reaches the target, when each adds `gain`: the optimum of a phase."""
    return max(1, math.ceil(target / gain - 1e-9))


def trials_of_phase(gain: float, starts: Sequence[int], most: int = 20) -> list[int]:
    """Return the numbers tried in a phase of constant rate and backlog, up to the optimum: first the starts, then secant steps.

    Source: [AgileDART] appendix D, figure 22.
    """
    best = least_with_score(gain)
    tried: list[int] = []
    for start in starts:
        tried.append(start)
        if start == best:
            return tried
    while tried[-1] != best and len(tried) < most:
        now, before = (ScoredTrial(x, gain * x) for x in (tried[-1], tried[-2] if len(tried) > 1 else 0))
        tried.append(max(1, math.ceil(secant_step(now, before).instances - 1e-9)))
    return tried
