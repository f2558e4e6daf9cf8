"""Gate: a machine that leases, extends and releases hosts. Rules: the ledger before each call, a repeat only when a list shows no
such host, a release only in the window and only of an empty host, and limits that rest on this gate's ledger alone.
"""

from collections.abc import Callable

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import Completed, Effect, Event, Failed, SetTimer, TimerFired
from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.actions import ActionKind
from agiledart_provisioning.gate import gate_messages as messages
from agiledart_provisioning.gate.gate_ledger import GateLedger
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.host_comparison import compared
from agiledart_provisioning.gate.lease_actions import (
    ANSWER_NS,
    BOOKING_MARGIN_NS,
    SILENT_NS,
    LeaseActions,
    changed,
    over,
)
from agiledart_provisioning.gate.lease_entry import LeaseEntry, LeaseState
from agiledart_provisioning.gate.network_state import network_state
from agiledart_provisioning.gate.stage_scaling import changed_numbers
from agiledart_provisioning.provisioning_policy import ProvisioningPolicy

LIVE_STATES = (LeaseState.STARTING, LeaseState.JOINED, LeaseState.DRAINING)


class LeaseGate(LeaseActions):
    """Gate of a network. `now` is the wall clock in nanoseconds, never running backwards, since a ledger outlives its process.

    `releases_early`: hosts are released when the policy says so, outside of their window too (the baseline `threshold`).
    """

    def __init__(
        self,
        gate: str,
        network: str,
        settings: GateSettings,
        policy: ProvisioningPolicy,
        random: RandomStream,
        *,
        releases_early: bool = False,
    ) -> None:
        super().__init__(gate, f"agiledart-{network[:8]}-", settings)
        self.is_paused = False
        self._policy, self._random, self._releases_early = policy, random, releases_early
        self._view, self._viewed_at = messages.ViewSeen((), leads=False), 0
        self._last_obstacle = ""
        self._listing_since, self._listed_at = 0, 0
        self._handlers: dict[type[Event], Callable[..., None]] = {
            messages.LedgerRead: self._on_ledger,
            TimerFired: self._on_timer,
            Completed: self._on_written,
            Failed: self._on_write_failed,
            messages.ViewSeen: self._on_view,
            messages.LeaseAnswered: self._on_answer,
            messages.LeaseCallFailed: self._on_call_failed,
            messages.HostsListed: self._on_list,
            messages.ListFailed: self._on_list_failed,
            messages.ReleaseAnswered: self._on_released,
            messages.DrainRefused: self._on_drain_refused,
            messages.HostAdopted: self._on_adopted,
            messages.SetPaused: self._on_paused,
            messages.ReleaseWanted: self._on_release_wanted,
        }

    def step(self, event: Event, now: int) -> list[Effect]:
        """Take one event at `now`. Return the effects to carry out, in order."""
        self._handlers[type(event)](event, now)
        effects, self._effects = self._effects, []
        return effects

    def _on_ledger(self, event: messages.LedgerRead, now: int) -> None:
        """Begin: an entry `asked` counts as a call whose answer was lost."""
        self.ledger = GateLedger(self.settings, event.entries)
        for entry in self.ledger.live():
            if entry.state is LeaseState.ASKED:
                self._memory.lost_since[entry.lease_id] = now
        if self.settings.mode != "off":
            self._list(now)
            self._effects.append(SetTimer("round", Instant(now + self.settings.round_ns)))
            self._effects.append(SetTimer("watch", Instant(now + SECOND)))

    # ---- timers

    def _on_timer(self, event: TimerFired, now: int) -> None:
        if event.name == "watch":
            self._watch(now)
            self._effects.append(SetTimer("watch", Instant(now + SECOND)))
        elif event.name == "round":
            self._round(now)
            self._effects.append(SetTimer("round", Instant(now + self.settings.round_ns)))

    def _watch(self, now: int) -> None:
        """Book units that begin, end drains and starts that take too long, and compare with the provider when it is time."""
        for entry in self.ledger.live():
            if entry.state is LeaseState.STARTING and now - entry.began_ns >= self.settings.start_ns:
                self._decide("failed", entry.lease_id, "its node has not joined in time")
                self._fail(now)
                self._release(entry, now, "its node has not joined in time")
            elif entry.state is LeaseState.DRAINING and now >= self._memory.drain_until.get(entry.lease_id, now):
                self._end_drain(entry, "the drain takes longer than the window")
        for entry in self.ledger.live():
            if entry.state is LeaseState.RELEASING:
                if now >= entry.paid_until_ns + ANSWER_NS:
                    self._book(entry, now)
            elif entry.state is not LeaseState.ASKED:
                self._extend_or_evict(entry, now)
        for entry in [self.ledger.entries[lease_id] for lease_id in sorted(self.ledger.unleased)]:
            if now >= entry.paid_until_ns - BOOKING_MARGIN_NS:
                self._book(entry, now)
        wait = self.settings.list_soon_ns if self._is_unsettled() else self.settings.list_ns
        if now - max(self._listed_at, self._listing_since) >= wait:
            self._list(now)

    # ---- demand

    def _round(self, now: int) -> None:
        """Let the policy decide on the last view, when it is recent."""
        if not self._viewed_at or now - self._viewed_at > 2 * self.settings.round_ns:
            return
        view, live = self._view, self.ledger.live()
        state = network_state(view.nodes, view.waiting, live, self.settings, now, view.stages, self.scalings)
        actions = self._policy.decide(state, self._random)
        if view.leads and not self.is_paused:
            self._scale(changed_numbers(actions, state, view.stages))
        wants = [action.why for action in actions if action.kind is ActionKind.LEASE] or list(view.waiting)
        if wants and not any(entry.state in (LeaseState.ASKED, LeaseState.STARTING) for entry in live):
            self._open(wants[0], now)
        self._memory.keep_unwanted({action.host for action in actions if action.kind is ActionKind.RELEASE})
        for action in actions:
            entry = self.ledger.entries.get(action.host)  # None: a host of the user, or one that is only planned
            if entry is not None and action.kind is ActionKind.RELEASE:
                node = self._node_of(entry)
                is_idle = node is not None and not node.instances
                self._go(entry, action.why, now, at_once=self._releases_early and is_idle)
            elif entry is not None and action.kind is ActionKind.EXTEND and not self.ledger.may_extend(entry):
                self._go(entry, "max_spend permits no further unit", now)

    def _open(self, why: str, now: int) -> None:
        if not self._view.leads or self.is_paused or now < self._no_lease_before:
            return
        if self.settings.mode == "advise":
            self._decide("would lease", "", why)
            return
        if obstacle := self.ledger.obstacle_to_lease(now):
            if obstacle != self._last_obstacle:
                self._decide("limit", "", f"{obstacle}; {why}")
            self._last_obstacle = obstacle
            return
        self._last_obstacle = ""
        number = now // SECOND
        while (lease_id := f"{self.name}-{number}") in self.ledger.entries:
            number += 1
        settings, host_name = self.settings, self.prefix + lease_id
        entry = LeaseEntry(
            lease_id, self.name, host_name, settings.offer, settings.price, settings.btu_ns, now, why=why,
            by_second=settings.by_second,
        )  # fmt: skip
        self._decide("lease", lease_id, why)
        self._write(entry, messages.LeaseHost(lease_id, host_name, settings.offer))

    def _on_paused(self, event: messages.SetPaused, now: int) -> None:
        self.is_paused = event.is_paused
        self._decide("pause" if event.is_paused else "resume", "", "an admin asked for it")

    # ---- answers of the provider

    def _on_answer(self, event: messages.LeaseAnswered, now: int) -> None:
        entry = self.ledger.entries.get(event.lease_id)
        if entry is not None and entry.state is LeaseState.ASKED:
            self._take_host(entry, event.host, now)

    def _take_host(self, entry: LeaseEntry, host: messages.ProviderHost, now: int) -> None:
        self._memory.lost_since.pop(entry.lease_id, None)
        began = changed(entry, began_ns=host.created_ns, host_id=host.host_id, state=LeaseState.STARTING)
        self._write(changed(began, units=max(1, self._started(began, now))))

    def _on_call_failed(self, event: messages.LeaseCallFailed, now: int) -> None:
        entry = self.ledger.entries.get(event.lease_id)
        if entry is None or entry.state is not LeaseState.ASKED:
            return
        self._fail(now)
        pause = f"no lease for {(self._no_lease_before - now) // SECOND} s; machines that are there go on"
        self._decide("failed", entry.lease_id, f"{event.failure.value}: {event.reason}; {pause}")
        if event.failure is messages.CallFailure.LOST:
            self._memory.lost_since[entry.lease_id] = now
        else:
            self._write(over(entry, LeaseState.FAILED, now, event.reason, units=0))

    def _list(self, now: int) -> None:
        """Ask the provider for its hosts; a gate that only advises, and has no lease, calls no provider."""
        self._listing_since = now
        if self.settings.mode == "advise" and not self.ledger.live():
            return
        self._effects.append(messages.ListHosts(now))

    def _is_unsettled(self) -> bool:
        states = (LeaseState.ASKED, LeaseState.RELEASING)
        return (
            bool(self._memory.missing_since)
            or bool(self.ledger.unleased)
            or any(
                entry.state in states
                or (entry.state is LeaseState.STARTING and entry.lease_id in self._memory.repeated)
                for entry in self.ledger.live()
            )
        )

    def _on_list_failed(self, event: messages.ListFailed, now: int) -> None:
        self._decide("provider unreachable", "", event.reason)

    def _on_list(self, event: messages.HostsListed, now: int) -> None:
        self._listed_at = now
        hosts = {node.lease_id: node.host_id for node in self._view.nodes if node.lease_id and node.host_id}
        own = self.prefix + self.name
        result = compared(self.ledger, event, self._memory.lost_since, hosts, self.settings, own, now)
        for entry, host in result.answered:
            self._take_host(entry, host, now)
        doubles = [host for entry, host in result.doubles if host.host_id != entry.host_id]
        self._book_unleased((*doubles, *result.orphans, *result.young), now)
        for entry in result.repeatable:
            self._repeat(entry, now)
        created = {host.host_id: host.created_ns for host in event.hosts}
        for entry in result.present:
            self._memory.missing_since.pop(entry.lease_id, None)
            self._memory.listed.add(entry.lease_id)
            entry = self._with_begin(entry, created[entry.host_id], now)
            if entry.state is LeaseState.RELEASING:
                self._release_again(entry, now)
        for entry in result.absent:
            self._on_absent(entry, event.asked_ns, now)
        for entry, host in result.doubles:
            self._release_double(entry, host, now)
        for host in result.orphans:
            self._release_orphan(host, now)

    def _repeat(self, entry: LeaseEntry, now: int) -> None:
        """Repeat a lost call. Give the lease up when it is not needed, or when the limit does not pay for a double."""
        booked = self.ledger.spent(now) + self.ledger.reserved(now)
        is_payable = booked + entry.price <= self.settings.max_spend
        self._memory.lost_since.pop(entry.lease_id, None)
        node = self._node_of(entry)
        if node is not None and node.host_id:
            self._take_host(entry, messages.ProviderHost(node.host_id, entry.host_name, entry.began_ns), now)
            return
        if not is_payable or not self._view.waiting or self.is_paused:
            self._write(over(entry, LeaseState.FAILED, now, "its call was lost, and it is not needed now", units=0))
            return
        self._memory.repeated.add(entry.lease_id)
        self._decide("repeat", entry.lease_id, "no host of that name is listed")
        self._write(
            changed(entry, began_ns=now, why=entry.why),
            messages.LeaseHost(entry.lease_id, entry.host_name, entry.offer),
        )

    def _on_absent(self, entry: LeaseEntry, asked_ns: int, now: int) -> None:
        since = self._memory.missing_since.setdefault(entry.lease_id, asked_ns)
        if entry.state is LeaseState.RELEASING and asked_ns < self._memory.released_at.get(entry.lease_id, 0):
            return
        was_ended = entry.state is LeaseState.RELEASING and entry.lease_id in self._memory.listed
        is_young = asked_ns - entry.began_ns < self.settings.listing_delay_ns
        if was_ended:
            self._write(over(entry, LeaseState.ENDED, now, entry.why))
            return
        is_unlisted = entry.lease_id not in self._memory.listed and now - entry.began_ns < self.settings.start_ns
        if (
            is_young
            or is_unlisted
            or asked_ns - since < self.settings.listing_delay_ns
            or self._node_of(entry) is not None
        ):
            return
        self._memory.missing_since.pop(entry.lease_id, None)
        if entry.state is LeaseState.RELEASING:
            self._write(over(entry, LeaseState.ENDED, now, entry.why))
        else:
            self._decide("failed", entry.lease_id, "its host has vanished")
            self._fail(now)
            self._write(over(entry, LeaseState.FAILED, now, "its host has vanished"))

    def _release_double(self, entry: LeaseEntry, host: messages.ProviderHost, now: int) -> None:
        """Release a second host of a lease. When the ledger has the wrong one of them, it gets the right one first."""
        if self._is_drained_first(host):
            return
        self._decide("double", entry.lease_id, f"{host.host_id} has the same name")
        if host.host_id == entry.host_id:
            joined = next(node for node in self._view.nodes if node.lease_id == entry.lease_id)
            self._write(changed(entry, host_id=joined.host_id))
        self._write_release(host, now, "it is a double")

    def _is_drained_first(self, host: messages.ProviderHost) -> bool:
        """Return whether a host without a lease has work; then it is drained, and the next list releases it."""
        node = next((node for node in self._view.nodes if node.host_id == host.host_id), None)
        if node is None or (node.is_empty and not node.instances):
            return False
        self._effects.append(messages.DrainLeased(node.lease_id, node.node))
        return True

    def _release_orphan(self, host: messages.ProviderHost, now: int) -> None:
        if self._is_drained_first(host):
            return
        self._decide("orphan", host.host_name, "it has no live lease")
        self._write_release(host, now, "it is an orphan")

    def _on_released(self, event: messages.ReleaseAnswered, now: int) -> None:
        entry = self.ledger.by_host(event.host_id)
        if entry is not None and entry.state is LeaseState.RELEASING:
            self._memory.missing_since.pop(entry.lease_id, None)
            self._write(over(entry, LeaseState.ENDED, now, entry.why))

    # ---- nodes

    def _node_of(self, entry: LeaseEntry) -> messages.NodeSeen | None:
        return next((node for node in self._view.nodes if node.lease_id == entry.lease_id), None)

    def _on_view(self, event: messages.ViewSeen, now: int) -> None:
        self._view, self._viewed_at = event, now
        for record in event.records:
            self._hand_over(record, now)
        for node in event.nodes:
            self._check_token(node, now)
            self._revive(node, now)
        for entry in self.ledger.live():
            seen = self._node_of(entry)
            self._note_silence(entry, now, is_seen=seen is not None)
            if seen is not None and entry.state in LIVE_STATES:
                self._on_node(entry, seen, now)
        if event.leads and self.settings.mode == "act":
            self._adopt(event, now)

    def _on_node(self, entry: LeaseEntry, node: messages.NodeSeen, now: int) -> None:
        if entry.state is LeaseState.STARTING:
            self._failures, self._no_lease_before = 0, now + self.settings.after_join_ns
            self._decide("joined", entry.lease_id, node.node)
            self._write(changed(entry, state=LeaseState.JOINED, node=node.node))
        elif entry.state is LeaseState.DRAINING and node.is_empty and not node.instances and self._may_go(entry, now):
            self._release(entry, now, entry.why)
            return
        self._effects.append(messages.RenewHost(entry.lease_id, node.node))

    def _revive(self, node: messages.NodeSeen, now: int) -> None:
        """Open a lease again that was given up as lost, when its node is there after all and the limits permit it."""
        entry = self.ledger.entries.get(node.lease_id)
        if (
            entry is None
            or entry.state is not LeaseState.FAILED
            or not node.host_id
            or node.token_lease != node.lease_id
        ):
            return
        if self.ledger.obstacle_to_lease(now) or node.gate != self.name:
            return
        self._decide("revive", entry.lease_id, f"{node.node} is there")
        again = changed(
            entry, host_id=node.host_id, node=node.node, state=LeaseState.JOINED, ended_ns=0, why="it is there"
        )
        self._write(changed(again, units=max(entry.units, self._started(again, now))))

    def _check_token(self, node: messages.NodeSeen, now: int) -> None:
        """Ban a node that joined with the token of a lease and shows another one; end that lease's host."""
        entry = self.ledger.entries.get(node.token_lease)
        if entry is None or node.lease_id == node.token_lease:
            return
        reason = f"it joined with the token of {node.token_lease} and shows {node.lease_id or 'no lease'}"
        self._decide("ban", entry.lease_id, f"{node.node}: {reason}")
        self._effects.append(messages.BanNode(node.node, reason))
        if entry.state in LIVE_STATES:
            self._release(entry, now, reason)

    def _adopt(self, event: messages.ViewSeen, now: int) -> None:
        """Ask hosts of silent gates, as far as this gate's own limits reach. The others end themselves."""
        records = {record.lease_id: record for record in event.records if not record.state.is_over}
        asked = units = 0
        for node in event.nodes:
            own = self.ledger.entries.get(node.lease_id)
            is_own = own is not None and not own.state.is_over
            is_known = node.lease_id in records and (node.host_id or records[node.lease_id].host_id)
            if is_own or not is_known or node.gate in (self.name, *event.live_gates):
                continue
            unbooked = 0 if node.lease_id not in records else self._unbooked(records[node.lease_id], now)
            if now - node.renewed_ns < self.settings.gone_ns or self._is_too_much(asked + 1, units + unbooked, now):
                continue
            asked, units = asked + 1, units + unbooked
            self._effects.append(messages.AdoptHost(node.lease_id, node.node))

    def _is_too_much(self, asked: int, unbooked: int, now: int) -> bool:
        """Return whether so many adopted hosts, with so many units that their former gates have not booked, exceed a limit."""
        settings = self.settings
        booked = self.ledger.spent(now) + self.ledger.reserved(now) + (asked + 1 + unbooked) * settings.price
        return len(self.ledger.live()) + asked > settings.max_hosts or booked > settings.max_spend

    def _unbooked(self, record: LeaseEntry, now: int) -> int:
        """Return the units that have begun since the record's gate booked its last one."""
        return max(0, self._started(record, now) - record.units)

    def _on_adopted(self, event: messages.HostAdopted, now: int) -> None:
        """Take over a host. Host and node are those that are seen, since the record may be older than they are."""
        entry = event.entry
        node = self._node_of(entry)
        host_id, name = (node.host_id, node.node) if node is not None else ("", "")
        entry = changed(entry, host_id=host_id or entry.host_id, node=name or entry.node)
        earlier = self.ledger.entries.get(entry.lease_id)
        if earlier is not None and not earlier.state.is_over:
            return  # the answer to a question that was repeated meanwhile
        if earlier is not None:
            # It comes back to this gate: the units that were booked before stay booked.
            self._write(changed(earlier, lease_id=f"{earlier.lease_id}/{earlier.term}"))
        self._decide("adopt", entry.lease_id, f"{entry.gate} is gone")
        first_unit, units = entry.first_unit + entry.units, self._unbooked(entry, now)
        adopted = changed(entry, gate=self.name, first_unit=first_unit, units=units, term=entry.term + 1)
        self._write(changed(adopted, state=LeaseState.JOINED, why=f"{entry.gate} is gone"))

    def _on_drain_refused(self, event: messages.DrainRefused, now: int) -> None:
        entry = self.ledger.entries.get(event.lease_id)
        if entry is not None and entry.state is LeaseState.DRAINING:
            self._memory.stays_until[entry.lease_id] = entry.paid_until_ns
            self._memory.forced.discard(entry.lease_id)
            self._decide("stays", entry.lease_id, event.reason)
            self._write(changed(entry, state=LeaseState.JOINED, why=event.reason))

    def _on_release_wanted(self, event: messages.ReleaseWanted, now: int) -> None:
        for entry in self.ledger.live():
            if event.lease_id in ("", entry.lease_id):
                self._memory.forced.add(entry.lease_id)
                if entry.state is LeaseState.STARTING or self._silent_ns(entry, now) > SILENT_NS:
                    self._release(entry, now, "an admin asked for it")
                else:
                    self._drain(entry, "an admin asked for it", entry.paid_until_ns)
