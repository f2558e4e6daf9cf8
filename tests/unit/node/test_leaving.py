"""A node that is terminated: the runs that it ends, and the files that stay on its disk for its return."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from agiledart_node.draining.voter_slot_transfer import VoterSlotTransfer
from agiledart_node.wire.effects import ForgetRun
from agiledart_node.wire.formation_messages import Deploy
from agiledart_overlay.wire.effects import LeaveCompleted
from agiledart_overlay.wire.events import LeaveRing
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import RunState
from tests.unit.node.test_node import SCHEDULER, Bench, part


def test_a_leaving_voter_keeps_its_vote_on_disk_and_ends_unregistered_runs() -> None:
    """All agents may be terminated at once: accepted runs are found again when they are back."""
    bench = Bench()
    for request, name in ((1, "saved"), (2, "app")):
        guarded = part(0, planned=0, nodes=(SCHEDULER,), assignment=(), application=name, by_epoch=name == "saved")
        bench.hear(SCHEDULER, Deploy(request, msgspec.structs.replace(guarded, number=request)))
    assert [name for name, _ in bench.node.hosted] == ["saved", "app"]
    bench.take()
    bench.feed(LeaveRing())
    assert not [effect for effect in bench.of(ForgetRun) if effect.application == "saved"]
    assert [name for name, _ in bench.node.hosted] == ["saved"]
    assert bench.of(LeaveCompleted), "it does not wait for it"


@pytest.mark.parametrize("given", [True, False])
def test_a_voter_slot_counts_as_transferred_only_when_another_node_has_it(given: bool) -> None:
    """The other voters die while this node asks, or one of them takes another node in."""

    def value(*nodes: int) -> Any:
        voters = [SimpleNamespace(peer=SimpleNamespace(node=node)) for node in nodes]
        return SimpleNamespace(run=RunId("orders", 1), voters=voters, old_voters=(), state=RunState.RUNNING)

    alive = {1, 2, 3}
    led = SimpleNamespace(is_over=False, known=value(1, 2, 3))
    context: Any = SimpleNamespace(
        me=SimpleNamespace(node=1),
        overlay=SimpleNamespace(is_alive=alive.__contains__),
        config=SimpleNamespace(ask_timeout_ns=10),
        now=0,
    )

    async def pause(nanoseconds: int) -> None:
        context.now += nanoseconds
        if given:
            led.known = value(2, 3, 4)
        else:
            alive.difference_update({2, 3})

    async def ask(*_: object) -> None:
        return None

    context.requests = SimpleNamespace(number=lambda: 1, ask=ask, pause=pause)
    recovery_service: Any = SimpleNamespace(machine=SimpleNamespace(coordinators={1: led}))
    said: list[str] = []
    asyncio.run(VoterSlotTransfer(context, recovery_service).give(10**10, lambda: True, said.append))  # type: ignore[arg-type]
    assert said == (["orders: another node votes in its register"] if given else [])
