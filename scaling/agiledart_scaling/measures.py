"""What is measured of a stage in one control interval, and what follows from it: true rates, shares, capacity."""

from collections.abc import Sequence
from dataclasses import dataclass

from agiledart_kernel.instants import MILLISECOND, SECOND

LEAST_ROWS = 50
LEAST_BUSY_NS = 20 * MILLISECOND
"""Fewer rows, or less work, say nothing of a rate: one slow row would decide."""


@dataclass(frozen=True, slots=True)
class InstanceMeasures:
    """What one instance did in one interval.

    Attributes:
        rows: taken in.
        rows_out: put out, on all edges.
        busy_ns: in its own work.
        blocked_ns: in which an output had no room.
        waiting: rows in its inbox and in the senders' channels towards it, at the end.
        pressed_ns: time that it had while rows waited all the time: the interval without what it was blocked; 0: at times
            nothing waited.
    """

    rows: int
    rows_out: int
    busy_ns: int
    blocked_ns: int = 0
    waiting: int = 0
    pressed_ns: int = 0

    @property
    def true_rate(self) -> float | None:
        """Rows per busy second; None where too little was done to say.

        Departs: [Kalavri et al. 2018] §4.1 counts busy time only. Instances that share an executor or a core are busy a part of
        the time and can do no more: while rows wait all the time, all of it counts.
        """
        if self.rows < LEAST_ROWS or self.busy_ns < LEAST_BUSY_NS:
            return None
        return self.rows * SECOND / max(self.busy_ns, self.pressed_ns)


@dataclass(frozen=True, slots=True)
class StageMeasures:
    """What a policy is told of one stage.

    Attributes:
        rates: true rate of each instance, rows/s; as many as there are instances, none of them void.
        shares: of the stage's rows, by instance; sums to 1, or all 0 when no row came.
        offered: R in rows/s for each second of the interval, carried down from the sources, never the throttled rate.
        backlog: Q in rows at the end of each second: what waits here, and its share of what waits further upstream.
    """

    rates: tuple[float, ...]
    shares: tuple[float, ...]
    offered: tuple[float, ...]
    backlog: tuple[float, ...]

    @property
    def instances(self) -> int:
        """x."""
        return len(self.rates)

    @property
    def mean_rate(self) -> float:
        """Rows/s of one instance, all of them equally loaded."""
        return sum(self.rates) / len(self.rates)

    @property
    def balanced_capacity(self) -> float:
        """Rows/s of all instances, if each got what it can do."""
        return sum(self.rates)

    @property
    def capacity(self) -> float:
        """Rows/s at which the first instance is full, given who gets what; never more than the balanced capacity."""
        loaded = [rate / share for rate, share in zip(self.rates, self.shares, strict=True) if share > 0]
        return min([self.balanced_capacity, *loaded])

    @property
    def offered_mean(self) -> float:
        """R over the interval."""
        return sum(self.offered) / len(self.offered)


def rates_of(
    instances: Sequence[InstanceMeasures], last_known: float | None = None, profile: float | None = None
) -> tuple[float, ...] | None:
    """The true rate of each instance; None: nobody knows, and nothing is to be done.

    An instance without a rate of its own has its siblings' mean, else what the stage had last, else what its operator's
    profile says.
    """
    measured = [one.true_rate for one in instances]
    known = [rate for rate in measured if rate is not None]
    instead = sum(known) / len(known) if known else last_known if last_known is not None else profile
    if instead is None or not measured:
        return None
    return tuple(instead if rate is None else rate for rate in measured)


def shares_of(instances: Sequence[InstanceMeasures]) -> tuple[float, ...]:
    """Which part of the stage's rows each instance got; all 0 when none came."""
    total = sum(one.rows for one in instances)
    return tuple(one.rows / total if total else 0.0 for one in instances)
