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

from agiledart_scaling.one_pass import Ask, ChangeKind, Proposal, StageMemory, StageState, propose

LONGEST_WAIT = 12
"""Intervals between two requests for what was refused."""

ACTIONS = (ChangeKind.GROW, ChangeKind.SHRINK, ChangeKind.REBALANCE, ChangeKind.STRAGGLER, ChangeKind.MOVE)
"""Kinds that are a change of the run; the others leave it as it is."""


class ControllerState(Enum):
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
    running_change: str = ""
    quota: int | None = None


@dataclass(frozen=True, slots=True)
class StageStatus:
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
    step: ControllerState = ControllerState.WATCHING
    statuses: dict[str, StageStatus] = field(default_factory=dict)
    _memories: dict[str, StageMemory] = field(default_factory=dict)
    _requested: tuple[Proposal, ...] = ()
    _before: Mapping[str, int] = field(default_factory=dict)
    _wait: int = 0
    _waits_for: str = ""
    _next_wait: int = 1

    def ended(self, interval: Interval) -> tuple[Proposal, ...]:
        """What is to be requested, all of it in one barrier; empty: nothing."""
        if self.step in (ControllerState.ASKING, ControllerState.CHANGING):
            return ()
        if interval.running_change:
            self.step = ControllerState.RESTING
            self._set_obstacle_of_all(interval.running_change)
            return ()
        if self.step is ControllerState.RESTING:
            self.step = ControllerState.WATCHING
            self._set_obstacle_of_all("the interval after a change does not count")
            return ()
        proposals = propose(interval.stages, self._memories, self.ask, dict(interval.instances), interval.quota)
        self._memories = {one.stage: one.memory for one in proposals}
        wanted = tuple(one for one in proposals if one.kind in ACTIONS)
        self._wait = max(0, self._wait - 1)
        hindered = self._waits_for if wanted and self._wait else ""
        self.statuses = {one.stage: StageStatus(one, hindered if one in wanted else "") for one in proposals}
        if not wanted or self._wait:
            return ()
        self.step, self._requested, self._before = ControllerState.ASKING, wanted, interval.instances
        return wanted

    def taken(self) -> None:
        """What was requested is under way."""
        self.step = ControllerState.CHANGING
        self._set_obstacle_of_requested("")

    def refused(self, why: str, *, for_capacity: bool = False) -> tuple[Proposal, ...]:
        """What was requested is not done. Returns what is to be requested instead; empty: nothing, and it waits.

        Args:
            for_room: fewer instances might have found room.
        """
        fewer = self._halved() if for_capacity else ()
        if fewer:
            self._requested = fewer
            return fewer
        self.step = ControllerState.WATCHING
        self._set_obstacle_of_requested(why)
        self._hold_back(why)
        return ()

    def finalised(self, why: str = "") -> None:
        """The change is over; `why` it was let go or rolled back, empty when it was done."""
        self.step = ControllerState.RESTING
        if why:
            self._set_obstacle_of_requested(why)
            self._hold_back(why)
        else:
            self._wait, self._next_wait, self._waits_for = 0, 1, ""

    def _halved(self) -> tuple[Proposal, ...]:
        """The same with half of the instances that were to come; those that bring none of their own stay."""
        halved = []
        for one in self._requested:
            more = one.instances - self._before[one.stage]
            if one.kind is not ChangeKind.GROW:
                halved.append(one)
            elif more > 1:
                halved.append(replace(one, instances=self._before[one.stage] + more // 2))
        growing = sum(one.instances for one in self._requested if one.kind is ChangeKind.GROW)
        return tuple(halved) if growing and halved != list(self._requested) else ()

    def _hold_back(self, why: str) -> None:
        self._wait, self._waits_for = self._next_wait + 1, why
        self._next_wait = min(2 * self._next_wait, LONGEST_WAIT)

    def _set_obstacle_of_requested(self, why: str) -> None:
        ordered = {one.stage for one in self._requested}
        self.statuses |= {
            name: replace(standing, waits_for=why) for name, standing in self.statuses.items() if name in ordered
        }

    def _set_obstacle_of_all(self, why: str) -> None:
        self.statuses = {name: replace(standing, waits_for=why) for name, standing in self.statuses.items()}
