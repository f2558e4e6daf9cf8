"""Decision for all stages of an application in one pass.

The demand of a stage is carried from the sources, so it does not depend on other stages' capacity, and all stages can be
decided at once. The kinds of change are tried in this order: a slow instance, uneven keys, then the number; a full link
overrides more instances.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from agiledart_scaling.demand import Demand
from agiledart_scaling.kinds.bandwidth import (
    SHORT_TERM_INTERVALS,
    LinkLoad,
    Remedy,
    choose_remedy,
    instances_beside,
    is_bandwidth_bound,
)
from agiledart_scaling.kinds.quota import Growth, within_quota
from agiledart_scaling.kinds.skew import GroupLoad, GroupMove, balancing_moves, hot_group, hot_text, is_uneven
from agiledart_scaling.kinds.straggler import slow_intervals, straggler
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import LEAST_ROWS, StageMeasures
from agiledart_scaling.scaling_policy import ScalingDecision


class ChangeKind(Enum):
    """Kind of change of a stage."""

    NOTHING = "nothing"
    STRAGGLER = "switch a slow instance over"
    REBALANCE = "move key groups"
    GROW = "more instances"
    SHRINK = "fewer instances"
    MOVE = "move to other links"
    NEW_PATH = "another path of the shuffle"


@dataclass(frozen=True, slots=True)
class StageState:
    """Facts about one stage when its interval ends.

    Attributes:
        stage: its name.
        limits: of its instances.
        measures: of the interval; None: it does not count, for the reason in `void`.
        void: reason why there are no measures.
        demand: rows that it must process, where there are no measures: links may be full although it works little; None: unknown.
        measured: true rates by instance, before missing ones were filled in.
        owners: instance of each key group; empty: rows go to instances in turn.
        groups: load of each key group; empty: unknown.
        moves_groups: whether single key groups can be moved; if not, uneven keys are met with more instances.
        link: load of its node and links.
        has_free_cores: whether the nodes that host it have free cores.
        has_state: whether it has state.
        keeps_number: it keeps its number until a user releases it; the policy sees the interval, and its decision is only shown.
    """

    stage: str
    limits: Limits
    measures: StageMeasures | None
    void: str = ""
    demand: Demand | None = None
    measured: tuple[float | None, ...] = ()
    owners: tuple[int, ...] = ()
    groups: tuple[GroupLoad, ...] = ()
    moves_groups: bool = True
    link: LinkLoad = field(default_factory=LinkLoad)
    has_free_cores: bool = True
    has_state: bool = False
    keeps_number: bool = False


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Memory of a stage from one interval to the next.

    Attributes:
        policy: memory of its policy.
        slow: successive intervals in which each instance was slow.
        bound: successive intervals in which the stage was bandwidth-bound.
    """

    policy: object = None
    slow: tuple[int, ...] = ()
    bound: int = 0


@dataclass(frozen=True, slots=True)
class Proposal:
    """Proposed change of one stage.

    Attributes:
        stage: its name.
        kind: of the change.
        instances: number that it gets.
        why: reason, for people.
        terms: figures of the decision.
        slow_instance: the instance to move; of a growth for a full link, the one behind it.
        moves: of key groups.
        wanted: number that the policy asks for, where the quota or the user's hold allows less.
        memory: for the next interval.
    """

    stage: str
    kind: ChangeKind
    instances: int
    why: str
    terms: dict[str, float] = field(default_factory=dict)
    slow_instance: int | None = None
    moves: tuple[GroupMove, ...] = ()
    wanted: int = 0
    memory: StageMemory = StageMemory()


Ask = Callable[[StageMeasures, Limits, object], ScalingDecision]
"""Decision function of a policy: `policy.decide`, or `ask_policy.ask` with all other arguments bound."""

BACKLOG_SECONDS = 1.0
"""Seconds of input that wait for a stage before a full link counts although the policy wants no more instances."""

BUSY_SHARE = 0.8
"""Busy share up to which one instance may process a single key group."""


def propose(
    stages: Sequence[StageState],
    memories: dict[str, StageMemory],
    ask: Ask,
    instances: dict[str, int],
    quota: int | None,
) -> tuple[Proposal, ...]:
    """Return one proposal for each stage.

    Args:
        stages: those that may change, in topological order.
        memories: from the previous pass, by stage; missing: none.
        ask: the policy.
        instances: number of instances of every stage of the application now.
        quota: instances that the application may have; None: any number.
    """
    proposals = [
        _propose_one(state, memories.get(state.stage, StageMemory()), ask, instances[state.stage]) for state in stages
    ]
    decided = {proposal.stage for proposal in proposals}
    others = sum(number for stage, number in instances.items() if stage not in decided)
    growths = [Growth(proposal.stage, instances[proposal.stage], proposal.instances) for proposal in proposals]
    allowed = within_quota(growths, others, quota)
    return tuple(
        _limited_by_quota(proposal, allowed[proposal.stage], instances[proposal.stage], quota) for proposal in proposals
    )


def _limited_by_quota(proposal: Proposal, allowed: int, now: int, quota: int | None) -> Proposal:
    if allowed >= proposal.instances:
        return proposal
    why = f"{proposal.why}; {proposal.instances} wanted, the application's quota of {quota} instances leaves {allowed}"
    kind = proposal.kind if allowed != now else ChangeKind.NOTHING
    return replace(proposal, kind=kind, instances=allowed, why=why)


def _propose_one(state: StageState, memory: StageMemory, ask: Ask, now: int) -> Proposal:
    measures = state.measures
    is_bound = is_bandwidth_bound(state.link, has_free_cores=state.has_free_cores)
    bound = memory.bound + 1 if is_bound else 0
    if measures is None:
        return _propose_without_measures(state, memory, bound, now)
    decision = ask(measures, state.limits, memory.policy)
    new_memory = StageMemory(decision.memory, slow_intervals(state.measured, memory.slow), bound)
    unchanged = Proposal(
        state.stage,
        ChangeKind.NOTHING,
        now,
        decision.why,
        dict(decision.terms),
        wanted=decision.wanted,
        memory=new_memory,
    )
    if state.keeps_number:
        return replace(unchanged, why=f"held at {now}; {decision.why}")
    return _choose_change(state, measures, unchanged, now)


def _propose_without_measures(state: StageState, memory: StageMemory, bound: int, now: int) -> Proposal:
    """Return the proposal for a stage that does too little work for a rate: a full link may be why."""
    unchanged = Proposal(state.stage, ChangeKind.NOTHING, now, state.void, wanted=now, memory=memory)
    if state.demand is None:
        return unchanged
    unchanged = replace(unchanged, memory=replace(memory, bound=bound))
    if not bound or state.keeps_number or not _has_backlog(state.demand):
        return unchanged
    return _for_links(state, unchanged, now, _offered(state.demand))


def _choose_change(state: StageState, measures: StageMeasures, unchanged: Proposal, now: int) -> Proposal:
    memory, wanted = unchanged.memory, unchanged.wanted
    slow = straggler(state.measured, memory.slow)
    if slow is not None:
        next_memory = replace(memory, slow=())
        why = f"instance {slow} processes {state.measured[slow]:.0f} rows/s, far below its siblings"
        return replace(unchanged, kind=ChangeKind.STRAGGLER, why=why, slow_instance=slow, memory=next_memory)
    if state.groups and is_uneven(measures.capacity, measures.balanced_capacity):
        hot = hot_group(state.groups, measures.mean_rate, BUSY_SHARE)
        if hot is not None:
            return replace(unchanged, why=hot_text(state.groups, hot))
        moves = balancing_moves(state.owners, state.groups, measures.rates) if state.moves_groups else ()
        if moves:
            share = measures.capacity / measures.balanced_capacity
            why = f"uneven keys: the stage is full at {share:.0%} of its instances' capacity"
            return replace(unchanged, kind=ChangeKind.REBALANCE, why=why, moves=moves)
    if memory.bound and (wanted > now or _has_backlog(measures)):
        return _for_links(state, unchanged, now, _offered(measures))
    if wanted != now:
        return replace(unchanged, kind=ChangeKind.GROW if wanted > now else ChangeKind.SHRINK, instances=wanted)
    return unchanged


def _has_backlog(measures: StageMeasures | Demand) -> bool:
    """Return whether so many rows wait for the stage that its links, not its input, are the limit.

    A source that spools may have read all of its input already: then nothing is offered any more, and all of it waits.
    """
    return bool(measures.backlog) and measures.backlog[-1] > max(LEAST_ROWS, BACKLOG_SECONDS * _offered(measures))


def _offered(measures: StageMeasures | Demand) -> float:
    return sum(measures.offered) / max(1, len(measures.offered))


def _for_links(state: StageState, unchanged: Proposal, now: int, offered: float) -> Proposal:
    """Return the change that relieves a full link: instances behind other links, else other links for the one behind it."""
    bound, link = unchanged.memory.bound, state.link
    wanted = min(instances_beside(link, now, offered), state.limits.high)
    remedy = choose_remedy(bound, has_state=state.has_state)
    if remedy is Remedy.OUT and wanted <= now:
        remedy = Remedy.MIGRATE
    name = f"the link {link.name}" if link.name else "a link"
    proposal = replace(
        unchanged,
        why=f"{name} is full (use {link.busiest_link:.0%}, for {bound} of {SHORT_TERM_INTERVALS} intervals): {remedy.value}",
        terms=unchanged.terms | {"link_use": link.busiest_link},
        slow_instance=link.instance,
    )
    if remedy is Remedy.NEW_PATH:
        return replace(proposal, kind=ChangeKind.NEW_PATH)
    proposal = replace(proposal, memory=replace(unchanged.memory, bound=0))  # the change gets as long to help
    if remedy is Remedy.OUT:
        return replace(proposal, kind=ChangeKind.GROW, instances=wanted)
    return replace(proposal, kind=ChangeKind.MOVE)
