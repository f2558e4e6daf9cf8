"""Plans that changes lead to: placement, moves, and user errors."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from agiledart_dataflow.plan.stage_plan import Edge, Stage, StageKind, StagePlan
from agiledart_dataflow.state.owner_table import owners_by_key
from agiledart_kernel.codec import encode
from agiledart_kernel.errors import TopologyError
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.recovery.change_plans import NodeCapacity, drained, moved, scaled, stage_plan_of
from agiledart_node.recovery.change_requests import plan_for
from agiledart_node.recovery.run_status import changes_of
from agiledart_node.wire.change_messages import MOVE, ChangeRequest
from agiledart_recovery.attempts.coordinator import Coordinator
from agiledart_recovery.attempts.generation_change import plan_fault
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId, Voter
from agiledart_recovery.wire.register_value import (
    Assignment,
    ChangeOutcome,
    InstanceRole,
    InstanceSnapshot,
    LossPolicy,
    Plan,
    RegisterValue,
    SavedState,
    StageChange,
)

PI = [Peer(NodeId(number), 1, f"pi{number}") for number in range(5)]


def _stage(index: int, name: str, kind: StageKind, number: int = 1, high: int = 1, at: str = "") -> Stage:
    owners = owners_by_key(number) if high > 1 else b""
    return Stage(index, name, kind, (index,), number, high > 1, at=at, high=high, owners=owners)


def value(number: int = 2, *, at: str = "", top: str = "top") -> RegisterValue:
    stages = (
        _stage(0, "trips", "source"),
        _stage(1, "busy+areas", "operator", number, 4, at=at),
        _stage(2, top, "operator"),
        _stage(3, "out", "sink"),
    )
    edges = tuple(Edge(index, index, index + 1, "key" if not index else "single", "row", 1) for index in range(3))
    places = [PI[0], *(PI[1 + index % 2] for index in range(number)), PI[1], PI[3]]
    names = [(0, 0), *((1, index) for index in range(number)), (2, 0), (3, 0)]
    roles = {0: InstanceRole.SOURCE, 3: InstanceRole.SINK}
    instances = tuple(
        Assignment(
            InstanceId(str(stage), 1, index), roles.get(stage, InstanceRole.STAGE), peer, is_pinned=stage in roles
        )
        for (stage, index), peer in zip(names, places, strict=True)
    )
    plan = Plan(instances, (("0", "1"), ("1", "2"), ("2", "3")), body=encode(StagePlan("taxi", b"x", stages, edges)))
    saved = tuple(
        SavedState(each.instance, (InstanceSnapshot(CheckpointId(1, 3), b"hash", 6_400, 1, ()),))
        for each in instances
        if each.role is InstanceRole.STAGE
    )
    return RegisterValue(RunId("taxi", 1), 0, 1, plan, CheckpointId(1, 3), (Voter(PI[4], 7),), saved=saved)


def room(**free: int) -> list[NodeCapacity]:
    return [NodeCapacity(PI[int(name[2:])], count) for name, count in free.items()]


def hosts(plan: Plan | None, stage: str) -> list[str]:
    assert plan is not None
    return [each.host.name for each in plan.stage(stage)]


def test_an_added_instance_is_placed_near_its_stage_and_moves_few_key_groups() -> None:
    before = value()
    plan = scaled(before, "areas", 3, room(pi4=9, pi2=1), "a user")
    assert plan is not None
    assert plan_fault(before, plan) == ""
    assert hosts(plan, "1") == ["pi1", "pi2", "pi2"]
    (change,) = plan.changes
    assert (change.before, change.after, change.kind, change.generation) == (2, 3, "scale", 2)
    stages = stage_plan_of(msgspec.structs.replace(before, plan=plan)).stages
    assert [len(stages[1].groups(index)) for index in range(3)] == [43, 43, 42]
    assert change.moved_groups == 21, "only groups that leave pi1 for the new one on pi2"
    assert change.moved_bytes == 21 * 100
    assert hosts(scaled(before, "busy", 3, room(pi2=0, pi4=1), "a user"), "1") == ["pi1", "pi2", "pi4"]


def test_instances_of_a_new_generation_keep_the_policy_of_their_stage() -> None:
    before = value()
    assignments = tuple(
        msgspec.structs.replace(each, if_lost=LossPolicy.FAIL) if each.instance.stage == "1" else each
        for each in before.plan.assignments
    )
    before = msgspec.structs.replace(before, plan=msgspec.structs.replace(before.plan, assignments=assignments))
    plan = scaled(before, "areas", 3, room(pi4=9), "a user")
    assert plan is not None
    assert [each.if_lost for each in plan.assignments] == [
        LossPolicy.WAIT,
        *(3 * [LossPolicy.FAIL]),
        LossPolicy.WAIT,
        LossPolicy.WAIT,
    ]


def test_an_instance_that_must_leave_goes_where_its_neighbours_are_near() -> None:
    """areas runs between trips on pi0 and top on pi1: pi4 is far from both; pi3 is near and has less room."""
    far = NodeCapacity(PI[4], 9, delays_ms={PI[0].node: 80.0, PI[1].node: 80.0})
    near = NodeCapacity(PI[3], 2, delays_ms={PI[0].node: 3.0, PI[1].node: 3.0})
    assert hosts(drained(value(), PI[2].node, [far, near], "drain"), "1") == ["pi1", "pi3"]
    unmeasured = [NodeCapacity(PI[4], 9), NodeCapacity(PI[3], 2)]
    assert hosts(drained(value(), PI[2].node, unmeasured, "drain"), "1") == ["pi1", "pi4"], "most room"
    assert hosts(scaled(value(), "areas", 3, [far, near], "a user"), "1") == ["pi1", "pi2", "pi3"]


def test_several_moves_of_a_plan_give_each_stage_one_new_generation() -> None:
    before = value()
    wishes = [ChangeRequest(MOVE, "areas.0", node=PI[4].node), ChangeRequest(MOVE, "areas.1", node=PI[3].node)]
    plan = plan_for(before, wishes, room(pi3=1, pi4=1), "placement")
    assert plan is not None
    assert hosts(plan, "1") == ["pi4", "pi3"]
    assert [(change.stage, change.generation) for change in plan.changes] == [("1", 2)]
    with pytest.raises(CommandRefused, match="pi3 has room for 0 more"):
        plan_for(before, wishes, room(pi3=0, pi4=1), "placement")


def test_instances_that_would_share_an_executor_are_spread_over_nodes() -> None:
    before = value(1)
    here, near, far = (
        NodeCapacity(PI[1], 64, executors=2),
        NodeCapacity(PI[2], 64, executors=2),
        NodeCapacity(PI[4], 64, executors=1),
    )
    assert hosts(scaled(before, "areas", 2, [here, near, far], "a user"), "1") == ["pi1", "pi1"]
    assert hosts(scaled(before, "areas", 4, [here, near, far], "a user"), "1") == ["pi1", "pi1", "pi2", "pi2"]
    full = [here, NodeCapacity(PI[2], 1, executors=2), far]
    assert hosts(scaled(before, "areas", 4, full, "a user"), "1") == ["pi1", "pi1", "pi2", "pi4"]
    alone = scaled(before, "areas", 4, [here], "a user")
    assert hosts(alone, "1") == ["pi1"] * 4, "where there is no other node they share"
    silent = [NodeCapacity(PI[1], 64), near]
    assert hosts(scaled(before, "areas", 4, silent, "a user"), "1") == ["pi1"] * 4, (
        "a node that does not say is not spared"
    )


def test_reducing_parallelism_keeps_the_first_instances() -> None:
    plan = scaled(value(3), "areas", 1, [], "a user")
    assert hosts(plan, "1") == ["pi1"]
    assert plan is not None
    assert plan_fault(value(3), plan) == ""


def test_a_generation_number_is_not_reused() -> None:
    tried = msgspec.structs.replace(value(), changes=(StageChange("1", 2, 2, 3, fate=ChangeOutcome.DROPPED),))
    plan = scaled(tried, "areas", 1, [], "a user")
    assert plan is not None
    assert plan.stage("1")[0].instance == InstanceId("1", 3, 0)
    assert plan_fault(tried, plan) == ""


def test_a_stage_or_a_single_instance_can_move() -> None:
    before = value()
    plan = moved(before, "areas.1", NodeCapacity(PI[4], 1), "a user")
    assert hosts(plan, "1") == ["pi1", "pi4"]
    assert plan is not None
    assert plan.changes[0].moved_groups == 64
    assert hosts(moved(before, "areas", NodeCapacity(PI[4], 2), "a user"), "1") == ["pi4", "pi4"]
    assert hosts(moved(before, "top", NodeCapacity(PI[4], 2), "a user"), "2") == ["pi4"]
    assert moved(before, "areas.1", NodeCapacity(PI[2], 0), "a user") is None, "it is there"


def test_a_node_is_evacuated_in_one_barrier() -> None:
    before = value()
    plan = drained(before, PI[1].node, room(pi1=9, pi2=1, pi4=2), "a user")
    assert plan is not None
    assert plan_fault(before, plan) == ""
    assert (hosts(plan, "1"), hosts(plan, "2")) == (["pi4", "pi2"], ["pi2"])
    assert [change.kind for change in plan.changes] == ["drain", "drain"]
    assert drained(before, PI[4].node, room(pi1=1), "a user") is None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: scaled(value(), "aeras", 3, [], ""), "Did you mean"),
        (lambda: scaled(value(), "areas", 9, [], ""), "was planned for 1 to 4 instances"),
        (lambda: scaled(value(), "areas", 0, [], ""), "was planned for 1 to 4 instances"),
        (lambda: scaled(value(), "areas", 200, [], ""), "1 to 128 are possible"),
        (lambda: scaled(value(), "trips", 2, [], ""), "runs once: it is a source"),
        (lambda: scaled(value(), "areas", 3, room(pi4=0), ""), "pi4 has room for 0"),
        (lambda: moved(value(), "areas.2", NodeCapacity(PI[4], 1), ""), "areas.0 to areas.1"),
        (lambda: moved(value(), "top.1", NodeCapacity(PI[4], 1), ""), "top.0 only"),
        (lambda: moved(value(), "out", NodeCapacity(PI[4], 1), ""), "is a sink"),
        (lambda: moved(value(at="pi1"), "areas", NodeCapacity(PI[4], 1), ""), "pinned to pi1"),
        (lambda: moved(value(), "areas", NodeCapacity(PI[4], 1), ""), "has room for 1 more"),
        (lambda: drained(value(), PI[1].node, room(pi1=5, pi4=1), ""), "No other node has room for"),
        (lambda: stage_plan_of(msgspec.structs.replace(value(), plan=Plan(()))), "older version"),
    ],
)
def test_invalid_change_requests_are_rejected(wrong: Callable[[], object], words: str) -> None:
    with pytest.raises((TopologyError, CommandRefused)) as told:
        wrong()
    assert words in str(told.value)


def test_changes_are_displayed_by_stage_name() -> None:
    done = StageChange(
        "1",
        2,
        2,
        3,
        "scale",
        "ann",
        ChangeOutcome.DONE,
        moved_groups=21,
        took_ns=1_250_000_000,
        changeover_pause_ns=80_000_000,
    )
    lost = StageChange("2", 3, 1, 1, "move", "ann", ChangeOutcome.ROLLED_BACK, "pi2 was lost")
    known = msgspec.structs.replace(value(), changes=(done, lost))
    leading = cast(Coordinator, SimpleNamespace(leads=True, proposer=SimpleNamespace(value=known), value=known))
    rows = [msgspec.to_builtins(row) for row in changes_of(leading)]
    assert [(row["stage"], row["from"], row["to"], row["state"], row["why"]) for row in rows] == [
        ("busy+areas", 2, 3, "done", ""),
        ("top", 1, 1, "rolled-back", "pi2 was lost"),
    ]
    assert [(row["seconds"], row["pause_ms"]) for row in rows] == [(1.25, 80.0), (0.0, None)]
    assert changes_of(cast(Coordinator, SimpleNamespace(leads=False))) == []
    assert changes_of(None) == []
