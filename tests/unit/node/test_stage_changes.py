"""A host's part in a change: new instances are prepared, their addresses announced, unneeded ones dropped."""

from typing import Any

import msgspec

from agiledart_dataflow.counts.interval_measures import IntervalMeasures
from agiledart_dataflow.plan.deployment import InstanceAddress, InstancePlace
from agiledart_dataflow.plan.stage_plan import Edge, Stage, StagePlan
from agiledart_dataflow.state.owner_table import owners_by_key
from agiledart_kernel.codec import encode
from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Completed, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.hosting.hosted_application import HostedApplication
from agiledart_node.recovery.change_plans import NodeCapacity, moved, scaled
from agiledart_node.recovery.register_bootstrap import plan_of
from agiledart_node.wire.effects import (
    ConnectLocalGeneration,
    DropLocalGeneration,
    ForgetRun,
    HandOverState,
    InjectBarriers,
    KeepFile,
    PrepareLocalGeneration,
    StartInstances,
    StopInstances,
)
from agiledart_node.wire.events import InstanceFailed, InstancePrepared, InstanceReported
from agiledart_node.wire.formation_messages import Deploy, Halt
from agiledart_node.wire.fragment_effects import FindSnapshot
from agiledart_node.wire.recovery_messages import GenerationListening, PartReply, RequestPart
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Ballot, CheckpointId, InstanceId, RunId, Stamp, Voter
from agiledart_recovery.wire.register_value import InstanceSnapshot, Plan, RegisterValue, SavedState
from tests.unit.node.test_node import ME, SCHEDULER, Bench, part

RUN = RunId("app", 1)
THIRD = Peer(NodeId(12 << 120), 1, "third")
STAGES = StagePlan(
    "app",
    b"spec",
    (
        Stage(0, "trips", "source", (0,)),
        Stage(1, "areas", "operator", (1,), keyed=True, has_state=True, high=4, owners=owners_by_key(1)),
        Stage(2, "out", "sink", (2,)),
    ),
    (Edge(0, 0, 1, "key", "row", 1), Edge(1, 1, 2, "single", "row", 1)),
)


class InLife(Bench):
    """A node that runs `areas`, in the first attempt of a run whose source and sink are elsewhere."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        places = {(0, 0): SCHEDULER, (1, 0): ME, (2, 0): SCHEDULER}
        given = msgspec.structs.replace(
            part(by_epoch=True),
            plan=encode(STAGES),
            instances=part(1).instances and (msgspec.structs.replace(part(1).instances[0], stage=1),),
            assignment=(InstancePlace(0, 0, 1), InstancePlace(1, 0, 0), InstancePlace(2, 0, 1)),
        )
        self.value = RegisterValue(
            RUN, 0, 1, plan_of(encode(STAGES), places), CheckpointId(0, 0), (Voter(SCHEDULER, 7),)
        )
        self.hear(SCHEDULER, Deploy(1, given))
        (start,) = self.of(StartInstances)
        self.feed(Completed(start.request, {(1, 0): "10.0.0.1:1"}))
        self.take()
        self.hear(SCHEDULER, wire.Reset(RUN, Ballot(1, SCHEDULER.node, 1), self.value))
        for kept in self.of(KeepFile):
            if kept.name == "life":
                self.feed(Completed(kept.request, None))
        assert [type(each) for each in self.told(SCHEDULER) if isinstance(each, wire.ResetOk)]
        self.take()

    def change(self, number: int, *room: NodeCapacity) -> Plan:
        plan = scaled(self.value, "areas", number, room, "a user")
        assert plan is not None
        return plan

    def prepare(self, plan: Plan, number: int = 1) -> None:
        stamp = Stamp(Ballot(1, SCHEDULER.node, 1), number)
        self.hear(SCHEDULER, wire.ProposeGeneration(RUN, 1, stamp, self.value.plan, plan))

    def said(self, kind: type) -> list[Any]:
        return [each for each in self.told(SCHEDULER) if isinstance(each, kind)]


def ready(bench: InLife, plan: Plan) -> None:
    """Executors did as they were asked."""
    bench.prepare(plan)
    (effect,) = bench.of(PrepareLocalGeneration)
    bench.feed(Completed(effect.request, {placed.copy: f"10.0.0.1:{placed.index}" for placed in effect.part.instances}))
    assert not bench.of(ConnectLocalGeneration), "the place of the sink is not known"
    bench.hear(SCHEDULER, GenerationListening(8, "app", 1, 1, plan.digest, (SINK,)))
    (opened,) = bench.of(ConnectLocalGeneration)
    bench.feed(Completed(opened.request, None))


SINK = InstanceAddress(2, 0, "10.0.0.2:9")


def test_new_instances_are_ready_and_all_hosts_know_their_addresses() -> None:
    bench = InLife()
    plan = bench.change(2, NodeCapacity(ME, 4))
    ready(bench, plan)
    (effect,) = bench.of(PrepareLocalGeneration)
    assert [placed.copy for placed in effect.part.instances] == [(1, 0), (1, 1)]
    assert effect.plan_name == plan.digest
    assert effect.part.plan == plan.body
    assert effect.part.attempt == part().attempt
    (opened,) = bench.of(ConnectLocalGeneration)
    assert [(one.index, one.address) for one in opened.addresses] == [
        (0, "10.0.0.1:0"),
        (1, "10.0.0.1:1"),
        (0, "10.0.0.2:9"),
    ]
    (told,) = bench.said(GenerationListening)
    assert (told.digest, len(told.addresses)) == (plan.digest, 2)
    (answer,) = bench.said(wire.GenerationReady)
    assert (answer.digest, answer.reason) == (plan.digest, "")


def test_the_path_opens_when_all_hosts_have_reported_their_addresses() -> None:
    bench = InLife()
    plan = bench.change(2, NodeCapacity(SCHEDULER, 4))
    bench.prepare(plan)
    (effect,) = bench.of(PrepareLocalGeneration)
    bench.feed(Completed(effect.request, {(1, 0): "10.0.0.1:0"}))
    assert not bench.of(ConnectLocalGeneration)
    there = msgspec.structs.replace(bench.said(GenerationListening)[0].addresses[0], index=1, address="10.0.0.2:5")
    bench.hear(SCHEDULER, GenerationListening(9, "app", 1, 1, plan.digest, (there, SINK)))
    (opened,) = bench.of(ConnectLocalGeneration)
    assert [one.address for one in opened.addresses] == ["10.0.0.1:0", "10.0.0.2:5", "10.0.0.2:9"]


def test_a_halted_run_is_forgotten_at_once_and_does_not_return() -> None:
    """Otherwise its coordinator, which misses a stop, would have it restarted by hosts that still know it."""
    bench = InLife()
    bench.hear(SCHEDULER, Halt(5, "app", 1, "stopped by a user"))
    assert bench.of(ForgetRun)
    assert RUN not in bench.node.recovery_service.machine.participants
    assert ("app", 1) not in bench.node.recovery_service.runs


def test_addresses_of_removed_instances_are_not_sent() -> None:
    """It has the number of the one that comes elsewhere: senders would wait for it for ever."""
    bench = InLife()
    plan = moved(bench.value, "areas", NodeCapacity(SCHEDULER, 4), "")
    assert plan is not None
    bench.prepare(plan)
    (effect,) = bench.of(PrepareLocalGeneration)
    bench.feed(Completed(effect.request, {(1, 0): "10.0.0.1:0", (0, 0): "10.0.0.1:0"}))
    (told,) = bench.said(GenerationListening)
    assert [(one.stage, one.index) for one in told.addresses] == [(0, 0)]


def test_missing_capacity_is_reported_in_words() -> None:
    bench = InLife(capacity=1)
    bench.prepare(bench.change(2, NodeCapacity(ME, 4)))
    (answer,) = bench.said(wire.GenerationReady)
    assert answer.reason == "me has room for 1 instances and runs 1"
    assert not bench.of(PrepareLocalGeneration)


def test_a_refusal_by_executors_is_reported_and_the_change_dropped() -> None:
    bench = InLife()
    bench.prepare(bench.change(2, NodeCapacity(ME, 4)))
    (effect,) = bench.of(PrepareLocalGeneration)
    bench.feed(Failed(effect.request, "areas could not be loaded"))
    (answer,) = bench.said(wire.GenerationReady)
    assert answer.reason == "areas could not be loaded"
    assert bench.of(DropLocalGeneration)


def test_an_aborted_change_leaves_nothing() -> None:
    bench = InLife()
    plan = bench.change(2, NodeCapacity(ME, 4))
    ready(bench, plan)
    bench.hear(SCHEDULER, wire.GenerationDropped(RUN, 1, plan.digest))
    (gone,) = bench.of(DropLocalGeneration)
    assert gone.plan_name == plan.digest


def test_the_barrier_names_both_plans_and_prepared_names_the_later_one() -> None:
    bench = InLife()
    plan = bench.change(2, NodeCapacity(ME, 4))
    ready(bench, plan)
    bench.take()
    bench.hear(SCHEDULER, wire.Begin(RUN, 1, 1, bench.value.plan.digest, plan))
    (barrier,) = bench.of(InjectBarriers)
    assert (barrier.before, barrier.after) == (b"", plan.digest)
    broken = InstancePrepared("app", 1, 1, 0, 1, b"hash", 10, after=b"another")
    bench.feed(broken)
    assert [each.reason for each in bench.said(wire.NewAttemptNeeded)] == [
        "1.0/1 passed a barrier with a plan that this node does not know"
    ]


def test_an_instance_that_ends_before_the_first_barrier_is_always_prepared() -> None:
    """The executor names an end by the epoch above the last barrier; its answer counts above that barrier."""
    bench = InLife()
    bench.feed(InstancePrepared("app", 1, 0, 0, 1, b"hash", 10, ended=True))
    (answer,) = bench.said(wire.Prepared)
    assert (answer.epoch, answer.has_ended, answer.saved.chain[0].checkpoint) == (0, True, CheckpointId(1, 1))


def test_an_old_instances_state_is_fetched_and_handed_over_once() -> None:
    bench = InLife()
    plan = bench.change(2, NodeCapacity(ME, 4))
    ready(bench, plan)
    old = SavedState(InstanceId("1", 1, 0), (InstanceSnapshot(CheckpointId(1, 1), b"hash", 10, 1, (SCHEDULER.node,)),))
    for _ in range(2):
        bench.hear(SCHEDULER, wire.StateHandedOver(RUN, 1, 1, plan.digest, old))
    (find,) = bench.of(FindSnapshot)
    bench.feed(Completed(find.request, True))
    (given,) = bench.of(HandOverState)
    assert (given.stage, given.index, given.generation, given.digest, given.plan_name) == (
        1,
        0,
        1,
        b"hash",
        plan.digest,
    )
    bench.hear(SCHEDULER, wire.StateHandedOver(RUN, 1, 1, plan.digest, old))
    assert len(bench.of(HandOverState)) == 1
    assert bench.said(wire.StateHandedOverOk)


def test_a_late_message_of_an_older_change_undoes_nothing() -> None:
    bench = InLife()
    plan = bench.change(2, NodeCapacity(ME, 4))
    bench.prepare(plan, 2)
    bench.prepare(bench.change(3, NodeCapacity(ME, 4)), 1)
    assert not bench.of(DropLocalGeneration)
    assert len(bench.of(PrepareLocalGeneration)) == 1


def test_a_crash_of_a_waiting_instance_is_reported_and_an_aborted_one_forgotten() -> None:
    bench = InLife()
    plan = bench.change(2, NodeCapacity(ME, 4))
    ready(bench, plan)
    (effect,) = bench.of(PrepareLocalGeneration)
    assert [placed.executor for placed in effect.part.instances] == [0, 0], "one core, one executor"
    bench.feed(InstanceFailed("app", 1, 1, 1, "the process died", is_crash=True))
    assert [each.reason for each in bench.said(wire.NewAttemptNeeded)] == ["the process died"]


def test_new_instances_get_their_own_executors_while_cores_are_free() -> None:
    bench = InLife(cores=3)
    bench.prepare(bench.change(4, NodeCapacity(ME, 8)))
    (effect,) = bench.of(PrepareLocalGeneration)
    assert [placed.executor for placed in effect.part.instances] == [0, 1, 2, 0]
    assert effect.part.executors == 3


def test_new_executors_start_while_memory_lasts_then_the_least_busy_is_used() -> None:
    small = InLife(cores=3, executors_in_memory=2)
    small.prepare(small.change(4, NodeCapacity(ME, 8)))
    (effect,) = small.of(PrepareLocalGeneration)
    assert [placed.executor for placed in effect.part.instances] == [0, 1, 0, 1]
    busy = InLife(cores=3)
    measures = IntervalMeasures(5 * SECOND, 900, 4 * SECOND, 0, (0.0,) * 5, (0,) * 5, (900,))
    busy.feed(InstanceReported("app", 1, 1, 0, {"measures": msgspec.to_builtins(measures)}))
    hosted = busy.node.parts.hosting.table["app", 1]
    hosted.instances[2, 7] = 1  # another stage's, not announced yet
    busy.prepare(busy.change(4, NodeCapacity(ME, 8)))
    (effect,) = busy.of(PrepareLocalGeneration)
    assert [placed.executor for placed in effect.part.instances] == [0, 2, 1, 0], (
        "a new one counts as what its sibling does"
    )


def test_a_committed_change_becomes_the_running_plan() -> None:
    bench = InLife()
    plan = bench.change(2, NodeCapacity(ME, 4))
    ready(bench, plan)
    bench.hear(SCHEDULER, wire.Begin(RUN, 1, 1, bench.value.plan.digest, plan))
    value = msgspec.structs.replace(bench.value, plan=plan, committed=CheckpointId(1, 1))
    bench.hear(SCHEDULER, wire.Committed(RUN, 1, value))
    hosted = bench.node.parts.hosting.table["app", 1]
    assert hosted.instances == {(1, 0): 0, (1, 1): 0}
    assert hosted.part.plan == plan.body
    assert [file.name for file in bench.of(KeepFile)][-1] == "part"
    moved_on = InLife()
    away = scaled_away(moved_on)
    later = msgspec.structs.replace(moved_on.value, plan=away, committed=CheckpointId(1, 1))
    moved_on.hear(SCHEDULER, wire.Committed(RUN, 1, later))
    assert moved_on.node.parts.hosting.table["app", 1].instances == {}
    later = msgspec.structs.replace(later, committed=CheckpointId(1, 2))
    moved_on.hear(SCHEDULER, wire.Committed(RUN, 1, later))
    assert ("app", 1) not in moved_on.node.parts.hosting.table


def test_an_upcoming_instance_waits_through_the_epochs_before_its_change() -> None:
    """Also where what it knows of the run is of an older plan: waiting instances are no rest of the run to be released."""
    bench = InLife()
    away = scaled_away(bench)
    for epoch in (1, 2):
        value = msgspec.structs.replace(bench.value, plan=away, committed=CheckpointId(1, epoch))
        bench.hear(SCHEDULER, wire.Committed(RUN, 1, value))
    assert ("app", 1) not in bench.node.parts.hosting.table
    back = moved(value, "areas", NodeCapacity(ME, 4), "a user")
    assert back is not None
    bench.take()
    bench.hear(SCHEDULER, wire.ProposeGeneration(RUN, 1, Stamp(Ballot(1, SCHEDULER.node, 1), 2), away, back))
    (asked,) = bench.said(RequestPart)
    stale = msgspec.structs.replace(
        part(by_epoch=True),
        plan=encode(STAGES),
        instances=(),
        assignment=tuple(InstancePlace(n, 0, 1) for n in range(3)),
    )
    bench.hear(SCHEDULER, PartReply(asked.request, encode(stale)))
    (effect,) = bench.of(PrepareLocalGeneration)
    bench.feed(Completed(effect.request, {(1, 0): "10.0.0.1:7"}))
    bench.hear(SCHEDULER, GenerationListening(8, "app", 1, 1, back.digest, (SINK,)))
    bench.feed(Completed(bench.of(ConnectLocalGeneration)[-1].request, None))
    for epoch in (3, 4, 5):
        value = msgspec.structs.replace(value, committed=CheckpointId(1, epoch))
        bench.hear(SCHEDULER, wire.Committed(RUN, 1, value))
    assert not bench.of(StopInstances)
    assert bench.node.parts.hosting.table["app", 1].instances == {(1, 0): 0}
    value = msgspec.structs.replace(value, plan=back, committed=CheckpointId(1, 6))
    bench.hear(SCHEDULER, wire.Committed(RUN, 1, value))
    assert bench.node.parts.hosting.table["app", 1].instances == {(1, 0): 0}
    assert bench.node.parts.hosting.table["app", 1].part.plan == back.body


class Guard(Bench):
    """A node that was notified of a run at its deployment, to watch it. `areas`, at the scheduler then, is at a third
    node now.
    """

    def __init__(self) -> None:
        super().__init__()
        places = {(number, 0): SCHEDULER for number in range(3)}
        founded = RegisterValue(RUN, 0, 1, plan_of(encode(STAGES), places), CheckpointId(0, 0), (Voter(SCHEDULER, 7),))
        assignment = tuple(InstancePlace(number, 0, 1) for number in range(3))
        self.given = msgspec.structs.replace(part(0, by_epoch=True), plan=encode(STAGES), assignment=assignment)
        self.hear(SCHEDULER, Deploy(1, msgspec.structs.replace(self.given, bundle=b"")))
        assert not self.hosted.instances
        now = moved(founded, "areas", NodeCapacity(THIRD, 4), "a user")
        assert now is not None
        self.value = msgspec.structs.replace(founded, plan=now, committed=CheckpointId(1, 2))
        here = moved(self.value, "areas", NodeCapacity(ME, 4), "a user")
        assert here is not None
        self.after = here
        self.hear(SCHEDULER, wire.Reset(RUN, Ballot(1, SCHEDULER.node, 1), self.value))
        for kept in self.of(KeepFile):
            self.feed(Completed(kept.request, None))
        self.hear(SCHEDULER, wire.Start(RUN, 1))
        self.hear(SCHEDULER, wire.ProposeGeneration(RUN, 1, Stamp(Ballot(1, SCHEDULER.node, 1), 2), now, here))

    @property
    def hosted(self) -> HostedApplication:
        return self.node.parts.hosting.table["app", 1]

    def lend(self) -> None:
        """A host gives the code."""
        (asked,) = [each for each in self.told(SCHEDULER) if isinstance(each, RequestPart)]
        lent = msgspec.structs.replace(self.given, plan=self.value.plan.body, bundle=b"code")
        self.hear(SCHEDULER, PartReply(asked.request, encode(lent)))


def test_a_voter_that_takes_a_stage_knows_the_run_under_the_current_plan() -> None:
    """It had the one of the deployment, so the next commit was settled there as a change by which nothing is left here."""
    bench = Guard()
    bench.lend()
    (effect,) = bench.of(PrepareLocalGeneration)
    bench.feed(Completed(effect.request, {(1, 0): "10.0.0.1:7"}))
    assert bench.hosted.part.plan == bench.value.plan.body
    assert bench.hosted.concerns(THIRD.node), "the stage's present host is accepted"
    for epoch in (3, 4, 5):
        value = msgspec.structs.replace(bench.value, committed=CheckpointId(1, epoch))
        bench.hear(SCHEDULER, wire.Committed(RUN, 1, value))
    assert not bench.of(StopInstances)
    assert bench.hosted.instances == {(1, 0): 0}


def test_a_change_aborted_while_code_arrives_starts_nothing() -> None:
    bench = Guard()
    bench.hear(SCHEDULER, wire.GenerationDropped(RUN, 1, bench.after.digest))
    bench.lend()
    assert not bench.of(PrepareLocalGeneration)
    assert ("app", 1) not in bench.node.parts.hosting.table or not bench.hosted.instances


def scaled_away(bench: InLife) -> Plan:
    plan = moved(bench.value, "areas", NodeCapacity(SCHEDULER, 4), "a user")
    assert plan is not None
    bench.prepare(plan)
    (effect,) = bench.of(PrepareLocalGeneration)
    bench.feed(Completed(effect.request, {}))
    there = InstanceAddress(1, 0, "10.0.0.2:5")
    bench.hear(SCHEDULER, GenerationListening(9, "app", 1, 1, plan.digest, (there, SINK)))
    (opened,) = bench.of(ConnectLocalGeneration)
    bench.feed(Completed(opened.request, None))
    return plan


def test_an_instance_reports_how_long_its_rows_paused() -> None:
    bench = InLife()
    bench.feed(InstancePrepared("app", 1, 0, 0, 1, b"hash", 10, pause_ns=7_000_000))
    (answer,) = bench.said(wire.Prepared)
    assert answer.pause_ns == 7_000_000
