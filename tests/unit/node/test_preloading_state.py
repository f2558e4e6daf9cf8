"""State that new instances will take over is fetched and built before the barrier, in a node; unneeded state is dropped."""

from typing import Any

import msgspec

from agiledart_dataflow.plan.deployment import InstanceAddress
from agiledart_kernel.machine import Completed, Failed
from agiledart_node.recovery.change_plans import NodeCapacity
from agiledart_node.recovery.stage_changes import MAX_PLANS
from agiledart_node.wire.checkpoint_effects import FetchSnapshot
from agiledart_node.wire.effects import (
    ConnectLocalGeneration,
    DropLocalGeneration,
    DropSnapshots,
    HandOverState,
    PreloadFromDisk,
    PrepareLocalGeneration,
)
from agiledart_node.wire.fragment_effects import FetchFragment, FindSnapshot, RebuildSnapshot
from agiledart_node.wire.recovery_messages import GenerationListening
from agiledart_recovery.register.key_splitting import key_digest
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import CheckpointId, InstanceId
from agiledart_recovery.wire.register_value import Assignment, InstanceRole, InstanceSnapshot, Plan, SavedState
from tests.unit.node.test_node import ME, SCHEDULER
from tests.unit.node.test_stage_changes import RUN, SINK, InLife, ready

OLD = InstanceId("1", 1, 0)
KEY = bytes(range(32))


def snapshot(epoch: int) -> InstanceSnapshot:
    return InstanceSnapshot(CheckpointId(1, epoch), b"element %d" % epoch, 100 * epoch, 1, (SCHEDULER.node,))


def saved(*epochs: int) -> SavedState:
    """The register's snapshots: a full snapshot, and an increment."""
    return SavedState(OLD, tuple(snapshot(epoch) for epoch in epochs))


class Growing(InLife):
    """A node whose stage is to have two instances, after epochs were committed."""

    def __init__(self, *epochs: int, is_not_coordinator: bool = False) -> None:
        super().__init__()
        if is_not_coordinator:  # as if it had come to this node only with the change
            there = Assignment(OLD, InstanceRole.STAGE, SCHEDULER)
            others = tuple(each for each in self.value.plan.assignments if each.instance != OLD)
            self.value = msgspec.structs.replace(
                self.value,
                plan=msgspec.structs.replace(self.value.plan, assignments=(others[0], there, *others[1:])),
                key_digest=key_digest(KEY),
            )
        self.commit(*epochs)
        self.plan = self.change(2, NodeCapacity(ME, 4))

    def commit(self, *epochs: int) -> None:
        """The last of these epochs is committed."""
        now = (saved(*epochs),)
        value = msgspec.structs.replace(
            self.value, committed=CheckpointId(1, epochs[-1]), saved=now, before=self.value.saved
        )
        self.value = value
        self.hear(SCHEDULER, wire.Committed(RUN, 1, value))

    def built(self) -> PreloadFromDisk:
        """Executors did what they were asked last."""
        order: PreloadFromDisk = self.of(PreloadFromDisk)[-1]
        self.feed(Completed(order.request, None))
        return order

    def ready_as_of(self) -> list[int]:
        return [each.epoch for each in self.said(wire.GenerationReady)]

    def of_last(self, kind: type) -> Any:
        return self.of(kind)[-1]


def test_a_preload_is_ready_once_committed_state_is_built_and_again_each_epoch() -> None:
    bench = Growing(3, 4)
    ready(bench, bench.plan)
    assert not bench.said(wire.GenerationReady), "it is being built"
    order = bench.built()
    assert [(one.stage, one.index, one.digest, one.before) for one in order.snapshots] == [
        (1, 0, b"element 4", (b"element 3",))
    ]
    assert order.plan_name == bench.plan.digest
    assert not bench.of(FindSnapshot), "state saved here is here"
    (answer,) = bench.said(wire.GenerationReady)
    assert (answer.builds, answer.epoch, answer.reason) == (True, 4, "")
    bench.commit(3, 4, 5)
    assert bench.ready_as_of() == [4]
    assert bench.built().snapshots[0].before == (b"element 3", b"element 4")
    assert bench.ready_as_of() == [4, 5]
    bench.prepare(bench.plan)
    assert bench.ready_as_of() == [4, 5, 5], "a repeated request gets the same answer"


def test_an_epoch_committed_during_a_preload_is_built_next() -> None:
    bench = Growing(3)
    ready(bench, bench.plan)
    bench.commit(3, 4)
    assert len(bench.of(PreloadFromDisk)) == 1, "one after the other"
    bench.feed(Failed(bench.of(PreloadFromDisk)[0].request, "it is not here any more"))
    assert not [each for each in bench.said(wire.GenerationReady) if each.reason], "a later one is"
    assert bench.built().snapshots[0].digest == b"element 4"
    assert bench.ready_as_of() == [4]


def test_a_state_that_cannot_be_built_aborts_the_change() -> None:
    bench = Growing(3)
    ready(bench, bench.plan)
    bench.feed(Failed(bench.of(PreloadFromDisk)[0].request, "areas: its element does not fit"))
    (answer,) = bench.said(wire.GenerationReady)
    assert answer.reason == "areas: its element does not fit"
    assert bench.of(DropLocalGeneration)


def test_a_host_without_a_new_instance_builds_nothing() -> None:
    bench = Growing(3)
    bench.plan = bench.change(2, NodeCapacity(SCHEDULER, 4))
    assert all(each.host != ME for each in bench.plan.assignments if each.instance.index)
    others: Plan = msgspec.structs.replace(
        bench.plan,
        assignments=tuple(msgspec.structs.replace(each, host=SCHEDULER) for each in bench.plan.assignments),
    )
    bench.prepare(others)
    assert not bench.of(PreloadFromDisk)


def test_snapshots_of_another_host_are_fetched_and_dropped_with_the_change() -> None:
    bench = Growing(3, is_not_coordinator=True)
    bench.prepare(bench.plan)
    bench.feed(Completed(bench.of_last(PrepareLocalGeneration).request, {(1, 1): "10.0.0.1:1"}))
    there = InstanceAddress(1, 0, "10.0.0.2:5")
    bench.hear(SCHEDULER, GenerationListening(8, "app", 1, 1, bench.plan.digest, (there, SINK)))
    bench.feed(Completed(bench.of_last(ConnectLocalGeneration).request, None))
    (find,) = bench.of(FindSnapshot)
    bench.feed(Completed(find.request, False))
    (bring,) = bench.of(FetchSnapshot)
    assert (bring.replica_node, bring.digest) == (SCHEDULER, b"element 3"), "the node that saved it is asked first"
    bench.feed(Failed(bring.request, "it does not lie here"))
    (fetch,) = bench.of(FetchFragment)
    told = bench.said(wire.GenerationProgress)[-1]
    assert (told.got, told.of) == (0, 300)
    bench.feed(Completed(fetch.request, bytes(300)))
    assert not bench.of(RebuildSnapshot), "the run's key is not here yet"
    bench.hear(SCHEDULER, wire.RunKeyParts(RUN, key=KEY))
    (rebuild,) = bench.of(RebuildSnapshot)
    assert rebuild.secret == KEY
    bench.feed(Completed(rebuild.request, None))
    bench.built()
    assert bench.ready_as_of() == [3]
    bench.hear(SCHEDULER, wire.GenerationDropped(RUN, 1, bench.plan.digest))
    (gone,) = bench.of(DropSnapshots)
    assert gone.digests == (b"element 3",)


def test_only_handed_over_state_is_looked_up() -> None:
    bench = Growing(3, 4)
    ready(bench, bench.plan)
    bench.built()
    bench.take()
    bench.hear(SCHEDULER, wire.Begin(RUN, 1, 5, bench.value.plan.digest, bench.plan))
    bench.hear(SCHEDULER, wire.StateHandedOver(RUN, 1, 5, bench.plan.digest, saved(3, 4, 5)))
    (find,) = bench.of(FindSnapshot)
    assert find.digest == b"element 5"
    bench.feed(Completed(find.request, True))
    (given,) = bench.of(HandOverState)
    assert (given.digest, given.before) == (b"element 5", (b"element 3", b"element 4"))


def test_state_reported_before_it_is_safe_is_fetched_from_its_sender() -> None:
    bench = Growing(3)
    ready(bench, bench.plan)
    bench.built()
    bench.take()
    bench.hear(SCHEDULER, wire.Begin(RUN, 1, 4, bench.value.plan.digest, bench.plan))
    early = msgspec.structs.replace(snapshot(4), replica_nodes=())
    told = SavedState(OLD, (snapshot(3), early))
    bench.hear(SCHEDULER, wire.StateHandedOver(RUN, 1, 4, bench.plan.digest, told))
    bench.feed(Completed(bench.of_last(FindSnapshot).request, False))
    bench.feed(Failed(bench.of_last(FetchSnapshot).request, "the link broke"))
    assert not bench.said(wire.NewAttemptNeeded)
    assert not bench.of(HandOverState)
    bench.hear(SCHEDULER, wire.StateHandedOver(RUN, 1, 4, bench.plan.digest, told))
    bench.feed(Completed(bench.of_last(FindSnapshot).request, False))
    bench.feed(Completed(bench.of_last(FetchSnapshot).request, None))
    assert bench.of_last(HandOverState).digest == b"element 4"
    bench.hear(SCHEDULER, wire.StateHandedOver(RUN, 1, 4, bench.plan.digest, saved(3, 4)))
    assert len(bench.of(HandOverState)) == 1, "that it is safe changes nothing"
    assert bench.said(wire.StateHandedOverOk)


def test_preloaded_state_of_a_plan_is_evicted_when_there_are_too_many() -> None:
    bench = Growing(3, is_not_coordinator=True)
    bench.prepare(bench.plan)
    bench.feed(Completed(bench.of_last(PrepareLocalGeneration).request, {(1, 1): "10.0.0.1:1"}))
    there = InstanceAddress(1, 0, "10.0.0.2:5")
    bench.hear(SCHEDULER, GenerationListening(8, "app", 1, 1, bench.plan.digest, (there, SINK)))
    bench.feed(Completed(bench.of_last(ConnectLocalGeneration).request, None))
    bench.feed(Completed(bench.of_last(FindSnapshot).request, False))
    bench.feed(Completed(bench.of_last(FetchSnapshot).request, None))
    bench.built()
    for number in range(MAX_PLANS):
        assert not bench.of(DropSnapshots)
        bench.hear(SCHEDULER, GenerationListening(9 + number, "app", 1, 1, b"plan %d" % number, (there,)))
    (gone,) = bench.of(DropSnapshots)
    assert gone.digests == (b"element 3",)
