"""Default policy: the paper's secant step on a score that adds the needs, with measures that bursts do not move.

Order of a decision: the capacity of the stage, the rows that are due, the proposal, then whether to act on it. A stage that
was short in every second grows at once. A stage shrinks only after a minute, and stays above the need of the busiest of
these intervals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agiledart_kernel.errors import ConfigurationError
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import StageMeasures
from agiledart_scaling.scaling_policy import ScalingDecision
from agiledart_scaling.score import ORIGIN, ScoredTrial, need_score, secant_step


@dataclass(frozen=True, slots=True)
class SecantSettings:
    """Settings of the policy.

    Attributes:
        drain_s: T, seconds within which a lasting backlog must be gone; smaller: more instances for the same backlog.
        busy_share: ρ, the planned busy share of an instance's time; smaller: more reserve for bursts.
        dead_band: no shrinking while f is at most 1 + this; growing at once only below 1 - this.
        max_factor: κ, at most κ·x + 1 instances in one step.
        burst_s: a backlog is ignored if the present instances clear it in this time while their capacity exceeds the rate.
        up_intervals: successive intervals that must ask for more instances, unless every second of one did.
        down_intervals: successive intervals that must ask for fewer.
        down_margin: after shrinking, the busiest of these intervals must fit in ρ times this.
        new_phase: when the due rate changes by more than this share, earlier trials are dropped.
        uses_secant: False: the proportional rule alone.
    """

    drain_s: float = 5.0
    busy_share: float = 0.8
    dead_band: float = 0.1
    max_factor: float = 4.0
    burst_s: float = 20.0
    up_intervals: int = 2
    down_intervals: int = 12
    down_margin: float = 0.85
    new_phase: float = 0.2
    uses_secant: bool = True

    def __post_init__(self) -> None:
        if self.drain_s <= 0 or not 0 < self.busy_share <= 1 or not 0 < self.down_margin <= 1 or self.max_factor < 1:
            raise ConfigurationError(
                "secant: set drain_s > 0, 0 < busy_share ≤ 1, 0 < down_margin ≤ 1 and max_factor ≥ 1."
            )
        if min(self.up_intervals, self.down_intervals) < 1:
            raise ConfigurationError("secant: set up_intervals and down_intervals to 1 or more.")


@dataclass(frozen=True, slots=True)
class SecantMemory:
    """Knowledge of the policy about a stage from earlier intervals.

    Attributes:
        seconds: offered rates of each of the last intervals by second, sorted; as many as `down_intervals`.
        instances: number of instances in the last interval.
        rate: capacity for each instance, smoothed while their number stays.
        points: (x, C) of this phase, the last two with different x.
        due: rows/s with which the phase began.
        shorts, longs: successive intervals that asked for more, for fewer.
    """

    seconds: tuple[tuple[float, ...], ...] = ()
    instances: int = 0
    rate: float = 0.0
    points: tuple[tuple[int, float], ...] = ()
    due: float | None = None
    shorts: int = 0
    longs: int = 0


@dataclass(frozen=True, slots=True)
class Secant:
    """The policy `secant`.

    Source: [AgileDART] IV-C for the step.
    Departs: score, measures and the waiting intervals are this project's; decision 0020 gives the reasons.
    """

    settings: SecantSettings = SecantSettings()

    def decide(self, measures: StageMeasures, limits: Limits, memory: object) -> ScalingDecision:
        """Return the decision; see `ScalingPolicy`."""
        s = self.settings
        known = memory if isinstance(memory, SecantMemory) else SecantMemory()
        known = self._learn(measures, known)
        x, capacity = measures.instances, known.rate * measures.instances
        if x != limits.clamp(x):
            return ScalingDecision(limits.clamp(x), f"outside its limits {limits.low}..{limits.high}", {}, known)
        usable = capacity * s.busy_share
        # A stage short in every second counts by this interval alone; otherwise the last two smooth bursts out.
        is_short_throughout = min(measures.offered) > usable
        seconds = known.seconds[-1] if is_short_throughout else sorted(sum(known.seconds[-2:], ()))
        offered, backlog = seconds[len(seconds) // 2], min(measures.backlog)
        due = offered + backlog / s.drain_s
        f = need_score(capacity, offered, backlog, s.drain_s, s.busy_share)
        terms = {"offered": offered, "backlog": backlog, "capacity": capacity, "due": due}
        if f is None:
            terms["needed"] = limits.low
            return self._shrink(x, limits.low, limits, known, terms, "idle: no row comes, none waits")
        terms["f"] = f
        # A large change of the due rate begins a new phase: a line through trials of two phases means nothing.
        if known.due is None or abs(due - known.due) > s.new_phase * known.due:
            known = replace(known, points=(), due=due)
        before = next((ScoredTrial(px, f / capacity * pc) for px, pc in reversed(known.points) if px != x), ORIGIN)
        # Keep the last point with another x only: the secant needs two different numbers of instances.
        others = tuple(point for point in known.points if point[0] != x)
        points = (*others[-1:], (x, capacity))
        step = secant_step(ScoredTrial(x, f), before if s.uses_secant else ORIGIN)
        wanted = limits.clamp(math.ceil(min(step.instances, s.max_factor * x + 1) - 1e-9))
        terms["needed"] = wanted
        why = f"{step.rule}: f {f:.2f}"
        if wanted <= x:
            known = replace(known, points=points, shorts=0)
            if wanted == x or f <= 1 + s.dead_band:
                bound = f", at its limit of {limits.high}" if f < 1 - s.dead_band and x >= limits.high else ""
                if known.longs:
                    known = replace(known, longs=0)
                return ScalingDecision(x, f"f {f:.2f}{bound or ': enough'}", terms, known)
            return self._shrink(x, wanted, limits, known, terms, why)
        known = replace(known, points=points, longs=0)
        # The rate fits, so the backlog is a burst that the present instances will clear.
        if offered <= usable and backlog <= s.burst_s * (capacity - offered):
            gone = backlog / (capacity - offered) if capacity > offered else 0.0
            return ScalingDecision(x, f"a burst: {backlog:.0f} rows wait, gone in {gone:.0f} s", terms, known)
        known = replace(known, shorts=known.shorts + 1)
        if known.shorts < s.up_intervals and not (is_short_throughout and f < 1 - s.dead_band):
            return ScalingDecision(x, f"{why}, for {known.shorts} of {s.up_intervals} intervals", terms, known)
        return ScalingDecision(wanted, why, terms, replace(known, shorts=0))

    def _learn(self, measures: StageMeasures, known: SecantMemory) -> SecantMemory:
        """Return the memory with this interval's rates.

        The capacity of an instance depends on x because cores are shared, so it is smoothed only while x stays.
        """
        seconds = (*known.seconds, tuple(sorted(measures.offered)))[-self.settings.down_intervals :]
        rate = measures.capacity / measures.instances
        if known.instances == measures.instances and known.rate:
            rate = (rate + known.rate) / 2
        return replace(known, seconds=seconds, instances=measures.instances, rate=rate)

    def _shrink(
        self, x: int, wanted: int, limits: Limits, known: SecantMemory, terms: dict[str, float], why: str
    ) -> ScalingDecision:
        """Decide on fewer instances after enough intervals asked for them; never below the need of the busiest of these
        intervals."""
        s = self.settings
        busiest = max(_median(seconds) for seconds in known.seconds)
        needed = math.ceil(busiest / (known.rate * s.busy_share * s.down_margin) - 1e-9)
        least = limits.clamp(max(wanted, needed))
        if least >= x:
            return ScalingDecision(
                limits.clamp(x),
                why if x <= limits.low else f"{why}; the last minute needs all",
                terms,
                replace(known, longs=0),
            )
        longs = known.longs + 1
        if longs < s.down_intervals:
            waits = f"{why}, for {longs} of {s.down_intervals} intervals"
            return ScalingDecision(x, waits, terms, replace(known, longs=longs))
        return ScalingDecision(least, why, terms, replace(known, longs=0))


def _median(sorted_rates: Sequence[float]) -> float:
    """Return the median of sorted rates, the upper one of an even number."""
    return sorted_rates[len(sorted_rates) // 2]
