"""The application's side of its scheduler's lease: the coordinator renews it, and finds another scheduler when that one is gone."""

import msgspec

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.instants import Duration, Instant
from agiledart_kernel.machine import SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.node_context import NodeContext
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.hosting.hosted_application import HostedApplication, Key
from agiledart_node.records.application import RUNNING, ApplicationRecord
from agiledart_node.records.records import Records
from agiledart_node.scheduling.messages import (
    MAX_REGISTRATIONS,
    Advertisement,
    FindNewScheduler,
    Registration,
    RegistrationsRenewed,
    ReleaseApplication,
    RenewRegistrations,
)
from agiledart_node.scheduling.observations import SchedulerLost
from agiledart_node.scheduling.scheduler_lookup import SchedulerLookup
from agiledart_node.wire.formation_messages import Acknowledged

TIMER = ("node", "keep")


class SchedulerRenewals:
    """Applications that this node coordinates, with their schedulers.

    Attributes:
        schedulers: application → its scheduler.
    """

    def __init__(
        self,
        context: NodeContext,
        records: Records,
        hosting: ApplicationHost,
        scheduler_lookup: SchedulerLookup,
        random: RandomStream,
    ) -> None:
        self._context, self._records, self._hosting, self._scheduler_lookup = (
            context,
            records,
            hosting,
            scheduler_lookup,
        )
        self._random = random
        self.schedulers: dict[Key, Peer] = {}
        self._moving: dict[Key, bool] = {}
        self._is_awake = False
        hosting.on_flow = self.flows
        hosting.on_close = self.ended

    def flows(self, hosted: HostedApplication) -> None:
        """Start to renew an application that runs, if this node coordinates it."""
        if hosted.part.coordinator.node != self._context.me.node or hosted.key in self.schedulers:
            return
        self.schedulers[hosted.key] = hosted.part.scheduler
        if not self._is_awake:
            self._is_awake = True
            self._set_timer(int(self._context.config.renew_interval_ns * (0.5 + self._random.uniform() / 2)))

    def ended(self, hosted: HostedApplication) -> None:
        """Release an application that is over, so that its scheduler has capacity for another one."""
        scheduler = self.schedulers.pop(hosted.key, None)
        if (
            scheduler is not None
            and not self._context.requests.is_gone(scheduler)
            and not self._context.requests.is_full
        ):
            self._context.requests.begin(self._release(scheduler, hosted.key))

    async def _release(self, scheduler: Peer, key: Key) -> None:
        number = self._context.requests.number()
        timeout = Duration(self._context.config.ask_timeout_ns)
        await self._context.requests.ask(scheduler, ReleaseApplication(number, *key), number, Acknowledged, timeout)

    def on_timer(self) -> None:
        """Renew all applications, with one message for each scheduler."""
        self._is_awake = bool(self.schedulers)
        if not self._is_awake:
            return
        self._set_timer(self._context.config.renew_interval_ns)
        groups: dict[NodeId, tuple[Peer, list[Registration]]] = {}
        for key, scheduler in self.schedulers.items():
            if key not in self._moving:
                groups.setdefault(scheduler.node, (scheduler, []))[1].append(Registration(*key))
        for scheduler, registrations in groups.values():
            if not self._context.requests.is_full:
                self._context.requests.begin(self._renew(scheduler, tuple(registrations[:MAX_REGISTRATIONS])))

    def _set_timer(self, delay: int) -> None:
        self._context.emit(SetTimer(TIMER, Instant(self._context.now + delay)))

    async def _renew(self, scheduler: Peer, registrations: tuple[Registration, ...]) -> None:
        number = self._context.requests.number()
        timeout = Duration(self._context.config.ask_timeout_ns)
        answer = await self._context.requests.ask(
            scheduler, RenewRegistrations(number, registrations), number, RegistrationsRenewed, timeout
        )
        self._find_new_scheduler(scheduler, registrations if answer is None else answer.unknown, None)

    def peer_gone(self, peer: Peer) -> None:
        """Look for another scheduler for the applications of a peer that is dead or left."""
        registrations = tuple(
            Registration(*key)
            for key, scheduler in self.schedulers.items()
            if scheduler.incarnation_key == peer.incarnation_key
        )
        self._find_new_scheduler(peer, registrations, None)

    def on_find_new_scheduler(self, sender: Peer, message: FindNewScheduler) -> None:
        """Look for another scheduler at the request of the former one or of a node with a copy of its state.

        The message is only a hint, because asking costs little.
        """
        self._find_new_scheduler(message.former, message.registrations, message.successor)

    def _find_new_scheduler(
        self, former: Peer, registrations: tuple[Registration, ...], first: Advertisement | None
    ) -> None:
        for registration in registrations:
            key = (registration.application, registration.version)
            scheduler = self.schedulers.get(key)
            if (
                scheduler is None
                or scheduler.incarnation_key != former.incarnation_key
                or key in self._moving
                or self._context.requests.is_full
            ):
                continue
            self._moving[key] = True
            self._context.observe(SchedulerLost(registration.application, former))
            self._context.requests.begin(self._move(key, first))

    async def _move(self, key: Key, first: Advertisement | None) -> None:
        hosted = self._hosting.table.get(key)
        try:
            if hosted is None:
                return
            scheduler, _ = await self._scheduler_lookup.find(hosted.part.domain, *key, 0, first)
        except OperationFailed:
            return  # the next renewal fails as well, and looks again
        finally:
            del self._moving[key]
        if key not in self.schedulers:
            await self._release(scheduler, key)
            return
        self.schedulers[key] = scheduler

        def note(record: ApplicationRecord) -> ApplicationRecord | None:
            return msgspec.structs.replace(record, scheduler=scheduler) if record.state == RUNNING else None

        await self._records.change(*key, note)

    def violations(self) -> list[str]:
        """Return violated invariants: only applications that this node runs and coordinates are renewed, and all of them are."""
        lines, hosting = [], self._hosting.table
        for key in self.schedulers:
            hosted = hosting.get(key)
            if hosted is None or hosted.part.coordinator.node != self._context.me.node:
                lines.append(f"renewals: {key[0]} version {key[1]} is not coordinated here")
        if self.schedulers and not self._is_awake:
            lines.append("renewals: applications have schedulers, and no timer renews them")
        return lines
