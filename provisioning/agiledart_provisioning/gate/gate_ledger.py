"""Ledger of a gate: its leases, and whether its limits permit another unit. Only this gate's own entries count.

A record on the ring is no lock: in a network partition both sides write records. So no limit rests on them.
"""

from collections.abc import Iterable

from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.lease_entry import LeaseEntry, LeaseState


class GateLedger:
    """Entries by lease. Reserves: each live lease may need a further unit for its drain, and a lost call may have made a host.

    Attributes:
        unleased: entries, over, whose hosts the last list showed: these run and cost until they are released.
    """

    def __init__(self, settings: GateSettings, entries: Iterable[LeaseEntry] = ()) -> None:
        self._settings = settings
        self.entries = {entry.lease_id: entry for entry in entries}
        self.unleased: set[str] = set()

    def live(self) -> list[LeaseEntry]:
        """Return the leases that are not over, the oldest first."""
        return [entry for entry in self.entries.values() if not entry.state.is_over]

    def by_host(self, host_id: str) -> LeaseEntry | None:
        """Return the lease of a host: the live one, else the newest."""
        newest_first = (*self.live(), *reversed(self.entries.values()))
        return next((entry for entry in newest_first if entry.host_id == host_id), None)

    def spent(self, now: int) -> int:
        """Return what is booked for the day of a time, in millionths."""
        return sum(entry.cost_on_day_of(now) for entry in self.entries.values())

    def reserved(self, now: int) -> int:
        """Return the price of the units that may still have to be booked, in millionths."""
        doubtful = sum(
            1
            for entry in self.entries.values()
            if entry.state is LeaseState.FAILED and not entry.units and now - entry.ended_ns < self._settings.orphan_ns
        )
        return self._settings.price * (len(self.live()) + doubtful + len(self.unleased))

    def obstacle_to_lease(self, now: int) -> str:
        """Return why no further host may be leased; empty: it may."""
        settings, live = self._settings, len(self.live())
        if live >= settings.max_hosts:
            return f"max_hosts = {settings.max_hosts} is reached"
        booked = self.spent(now) + self.reserved(now)
        if booked + 2 * settings.price > settings.max_spend:
            return (
                f"max_spend = {settings.max_spend / 1e6:g} a day leaves {max(0, settings.max_spend - booked) / 1e6:g}; "
                f"a lease needs {2 * settings.price / 1e6:g}"
            )
        return ""

    def may_extend(self, entry: LeaseEntry) -> bool:
        """Return whether the next unit of a lease is within the limit, with a further one for its drain."""
        at = entry.paid_until_ns
        return self.spent(at) + self.reserved(at) + entry.price <= self._settings.max_spend

    def may_book(self, entry: LeaseEntry) -> bool:
        """Return whether the next unit of a lease is within the limit, though none remains for its drain.

        A unit that begins earlier on a host without a lease goes before it: that host is there, and is released later.
        """
        at = entry.paid_until_ns
        begun = sum(1 for lease_id in sorted(self.unleased) if self.entries[lease_id].paid_until_ns <= at)
        return self.spent(at) + begun * self._settings.price + entry.price <= self._settings.max_spend
