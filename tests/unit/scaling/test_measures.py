"""True rates, shares, capacity, and demand that is carried from the sources."""

import pytest

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_scaling.demand import Demand, DemandEdge, EdgeFlow, carried
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import InstanceMeasures, StageMeasures, rates_of, shares_of


def instance(rows: int, busy_ms: int) -> InstanceMeasures:
    """One that did so many rows in so much work."""
    return InstanceMeasures(rows, rows, busy_ms * MILLISECOND)


def test_a_true_rate_is_rows_per_busy_second_and_void_with_little_work() -> None:
    assert instance(500, 250).true_rate == 2000
    assert instance(49, 250).true_rate is None
    assert instance(500, 19).true_rate is None
    assert InstanceMeasures(50, 0, 20 * MILLISECOND).true_rate == 50 * SECOND / (20 * MILLISECOND)


def test_a_void_measure_takes_the_siblings_mean_else_the_known_value() -> None:
    assert rates_of([instance(100, 100), instance(0, 0), instance(300, 100)], 7) == (1000, 2000, 3000)
    assert rates_of([instance(1, 1)], 7, 8) == (7,)
    assert rates_of([instance(1, 1)], None, 8) == (8,)
    assert rates_of([instance(1, 1)]) is None
    assert rates_of([], 7) is None


def test_the_first_full_instance_sets_the_capacity() -> None:
    shares = shares_of([instance(300, 1), instance(100, 1)])
    assert shares == (0.75, 0.25)
    stage = StageMeasures((100.0, 100.0), shares, (120.0, 80.0), (0.0, 5.0))
    assert stage.capacity == pytest.approx(100 / 0.75)
    assert stage.balanced_capacity == 200
    assert stage.offered_mean == 100
    assert stage.mean_rate == 100
    assert shares_of([instance(0, 0)]) == (0.0,)
    assert StageMeasures((100.0, 50.0), (0.0, 0.0), (0.0,), (0.0,)).capacity == 150, "without rows there is no ratio"


@pytest.mark.parametrize(("low", "high"), [(0, 1), (2, 1), (1, 129), (-1, -1)])
def test_impossible_limits_are_rejected(low: int, high: int) -> None:
    with pytest.raises(ConfigurationError, match=r"128 key groups"):
        Limits(low, high)


def flows(*pairs: tuple[int, int]) -> tuple[EdgeFlow, ...]:
    """Intervals of an edge."""
    return tuple(EdgeFlow(rows, sent) for rows, sent in pairs)


SOURCE = Demand((100.0, 200.0), (10.0, 30.0))
DOUBLE = flows((10, 20), (10, 20), (20, 40))


def test_demand_is_propagated_through_selectivities_whatever_arrives() -> None:
    edges = [DemandEdge("in", "a", DOUBLE), DemandEdge("a", "b", flows((4, 1), (0, 0), (4, 1)))]
    demands = carried(["in", "a", "b"], edges, {"in": SOURCE}, {"a": (1.0, 2.0), "b": (0.0, 4.0)})
    assert demands["a"] == Demand((200.0, 400.0), (21.0, 62.0))
    assert demands["b"] == Demand((50.0, 100.0), (5.25, 19.5))


def test_a_stage_with_two_inputs_has_the_sum() -> None:
    edges = [DemandEdge("in", "j", DOUBLE), DemandEdge("other", "j", flows((1, 1), (1, 1), (1, 1)))]
    demands = carried(
        ["in", "other", "j"], edges, {"in": SOURCE, "other": Demand((1.0, 1.0), (0.0, 0.0))}, {"j": (0.0, 0.0)}
    )
    assert demands["j"] == Demand((201.0, 401.0), (20.0, 60.0))


def test_unknown_demand_stays_unknown_downstream() -> None:
    edges = [DemandEdge("in", "a", DOUBLE[:2]), DemandEdge("a", "b", DOUBLE)]
    demands = carried(["in", "a", "b"], edges, {"in": SOURCE}, {"a": (0.0, 0.0), "b": (0.0, 0.0)})
    assert demands["a"] is None, "two intervals say too little"
    assert demands["b"] is None
    assert DemandEdge("a", "b", flows((0, 0), (0, 0), (0, 0))).selectivity is None


def test_without_rows_no_selectivity_is_needed() -> None:
    edges = [DemandEdge("in", "a", ())]
    demands = carried(["in", "a"], edges, {"in": Demand((0.0, 0.0), (0.0, 0.0))}, {"a": (7.0, 5.0)})
    assert demands["a"] == Demand((0.0, 0.0), (7.0, 5.0))
    assert carried(["in", "a"], edges, {"in": Demand((0.0, 0.0), (0.0, 1.0))}, {"a": (7.0, 5.0)})["a"] is None


def test_a_permanent_backlog_counts_in_full() -> None:
    """Two instances that share a core are busy half of the time each, and can do no more."""
    assert InstanceMeasures(500, 500, SECOND, pressed_ns=5 * SECOND).true_rate == 100
    assert InstanceMeasures(500, 500, SECOND).true_rate == 500
