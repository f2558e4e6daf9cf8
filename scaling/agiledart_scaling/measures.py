"""Measures of a stage in one control interval, and the values derived from them: true rates, shares, capacity."""

from collections.abc import Sequence
from dataclasses import dataclass

from agiledart_kernel.instants import MILLISECOND, SECOND

LEAST_ROWS = 50
LEAST_BUSY_NS = 20 * MILLISECOND
"""Least rows, and least work in nanoseconds, for a rate: with less, one slow row would decide it."""


@dataclass(frozen=True, slots=True)
class InstanceMeasures:
    """Measures of one instance in one interval.

    Attributes:
        rows: rows taken in.
        rows_out: rows put out, on all edges.
        busy_ns: time in its own work.
        blocked_ns: time in which an output was full.
        waiting: rows in its inbox and in the senders' channels towards it, at the end.
        pressed_ns: time available while rows waited all the time: the interval without `blocked_ns`; 0: at some moment no row
            waited.
    """

    rows: int
    rows_out: int
    busy_ns: int
    blocked_ns: int = 0
    waiting: int = 0
    pressed_ns: int = 0

    @property
    def true_rate(self) -> float | None:
        """Rows per busy second; None where the instance did too little work to tell.

        Departs: [Kalavri et al. 2018] §4.1 counts busy time only. Instances that share an executor or a core are busy a part of
        the time and can do no more: while rows wait all the time, all of it counts.
        """
        if self.rows < LEAST_ROWS or self.busy_ns < LEAST_BUSY_NS:
            return None
        return self.rows * SECOND / max(self.busy_ns, self.pressed_ns)


@dataclass(frozen=True, slots=True)
class StageMeasures:
    """Measures of one stage that a policy gets.

    Attributes:
        rates: true rate of each instance, rows/s; as many as there are instances, none of them void.
        shares: share of the stage's rows, by instance; sums to 1, or all 0 when no row came.
        offered: R in rows/s for each second of the interval, carried down from the sources, never the throttled rate.
        backlog: Q in rows at the end of each second: rows that wait here, and its share of those that wait further upstream.
    """

    rates: tuple[float, ...]
    shares: tuple[float, ...]
    offered: tuple[float, ...]
    backlog: tuple[float, ...]

    @property
    def instances(self) -> int:
        """x, the number of instances."""
        return len(self.rates)

    @property
    def mean_rate(self) -> float:
        """Rows/s of one instance, all of them equally loaded."""
        return sum(self.rates) / len(self.rates)

    @property
    def balanced_capacity(self) -> float:
        """Rows/s of all instances, if each got the rows that it can process."""
        return sum(self.rates)

    @property
    def capacity(self) -> float:
        """Rows/s at which the first instance is full, given their shares; never more than the balanced capacity."""
        loaded = [rate / share for rate, share in zip(self.rates, self.shares, strict=True) if share > 0]
        return min([self.balanced_capacity, *loaded])

    @property
    def offered_mean(self) -> float:
        """Mean of R over the interval, rows/s."""
        return sum(self.offered) / len(self.offered)


def rates_of(
    instances: Sequence[InstanceMeasures], last_known: float | None = None, profile: float | None = None
) -> tuple[float, ...] | None:
    """Return the true rate of each instance; None: no rate is known, and the stage must stay as it is.

    An instance without a rate of its own gets the mean of its siblings, else the stage's last known rate, else its operator's
    profile.
    """
    measured = [instance.true_rate for instance in instances]
    known = [rate for rate in measured if rate is not None]
    fallback = sum(known) / len(known) if known else last_known if last_known is not None else profile
    if fallback is None or not measured:
        return None
    return tuple(fallback if rate is None else rate for rate in measured)


def shares_of(instances: Sequence[InstanceMeasures]) -> tuple[float, ...]:
    """Return each instance's share of the stage's rows; all 0 when none came."""
    total = sum(instance.rows for instance in instances)
    return tuple(instance.rows / total if total else 0.0 for instance in instances)
