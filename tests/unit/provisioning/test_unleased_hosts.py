"""Hosts that a list shows without a live lease: the ledger of their gate has their units from the first list on."""

import msgspec

from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Effect, TimerFired
from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.gate.gate_messages import (
    Decision,
    HostAdopted,
    HostsListed,
    LedgerRead,
    NodeSeen,
    ProviderHost,
    ReleaseHost,
    ViewSeen,
)
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.lease_entry import DAY_NS, LeaseEntry, LeaseState
from agiledart_provisioning.gate.lease_gate import LeaseGate
from agiledart_provisioning.policies.hosts import Hosts
from agiledart_provisioning.provisioning_settings import ProvisioningSettings

NOW = DAY_NS + 7_200 * SECOND
PREFIX = "agiledart-5e1f0000-"
BTU_NS = 600 * SECOND


def entry(lease_id: str, began_ns: int, **values: object) -> LeaseEntry:
    return LeaseEntry(lease_id, "g0", PREFIX + lease_id, "small", 1, BTU_NS, began_ns, **values)  # type: ignore[arg-type]


def gate(*entries: LeaseEntry, max_spend: int = 8) -> LeaseGate:
    settings = GateSettings("act", 3, max_spend, "small", 1, BTU_NS)
    machine = LeaseGate("g0", "5e1f0000", settings, Hosts(ProvisioningSettings()), RandomStream(1, "gate"))
    machine.step(LedgerRead(entries), NOW)
    return machine


def listed(machine: LeaseGate, now: int, *hosts: ProviderHost) -> list[Effect]:
    return machine.step(HostsListed(now, hosts), now)


def orphan(created_ns: int = NOW) -> ProviderHost:
    return ProviderHost("h9", f"{PREFIX}g0-1", created_ns)


def test_a_young_orphan_costs_at_once_and_is_not_released() -> None:
    machine = gate()
    effects = listed(machine, NOW + SECOND, orphan())
    assert not any(isinstance(effect, ReleaseHost) for effect in effects)
    assert machine.ledger.spent(NOW) == 1
    assert machine.ledger.reserved(NOW) == 1
    listed(machine, NOW + 11 * SECOND, orphan())
    assert machine.ledger.spent(NOW) == 1, "a second list books no second time"


def test_its_next_unit_is_booked_when_it_begins_and_not_when_it_has_vanished() -> None:
    machine = gate()
    listed(machine, NOW + SECOND, orphan())
    machine.step(TimerFired("watch"), NOW + BTU_NS - 2 * SECOND)
    assert machine.ledger.spent(NOW) == 2
    listed(machine, NOW + BTU_NS - SECOND)
    machine.step(TimerFired("watch"), NOW + 3 * BTU_NS)
    assert machine.ledger.spent(NOW) == 2


def test_a_lease_ends_when_an_orphan_needs_the_rest_of_the_limit() -> None:
    lease = entry("g0-7", NOW, state=LeaseState.JOINED, host_id="h7", node="n7", units=1)
    own = ProviderHost("h7", lease.host_name, NOW)
    machine = gate(lease, max_spend=3)
    assert machine.ledger.may_book(lease)
    listed(machine, NOW + SECOND, own, orphan(NOW - 300 * SECOND))
    assert not machine.ledger.may_book(lease), "1 + 1 are booked; the orphan needs the third unit before the lease does"
    decisions = machine.step(TimerFired("watch"), NOW + BTU_NS - 50 * SECOND)
    assert [effect.action for effect in decisions if isinstance(effect, Decision)][:1] == ["evict"]


def test_a_host_that_gets_its_lease_back_is_booked_once() -> None:
    given_up = entry("g0-1", NOW, state=LeaseState.FAILED, units=0, ended_ns=NOW)
    machine = gate(given_up)
    listed(machine, NOW + SECOND, orphan())
    assert machine.ledger.spent(NOW) == 1
    node = NodeSeen("n9", lease_id="g0-1", token_lease="g0-1", gate="g0", renewed_ns=NOW, host_id="h9")
    machine.step(ViewSeen((node,)), NOW + 2 * SECOND)
    assert machine.ledger.entries["g0-1"].state is LeaseState.JOINED
    assert machine.ledger.spent(NOW) == 1
    assert machine.ledger.reserved(NOW) == 1


def test_an_adopted_host_costs_the_units_that_its_former_gate_has_not_booked() -> None:
    machine = LeaseGate("g1", "5e1f0000", gate().settings, Hosts(ProvisioningSettings()), RandomStream(1, "gate"))
    machine.step(LedgerRead(()), NOW)
    former = entry("g0-1", NOW - BTU_NS - 100 * SECOND, state=LeaseState.JOINED, host_id="h9", units=1)
    machine.step(HostAdopted(former), NOW)
    adopted = machine.ledger.entries["g0-1"]
    assert (adopted.gate, adopted.first_unit, adopted.units) == ("g1", 1, 1)
    assert machine.step(HostAdopted(former), NOW + SECOND) == [], (
        "a slow host answers a repeated question a second time"
    )
    assert machine.ledger.live() == [adopted]


def test_units_that_another_gate_pays_are_given_back_also_when_the_lease_is_over_here() -> None:
    for state in (LeaseState.JOINED, LeaseState.FAILED):
        own = entry("g0-1", NOW, state=state, units=4, host_id="h2", node="n2", ended_ns=NOW if state.is_over else 0)
        machine = gate(own)
        adopted = msgspec.structs.replace(own, gate="g1", term=2, first_unit=2, units=1, state=LeaseState.ENDED)
        machine.step(ViewSeen((), records=(adopted,)), NOW)
        kept = machine.ledger.entries["g0-1"]
        assert (kept.units, kept.term, kept.gate, kept.state.is_over) == (2, 2, "g1", True)
        assert machine.step(ViewSeen((), records=(adopted,)), NOW) == [], "once is enough"
