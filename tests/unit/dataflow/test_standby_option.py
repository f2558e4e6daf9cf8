"""`Topology.standby`: its place in the plan, and its refusals."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from agiledart import Topology, csv, sum_of
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_kernel.errors import TopologyError


class Row(NamedTuple):
    """Input."""

    at: int
    key: int


def build(delivery: str = "exactly-once") -> Topology:
    """Return a topology with a stateless step behind one with state."""
    topology = Topology("sums", delivery=delivery)
    rows = topology.source("rows", csv("rows.csv"), rows=Row, event_time=lambda row: row.at)
    sums = rows.key_by(lambda row: row.key, returns=int).running("sums", sum_of(lambda row: row.at))
    sums.filter(lambda row: True, name="all").sink("out", csv("out.csv"))
    return topology


def standbys(topology: Topology) -> dict[str, int]:
    """Return stage → number of standby hosts."""
    return {stage.name: stage.standby for stage in plan_stages(topology.specification()).stages}


def test_the_stage_of_the_step_has_the_standby() -> None:
    topology = build()
    before = topology.specification().digest()
    topology.standby("all")
    assert standbys(topology) == {"rows": 0, "sums+all": 1, "out": 0}
    assert topology.specification().digest() != before, "a user's command signs it"
    topology.standby("all", 0)
    assert topology.specification().digest() == before


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda t: t.standby("sum"), "no step 'sum' to give a standby. Did you mean sums"),
        (lambda t: t.standby("sums", 2), "can have 0 or 1 standby hosts, not 2"),
        (lambda t: t.standby("sums", True), "not True"),
        (lambda t: t.standby("rows"), "'rows' is a source, which stays at its node"),
        (lambda t: t.standby("out"), "'out' is a sink"),
    ],
)
def test_a_mistake_is_named_with_its_place(call: Callable[[Topology], None], text: str) -> None:
    with pytest.raises(TopologyError, match=text) as caught:
        call(build())
    assert "test_standby_option.py" in str(caught.value)


def test_without_saved_state_there_is_nothing_to_hold() -> None:
    with pytest.raises(TopologyError, match=r"a standby of 'sums' needs .*: without it no state is saved"):
        build("at-most-once").standby("sums")
