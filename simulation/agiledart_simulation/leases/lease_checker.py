"""Checks on leases: orphans, double payment, limits, instances lost, calls without an entry, early repeats and early releases."""

from collections.abc import Callable, Mapping, Sequence

from agiledart_kernel.instants import SECOND
from agiledart_provisioning.gate.gate_ledger import GateLedger
from agiledart_provisioning.gate.gate_messages import ProviderHost
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.lease_entry import LeaseEntry, LeaseState
from agiledart_provisioning.providers.simulated_cloud import CloudHost, SimulatedCloud

ORPHAN_NS = 900 * SECOND
NEGLECT_NS = 120 * SECOND


class LeaseChecker:
    """Checks from outside: they read disks of gates, the cloud and the nodes, and no memory of a gate."""

    def __init__(self, settings: GateSettings, cloud: SimulatedCloud, complain: Callable[[str], None]) -> None:
        self._settings, self._cloud, self._complain = settings, cloud, complain
        self._lost: dict[str, int] = {}
        self._listed_after: set[str] = set()
        self._unleased: dict[str, tuple[str, int]] = {}
        self._released: set[str] = set()
        self._shown: set[tuple[str, str]] = set()
        self._owners: dict[str, str] = {}
        self._neglected_since: dict[str, int] = {}

    def check_call(self, disk: Mapping[str, LeaseEntry], host_name: str, now: int) -> None:
        """Check a call for a host: L1 its entry is on the disk; L2 a lost call is repeated only after a list without that name."""
        if not any(entry.host_name == host_name and not entry.state.is_over for entry in disk.values()):
            self._complain(f"L1: {host_name} is asked for, and the ledger has no entry")
        lost = self._lost.get(host_name)
        if lost is not None and (host_name not in self._listed_after or now < lost + self._settings.listing_delay_ns):
            self._complain(f"L2: the call for {host_name} is repeated {(now - lost) / SECOND:.1f} s after its loss")

    def note_lost(self, host_name: str, now: int) -> None:
        """Note that the answer to a call was lost."""
        self._lost[host_name] = now
        self._listed_after.discard(host_name)

    def note_answer(self, gate: str, host_id: str) -> None:
        """Note that a gate knows a host."""
        self._shown.add((gate, host_id))

    def note_owner(self, host_id: str, gate: str) -> None:
        """Note the gate that a host had accepted when it ended."""
        self._owners[host_id] = gate

    def note_list(self, gate: str, hosts: Sequence[ProviderHost], asked_ns: int) -> None:
        """Note a list that reached a gate."""
        shown = {host.host_name for host in hosts}
        self._shown.update((gate, host.host_id) for host in hosts)
        for host_name, lost in self._lost.items():
            if host_name not in shown and asked_ns >= lost + self._settings.listing_delay_ns:
                self._listed_after.add(host_name)

    def check_disk(self, gate: str, disk: Mapping[str, LeaseEntry], *, was_cut: bool, now: int) -> None:
        """Check L3: a gate's leases and spending are within its limits. Doubles are no leases, but cost.

        While the gate was down or could not reach its provider, hosts that were to end go on costing.
        """
        live = [entry for entry in disk.values() if not entry.state.is_over and entry.lease_id in entry.host_name]
        if len(live) > self._settings.max_hosts:
            self._complain(f"L3: {gate} has {len(live)} leases; max_hosts = {self._settings.max_hosts}")
        spent = sum(entry.cost_on_day_of(now) for entry in disk.values())
        unended = self._settings.max_hosts * self._settings.price if was_cut else 0
        if spent > self._settings.max_spend + unended:
            self._complain(f"L3: {gate} has booked {spent}; max_spend = {self._settings.max_spend}")

    def check_release(
        self, disk: Mapping[str, LeaseEntry], entry: LeaseEntry, instances: int, *, is_wanted: bool, now: int
    ) -> None:
        """Check a release: L4 no instance runs there, L5 it ends in its window. The limit goes before both.

        A call that did not reach the provider may be repeated later.
        """
        if entry.host_id in self._released:
            return
        self._released.add(entry.host_id)
        spent = sum(other.cost_on_day_of(entry.paid_until_ns) for other in disk.values())
        if spent + entry.price > self._settings.max_spend:
            return
        if instances:
            self._complain(f"L4: {entry.lease_id} is released with {instances} instances")
        if entry.node and not is_wanted and now < entry.paid_until_ns - self._settings.window_ns:
            self._complain(
                f"L5: {entry.lease_id} is released {(entry.paid_until_ns - now) / SECOND:.0f} s before its end"
            )

    def check_orphan(self, host: CloudHost, gate: str, disk: Mapping[str, LeaseEntry], since: int, now: int) -> None:
        """Check L6: no host is without a live lease for 15 minutes while its gate can see it, at least since `since`.

        A host that another gate has adopted is that gate's from then on; the former gate's silence is checked by L10.
        """
        if any(entry.host_id == host.host_id and not entry.state.is_over for entry in disk.values()):
            self._unleased.pop(host.host_id, None)
            return
        owner, began = self._unleased.get(host.host_id, (gate, now))
        if owner != gate:
            began = now
        self._unleased[host.host_id] = (gate, began)
        if now - max(began, since) > ORPHAN_NS:
            self._complain(f"L6: {host.host_name} ({host.host_id}) has run without a lease for 15 min")

    def check_bill(self, disks: Mapping[str, Mapping[str, LeaseEntry]], silent: set[str], now: int) -> None:
        """Check L7: at the end each started unit of a host is booked once. Gates that are gone may lack some.

        A gate cannot know a host that ended before a list or an answer named it to this gate. A host that no gate adopted is paid
        by the gate that it accepted last.
        """
        for host in self._cloud.hosts.values():
            owners = [
                entry
                for disk in disks.values()
                for entry in disk.values()
                if entry.host_id == host.host_id and entry.units
            ]
            booked = [entry.first_unit + number for entry in owners for number in range(entry.units)]
            if len(booked) != len(set(booked)):
                self._complain(f"L7: a unit of {host.host_id} is booked twice: {booked}")
            billed = self._cloud.billed_units(host, self._settings.btu_ns, now)
            maker = host.host_name.rpartition("-")[0].rpartition("-")[2]
            is_excused = (maker, host.host_id) not in self._shown or not silent.isdisjoint(
                (maker, self._owners.get(host.host_id, maker))
            )
            if len(set(booked)) < billed and not is_excused:
                self._complain(f"L7: {host.host_id} cost {billed} units, and {len(set(booked))} are booked")

    def check_neglect(
        self, host: CloudHost, disk: Mapping[str, LeaseEntry] | None, records: Mapping[str, LeaseEntry], now: int
    ) -> None:
        """Check L10: a gate with room adopts the host of a silent gate.

        Args:
            disk: of the gate that may adopt it.
            records: of leases. Units that have begun and that the silent gate has not booked are paid by the adopting gate.
        """
        booked = [record.first_unit + record.units for record in records.values() if record.host_name == host.host_name]
        unbooked = max(0, self._cloud.billed_units(host, self._settings.btu_ns, now) - max(booked, default=0))
        if disk is None or not self._has_room(GateLedger(self._settings, disk.values()), unbooked, now):
            self._neglected_since.pop(host.host_id, None)
        elif now - self._neglected_since.setdefault(host.host_id, now) > NEGLECT_NS:
            self._complain(f"L10: {host.host_name} ({host.host_id}) belongs to a silent gate, and another one has room")

    def _has_room(self, ledger: GateLedger, unbooked: int, now: int) -> bool:
        booked = ledger.spent(now) + ledger.reserved(now)
        is_payable = booked + (2 + unbooked) * self._settings.price <= self._settings.max_spend
        return is_payable and not ledger.obstacle_to_lease(now)

    def check_over(self, disks: Mapping[str, Mapping[str, LeaseEntry]]) -> None:
        """Check L8: at the end no host runs, and no lease of a living gate is open."""
        for host in self._cloud.running():
            self._complain(f"L8: {host.host_name} ({host.host_id}) still runs")
        for disk in disks.values():
            for entry in disk.values():
                if entry.state not in (LeaseState.ENDED, LeaseState.FAILED):
                    self._complain(f"L8: the lease {entry.lease_id} is {entry.state.value}")
