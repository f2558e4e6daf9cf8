"""A node that is told to end: what it ends, and what stays on its disk for when it is back."""

import msgspec

from agiledart_node.wire.effects import ForgetRun
from agiledart_node.wire.formation_messages import Deploy
from agiledart_overlay.wire.effects import Left
from agiledart_overlay.wire.events import LeaveRing
from tests.unit.node.test_node import SCHEDULER, Bench, part


def test_a_guard_that_leaves_keeps_its_vote_on_the_disk_and_ends_what_has_no_register() -> None:
    """All agents may be told to end at once: what was accepted is found again when they are back."""
    bench = Bench()
    for request, name in ((1, "saved"), (2, "app")):
        guarded = part(0, planned=0, nodes=(SCHEDULER,), assignment=(), application=name, by_epoch=name == "saved")
        bench.hear(SCHEDULER, Deploy(request, msgspec.structs.replace(guarded, number=request)))
    assert [name for name, _ in bench.node.hosted] == ["saved", "app"]
    bench.take()
    bench.feed(LeaveRing())
    assert not [effect for effect in bench.of(ForgetRun) if effect.application == "saved"]
    assert [name for name, _ in bench.node.hosted] == ["saved"]
    assert bench.of(Left), "it does not wait for it"
