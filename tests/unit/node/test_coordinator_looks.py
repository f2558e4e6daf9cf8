"""A node with many runs looks after each step at the coordinators that the step may have changed, not at all of them."""

import pytest

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import Completed, Event, Received, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.wire import events, messages
from agiledart_recovery.wire.effects import StoreVoter
from agiledart_recovery.wire.names import Ballot, RunId
from tests.unit.node.test_stage_changes import InLife
from tests.unit.recovery.bench import peer

RUNS = [RunId(f"app{number}", 1) for number in range(20)]


@pytest.mark.parametrize(
    ("event", "runs"),
    [
        (events.InstanceRowsPassed(RUNS[3]), []),
        (TimerFired((RUNS[3], "tick")), [RUNS[3]]),
        (TimerFired((RunId("stranger", 1), "tick")), []),
        (events.AttemptBroken(RUNS[4], 1, "it broke"), [RUNS[4]]),
        (Received(peer(4), messages.QueryPrepared(RUNS[5], 1, 0)), [RUNS[5]]),
        (events.HostLost(NodeId(9)), RUNS),
    ],
    ids=["rows", "tick", "stranger", "broken", "message", "host"],
)
def test_a_step_looks_at_the_coordinators_that_it_may_have_changed(
    event: Event, runs: list[RunId], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = InLife()
    service = bench.node.recovery_service
    for run in RUNS:
        service.step(events.MakeVoterSlot(run))
    looked: list[RunId] = []
    monkeypatch.setattr(service.end_reporter, "look", lambda run, coordinator: looked.append(run))
    bench.now += SECOND
    service.step(event)
    assert [run for run in looked if run in RUNS] == runs


def test_an_answer_from_the_disk_leads_to_the_run_of_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = InLife()
    service = bench.node.recovery_service
    for run in RUNS:
        service.step(events.MakeVoterSlot(run))
    request = Received(peer(4), messages.Prepare(RUNS[7], Ballot(1, peer(4).node, 1)))
    (store,) = [
        effect for effect in service.machine.step(request, Instant(bench.now)) if isinstance(effect, StoreVoter)
    ]
    looked: list[RunId] = []
    monkeypatch.setattr(service.end_reporter, "look", lambda run, coordinator: looked.append(run))
    service.step(Completed(store.request))
    assert looked == [RUNS[7]]
