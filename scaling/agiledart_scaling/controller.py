"""Scaling controller of an application: decides once per interval for all stages, never while one of them changes.

| state | transition |
|---|---|
| WATCHING | an interval ends → all stages are decided in one pass; all their changes are one request → ASKING |
| ASKING | accepted → CHANGING; no capacity → requested again with half of the new instances, down to one; refused → WATCHING |
| CHANGING | finalised, with whatever outcome → RESTING |
| RESTING | the current interval ends; it does not count → WATCHING |

A request that was refused, dropped or rolled back is not repeated at once: the controller waits one interval, then two, four,
and at most twelve, so that a full ring is not asked endlessly. After a dropped growth it asks for half of the new instances,
until a growth succeeds: a slow machine starts few processes in the time of a change. Meanwhile the policies go on watching, and
their proposals are shown with the obstacle. Changes that others start (a user's change, a recovery) come with the interval, and
the controller rests in the same way.

Sans-IO: the driver measures, asks the run's coordinator, and reports the outcome.

Source: scaling specification §7.2, rule 6, and §7.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from agiledart_scaling.one_pass import Ask, ChangeKind, Proposal, StageMemory, StageState, propose

LONGEST_WAIT = 12
"""Longest wait, in intervals, between two requests after a refusal."""

ACTIONS = (ChangeKind.GROW, ChangeKind.SHRINK, ChangeKind.REBALANCE, ChangeKind.STRAGGLER, ChangeKind.MOVE)
"""Kinds that change the run; the others leave it as it is. Agents carry out STRAGGLER, GROW and SHRINK only."""


class ControllerState(Enum):
    """State of the controller; the module documentation has the transitions."""

    WATCHING = "watching"
    ASKING = "asking"
    CHANGING = "changing"
    RESTING = "resting"


@dataclass(frozen=True, slots=True)
class Interval:
    """Facts that are known when an interval has ended.

    Attributes:
        stages: those with limits, in topological order.
        instances: number of instances of every stage of the application.
        running_change: the change or restart of the run under way now, in words; empty: none.
        quota: instances that the application may have; None: any number.
    """

    stages: Sequence[StageState]
    instances: Mapping[str, int]
    running_change: str = ""
    quota: int | None = None


@dataclass(frozen=True, slots=True)
class StageStatus:
    """Status of one stage, for people.

    Attributes:
        proposal: of the last interval that counted.
        waits_for: the obstacle to it; empty: none.
    """

    proposal: Proposal
    waits_for: str = ""


@dataclass(slots=True)
class Controller:
    """State machine that scales one application.

    Attributes:
        ask: its policy.
        step: its state, see the module.
        statuses: of its stages with limits, by name.
    """

    ask: Ask
    step: ControllerState = ControllerState.WATCHING
    statuses: dict[str, StageStatus] = field(default_factory=dict)
    _memories: dict[str, StageMemory] = field(default_factory=dict)
    _requested: tuple[Proposal, ...] = ()
    _before: Mapping[str, int] = field(default_factory=dict)
    _most_new: dict[str, int] = field(default_factory=dict)
    """Stage → new instances that a request may have since its last growth was dropped."""
    _wait: int = 0
    _waits_for: str = ""
    _next_wait: int = 1

    def ended(self, interval: Interval) -> tuple[Proposal, ...]:
        """Handle the end of an interval. Returns the changes to request, all of them in one barrier; empty: none."""
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
        self._memories = {proposal.stage: proposal.memory for proposal in proposals}
        actions = tuple(
            self._limited(proposal, interval.instances) for proposal in proposals if proposal.kind in ACTIONS
        )
        # Policies are asked during a wait, too: their memories stay current and users see the proposals.
        self._wait = max(0, self._wait - 1)
        obstacle = self._waits_for if actions and self._wait else ""
        self.statuses = {
            proposal.stage: StageStatus(proposal, obstacle if proposal.kind in ACTIONS else "")
            for proposal in proposals
        }
        if not actions or self._wait:
            return ()
        self.step, self._requested, self._before = ControllerState.ASKING, actions, interval.instances
        return actions

    def taken(self) -> None:
        """Handle the acceptance of the request: its changes are under way."""
        self.step = ControllerState.CHANGING
        self._set_obstacle_of_requested("")

    def refused(self, why: str, *, for_capacity: bool = False) -> tuple[Proposal, ...]:
        """Handle the refusal of the request. Returns a smaller request instead; empty: none, and the controller waits.

        Args:
            why: reason of the refusal, for people.
            for_capacity: fewer instances might have found a node.
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
        """Handle the end of the change; `why` it was dropped or rolled back, empty when it was done."""
        self.step = ControllerState.RESTING
        growing = [proposal for proposal in self._requested if proposal.kind is ChangeKind.GROW]
        if why:
            self._set_obstacle_of_requested(why)
            self._hold_back(why)
            for proposal in growing:
                self._most_new[proposal.stage] = max(1, (proposal.instances - self._before[proposal.stage]) // 2)
        else:
            for proposal in growing:
                self._most_new.pop(proposal.stage, None)
            self._wait, self._next_wait, self._waits_for = 0, 1, ""

    def _limited(self, proposal: Proposal, instances: Mapping[str, int]) -> Proposal:
        """Return the proposal with no more new instances than a dropped growth of its stage leaves."""
        most = self._most_new.get(proposal.stage)
        if proposal.kind is not ChangeKind.GROW or most is None:
            return proposal
        return replace(proposal, instances=min(proposal.instances, instances[proposal.stage] + most))

    def _halved(self) -> tuple[Proposal, ...]:
        """Return the request with half of the new instances; proposals that add none stay as they are."""
        halved = []
        for proposal in self._requested:
            more = proposal.instances - self._before[proposal.stage]
            if proposal.kind is not ChangeKind.GROW:
                halved.append(proposal)
            elif more > 1:
                halved.append(replace(proposal, instances=self._before[proposal.stage] + more // 2))
        growing = sum(proposal.instances for proposal in self._requested if proposal.kind is ChangeKind.GROW)
        return tuple(halved) if growing and halved != list(self._requested) else ()

    def _hold_back(self, why: str) -> None:
        self._wait, self._waits_for = self._next_wait + 1, why
        self._next_wait = min(2 * self._next_wait, LONGEST_WAIT)

    def _set_obstacle_of_requested(self, why: str) -> None:
        requested = {proposal.stage for proposal in self._requested}
        self.statuses |= {
            name: replace(status, waits_for=why) for name, status in self.statuses.items() if name in requested
        }

    def _set_obstacle_of_all(self, why: str) -> None:
        self.statuses = {name: replace(status, waits_for=why) for name, status in self.statuses.items()}
