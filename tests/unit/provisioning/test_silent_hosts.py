"""A leased host whose node does not answer: the gate says so once. An admin's release ends it without a drain."""

from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Completed, Effect, Event
from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.gate.gate_messages import (
    Decision,
    DrainLeased,
    LedgerRead,
    NodeSeen,
    ReleaseHost,
    ReleaseWanted,
    ViewSeen,
    WriteEntry,
)
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.lease_entry import LeaseEntry, LeaseState
from agiledart_provisioning.gate.lease_gate import LeaseGate
from agiledart_provisioning.policies.hosts import Hosts

UNIT = 3_600 * SECOND
NOW = 1_000_000 * SECOND
ENTRY = LeaseEntry("g-1", "g", "agiledart-net-g-1", "s", 1, UNIT, NOW, LeaseState.JOINED, host_id="h1", node="b1")
OWN = NodeSeen("a1", 0, 8)
LEASED = NodeSeen("b1", 2, 4, lease_id="g-1", token_lease="g-1", gate="g", renewed_ns=NOW, host_id="h1")


class World:
    def __init__(self) -> None:
        self.gate = LeaseGate("g", "net", GateSettings("act", 1, 1_000, "s", 1, UNIT), Hosts(), RandomStream(1, "g"))
        self.gate.step(LedgerRead((ENTRY,)), NOW)

    def effects(self, event: Event, seconds: int) -> list[Effect]:
        found = self.gate.step(event, NOW + seconds * SECOND)
        for effect in list(found):
            if isinstance(effect, WriteEntry):
                found += self.gate.step(Completed(effect.request), NOW + seconds * SECOND)
        return found


def silences(found: list[Effect]) -> list[str]:
    return [effect.why for effect in found if isinstance(effect, Decision) and effect.action == "silent"]


def test_each_silence_is_reported_once() -> None:
    world = World()
    assert silences(world.effects(ViewSeen((OWN, LEASED)), 0)) == []
    assert silences(world.effects(ViewSeen((OWN,)), 299)) == []
    (why,) = silences(world.effects(ViewSeen((OWN,)), 301))
    assert why == "b1 does not answer for 300 s and still costs; agiledart provision release g-1"
    assert silences(world.effects(ViewSeen((OWN,)), 400)) == []
    assert silences(world.effects(ViewSeen((OWN, LEASED)), 410)) == []
    assert len(silences(world.effects(ViewSeen((OWN,)), 711))) == 1


def test_an_admin_releases_a_silent_host_at_once_and_drains_one_that_answers() -> None:
    for silent_seconds, kind in ((10, DrainLeased), (120, ReleaseHost)):
        world = World()
        world.effects(ViewSeen((OWN, LEASED)), 0)
        world.effects(ViewSeen((OWN,)), silent_seconds)
        found = world.effects(ReleaseWanted("g-1"), silent_seconds)
        assert [type(effect) for effect in found if isinstance(effect, DrainLeased | ReleaseHost)] == [kind]
