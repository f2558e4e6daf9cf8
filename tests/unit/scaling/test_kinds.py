"""Which kind of change is chosen, and what each of them needs to know."""

from dataclasses import replace

import pytest

from agiledart_scaling.demand import Demand
from agiledart_scaling.kinds.bandwidth import LinkLoad, Remedy, choose_remedy, is_bandwidth_bound
from agiledart_scaling.kinds.candidate_node import CandidateNode, InstanceStart, leaving, places_for
from agiledart_scaling.kinds.quota import Growth, within_quota
from agiledart_scaling.kinds.skew import GroupLoad, balancing_moves, hot_group
from agiledart_scaling.kinds.straggler import slow_intervals, straggler
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import StageMeasures
from agiledart_scaling.one_pass import ChangeKind, Proposal, StageMemory, StageState, propose
from agiledart_scaling.scaling_policy import ScalingDecision


def test_a_straggler_is_slow_for_three_intervals() -> None:
    slow: tuple[int, ...] = ()
    for _ in range(2):
        slow = slow_intervals((100.0, 40.0, 90.0), slow)
        assert straggler((100.0, 40.0, 90.0), slow) is None
    slow = slow_intervals((100.0, 40.0, 90.0), slow)
    assert straggler((100.0, 40.0, 90.0), slow) == 1
    assert slow_intervals((100.0, 60.0, 90.0), slow) == (0, 0, 0), "one good interval begins anew"
    assert slow_intervals((100.0, 40.0), ()) == (0, 1), "it is compared with the other one, not with both"


def test_void_intervals_keep_a_count_and_unmeasured_instances_are_not_slow() -> None:
    assert slow_intervals((100.0, 40.0, 90.0), (0, 2)) == (0, 3, 0)
    assert slow_intervals((100.0,), (0, 2)) == (0,)
    assert slow_intervals((100.0, None), (0, 2)) == (0, 0)
    assert slow_intervals((10.0, None), (2, 0)) == (0, 0), "it has no sibling to be compared with"


def test_groups_move_from_the_fullest_to_the_emptiest_least_state_first() -> None:
    groups = [GroupLoad(100, 10_000), GroupLoad(100, 10), GroupLoad(100, 500), GroupLoad(10, 1)]
    moves = balancing_moves((0, 0, 0, 1), groups, (1000.0, 1000.0))
    assert [(move.group, move.source, move.target) for move in moves] == [(1, 0, 1)]


def test_no_group_moves_when_that_would_only_swap_roles() -> None:
    assert balancing_moves((0, 1), [GroupLoad(100), GroupLoad(10)], (1000.0, 1000.0)) == ()
    assert balancing_moves((0, 0), [GroupLoad(50), GroupLoad(50)], (1000.0, 1000.0)) != ()
    assert balancing_moves((0,) * 3, [GroupLoad(0)] * 3, (1.0, 1.0)) == ()


def test_the_slower_instance_gets_fewer_groups() -> None:
    groups = [GroupLoad(10)] * 12
    table = [0] * 12
    for move in balancing_moves((0,) * 12, groups, (100.0, 50.0)):
        table[move.group] = move.target
    assert table.count(0) in (8, 9)


def test_a_hot_group_exceeds_one_instance() -> None:
    assert hot_group([GroupLoad(10), GroupLoad(81)], 100, 0.8) == 1
    assert hot_group([GroupLoad(10), GroupLoad(79)], 100, 0.8) is None
    assert hot_group([], 100, 0.8) is None


@pytest.mark.parametrize(
    ("load", "free", "bound"),
    [
        (LinkLoad(0.9, 0.5), True, True),
        (LinkLoad(0.79, 0.5), True, False),
        (LinkLoad(0.1, 0.5, 0.9), True, True),
        (LinkLoad(0.9, 0.9), True, False),
        (LinkLoad(0.9, 0.9), False, True),
    ],
)
def test_bandwidth_bound_links_are_recognised(load: LinkLoad, free: bool, bound: bool) -> None:
    assert is_bandwidth_bound(load, has_free_cores=free) is bound


def test_the_table_of_section_4_is_followed() -> None:
    assert choose_remedy(2, has_state=False) is choose_remedy(2, has_state=True) is Remedy.NEW_PATH
    assert choose_remedy(3, has_state=False) is Remedy.OUT
    assert choose_remedy(3, has_state=True) is Remedy.MIGRATE


def test_scaling_up_precedes_scaling_out_and_only_with_free_cores() -> None:
    nodes = [
        CandidateNode("far", 8, 0.0, 8, cost=2.0),
        CandidateNode("near", 2, 0.0, 8, cost=1.0),
        CandidateNode("host", 4, 0.5, 8, hosts=2),
        CandidateNode("full", 4, 0.8, 8, hosts=1),
        CandidateNode("small", 4, 0.0, 0),
    ]
    assert places_for(1, nodes) == (InstanceStart("host", 1, False),)
    assert places_for(6, nodes) == (
        InstanceStart("host", 2, False),
        InstanceStart("near", 2, True),
        InstanceStart("far", 2, True),
    )
    assert sum(one.instances for one in places_for(99, nodes)) == 12, "the others find no room"


def test_remote_instances_are_removed_first_and_one_stays() -> None:
    assert leaving(2, ["a", "b", "a", "b"], "a") == (3, 1)
    assert leaving(3, ["a", "b", "a", "b"], "a") == (3, 2, 1)
    assert leaving(9, ["a", "a"], "a") == (1,)


def test_quota_is_granted_in_rotation_upstream_first() -> None:
    wishes = [Growth("a", 2, 6), Growth("b", 1, 2), Growth("c", 5, 3)]
    assert within_quota(wishes, 0, None) == {"a": 6, "b": 2, "c": 3}
    assert within_quota(wishes, 2, 11) == {"a": 4, "b": 2, "c": 3}
    assert within_quota(wishes, 2, 9) == {"a": 3, "b": 1, "c": 3}
    assert within_quota(wishes, 9, 9) == {"a": 2, "b": 1, "c": 3}, "running instances are not removed"


# ---- one pass


def measures(*rates: float, shares: tuple[float, ...] | None = None) -> StageMeasures:
    """A stage that is offered 100 rows/s."""
    return StageMeasures(rates, shares or (1 / len(rates),) * len(rates), (100.0,), (0.0,))


def wants(number: int) -> object:
    """A policy that always wants so many."""

    def ask(measures: StageMeasures, limits: Limits, memory: object) -> ScalingDecision:
        return ScalingDecision(limits.clamp(number), "wished", {"f": 0.5}, memory)

    return ask


def one(state: StageState, wanted: int, memory: StageMemory | None = None, quota: int | None = None) -> Proposal:
    """The proposal for a stage that has as many instances as it has rates."""
    now = state.measures.instances if state.measures else 2
    memories = {"s": memory} if memory else {}
    ask = wants(wanted)
    assert callable(ask)
    (made,) = propose([state], memories, ask, {"s": now, "sink": 1}, quota)
    return made


CALM = StageState("s", Limits(1, 8), measures(100.0, 100.0), measured=(100.0, 100.0))


def test_the_policy_decides_the_number() -> None:
    assert (one(CALM, 4).kind, one(CALM, 4).instances) == (ChangeKind.GROW, 4)
    assert (one(CALM, 1).kind, one(CALM, 1).instances) == (ChangeKind.SHRINK, 1)
    assert one(CALM, 2).kind is ChangeKind.NOTHING


def test_an_excluded_interval_changes_nothing() -> None:
    made = one(StageState("s", Limits(1, 8), None, "changed in it"), 5, StageMemory("kept", (1, 0), 1))
    assert (made.kind, made.instances, made.why) == (ChangeKind.NOTHING, 2, "changed in it")
    assert made.memory == StageMemory("kept", (1, 0), 1)


def test_a_slow_instance_is_moved_before_more_are_started() -> None:
    state = replace(CALM, measures=measures(100.0, 30.0), measured=(100.0, 30.0))
    made = one(state, 5, StageMemory(None, (0, 2)))
    assert (made.kind, made.slow_instance, made.instances) == (ChangeKind.STRAGGLER, 1, 2)
    assert made.memory.slow == ()
    assert "30 rows/s" in made.why
    assert one(state, 5, StageMemory(None, (0, 1))).kind is ChangeKind.GROW


def test_uneven_keys_move_before_more_instances_are_started() -> None:
    groups = (GroupLoad(30), GroupLoad(30), GroupLoad(30), GroupLoad(10))
    state = replace(CALM, measures=measures(100.0, 100.0, shares=(0.9, 0.1)), owners=(0, 0, 0, 1), groups=groups)
    made = one(state, 5)
    assert (made.kind, made.instances, len(made.moves)) == (ChangeKind.REBALANCE, 2, 1)
    even = replace(state, measures=measures(100.0, 100.0))
    assert one(even, 5).kind is ChangeKind.GROW


def test_a_hot_key_is_reported_and_never_gets_more_instances() -> None:
    groups = (GroupLoad(90), GroupLoad(10))
    state = replace(CALM, measures=measures(100.0, 100.0, shares=(0.9, 0.1)), owners=(0, 1), groups=groups)
    made = one(state, 8)
    assert (made.kind, made.instances) == (ChangeKind.NOTHING, 2)
    assert "key group 0 alone has 90% of the rows" in made.why
    assert made.wanted == 8


def test_a_full_link_gets_another_path_and_then_another_placement() -> None:
    bound = replace(CALM, link=LinkLoad(0.9, 0.2))
    assert one(bound, 4).kind is ChangeKind.NEW_PATH
    assert one(bound, 4, StageMemory(bound=2)).kind is ChangeKind.GROW
    assert one(replace(bound, has_state=True), 4, StageMemory(bound=2)).kind is ChangeKind.MOVE
    assert one(bound, 2, StageMemory(bound=2)).kind is ChangeKind.NOTHING, "it has enough"


def test_rows_that_wait_before_a_full_link_go_out_behind_another_one() -> None:
    waiting = StageMeasures((100.0, 100.0), (0.5, 0.5), (100.0,), (150.0,))
    link = LinkLoad(0.9, 0.2, name="of s.1 to a6", instance=1)
    bound = replace(CALM, measures=waiting, link=link)
    made = one(bound, 2, StageMemory(bound=2))
    assert (made.kind, made.instances, made.slow_instance) == (ChangeKind.GROW, 3, 1)
    assert "the link of s.1 to a6 is full (use 90%, for 3 of 3 intervals)" in made.why
    assert made.terms["link_use"] == 0.9
    assert made.memory.bound == 0, "the change gets as long to help"
    few = replace(bound, measures=replace(waiting, backlog=(99.0,)))
    assert one(few, 2, StageMemory(bound=2)).kind is ChangeKind.NOTHING
    assert one(replace(bound, limits=Limits(1, 2)), 2, StageMemory(bound=2)).kind is ChangeKind.MOVE
    stateful = one(replace(bound, has_state=True), 2, StageMemory(bound=2))
    assert (stateful.kind, stateful.slow_instance) == (ChangeKind.MOVE, 1)


@pytest.mark.parametrize(
    ("now", "rows", "instances"),
    [(2, 40.0, 3), (2, 12.5, 8), (2, 5.0, 8), (5, 12.5, 8), (2, 0.0, 3), (9, 12.5, 10)],
)
def test_a_full_link_gets_as_many_instances_as_make_its_share_fit(now: int, rows: float, instances: int) -> None:
    link = LinkLoad(0.9, 0.2, name="of s.1 to a6", instance=1, rows=rows)
    waiting = StageMeasures((100.0,) * now, (1 / now,) * now, (100.0,), (90_000.0,))
    state = StageState("s", Limits(1, 100), waiting, link=link)
    made = one(state, 100, StageMemory(bound=2))
    assert (made.kind, made.instances) == (ChangeKind.GROW, instances), "however many rows wait"


def test_a_full_link_counts_although_the_stage_works_too_little_for_a_rate() -> None:
    link = LinkLoad(0.9, 0.001, name="of s.1 to a6", instance=1)
    light = StageState("s", Limits(1, 8), None, "too little work", Demand((100.0,), (150.0,)), link=link)
    assert one(light, 2).kind is ChangeKind.NEW_PATH
    made = one(light, 2, StageMemory(bound=2))
    assert (made.kind, made.instances, made.slow_instance) == (ChangeKind.GROW, 3, 1)
    assert one(replace(light, link=replace(link, rows=12.5)), 2, StageMemory(bound=2)).instances == 8
    assert one(replace(light, has_state=True), 2, StageMemory(bound=2)).kind is ChangeKind.MOVE
    spooled = replace(light, demand=Demand((0.0,), (9_000.0,)))
    assert one(spooled, 2, StageMemory(bound=2)).kind is ChangeKind.GROW, "all input waits in a spool"
    for calm in (
        replace(light, demand=Demand((100.0,), (99.0,))),
        replace(light, demand=Demand((0.0,), (9.0,))),
        replace(light, demand=None),
        replace(light, keeps_number=True),
        replace(light, link=LinkLoad(0.7)),
    ):
        assert one(calm, 2, StageMemory(bound=2)).kind is ChangeKind.NOTHING
    assert one(replace(light, link=LinkLoad()), 2, StageMemory(bound=2)).memory.bound == 0


def test_a_number_set_by_hand_holds_visibly() -> None:
    made = one(replace(CALM, keeps_number=True), 6)
    assert (made.kind, made.instances, made.wanted) == (ChangeKind.NOTHING, 2, 6)
    assert made.why.startswith("held at 2; ")


def test_the_remaining_quota_is_reported() -> None:
    made = one(CALM, 6, quota=5)
    assert (made.kind, made.instances) == (ChangeKind.GROW, 4)
    assert "6 wanted, the application's quota of 5 instances leaves 4" in made.why
    assert one(CALM, 6, quota=3).kind is ChangeKind.NOTHING
    assert one(CALM, 1, quota=2).instances == 1, "shrinking is always allowed"
