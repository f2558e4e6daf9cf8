"""`RecoveryMachine`: all of one node's part in recovery, as one machine.

It has a voter slot and a coordinator for each run that it votes for, a participant for each run that it hosts, and a store of
other hosts' fragments. One table maps a message's type to its handler, another one an event's type. A message from the network
never raises: an invalid one is ignored and observed, by its reason.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Completed, Effect, Event, Failed, Message, Received, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observer, ignore
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.attempts.hosted_runs import HostedRuns
from agiledart_recovery.attempts.participant import Participant
from agiledart_recovery.attempts.voted_runs import VotedRuns
from agiledart_recovery.fragments.snapshot_rebuild import SnapshotRebuild
from agiledart_recovery.host_rules import HostRules
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.recovery_context import IsCommandAuthorised, RecoveryContext, accept_any_command
from agiledart_recovery.register.voter_trust import VoterTrusts
from agiledart_recovery.wire import events
from agiledart_recovery.wire.messages import RunMessage, VotersKnown
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId
from agiledart_recovery.wire.observations import MessageIgnored
from agiledart_recovery.wire.register_status import RegisterStatus
from agiledart_recovery.wire.register_value import InstanceSnapshot, Plan


class _HasViolations(Protocol):
    def violations(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class RecoveryStatistics:
    """Counts of one node's part in recovery."""

    voter_slots: int
    coordinated: int
    hosted: int


class RecoveryMachine:
    """Recovery of one node.

    Args:
        me: this incarnation of this node.
        random: draws the numbers of voter slots.
        is_command_authorised: verifies an admin's signed command that begins a configuration.
    """

    def __init__(
        self,
        me: Peer,
        config: RecoveryConfig,
        random: RandomStream,
        observer: Observer = ignore,
        is_command_authorised: IsCommandAuthorised = accept_any_command,
    ) -> None:
        self._context = RecoveryContext(me, config, random, observer, is_command_authorised)
        self._trusts = VoterTrusts(self._context)
        self._voted = VotedRuns(self._context, self._trusts)
        self._hosted = HostedRuns(self._context, self._trusts, self._voted.voter_slots)
        self.voter_slots, self.coordinators = self._voted.voter_slots, self._voted.coordinators
        self.participants, self.fragment_store = self._hosted.participants, self._hosted.fragment_store
        self._messages: dict[type, Callable[[Peer, Any], None]] = {
            **self._voted.handlers,
            **self._hosted.handlers,
            VotersKnown: self._on_voters_known,
        }
        self._events: dict[type, Callable[[Any], object]] = {
            Received: self._on_received,
            Completed: lambda event: self._context.answered(event.request, event.result, ""),
            Failed: lambda event: self._context.answered(event.request, None, event.reason or "it failed"),
            TimerFired: lambda event: self._on_timer(event.name),
            events.Booted: self._on_booted,
            events.BootstrapRun: self._on_first_value,
            events.RecoverQuorum: self._on_first_value,
            events.MakeVoterSlot: self._on_make_voter_slot,
            events.ChangeRequested: lambda event: self.request_change(event.run, event.plan),
            events.VoterEvacuation: lambda event: self.request_voter_evacuation(event.run, event.host),
            events.HostLost: self._on_host_lost,
            events.HostBack: self._on_host_back,
            events.CandidatesFound: self._on_candidates_found,
            events.FragmentDamaged: lambda event: self._hosted.on_damaged(event.key),
            events.PinnedInstancePrepared: self._on_instance_event,
            events.SnapshotTaken: self._on_instance_event,
            events.AttemptBroken: self._on_instance_event,
            events.InstanceRowsPassed: self._on_rows_passed,
        }

    def set_host_rules(self, rules: HostRules) -> None:
        """Set the rules of applications about the hosts that take instances over."""
        self._context.host_rules = rules

    # ---- the contract

    def step(self, event: Event, now: Instant) -> Sequence[Effect]:
        """Process an event; see `agiledart_kernel.machine`."""
        context = self._context
        context.now, context.effects = now, []
        if (handle := self._events.get(type(event))) is not None:
            handle(event)
        while context.outbox:
            self._receive(context.me, context.outbox.pop(0))
        return self.take_effects()

    def take_effects(self) -> list[Effect]:
        """Return effects of a call from outside a step, when the node asked a part to do something."""
        effects, self._context.effects = self._context.effects, []
        return effects

    def run_of(self, event: Event) -> RunId | None:
        """Return the one run that an event, not yet processed, can change; None where it may change several."""
        match event:
            case Received(message=RunMessage(run=run)) | TimerFired(name=(RunId() as run, *_)):
                return run
            case Completed() | Failed():
                return self._context.run_of(event.request)
            case (
                events.MakeVoterSlot()
                | events.PinnedInstancePrepared()
                | events.SnapshotTaken()
                | events.AttemptBroken()
            ):
                return event.run
            case events.BootstrapRun() | events.RecoverQuorum():
                return event.value.run
        return None

    def name_of(self, node: NodeId) -> str:
        """Return a node's name for people, also of a node that is gone."""
        return self._context.peer(Peer(node)).name or node.short

    def can_reach(self, node: NodeId) -> bool:
        """Return whether a node can be reached, as far as the failure detector knows."""
        return self._context.can_reach(node)

    def rebuild(self, run: RunId, instance: InstanceId, snapshot: InstanceSnapshot) -> SnapshotRebuild:
        """Fetch a snapshot's fragments from all reachable replica nodes; `take_effects` has the first requests."""
        live = {
            replica_node: None
            for replica_node in snapshot.replica_nodes
            if replica_node and self._context.can_reach(replica_node)
        }
        return SnapshotRebuild(self._context, run, instance, snapshot, live)

    def run_key(self, run: RunId) -> bytes:
        """Return the key of a run that this node hosts; empty while it is not here. `RunKeyFound` announces it."""
        part = self.participants.get(run)
        if part is None:
            return b""
        if not part.run_key.key:
            part.run_key.want()
        return part.run_key.key

    def report_entering(self, run: RunId, attempt: int, phase: str, got: int = 0, of: int = 0) -> None:
        """Report to the coordinator how far this host is in entering an attempt."""
        part = self.participants.get(run)
        if part is not None:
            part.report_entering(attempt, phase, got, of)

    def report_generation_progress(self, run: RunId, digest: bytes, got: int, of: int) -> None:
        """Report to the coordinator of a change how much of the preload is here."""
        part = self.participants.get(run)
        if part is not None:
            part.generation_preparation.report_progress(digest, got, of)

    def request_change(self, run: RunId, plan: Plan) -> str:
        """Start a change of a run's stages; `take_effects` has the first steps. Return why not; empty: it is under way."""
        coordinator = self.coordinators.get(run)
        return coordinator.requests.on_change(plan) if coordinator is not None else "another node coordinates it"

    def request_evacuation(self, run: RunId, host: Peer) -> str:
        """Move what a host runs of a run to other nodes, movable sources and sinks included. As `request_change`."""
        coordinator = self.coordinators.get(run)
        return coordinator.requests.on_evacuation(host) if coordinator is not None else "another node coordinates it"

    def request_voter_evacuation(self, run: RunId, host: Peer) -> tuple[str, bool]:
        """Let another node vote in place of a host that leaves. Return why not, and whether the register already names the
        other node.
        """
        coordinator = self.coordinators.get(run)
        if coordinator is None or not coordinator.is_coordinating or coordinator.proposer.value is None:
            return "another node coordinates it", False
        return coordinator.requests.on_voter_evacuation(host)

    def request_hold(self, run: RunId) -> str:
        """Let no source read behind the next epoch of a run. As `request_change`."""
        coordinator = self.coordinators.get(run)
        return coordinator.requests.on_hold() if coordinator is not None else "another node coordinates it"

    def request_end_held(self, run: RunId, at: CheckpointId, reason: str) -> str:
        """End a run that is held at a committed epoch. As `request_change`."""
        coordinator = self.coordinators.get(run)
        return (
            coordinator.requests.on_end_held(at, reason) if coordinator is not None else "another node coordinates it"
        )

    def request_release(self, run: RunId, reason: str) -> None:
        """Continue a run that is held."""
        coordinator = self.coordinators.get(run)
        if coordinator is not None:
            coordinator.requests.on_release(reason)

    def resend_end(self, run: RunId, to: Peer) -> None:
        """Send a run's end again to a host that does not answer, though it knew the end: it may have been restarted since."""
        coordinator = self.coordinators.get(run)
        if coordinator is not None:
            coordinator.resend_committed(to)

    @property
    def lacking(self) -> int:
        """Return the number of fragments of this host's snapshots that no node has."""
        return sum(part.fragment_repair.lacking for part in self.participants.values())

    def drop_fragments_of(self, run: RunId) -> None:
        """Delete the fragments of a run that is over."""
        self._hosted.drop_fragments_of(run)

    def is_over(self, run: RunId) -> bool:
        """Return whether the register says that a run has ended and all its hosts know that, so that its data here is of no use."""
        coordinator, part = self.coordinators.get(run), self.participants.get(run)
        if coordinator is not None:
            return coordinator.is_over
        return part is not None and part.is_closed

    def has_ended(self, run: RunId) -> bool:
        """Return whether this host knows that a run is over and has carried its end out."""
        part = self.participants.get(run)
        return part is not None and part.is_closed

    def forget(self, run: RunId) -> bool:
        """Forget a run of an application that is over. Return false when nothing was known of it."""
        self._trusts.forget(run)
        parts = (self.voter_slots, self.coordinators, self.participants)
        known = [part.pop(run, None) is not None for part in parts]
        return any(known)

    def statistics(self) -> RecoveryStatistics:
        """Return the counts of this node's part in recovery."""
        return RecoveryStatistics(
            len(self.voter_slots),
            sum(coordinator.leads for coordinator in self.coordinators.values()),
            len(self.participants),
        )

    def violations(self) -> list[str]:
        """Return violated invariants of all parts, for checkers."""
        roles: tuple[_HasViolations, ...] = (
            *self.voter_slots.values(),
            *self.coordinators.values(),
            *self.participants.values(),
        )
        return [line for part in (*roles, self.fragment_store) for line in part.violations()]

    # ---- messages

    def _on_voters_known(self, sender: Peer, message: VotersKnown) -> None:
        """Take an answer about the voters of a run; what its slot or its host side holds decides whose answer counts."""
        trust, voter_slot, part = (
            self._trusts.known(message.run),
            self.voter_slots.get(message.run),
            self.participants.get(message.run),
        )
        held = [role.held for role in (voter_slot, part) if role is not None]
        believed = [
            trust.on_voters(known, sender, message) for known in held if trust is not None and known is not None
        ]
        if not any(believed):
            self._context.observe(MessageIgnored(sender.node, "voter"))

    def _on_received(self, event: Received) -> None:
        self._context.meet(event.sender)
        self._receive(event.sender, event.message)

    def _receive(self, sender: Peer, message: Message) -> None:
        handle = self._messages.get(type(message))
        if handle is not None:
            handle(sender, message)
        else:
            self._context.observe(MessageIgnored(sender.node, "kind"))

    # ---- what the node itself says

    def _on_timer(self, name: object) -> None:
        match name:
            case (RunId() as run, "tick") if run in self.coordinators:
                self.coordinators[run].on_tick()
            case (RunId() as run, "save", InstanceId() as instance, CheckpointId() as checkpoint) if (
                run in self.participants
            ):
                self.participants[run].preparation.on_save_timeout(instance, checkpoint)
            case (RunId() as run, "key") if run in self.participants:
                self.participants[run].run_key.on_timer()
            case (RunId() as run, "remade") if run in self.participants:
                self.participants[run].fragment_repair.on_timer()
            case (RunId() as run, "term", bytes() as digest) if run in self.participants:
                self.participants[run].generation_preparation.on_timer(digest)

    def _on_host_lost(self, event: events.HostLost) -> None:
        self._context.lost[event.node] = None
        for coordinator in self.coordinators.values():
            coordinator.on_host_lost(event.node)
        self._hosted.repair()

    def _on_host_back(self, event: events.HostBack) -> None:
        self._context.meet(event.peer)
        self._context.lost.pop(event.peer.node, None)
        for coordinator in self.coordinators.values():
            coordinator.on_host_back(event.peer)
        for part in self.participants.values():
            part.ask_held(event.peer)

    def _on_candidates_found(self, event: events.CandidatesFound) -> None:
        self._context.candidates = event.peers
        self._hosted.repair()

    def _on_instance_event(
        self, event: events.PinnedInstancePrepared | events.SnapshotTaken | events.AttemptBroken
    ) -> None:
        part = self.participants.get(event.run)
        if part is None:
            return
        if isinstance(event, events.PinnedInstancePrepared):
            part.preparation.on_prepared(event)
        elif isinstance(event, events.SnapshotTaken):
            part.preparation.on_snapped(event)
        else:
            part.on_broken(event.attempt, event.reason, is_crash=event.is_crash)

    def _on_rows_passed(self, event: events.InstanceRowsPassed) -> None:
        part = self.participants.get(event.run)
        if part is not None:
            part.on_rows_passed()

    def _on_make_voter_slot(self, event: events.MakeVoterSlot) -> None:
        voter_slot = self._voted.make_voter_slot(event.run)
        if voter_slot is not None and event.share is not None and voter_slot.value is None:
            voter_slot.key_shares.put(event.dealer, event.share, ())

    def _on_first_value(self, event: events.BootstrapRun | events.RecoverQuorum) -> None:
        coordinator = self.coordinators.get(event.value.run)
        if coordinator is None or event.value.faults():
            return
        if isinstance(event, events.RecoverQuorum):
            coordinator.leadership.recover_quorum(event.value, event.below)
        else:
            coordinator.leadership.bootstrap(event.value)

    def register_status(self, run: RunId) -> RegisterStatus:
        """Return what this node has of a run's register."""
        part = self.participants.get(run)
        return self._voted.register_status(run, part.value if part is not None else None)

    def _on_booted(self, event: events.Booted) -> None:
        for file in event.voters:
            self._voted.add_voter_slot(file)
        for attempt in event.attempts:
            self.participants[attempt.run] = Participant(self._context, attempt.run, attempt)
            self.fragment_store.observe_attempt(attempt.run, attempt.attempt)
        for key, owner in event.fragments:
            self.fragment_store.put(key, owner)
