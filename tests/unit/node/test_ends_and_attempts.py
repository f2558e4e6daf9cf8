"""An end in one attempt of a run does not count for the next, though a message about it is still on its way."""

import msgspec

from agiledart_kernel.machine import Completed
from agiledart_node.wire.effects import KeepFile, StartInstances
from agiledart_node.wire.events import InstanceFinished
from agiledart_node.wire.formation_messages import Acknowledged, InstancesEnded
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Ballot
from tests.unit.node.test_node import ME, SCHEDULER, Bench, deployed
from tests.unit.node.test_stage_changes import RUN, InLife


def ended_in(bench: InLife) -> InstancesEnded:
    """The last report to the coordinator."""
    told: InstancesEnded = bench.said(InstancesEnded)[-1]
    return told


def test_a_late_acknowledged_end_of_one_attempt_does_not_count_for_the_next() -> None:
    """A source reads on while its coordinator is dead, and ends; the coordinator restarts, a new attempt begins, and answers."""
    bench = InLife()
    bench.feed(InstanceFinished("app", 1, 1, 0, {"n": 1}))
    first = ended_in(bench)
    assert first.attempt == 1
    bench.take()
    bench.hear(
        SCHEDULER, wire.Reset(RUN, Ballot(2, SCHEDULER.node, 1), msgspec.structs.replace(bench.value, attempt=2))
    )
    for kept in bench.of(KeepFile):
        bench.feed(Completed(kept.request, None))
    (start,) = bench.of(StartInstances)
    bench.feed(Completed(start.request, {(1, 0): "10.0.0.1:2"}))
    bench.hear(SCHEDULER, Acknowledged(first.request))
    bench.take()
    bench.feed(InstanceFinished("app", 1, 1, 0, {"n": 2}))
    again = ended_in(bench)
    assert (again.attempt, again.reports) == (2, {"1.0": {"n": 2}})
    bench.hear(SCHEDULER, Acknowledged(again.request))
    assert bench.node.parts.hosting.table["app", 1].acknowledged


def test_the_coordinator_keeps_ends_of_its_own_attempt_only() -> None:
    bench = deployed(Bench(), coordinator=ME, attempt=3)
    collected = bench.node.parts.hosting.table["app", 1].collected

    def answered(attempt: int) -> bool:
        bench.take()
        bench.hear(SCHEDULER, InstancesEnded(attempt, "app", 1, {"1.0": {"n": attempt}}, attempt))
        return Acknowledged(attempt) in bench.told(SCHEDULER)

    assert answered(2), "no node needs the report any more"
    assert not answered(4), "it is said again when this node is so far"
    assert not collected
    assert answered(3)
    assert collected == {(1, 0): {"n": 3}}
