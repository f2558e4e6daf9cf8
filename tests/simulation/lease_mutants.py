"""Bugs to plant in the gate of leased hosts; `test_leases` sees that each is found, by a complaint of its own."""

from typing import Any

import msgspec
import pytest

from agiledart_kernel.machine import Effect
from agiledart_provisioning.gate import host_comparison
from agiledart_provisioning.gate.gate_ledger import GateLedger
from agiledart_provisioning.gate.gate_messages import CallFailure, LeaseCallFailed, LeaseHost, NodeSeen
from agiledart_provisioning.gate.lease_entry import LeaseEntry, LeaseState
from agiledart_provisioning.gate.lease_gate import LeaseGate
from tests.simulation.mutants import Mutant


def call_before_ledger(patch: pytest.MonkeyPatch) -> None:
    """The provider is called at once, and the entry is written beside."""
    right = LeaseGate._write

    def write(self: LeaseGate, entry: LeaseEntry, *then: Effect) -> None:
        self._effects += then
        right(self, entry)

    patch.setattr(LeaseGate, "_write", write)


def lost_call_repeated_at_once(patch: pytest.MonkeyPatch) -> None:
    """A lost call is repeated without a look at the list."""
    right = LeaseGate._on_call_failed

    def failed(self: LeaseGate, event: LeaseCallFailed, now: int) -> None:
        right(self, event, now)
        entry = self.ledger.entries[event.lease_id]
        if event.failure is CallFailure.LOST and entry.state is LeaseState.ASKED:
            self._effects.append(LeaseHost(entry.lease_id, entry.host_name, entry.offer))

    patch.setattr(LeaseGate, "_on_call_failed", failed)


def records_bound_the_gate(patch: pytest.MonkeyPatch) -> None:
    """Leases that the ring does not show now do not count for the limit."""
    right = LeaseGate._open

    def open_lease(self: LeaseGate, why: str, now: int) -> None:
        shown = {node.lease_id for node in self._view.nodes}
        ledger, self.ledger = self.ledger, GateLedger(self.settings)
        self.ledger.entries = ledger.entries
        patched = [entry for entry in ledger.live() if entry.lease_id in shown]
        self.ledger.live = lambda: patched  # type: ignore[method-assign]
        right(self, why, now)
        self.ledger = ledger

    patch.setattr(LeaseGate, "_open", open_lease)


def released_with_instances(patch: pytest.MonkeyPatch) -> None:
    """A host is released in its window without a drain."""

    def drain(self: LeaseGate, entry: LeaseEntry, why: str, until: int) -> None:
        if entry.state is LeaseState.JOINED:
            now = entry.paid_until_ns - self.settings.window_ns
            self._release(entry, now, why)

    patch.setattr(LeaseGate, "_drain", drain)


def window_forgotten(patch: pytest.MonkeyPatch) -> None:
    """An empty host is released at once, in the middle of a paid unit."""
    right = LeaseGate._on_node

    def on_node(self: LeaseGate, entry: LeaseEntry, node: NodeSeen, now: int) -> None:
        right(self, entry, node, now)
        if self.ledger.entries[entry.lease_id].state is LeaseState.JOINED and not node.instances:
            self._drain(self.ledger.entries[entry.lease_id], "it is empty", now + self.settings.window_ns)

    patch.setattr(LeaseGate, "_on_node", on_node)
    patch.setattr(LeaseGate, "_may_go", lambda self, entry, now: True)


def adopts_beyond_its_limit(patch: pytest.MonkeyPatch) -> None:
    """A gate adopts every host of a dead one."""
    patch.setattr(LeaseGate, "_is_too_much", lambda self, asked, unbooked, now: False)


def orphans_left(patch: pytest.MonkeyPatch) -> None:
    """Hosts without a lease are not released."""

    def nothing(*_: Any) -> None:
        pass

    patch.setattr(host_comparison, "_compare_orphans", nothing)


def former_gate_ends_the_record(patch: pytest.MonkeyPatch) -> None:
    """The ended entry of a handed-over lease replaces the record of the gate that has adopted it."""
    right = LeaseGate._write

    def write(self: LeaseGate, entry: LeaseEntry, *then: Effect) -> None:
        right(self, entry, *then)
        self._effects[-1] = msgspec.structs.replace(self._effects[-1], is_public=True)

    patch.setattr(LeaseGate, "_write", write)


def adopted_units_not_booked(patch: pytest.MonkeyPatch) -> None:
    """A gate takes the units that have begun as paid by the former gate; `test_long_silence` has the schedule that shows it."""
    patch.setattr(LeaseGate, "_unbooked", lambda self, record, now: 0)


def begin_of_the_last_call(patch: pytest.MonkeyPatch) -> None:
    """Units begin with the last call, though an earlier one has made the host."""
    patch.setattr(LeaseGate, "_with_begin", lambda self, entry, created_ns, now: entry)


def unleased_hosts_not_booked(patch: pytest.MonkeyPatch) -> None:
    """An orphan costs only from its release on."""
    patch.setattr(LeaseGate, "_book_unleased", lambda self, hosts, now: None)


_LATE = {"kinds": ("listed-late", "lost-after", "vanish")}
_PARTED = {"kinds": ("kill", "gone", "ring-partition")}

LEASE_MUTANTS = (
    Mutant("call before ledger", call_before_ledger, "leases", complaint="L1"),
    Mutant("lost call repeated at once", lost_call_repeated_at_once, "leases", complaint="L2"),
    Mutant("records bound the gate", records_bound_the_gate, "leases", complaint="L3", known=13),
    Mutant("released with instances", released_with_instances, "leases", complaint="L4"),
    Mutant("window forgotten", window_forgotten, "leases", complaint="L5"),
    Mutant("adopts beyond its limit", adopts_beyond_its_limit, "leases", complaint="L3", known=35),
    Mutant("former gate ends the record", former_gate_ends_the_record, "leases", _PARTED, complaint="L10", known=25),
    Mutant("begin of the last call", begin_of_the_last_call, "leases", complaint="L7", seeds=500, known=13),
    Mutant("orphans left", orphans_left, "leases", _LATE, complaint="L6", known=48),
    Mutant("unleased hosts not booked", unleased_hosts_not_booked, "leases", _LATE, complaint="L7", known=54),
)
