"""Composition of the parts of scheduling, as the node sees them."""

from collections.abc import Callable
from typing import Any

from agiledart_kernel.instants import Duration
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.node_context import NodeContext
from agiledart_node.forming.submission_runner import SubmissionRunner
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.hosting.application_watcher import ApplicationWatcher
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.records import Records
from agiledart_node.scheduling import messages as wire
from agiledart_node.scheduling.advertisements import Advertisements
from agiledart_node.scheduling.claims import Claims
from agiledart_node.scheduling.election import Election
from agiledart_node.scheduling.gossip import TIMER as GOSSIP_TIMER
from agiledart_node.scheduling.gossip import Gossip
from agiledart_node.scheduling.scheduler_endpoint import TIMER as UPKEEP_TIMER
from agiledart_node.scheduling.scheduler_endpoint import SchedulerEndpoint
from agiledart_node.scheduling.scheduler_lookup import SchedulerLookup
from agiledart_node.scheduling.scheduler_renewals import TIMER as RENEWAL_TIMER
from agiledart_node.scheduling.scheduler_renewals import SchedulerRenewals
from agiledart_node.scheduling.scheduler_role import SchedulerRole
from agiledart_node.scheduling.scheduler_state import TIMER as SCHEDULER_STATE_TIMER
from agiledart_node.scheduling.scheduler_state import SchedulerState
from agiledart_node.scheduling.submission_dispatcher import SubmissionDispatcher

ANSWERS = (
    wire.Candidate,
    wire.ApplicationRegistered,
    wire.RegistrationsRenewed,
    wire.SubmissionHandedOver,
    wire.SubmissionOutcome,
)
"""Messages that answer a numbered request of a conversation."""


class NodeScheduling:
    """Scheduling of one node.

    Attributes:
        role: this node's role as a scheduler.
        known: advertisements of schedulers.
        scheduler_renewals: schedulers of the applications that this node coordinates.
        by_message, by_timer: handlers of messages and timers.
    """

    def __init__(
        self,
        context: NodeContext,
        records: Records,
        hosting: ApplicationHost,
        watching: ApplicationWatcher,
        submissions: SubmissionRunner,
        verifier: CommandVerifier,
        random: RandomStream,
    ) -> None:
        self._context = context
        lifetime = Duration(context.config.gossip_lifetime * context.config.gossip_interval_ns)
        self.known = known = Advertisements(lifetime)
        self._gossip = gossip = Gossip(context, known, random)
        claims = Claims(context, records)
        self.role = role = SchedulerRole(context, gossip)
        election = Election(context, known, gossip, claims, random)
        scheduler_lookup = SchedulerLookup(context, known, gossip, election, random)
        self._scheduler_endpoint = scheduler_endpoint = SchedulerEndpoint(context, records, role, known, claims)
        self.scheduler_state = scheduler_state = SchedulerState(context, records, role, watching)
        self.scheduler_renewals = scheduler_renewals = SchedulerRenewals(
            context, records, hosting, scheduler_lookup, random
        )
        self.submission_dispatcher = submission_dispatcher = SubmissionDispatcher(
            context, records, submissions, gossip, scheduler_lookup, role, verifier, random
        )
        self.by_message: dict[type, Callable[[Peer, Any], None]] = {
            wire.SchedulerNews: gossip.on_news,
            wire.FindScheduler: scheduler_lookup.on_find,
            wire.SchedulerFound: scheduler_lookup.on_found,
            wire.AskCandidate: lambda sender, message: scheduler_endpoint.on_ask_candidate(
                sender, message, hosting.operators
            ),
            wire.RegisterApplication: scheduler_endpoint.on_register,
            wire.ReleaseApplication: scheduler_endpoint.on_release,
            wire.RenewRegistrations: scheduler_endpoint.on_renew,
            wire.HandOverSubmission: submission_dispatcher.on_submission,
            wire.AskSubmissionOutcome: submission_dispatcher.on_ask_outcome,
            wire.SubmissionProgress: submission_dispatcher.on_progress,
            wire.SchedulerStateCopy: scheduler_state.on_copy,
            wire.FindNewScheduler: scheduler_renewals.on_find_new_scheduler,
        }
        self.by_timer: dict[object, Callable[[], None]] = {
            GOSSIP_TIMER: gossip.on_timer,
            UPKEEP_TIMER: scheduler_endpoint.on_timer,
            RENEWAL_TIMER: scheduler_renewals.on_timer,
            SCHEDULER_STATE_TIMER: scheduler_state.on_timer,
        }

    @property
    def served(self) -> int | None:
        """Return the number of applications that this node serves; None when it is no scheduler."""
        return len(self.role.served) if self.role.scheduler_slot is not None else None

    @property
    def waiting(self) -> tuple[str, ...]:
        """Return the applications that wait here until some node has capacity for them."""
        return self.submission_dispatcher.pending_queue.waiting

    def neighbours_changed(self) -> None:
        """Renew the copies of the scheduler state, because the leaf set has changed."""
        self.scheduler_state.touch()

    def peer_gone(self, peer: Peer) -> None:
        """Drop a peer that was declared dead or left, and find new schedulers for the applications it served."""
        self.known.drop(peer, self._context.now)
        self.scheduler_state.peer_gone(peer)
        self.scheduler_renewals.peer_gone(peer)

    async def leave(self) -> None:
        """Give up this node's scheduler slot before the node leaves."""
        await self._scheduler_endpoint.leave()

    def violations(self) -> list[str]:
        """Return the violated invariants of all parts."""
        parts = (
            self._gossip,
            self.role,
            self._scheduler_endpoint,
            self.scheduler_state,
            self.scheduler_renewals,
            self.submission_dispatcher,
        )
        return [line for part in parts for line in part.violations()]
