"""Whatever is measured: decisions stay within their limits, repeat, and are finite; balancing and quota never make things worse."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_scaling.ask_policy import ask
from agiledart_scaling.kinds.candidate_node import CandidateNode, leaving, places_for
from agiledart_scaling.kinds.quota import Growth, within_quota
from agiledart_scaling.kinds.skew import GroupLoad, balancing_moves
from agiledart_scaling.limits import MOST_INSTANCES, Limits
from agiledart_scaling.measures import StageMeasures
from agiledart_scaling.policies.paper import least_with_score, trials_of_phase
from agiledart_scaling.registry import POLICIES, policy_named
from agiledart_scaling.score import need_score, paper_score

RATES = st.floats(0.01, 1e6)
ROWS = st.floats(0.0, 1e9)


@st.composite
def measures(draw: st.DrawFn) -> StageMeasures:
    """Of one interval; a second may be empty, shares may be all zero."""
    count = draw(st.integers(1, 20))
    weights = draw(st.lists(st.integers(0, 100), min_size=count, max_size=count))
    total = sum(weights)
    shares = tuple(weight / total if total else 0.0 for weight in weights)
    rates = tuple(draw(st.lists(RATES, min_size=count, max_size=count)))
    seconds = draw(st.integers(1, 5))
    offered = tuple(draw(st.lists(ROWS, min_size=seconds, max_size=seconds)))
    return StageMeasures(rates, shares, offered, tuple(draw(st.lists(ROWS, min_size=seconds, max_size=seconds))))


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    """Any."""
    low = draw(st.integers(1, MOST_INSTANCES))
    return Limits(low, draw(st.integers(low, MOST_INSTANCES)))


@pytest.mark.parametrize("name", POLICIES)
@given(intervals=st.lists(measures(), min_size=1, max_size=15), bounds=limits())
def test_a_decision_is_valid_under_any_measurement(name: str, intervals: list[StageMeasures], bounds: Limits) -> None:
    policy = policy_named(name)
    memory: object = None
    for one in intervals:
        decision = policy.decide(one, bounds, memory)
        assert policy.decide(one, bounds, memory) == decision, "it is pure"
        within = bounds.low <= decision.wanted <= bounds.high
        assert within or decision.wanted == one.instances
        if bounds.low <= one.instances <= bounds.high:
            assert within
            assert ask(name, policy, one, bounds, memory, lambda: 0) == decision, "and would be believed of a stranger"
        memory = decision.memory


@given(RATES, RATES, RATES, RATES, st.floats(0.01, 0.99), st.integers(1, 128))
def test_the_papers_optimum_lies_between_both_needs(
    r: float, q: float, arriving: float, waiting: float, weight: float, x: int
) -> None:
    gain = paper_score(1, r, q, arriving, waiting, weight)
    assert gain is not None
    needs = sorted((arriving / r, waiting / q))
    assert needs[0] * (1 - 1e-9) <= 1 / gain <= needs[1] * (1 + 1e-9)
    assert paper_score(x, r, q, arriving, waiting, weight) == pytest.approx(x * gain)


@given(RATES, st.floats(0.01, 1e6), st.floats(0.0, 1e6), st.floats(0.1, 60), st.floats(0.1, 1))
def test_with_the_needs_added_the_optimum_covers_the_rate(
    r: float, offered: float, backlog: float, drain: float, share: float
) -> None:
    """The complement of the paper's score: its optimum may do less than arrives."""
    gain = need_score(r, offered, backlog, drain, share)
    assert gain is not None
    assert 1 / gain * r * share >= offered * (1 - 1e-9)


@given(st.floats(1 / 5000, 5.0), st.integers(0, 200), st.integers(1, 200))
def test_a_phase_of_constant_rates_ends_at_the_optimum_within_four(gain: float, first: int, second: int) -> None:
    if first == second:
        second += 1
    tried = trials_of_phase(gain, (first, second))
    assert tried[-1] == least_with_score(gain)
    assert len(tried) <= 4


@given(st.data(), st.integers(1, 8), st.integers(1, 40))
def test_balancing_never_makes_the_fullest_fuller(data: st.DataObject, instances: int, count: int) -> None:
    owners = data.draw(st.lists(st.integers(0, instances - 1), min_size=count, max_size=count))
    loads = data.draw(st.lists(st.floats(0, 1000), min_size=count, max_size=count))
    rates = tuple(data.draw(st.lists(st.floats(1, 1000), min_size=instances, max_size=instances)))
    groups = [GroupLoad(load, data.draw(st.integers(0, 10**6))) for load in loads]

    def busy(table: list[int]) -> list[float]:
        return [sum(groups[g].rate for g, o in enumerate(table) if o == one) / rates[one] for one in range(instances)]

    table = list(owners)
    for move in balancing_moves(owners, groups, rates):
        before = max(busy(table))
        assert table[move.group] == move.source != move.target
        table[move.group] = move.target
        assert max(busy(table)) <= before * (1 + 1e-9) + 1e-9


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=6),
    st.integers(0, 20),
    st.one_of(st.none(), st.integers(0, 100)),
)
def test_quota_is_not_exceeded(pairs: list[tuple[int, int]], others: int, most: int | None) -> None:
    wishes = [Growth(str(index), now, wanted) for index, (now, wanted) in enumerate(pairs)]
    allowed = within_quota(wishes, others, most)
    for wish in wishes:
        assert min(wish.instances, wish.wanted) <= allowed[wish.stage] <= wish.wanted
    grown = any(allowed[wish.stage] > wish.instances for wish in wishes)
    if most is None:
        assert all(allowed[wish.stage] == wish.wanted for wish in wishes)
    elif grown:
        assert others + sum(allowed.values()) <= most


@given(
    st.integers(0, 200),
    st.lists(
        st.builds(
            CandidateNode,
            st.text("abc", min_size=1, max_size=3),
            st.integers(1, 16),
            st.floats(0, 1),
            st.integers(0, 20),
            st.integers(0, 4),
            st.floats(0, 10),
        ),
        max_size=6,
        unique_by=lambda node: node.node,
    ),
)
def test_granted_instances_exceed_neither_request_nor_capacity(more: int, nodes: list[CandidateNode]) -> None:
    free_instances = {node.node: node for node in nodes}
    arrivals = places_for(more, nodes)
    assert sum(one.instances for one in arrivals) <= more
    assert len({one.node for one in arrivals}) == len(arrivals)
    for one in arrivals:
        node = free_instances[one.node]
        assert 0 < one.instances <= node.free_instances
        assert node.busy_cores < 0.8
        assert one.instances <= max(1, math.ceil(node.cores * (1 - node.busy_cores)))


@given(st.integers(0, 20), st.lists(st.sampled_from("abc"), min_size=1, max_size=10))
def test_removed_instances_are_off_the_coordinators_place_first(fewer: int, places: list[str]) -> None:
    gone = leaving(fewer, places, "a")
    assert len(set(gone)) == len(gone) == min(fewer, len(places) - 1)
    stays = [place for index, place in enumerate(places) if index not in gone]
    if any(places[index] == "a" for index in gone):
        assert set(stays) == {"a"}, "all others went first"
