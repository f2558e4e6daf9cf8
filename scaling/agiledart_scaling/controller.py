"""Who decides on an application: once per interval, for all stages at once, and never while one of them changes.

| state | what moves it |
|---|---|
| WATCHING | an interval ends → all stages are decided in one pass; what shall be done is one request → ASKING |
| ASKING | taken → CHANGING; no room → asked again with half of what was to come, down to one more; refused → WATCHING |
| CHANGING | settled, whatever became of it → RESTING |
| RESTING | the interval that was under way then ends; it counts for nothing → WATCHING |

What was refused, let go or rolled back is not asked again at once: after one interval, then two, four, and at most twelve, so that
a full ring is not asked without end. Meanwhile the policies go on watching, and what they want is told with what stands in its way.
What others do (a user's change, a recovery) is told with the interval, and rests in the same way.

Sans-IO: whoever drives it measures, asks the run's coordinator, and tells what became of it.

Source: scaling specification §7.2, rule 6, and §7.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from agiledart_scaling.one_pass import Ask, Kind, Proposal, StageMemory, StageState, propose

LONGEST_WAIT = 12
"""Intervals between two requests for what was refused."""

ACTIONS = (Kind.GROW, Kind.SHRINK, Kind.REBALANCE, Kind.STRAGGLER, Kind.MOVE)
"""Kinds that are a change of the run; the others leave it as it is."""


class Step(Enum):
    """See the module."""

    WATCHING = "watching"
    ASKING = "asking"
    CHANGING = "changing"
    RESTING = "resting"


@dataclass(frozen=True, slots=True)
class Interval:
    """What is known when an interval has ended.

    Attributes:
        stages: that have limits, in topological order.
        instances: of every stage of the application.
        under_way: what of the run changes, or is brought back, just now; empty: nothing.
        quota: instances that the application may have; None: any number.
    """

    stages: Sequence[StageState]
    instances: Mapping[str, int]
    under_way: str = ""
    quota: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """How it stands with one stage, for people.

    Attributes:
        proposal: of the last interval that counted.
        waits_for: what stands in the way of it; empty: nothing.
    """

    proposal: Proposal
    waits_for: str = ""


@dataclass(slots=True)
class Controller:
    """Of one application.

    Attributes:
        ask: its policy.
        step: see the module.
        standings: of its stages with limits.
    """

    ask: Ask
    step: Step = Step.WATCHING
    standings: dict[str, Standing] = field(default_factory=dict)
    _memories: dict[str, StageMemory] = field(default_factory=dict)
    _orders: tuple[Proposal, ...] = ()
    _before: Mapping[str, int] = field(default_factory=dict)
    _wait: int = 0
    _waits_for: str = ""
    _next_wait: int = 1

    def ended(self, interval: Interval) -> tuple[Proposal, ...]:
        """What is to be requested, all of it in one barrier; empty: nothing."""
        if self.step in (Step.ASKING, Step.CHANGING):
            return ()
        if interval.under_way:
            self.step = Step.RESTING
            self._tell_all(interval.under_way)
            return ()
        if self.step is Step.RESTING:
            self.step = Step.WATCHING
            self._tell_all("the interval after a change does not count")
            return ()
        proposals = propose(interval.stages, self._memories, self.ask, dict(interval.instances), interval.quota)
        self._memories = {one.stage: one.memory for one in proposals}
        wanted = tuple(one for one in proposals if one.kind in ACTIONS)
        self._wait = max(0, self._wait - 1)
        hindered = self._waits_for if wanted and self._wait else ""
        self.standings = {one.stage: Standing(one, hindered if one in wanted else "") for one in proposals}
        if not wanted or self._wait:
            return ()
        self.step, self._orders, self._before = Step.ASKING, wanted, interval.instances
        return wanted

    def taken(self) -> None:
        """What was requested is under way."""
        self.step = Step.CHANGING
        self._tell_orders("")

    def refused(self, why: str, *, for_room: bool = False) -> tuple[Proposal, ...]:
        """What was requested is not done. Returns what is to be requested instead; empty: nothing, and it waits.

        Args:
            for_room: fewer instances might have found room.
        """
        fewer = self._halved() if for_room else ()
        if fewer:
            self._orders = fewer
            return fewer
        self.step = Step.WATCHING
        self._tell_orders(why)
        self._hold_back(why)
        return ()

    def settled(self, why: str = "") -> None:
        """The change is over; `why` it was let go or rolled back, empty when it was done."""
        self.step = Step.RESTING
        if why:
            self._tell_orders(why)
            self._hold_back(why)
        else:
            self._wait, self._next_wait, self._waits_for = 0, 1, ""

    def _halved(self) -> tuple[Proposal, ...]:
        """The same with half of the instances that were to come; those that bring none of their own stay."""
        halved = []
        for one in self._orders:
            more = one.instances - self._before[one.stage]
            if one.kind is not Kind.GROW:
                halved.append(one)
            elif more > 1:
                halved.append(replace(one, instances=self._before[one.stage] + more // 2))
        growing = sum(one.instances for one in self._orders if one.kind is Kind.GROW)
        return tuple(halved) if growing and halved != list(self._orders) else ()

    def _hold_back(self, why: str) -> None:
        self._wait, self._waits_for = self._next_wait + 1, why
        self._next_wait = min(2 * self._next_wait, LONGEST_WAIT)

    def _tell_orders(self, why: str) -> None:
        ordered = {one.stage for one in self._orders}
        self.standings |= {
            name: replace(standing, waits_for=why) for name, standing in self.standings.items() if name in ordered
        }

    def _tell_all(self, why: str) -> None:
        self.standings = {name: replace(standing, waits_for=why) for name, standing in self.standings.items()}
