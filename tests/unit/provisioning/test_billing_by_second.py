"""Billing by the second: whole shortest times are booked ahead, an ended lease costs its seconds, two rounds let a host go."""

import pytest

from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Completed, Effect, TimerFired
from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.gate.gate_messages import DrainLeased, LedgerRead, NodeSeen, ViewSeen, WriteEntry
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.lease_actions import changed, over
from agiledart_provisioning.gate.lease_entry import DAY_NS, LeaseEntry, LeaseState
from agiledart_provisioning.gate.lease_gate import LeaseGate
from agiledart_provisioning.policies.hosts import Hosts
from agiledart_provisioning.provisioning_settings import ProvisioningSettings

MINUTE = 60 * SECOND
NOW = 20_000 * DAY_NS + DAY_NS // 2
ENTRY = LeaseEntry(
    "g-1", "g", "agiledart-net-g-1", "small", 6_000, MINUTE, NOW, LeaseState.JOINED, units=3, host_id="h1", node="b1",
    by_second=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "cost"), [(20, 6_000), (60, 6_000), (90, 9_000), (150, 15_000), (180, 18_000), (200, 18_000)]
)
def test_an_ended_lease_costs_its_seconds_but_at_least_the_shortest_time(seconds: int, cost: int) -> None:
    assert ENTRY.cost == 18_000, "booked ahead while it runs"
    ended = over(ENTRY, LeaseState.ENDED, NOW + seconds * SECOND, "it is empty")
    assert ended.cost == ended.cost_on_day_of(NOW) == cost
    assert over(ended, LeaseState.ENDED, ended.ended_ns, "", units=0).cost == 0


def test_whole_units_cost_the_same_after_any_use() -> None:
    ended = over(LeaseEntry("g-1", "g", "n", "small", 6_000, MINUTE, NOW, units=3), LeaseState.ENDED, NOW + SECOND, "")
    assert ended.cost == 18_000


def test_a_host_goes_in_any_second_after_two_rounds_that_do_not_need_it() -> None:
    settings = GateSettings("act", 1, 1_000_000, "small", 6_000, MINUTE, 4, round_ns=5 * SECOND, by_second=True)
    settings.validate()
    policy = Hosts(ProvisioningSettings(window_s=60.0))
    gate = LeaseGate("g", "net", settings, policy, RandomStream(1, "g"))
    gate.step(LedgerRead((changed(ENTRY, units=1),)), NOW)
    leased = NodeSeen("b1", 0, 4, lease_id="g-1", token_lease="g-1", gate="g", renewed_ns=NOW, host_id="h1")

    def drains(now: int, *waiting: str) -> bool:
        gate.step(ViewSeen((NodeSeen("a1", 0, 8), leased), waiting), now)
        found: list[Effect] = list(gate.step(TimerFired("round"), now))
        for effect in list(found):
            if isinstance(effect, WriteEntry):
                found += gate.step(Completed(effect.request), now)
        return any(isinstance(effect, DrainLeased) for effect in found)

    assert not drains(NOW + 5 * SECOND)
    assert not drains(NOW + 10 * SECOND, "app waits"), "a round that needs it begins anew"
    assert not drains(NOW + 15 * SECOND)
    assert drains(NOW + 20 * SECOND), "40 seconds before the end of the paid time"
