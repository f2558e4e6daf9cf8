"""One decision for all stages of an application, in one pass.

The demand of a stage is carried from the sources, so it does not depend on what another stage does, and all of them can
be decided at once. The kinds of change are asked in this order: a slow instance, uneven keys, then the number; a full
link overrides more instances.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from agiledart_scaling.kinds.bandwidth import SHORT_TERM_INTERVALS, LinkLoad, Remedy, choose_remedy, is_bandwidth_bound
from agiledart_scaling.kinds.quota import Growth, within_quota
from agiledart_scaling.kinds.skew import GroupLoad, GroupMove, balancing_moves, hot_group, hot_text, is_uneven
from agiledart_scaling.kinds.straggler import slow_intervals, straggler
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import StageMeasures
from agiledart_scaling.scaling_policy import ScalingDecision


class ChangeKind(Enum):
    """What shall be done with a stage."""

    NOTHING = "nothing"
    STRAGGLER = "switch a slow instance over"
    REBALANCE = "move key groups"
    GROW = "more instances"
    SHRINK = "fewer instances"
    MOVE = "move to other links"
    NEW_PATH = "another path of the shuffle"


@dataclass(frozen=True, slots=True)
class StageState:
    """What is known of one stage when its interval ends.

    Attributes:
        stage: its name.
        limits: of its instances.
        measures: of the interval; None: it does not count, for the reason in `void`.
        void: why there are no measures.
        measured: true rates before what is missing was filled in, by instance.
        owners: instance of each key group; empty: rows take turns.
        groups: load of each key group; empty: not known.
        moves_groups: whether somebody would move single key groups; else uneven keys are met with more instances.
        link: of its node and links.
        has_free_cores: on the nodes that host it.
        has_state: whether it keeps any.
        is_held: it keeps its number until a user lets it go; the policy is told of the interval, and its wish is only shown.
    """

    stage: str
    limits: Limits
    measures: StageMeasures | None
    void: str = ""
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
    """What is kept of a stage from one interval to the next.

    Attributes:
        policy: of its policy.
        slow: intervals in a row that each instance was slow.
        bound: intervals in a row that it was bandwidth-bound.
    """

    policy: object = None
    slow: tuple[int, ...] = ()
    bound: int = 0


@dataclass(frozen=True, slots=True)
class Proposal:
    """What shall be done with one stage.

    Attributes:
        stage: its name.
        kind: of the change.
        instances: that it shall have.
        why: for people.
        terms: figures of the decision.
        slow_instance: that is switched over.
        moves: of key groups.
        wanted: what the policy asks for, where quota or hand allow less.
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
"""A policy's decision: `policy.decide`, or `asking.ask` with all but these bound."""

BUSY_SHARE = 0.8
"""An instance that has one key group alone may be this busy with it."""


def propose(
    stages: Sequence[StageState],
    memories: dict[str, StageMemory],
    ask: Ask,
    instances: dict[str, int],
    quota: int | None,
) -> tuple[Proposal, ...]:
    """One proposal for each stage.

    Args:
        stages: that may change, in topological order.
        memories: from the pass before, by stage; missing: none.
        ask: the policy.
        instances: of every stage of the application now.
        quota: of the application; None: none.
    """
    wishes = [_propose_one(one, memories.get(one.stage, StageMemory()), ask, instances[one.stage]) for one in stages]
    decided = {wish.stage for wish in wishes}
    others = sum(number for stage, number in instances.items() if stage not in decided)
    growths = [Growth(wish.stage, instances[wish.stage], wish.instances) for wish in wishes]
    allowed = within_quota(growths, others, quota)
    return tuple(_held_to(wish, allowed[wish.stage], instances[wish.stage], quota) for wish in wishes)


def _held_to(wish: Proposal, allowed: int, now: int, quota: int | None) -> Proposal:
    if allowed >= wish.instances:
        return wish
    why = f"{wish.why}; {wish.instances} wanted, the application's quota of {quota} instances leaves {allowed}"
    kind = wish.kind if allowed != now else ChangeKind.NOTHING
    return replace(wish, kind=kind, instances=allowed, why=why)


def _propose_one(state: StageState, memory: StageMemory, ask: Ask, now: int) -> Proposal:
    measures = state.measures
    if measures is None:
        return Proposal(state.stage, ChangeKind.NOTHING, now, state.void, wanted=now, memory=memory)
    decision = ask(measures, state.limits, memory.policy)
    is_bound = is_bandwidth_bound(state.link, has_free_cores=state.has_free_cores)
    kept = StageMemory(
        decision.memory, slow_intervals(state.measured, memory.slow), memory.bound + 1 if is_bound else 0
    )
    calm = Proposal(
        state.stage, ChangeKind.NOTHING, now, decision.why, dict(decision.terms), wanted=decision.wanted, memory=kept
    )
    if state.keeps_number:
        return replace(calm, why=f"held at {now}; {decision.why}")
    return _kind_of(state, measures, calm, now)


def _kind_of(state: StageState, measures: StageMeasures, calm: Proposal, now: int) -> Proposal:
    kept, wanted = calm.memory, calm.wanted
    slow = straggler(state.measured, kept.slow)
    if slow is not None:
        rest = replace(kept, slow=())
        why = f"instance {slow} does {state.measured[slow]:.0f} rows/s, far below its siblings"
        return replace(calm, kind=ChangeKind.STRAGGLER, why=why, slow_instance=slow, memory=rest)
    if state.groups and is_uneven(measures.capacity, measures.balanced_capacity):
        hot = hot_group(state.groups, measures.mean_rate, BUSY_SHARE)
        if hot is not None:
            return replace(calm, why=hot_text(state.groups, hot))
        moves = balancing_moves(state.owners, state.groups, measures.rates) if state.moves_groups else ()
        if moves:
            why = f"uneven keys: full at {measures.capacity / measures.balanced_capacity:.0%} of what all could do"
            return replace(calm, kind=ChangeKind.REBALANCE, why=why, moves=moves)
    if kept.bound and wanted > now:
        return _for_links(state, calm, wanted)
    if wanted != now:
        return replace(calm, kind=ChangeKind.GROW if wanted > now else ChangeKind.SHRINK, instances=wanted)
    return calm


def _for_links(state: StageState, calm: Proposal, wanted: int) -> Proposal:
    bound = calm.memory.bound
    remedy = choose_remedy(bound, has_state=state.has_state)
    why = f"a link is full (for {bound} of {SHORT_TERM_INTERVALS} intervals): {remedy.value}"
    if remedy is Remedy.OUT:
        return replace(calm, kind=ChangeKind.GROW, instances=wanted, why=why)
    return replace(calm, kind=ChangeKind.MOVE if remedy is Remedy.MIGRATE else ChangeKind.NEW_PATH, why=why)
