"""Voters of a new run: as many as may be lost with the replica nodes of a state."""

import msgspec
import pytest

from agiledart_dataflow.plan.stage_plan import Edge, Stage, StagePlan
from agiledart_kernel.codec import encode
from agiledart_kernel.peer import Peer
from agiledart_node.recovery.register_bootstrap import choose_voters, plan_of
from tests.unit.recovery.bench import peer

STAGES = StagePlan(
    "app",
    b"spec",
    (
        Stage(0, "source", "source", (0,)),
        Stage(1, "stage", "operator", (1,), keyed=True, has_state=True),
        Stage(2, "sink", "sink", (2,)),
    ),
    (Edge(0, 0, 1, "key", "row", 1), Edge(1, 1, 2, "single", "row", 1)),
)
PLACES = {(0, 0): peer(1), (1, 0): peer(2), (2, 0): peer(3)}


def test_five_nodes_vote_when_available_else_three_with_stateful_hosts_last() -> None:
    def voters(*guards: int) -> list[Peer]:
        return choose_voters(encode(STAGES), PLACES, [peer(number) for number in guards])

    assert voters(11, 12, 13, 14, 15) == [peer(n) for n in (11, 12, 13, 14, 15)]
    assert voters(11, 12, 13) == [peer(n) for n in (11, 12, 13, 1, 3)]
    assert voters(11) == [peer(n) for n in (11, 1, 3)]


def test_five_agents_of_one_machine_vote_so_that_two_of_them_may_die() -> None:
    places = {copy: msgspec.structs.replace(host, host="laptop") for copy, host in PLACES.items()}
    guards = [msgspec.structs.replace(peer(number), host="laptop") for number in (11, 12, 13)]
    assert [voter.node for voter in choose_voters(encode(STAGES), places, guards)] == [
        peer(number).node for number in (11, 12, 13, 1, 3)
    ]
    assert len(choose_voters(encode(STAGES), places, guards[:1])) == 3


@pytest.mark.parametrize("lost", ["", "fail", "empty", "previous"])
def test_the_register_carries_the_policy_for_lost_state(lost: str) -> None:
    source, stage, sink = STAGES.stages
    stages = msgspec.structs.replace(STAGES, stages=(source, msgspec.structs.replace(stage, if_lost=lost), sink))
    plan = plan_of(encode(stages), PLACES)
    assert [each.if_lost.value for each in plan.assignments] == ["", lost, ""]


def test_an_only_source_may_have_a_log() -> None:
    """Whether it may move decides then from where the run may go on: the log would stay behind."""
    assert [each.has_log for each in plan_of(encode(STAGES), PLACES).assignments] == [True, False, False]
