"""Actions of a gate on its leases: each writes the ledger first, and what follows waits until the entry is durable."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil

import msgspec

from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Completed, Effect, Failed
from agiledart_provisioning.gate.gate_ledger import GateLedger
from agiledart_provisioning.gate.gate_messages import (
    Decision,
    DrainLeased,
    ProviderHost,
    ReleaseHost,
    ScaleStageTo,
    WriteEntry,
)
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.lease_entry import LeaseEntry, LeaseState

BOOKING_MARGIN_NS = 3 * SECOND
"""Time before the end of a paid unit at which the next one is booked: the ledger is never behind the bill."""

EVICTION_MARGIN_NS = 60 * SECOND
"""Time before the end of a paid unit at which a host goes that the limit pays for no longer: the provider needs time to end it."""

ANSWER_NS = 60 * SECOND
"""A host whose release was asked for before its end is not booked before its provider had this time to answer."""

DRAIN_SHARE = 0.8
"""Share of the rest of the window that a drain may take; then the host stays for another unit."""


SILENT_NS = 60 * SECOND
"""A node that was not seen for so long can't be drained: an admin's release ends its host at once."""

SECONDS_DRAIN_NS = 300 * SECOND
"""Time for a drain where seconds are billed."""


@dataclass(slots=True)
class GateMemory:
    """Knowledge of a gate besides its ledger, per lease; a restart begins without it.

    Attributes:
        lost_since: the answer to its call was lost at this time.
        missing_since: the list has not shown its host since.
        drain_until: the drain must have ended.
        stays_until: no drain is tried before.
        released_at: last call to end its host.
        forced: it goes as soon as it is empty, and is not extended by will.
        listed: a list has shown its host.
        repeated: its call was repeated, so it may have two hosts.
        seen_at: its node was seen then. called_silent: users know that its node does not answer.
        unwanted_since: rounds in a row want it to go, where seconds are billed.
    """

    lost_since: dict[str, int] = field(default_factory=dict)
    missing_since: dict[str, int] = field(default_factory=dict)
    drain_until: dict[str, int] = field(default_factory=dict)
    stays_until: dict[str, int] = field(default_factory=dict)
    released_at: dict[str, int] = field(default_factory=dict)
    forced: set[str] = field(default_factory=set)
    listed: set[str] = field(default_factory=set)
    repeated: set[str] = field(default_factory=set)
    seen_at: dict[str, int] = field(default_factory=dict)
    called_silent: set[str] = field(default_factory=set)
    unwanted_since: dict[str, int] = field(default_factory=dict)

    def keep_unwanted(self, leases: set[str]) -> None:
        """Forget since when other leases were unwanted."""
        self.unwanted_since = {lease: since for lease, since in self.unwanted_since.items() if lease in leases}


class LeaseActions:
    """Ledger of a gate, and its actions on single leases."""

    def __init__(self, gate: str, prefix: str, settings: GateSettings) -> None:
        self.name, self.prefix, self.settings = gate, prefix, settings
        self.ledger = GateLedger(settings)
        self.counts: dict[str, int] = {}
        self.scalings: dict[str, int] = {}
        self._memory = GateMemory()
        self._effects: list[Effect] = []
        self._after_write: dict[int, tuple[LeaseEntry, tuple[Effect, ...]]] = {}
        self._requests, self._failures, self._no_lease_before = 0, 0, 0

    def _write(self, entry: LeaseEntry, *then: Effect) -> None:
        """Write an entry; the effects follow once it is durable. A host that gets a lease is booked there alone."""
        unleased = self.ledger.entries.get(self._unleased_id(entry.host_name, entry.host_id))
        if unleased is not None and unleased.lease_id != entry.lease_id and not entry.state.is_over and unleased.units:
            self.ledger.unleased.discard(unleased.lease_id)
            paid = over(unleased, LeaseState.ENDED, unleased.ended_ns, f"{entry.lease_id} pays for it", units=0)
            self._write(changed(paid, host_id=""))
        self.ledger.entries[entry.lease_id] = entry
        self._requests += 1
        self._after_write[self._requests] = (entry, then)
        self._effects.append(WriteEntry(self._requests, entry, is_public=entry.gate == self.name))

    def _on_written(self, event: Completed, now: int) -> None:
        self._effects += self._after_write.pop(event.request)[1]

    def _on_write_failed(self, event: Failed, now: int) -> None:
        """Make no call: without a durable entry it could be forgotten."""
        entry, then = self._after_write.pop(event.request)
        self._decide("refused", entry.lease_id, f"the ledger cannot be written: {event.reason}")
        if entry.state is LeaseState.ASKED and then:
            self.ledger.entries[entry.lease_id] = over(entry, LeaseState.FAILED, now, "the ledger failed", units=0)

    def _scale(self, numbers: list[ScaleStageTo]) -> None:
        """Give stages the numbers of the policy; a gate that only advises says them once they differ."""
        for change in numbers:
            if self.settings.mode == "act":
                self._effects.append(change)
                self.scalings[change.name] = self.scalings.get(change.name, 0) + (not change.is_first)
            if not change.is_first:
                what = "scale" if self.settings.mode == "act" else "would scale"
                self._decide(what, "", f"{change.name} to {change.number}: {change.why}")

    def _hand_over(self, record: LeaseEntry, now: int) -> None:
        """End an entry whose host another gate has adopted. That gate pays the units since then, also of a lease that is over here.

        A gate in a network partition books them until it reads this record, perhaps after the host has ended.
        """
        own = self.ledger.entries.get(record.lease_id)
        if own is None or record.gate == self.name or record.term <= own.term:
            return
        units = max(0, min(own.units, record.first_unit - own.first_unit))
        if own.state.is_over and units == own.units:
            return
        self._decide("handed over", own.lease_id, f"{record.gate} has adopted it")
        ended = own if own.state.is_over else over(own, LeaseState.ENDED, now, f"{record.gate} has adopted it")
        trimmed = changed(ended, units=units, gate=record.gate, term=record.term, host_id=own.host_id or record.host_id)
        self._write(trimmed)

    def _silent_ns(self, entry: LeaseEntry, now: int) -> int:
        """Return for how long the node of a joined host was not seen."""
        is_joined = entry.state in (LeaseState.JOINED, LeaseState.DRAINING)
        return now - self._memory.seen_at.setdefault(entry.lease_id, now) if is_joined else 0

    def _note_silence(self, entry: LeaseEntry, now: int, *, is_seen: bool) -> None:
        """Note whether the node of a host is seen. Say once that it is not: it may be broken, or beyond a network partition.

        The gate does not end such a host by itself: beyond the partition it may work, and another gate may have adopted it.
        """
        if is_seen:
            self._memory.seen_at[entry.lease_id] = now
            self._memory.called_silent.discard(entry.lease_id)
        elif self._silent_ns(entry, now) > self.settings.start_ns and entry.lease_id not in self._memory.called_silent:
            self._memory.called_silent.add(entry.lease_id)
            seconds = self.settings.start_ns // SECOND
            why = f"{entry.node} does not answer for {seconds} s and still costs; agiledart provision release {entry.lease_id}"
            self._decide("silent", entry.lease_id, why)

    def _decide(self, action: str, lease_id: str, why: str) -> None:
        self.counts[action] = self.counts.get(action, 0) + 1
        self._effects.append(Decision(action, lease_id, why))

    def _extend_or_evict(self, entry: LeaseEntry, now: int) -> None:
        """Book the next unit when it begins. A host that the limit does not pay for any more is ended, whatever runs there."""
        rest = entry.paid_until_ns - now
        if rest <= EVICTION_MARGIN_NS and not self.ledger.may_book(entry):
            self._decide("evict", entry.lease_id, f"max_spend = {self.settings.max_spend / 1e6:g} a day is used up")
            self._release(entry, now, "max_spend is used up")
        elif rest <= BOOKING_MARGIN_NS:
            self._decide("extend", entry.lease_id, "it is needed, or not empty")
            self._book(entry, now)

    def _book(self, entry: LeaseEntry, now: int) -> None:
        self._write(changed(entry, units=max(entry.units + 1, self._started(entry, now))))

    def _started(self, entry: LeaseEntry, now: int) -> int:
        return ceil(max(1, now - entry.began_ns) / entry.btu_ns) - entry.first_unit

    def _fail(self, now: int) -> None:
        """Count a failure: the next lease waits, twice as long as after the last failure."""
        settings = self.settings
        wait = min(settings.first_back_off_ns << min(self._failures, 16), settings.last_back_off_ns)
        self._failures += 1
        self._no_lease_before = now + wait

    def _is_in_window(self, entry: LeaseEntry, now: int) -> bool:
        return self.settings.by_second or now >= entry.paid_until_ns - self.settings.window_ns

    def _may_go(self, entry: LeaseEntry, now: int) -> bool:
        return self._is_in_window(entry, now) or entry.lease_id in self._memory.forced

    def _go(self, entry: LeaseEntry, why: str, now: int, *, at_once: bool = False) -> None:
        """Drain a host in its window, or at once."""
        if at_once and self.settings.mode == "act" and entry.state is LeaseState.JOINED:
            self._memory.forced.add(entry.lease_id)
            self._drain(entry, why, entry.paid_until_ns)
            return
        if now < self._memory.stays_until.get(entry.lease_id, 0) or not self._is_in_window(entry, now):
            return
        if (
            self.settings.by_second
            and now - self._memory.unwanted_since.setdefault(entry.lease_id, now) < self.settings.round_ns
        ):
            return
        if self.settings.mode == "act":
            rest = entry.paid_until_ns - BOOKING_MARGIN_NS - now
            longest = SECONDS_DRAIN_NS if self.settings.by_second else int(DRAIN_SHARE * max(0, rest))
            self._drain(entry, why, now + longest)

    def _drain(self, entry: LeaseEntry, why: str, until: int) -> None:
        if entry.state is LeaseState.JOINED:
            self._decide("drain", entry.lease_id, why)
            self._memory.drain_until[entry.lease_id] = until
            self._write(changed(entry, state=LeaseState.DRAINING, why=why), DrainLeased(entry.lease_id, entry.node))

    def _end_drain(self, entry: LeaseEntry, why: str) -> None:
        """Let a node accept work again, for another unit; where the limit permits none, it goes on emptying."""
        self._memory.drain_until.pop(entry.lease_id, None)
        if entry.lease_id in self._memory.forced or not self.ledger.may_extend(entry):
            return
        self._memory.stays_until[entry.lease_id] = entry.paid_until_ns
        self._decide("stays", entry.lease_id, why)
        self._write(
            changed(entry, state=LeaseState.JOINED, why=why), DrainLeased(entry.lease_id, entry.node, undo=True)
        )

    def _release(self, entry: LeaseEntry, now: int, why: str) -> None:
        self._memory.drain_until.pop(entry.lease_id, None)
        self._memory.released_at[entry.lease_id] = now
        self._decide("release", entry.lease_id, why)
        units = max(entry.units, self._started(entry, now))
        released = changed(entry, state=LeaseState.RELEASING, units=units, why=why)
        self._write(released, ReleaseHost(entry.lease_id, entry.host_id))

    def _with_begin(self, entry: LeaseEntry, created_ns: int, now: int) -> LeaseEntry:
        """Return the entry, whose units begin when the provider has made the host: a lost call may have made it earlier."""
        if created_ns >= entry.began_ns:
            return entry
        earlier = changed(entry, began_ns=created_ns)
        earlier = changed(earlier, units=max(entry.units, self._started(earlier, now)))
        self._write(earlier)
        return earlier

    def _release_again(self, entry: LeaseEntry, now: int) -> None:
        """Repeat a release whose host is still listed; the units that it has started cost."""
        if now - self._memory.released_at.get(entry.lease_id, 0) < self.settings.list_soon_ns:
            return
        self._memory.released_at[entry.lease_id] = now
        units = max(entry.units, self._started(entry, now))
        self._write(changed(entry, units=units), ReleaseHost(entry.lease_id, entry.host_id))

    def _unleased_id(self, host_name: str, host_id: str) -> str:
        return f"{host_name.removeprefix(self.prefix)}-{host_id}"

    def _unleased_entry(self, host: ProviderHost) -> LeaseEntry:
        """Return the entry of a host without a live lease: its ended lease, or one that is over from the beginning."""
        settings = self.settings
        return self.ledger.by_host(host.host_id) or LeaseEntry(
            self._unleased_id(host.host_name, host.host_id), self.name, host.host_name, settings.offer, settings.price,
            settings.btu_ns, host.created_ns, LeaseState.FAILED, units=0, host_id=host.host_id, ended_ns=host.created_ns,
            by_second=settings.by_second,
        )  # fmt: skip

    def _book_unleased(self, hosts: Iterable[ProviderHost], now: int) -> None:
        """Book what the listed hosts without a live lease cost: they cost from their creation, not only once they are released."""
        self.ledger.unleased.clear()
        for host in hosts:
            entry = self._unleased_entry(host)
            units = max(entry.units, self._started(entry, now))
            if units > entry.units:
                self._write(changed(entry, units=units, why=entry.why or "it runs without a lease"))
            self.ledger.unleased.add(entry.lease_id)

    def _write_release(self, host: ProviderHost, now: int, why: str) -> None:
        """Release a host without a live lease; where the ledger has its ended lease, that one is opened again."""
        entry = self._unleased_entry(host)
        units = max(entry.units, self._started(entry, now))
        self._memory.released_at[entry.lease_id] = now
        self.ledger.unleased.discard(entry.lease_id)
        self._write(
            changed(entry, state=LeaseState.RELEASING, units=units, ended_ns=0, why=why),
            ReleaseHost(entry.lease_id, host.host_id),
        )


def changed(entry: LeaseEntry, **values: object) -> LeaseEntry:
    """Return an entry with other values."""
    return msgspec.structs.replace(entry, **values)


def over(entry: LeaseEntry, state: LeaseState, now: int, why: str, units: int | None = None) -> LeaseEntry:
    """Return an entry that is over; `units`: those that stay booked."""
    return changed(entry, state=state, ended_ns=now, why=why, units=entry.units if units is None else units)
