"""`RecoveryMachine`: all of one node's part in recovery, as one machine.

It has a voter slot and a coordinator for each run that it votes for, a participant for each run that it hosts, and a store of
other hosts' fragments. One table says which role a message is for. A message from the network never raises: an invalid one is
ignored and observed, by its reason.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Completed, Effect, Event, Failed, Message, Received, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observer, ignore
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.attempts.coordinator import Coordinator
from agiledart_recovery.attempts.participant import Participant
from agiledart_recovery.fragments.fragment_store import FragmentStore
from agiledart_recovery.fragments.snapshot_rebuild import SnapshotRebuild
from agiledart_recovery.limits import MAX_RUNS
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.recovery_context import IsCommandAuthorised, RecoveryContext, accept_any_command
from agiledart_recovery.register.voter_slot import VoterSlot
from agiledart_recovery.wire import events, messages
from agiledart_recovery.wire.effects import DeleteFragments, VoterFile
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId
from agiledart_recovery.wire.observations import MessageIgnored
from agiledart_recovery.wire.register_status import RegisterStatus
from agiledart_recovery.wire.register_value import InstanceSnapshot, Plan, RegisterValue, RunState

_VOTER_SLOT_BITS = 60


_WITHOUT_A_VALUE = (
    messages.Start, messages.Begin, messages.QueryPrepared, messages.Sync, messages.ProposeGeneration, messages.GenerationDropped
)  # fmt: skip
"""Messages of a coordinator that do not prove by themselves that the sender may send them."""


_VOTES = (messages.Promise, messages.Accepted, messages.BallotRefused, messages.LeaderAcknowledged)
"""Messages that only a node that was asked for its vote may send."""


def _has_signed_command(message: messages.RunMessage) -> bool:
    """Return whether a message brings an admin's signed command, which is verified by itself, whichever node sends it."""
    return isinstance(message, messages.BallotRefused) and message.signed_command != b""


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
        self.voter_slots: dict[RunId, VoterSlot] = {}
        self.coordinators: dict[RunId, Coordinator] = {}
        self.participants: dict[RunId, Participant] = {}
        self.fragment_store = FragmentStore()
        self._messages: dict[type, Callable[[Peer, messages.RunMessage], None]] = {
            messages.Prepare: self._to_voter_slot,
            messages.Accept: self._to_voter_slot,
            messages.RequestVoterSlot: self._on_request_voter_slot,
            messages.Reset: self._to_participant,
            messages.Start: self._to_participant,
            messages.Begin: self._to_participant,
            messages.QueryPrepared: self._to_participant,
            messages.Sync: self._to_participant,
            messages.Committed: self._to_participant,
            messages.ProposeGeneration: self._to_participant,
            messages.GenerationDropped: self._to_participant,
            messages.StateHandedOver: self._to_participant,
            messages.StateHandedOverOk: self._to_participant,
            messages.NeededFragments: self._on_needed_fragments,
            messages.HeldFragments: self._on_held_fragments,
        }

    # ---- the contract

    def step(self, event: Event, now: Instant) -> Sequence[Effect]:
        """Process an event; see `agiledart_kernel.machine`."""
        context = self._context
        context.now, context.effects = now, []
        if isinstance(event, Received):
            context.meet(event.sender)
            self._receive(event.sender, event.message)
        elif isinstance(event, Completed):
            context.answered(event.request, event.result, "")
        elif isinstance(event, Failed):
            context.answered(event.request, None, event.reason or "it failed")
        elif isinstance(event, TimerFired):
            self._on_timer(event.name)
        else:
            self._on_local(event)
        while context.outbox:
            self._receive(context.me, context.outbox.pop(0))
        return self.take_effects()

    def take_effects(self) -> list[Effect]:
        """Return effects of a call from outside a step, when the node asked a part to do something."""
        effects, self._context.effects = self._context.effects, []
        return effects

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
        if gone := self.fragment_store.drop_run(run):
            self._context.do(DeleteFragments(gone))

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

    def _receive(self, sender: Peer, message: Message) -> None:
        if not isinstance(message, messages.RunMessage):
            self._context.observe(MessageIgnored(sender.node, "kind"))
            return
        handle = self._messages.get(type(message))
        if handle is not None:
            handle(sender, message)
        else:
            self._to_coordinator(sender, message)

    def _to_voter_slot(self, sender: Peer, message: messages.RunMessage) -> None:
        """Pass PREPARE or ACCEPT on; only the node of a ballot may use it."""
        voter_slot = self.voter_slots.get(message.run)
        ballot = message.ballot if isinstance(message, messages.Prepare) else None
        if isinstance(message, messages.Accept):
            ballot = message.stamp.ballot
            if message.value.run != message.run or message.value.faults():
                self._context.observe(MessageIgnored(sender.node, "value"))
                return
        if (
            voter_slot is None
            or ballot is None
            or (ballot.node, ballot.incarnation) != (sender.node, sender.incarnation)
        ):
            self._context.observe(MessageIgnored(sender.node, "ballot" if voter_slot is not None else "voter_slot"))
        elif isinstance(message, messages.Prepare):
            voter_slot.on_prepare(sender, message)
        elif isinstance(message, messages.Accept):
            voter_slot.on_accept(sender, message)

    def _on_request_voter_slot(self, sender: Peer, message: messages.RunMessage) -> None:
        voter_slot = self._make_voter_slot(message.run)
        if voter_slot is not None:
            voter_slot.keep(
                lambda: self._context.send(sender, messages.VoterSlotMade(message.run, voter_slot.voter_slot))
            )

    def _make_voter_slot(self, run: RunId) -> VoterSlot | None:
        voter_slot = self.voter_slots.get(run)
        if voter_slot is None and len(self.voter_slots) < MAX_RUNS:
            voter_slot = self._add_voter_slot(VoterFile(run, self._context.random.bits(_VOTER_SLOT_BITS)))
        return voter_slot

    def _add_voter_slot(self, file: VoterFile) -> VoterSlot:
        voter_slot = self.voter_slots[file.run] = VoterSlot(self._context, file)
        self.coordinators[file.run] = Coordinator(self._context, voter_slot)
        return voter_slot

    def _to_participant(self, sender: Peer, message: messages.RunMessage) -> None:
        run = message.run
        part = self.participants.get(run)
        opens = isinstance(message, messages.Reset | messages.Committed)
        if part is None and opens and len(self.participants) < MAX_RUNS:
            part = self.participants[run] = Participant(self._context, run)
        self._dispatch_to_participant(part, sender, message)
        if opens and part is not None and part.is_blank:
            del self.participants[run]  # the sender was not allowed to open it

    def _dispatch_to_participant(self, part: Participant | None, sender: Peer, message: messages.RunMessage) -> None:
        if part is None:
            # A host that does not know the run may have lost its disk: it answers messages about an attempt.
            self._context.observe(MessageIgnored(sender.node, "run"))
            Participant(self._context, message.run).on_other(sender, message)
        elif isinstance(message, messages.Reset | messages.Committed) and part.is_unproven(message.value):
            self._context.observe(MessageIgnored(sender.node, "configuration"))
        elif isinstance(message, _WITHOUT_A_VALUE) and not part.may_be_commanded_by(sender.node):
            self._context.observe(MessageIgnored(sender.node, "coordinator"))
        elif isinstance(message, messages.Reset):
            self._release_unneeded(sender, message.value)
            part.on_reset(sender, message)
        elif isinstance(message, messages.Start):
            part.on_start(sender, message)
        elif isinstance(message, messages.Begin):
            part.on_begin(sender, message)
        elif isinstance(message, messages.QueryPrepared):
            part.on_ask(sender, message)
        elif isinstance(message, messages.Sync):
            part.on_sync(sender, message)
        elif isinstance(message, messages.Committed):
            self._release_unneeded(sender, message.value)
            part.on_committed(sender, message)
        elif isinstance(message, messages.ProposeGeneration):
            part.generation_preparation.on_prepare(sender, message)
        elif isinstance(message, messages.GenerationDropped):
            part.generation_preparation.on_dropped(message)
        elif isinstance(message, messages.StateHandedOver):
            part.generation_preparation.on_state_handed_over(sender, message)
        elif isinstance(message, messages.StateHandedOverOk):
            part.preparation.handover_sender.on_ok(sender, message)

    def _release_unneeded(self, sender: Peer, value: RegisterValue) -> None:
        """Delete the fragments that an acknowledged value does not need; ignore nodes that do not vote."""
        if not value.may_be_sent_by(sender.node):
            return
        ended = value.state is RunState.FINISHED
        gone = self.fragment_store.drop_run(value.run) if ended else self.fragment_store.release(value)
        if gone:
            self._context.do(DeleteFragments(gone))

    def _on_needed_fragments(self, sender: Peer, message: messages.RunMessage) -> None:
        assert isinstance(message, messages.NeededFragments)
        if gone := self.fragment_store.keep(sender.node, message):
            self._context.do(DeleteFragments(gone))
        if message.asks:
            self._report_held(sender, message.run, message.instance)

    def _report_held(self, to: Peer, run: RunId, instance: InstanceId) -> None:
        self._context.send(to, messages.HeldFragments(run, instance, self.fragment_store.held_for(run, instance)))

    def _on_held_fragments(self, sender: Peer, message: messages.RunMessage) -> None:
        assert isinstance(message, messages.HeldFragments)
        part = self.participants.get(message.run)
        if part is None or not part.fragment_repair.instances(sender.node):
            self._context.observe(MessageIgnored(sender.node, "replica_node"))
        else:
            part.fragment_repair.on_holds(sender.node, message.instance, message.held)

    def _to_coordinator(self, sender: Peer, message: messages.RunMessage) -> None:
        coordinator = self.coordinators.get(message.run)
        if coordinator is None:
            self._context.observe(MessageIgnored(sender.node, "coordinator"))
        elif isinstance(message, messages.LeaderAnnounced) and message.ballot.node != sender.node:
            self._context.observe(MessageIgnored(sender.node, "ballot"))
        elif isinstance(message, _VOTES) and not (coordinator.is_voter(sender.node) or _has_signed_command(message)):
            self._context.observe(MessageIgnored(sender.node, "voter"))
        elif isinstance(message, messages.LeaderAnnounced):
            coordinator.leadership.on_leader_announced(sender, message)
        elif isinstance(message, messages.Promise):
            coordinator.proposer.on_promise(sender, message)
        elif isinstance(message, messages.Accepted):
            coordinator.on_accepted(sender, message)
        elif isinstance(message, messages.BallotRefused):
            coordinator.leadership.on_refused(sender, message)
        elif isinstance(message, messages.LeaderAcknowledged):
            coordinator.leadership.on_leader_acknowledged(sender, message)
        elif isinstance(message, messages.VoterSlotMade):
            coordinator.voter_replacement.on_voter_slot_made(sender, message.voter_slot)
        else:
            self._from_host(coordinator, sender, message)

    def _from_host(self, coordinator: Coordinator, sender: Peer, message: messages.RunMessage) -> None:
        if coordinator.leads and coordinator.proposer.value is not None and not coordinator.is_host(sender.node):
            self._context.observe(MessageIgnored(sender.node, "host"))
        elif isinstance(message, messages.ResetOk):
            coordinator.entry.on_reset_ok(sender, message)
        elif isinstance(message, messages.ResetRefused):
            coordinator.entry.on_reset_refused(sender, message)
        elif isinstance(message, messages.Prepared):
            coordinator.on_prepared(sender, message)
        elif isinstance(message, messages.Synced):
            coordinator.on_synced(sender, message)
        elif isinstance(message, messages.CommittedOk):
            coordinator.on_committed_ok(sender, message)
        elif isinstance(message, messages.NewAttemptNeeded):
            coordinator.on_new_attempt_needed(sender, message)
        elif isinstance(message, messages.AttemptProgress):
            coordinator.entry.on_entering(sender, message)
        elif isinstance(message, messages.FragmentsReplaced):
            coordinator.on_remade(sender, message)
        elif isinstance(message, messages.GenerationReady):
            coordinator.on_generation_ready(sender, message)
        elif isinstance(message, messages.GenerationProgress):
            coordinator.commit_protocol.generation_change.on_progress(sender, message)
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
            case (RunId() as run, "remade") if run in self.participants:
                self.participants[run].fragment_repair.on_timer()
            case (RunId() as run, "term", bytes() as digest) if run in self.participants:
                self.participants[run].generation_preparation.on_timer(digest)

    def _on_local(self, event: Event) -> None:
        context = self._context
        if isinstance(event, events.PinnedInstancePrepared | events.SnapshotTaken | events.AttemptBroken):
            self._on_instance_event(event)
        elif isinstance(event, events.HostLost):
            context.lost[event.node] = None
            for coordinator in self.coordinators.values():
                coordinator.on_host_lost(event.node)
            self._repair()
        elif isinstance(event, events.HostBack):
            context.meet(event.peer)
            context.lost.pop(event.peer.node, None)
            for coordinator in self.coordinators.values():
                coordinator.on_host_back(event.peer)
            for part in self.participants.values():
                part.ask_held(event.peer)
        elif isinstance(event, events.CandidatesFound):
            context.candidates = event.peers
            self._repair()
        elif isinstance(event, events.FragmentDamaged):
            owner = self.fragment_store.damaged(event.key)
            if owner:
                self._report_held(Peer(owner), event.key.run, event.key.instance)
        elif isinstance(event, events.ChangeRequested | events.VoterEvacuation):
            self._on_request(event)
        elif isinstance(event, events.BootstrapRun | events.RecoverQuorum):
            self._bootstrap(event)
        elif isinstance(event, events.MakeVoterSlot):
            self._make_voter_slot(event.run)
        elif isinstance(event, events.Booted):
            self._boot(event)

    def _on_request(self, event: events.ChangeRequested | events.VoterEvacuation) -> None:
        if isinstance(event, events.VoterEvacuation):
            self.request_voter_evacuation(event.run, event.host)
        else:
            self.request_change(event.run, event.plan)

    def _repair(self) -> None:
        for part in self.participants.values():
            part.fragment_repair.look()

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
            part.on_broken(event.attempt, event.reason)

    def _bootstrap(self, event: events.BootstrapRun | events.RecoverQuorum) -> None:
        coordinator = self.coordinators.get(event.value.run)
        if coordinator is None or event.value.faults():
            return
        if isinstance(event, events.RecoverQuorum):
            coordinator.leadership.recover_quorum(event.value, event.below)
        else:
            coordinator.leadership.bootstrap(event.value)

    def register_status(self, run: RunId) -> RegisterStatus:
        """Return what this node has of a run's register."""
        voter_slot, part = self.voter_slots.get(run), self.participants.get(run)
        acknowledged_value = part.value if part is not None else None
        if voter_slot is None:
            return RegisterStatus(acknowledged_value=acknowledged_value)
        led_value = self.coordinators[run].proposer.value
        acknowledged_value = max(
            (value for value in (acknowledged_value, led_value) if value is not None),
            key=lambda value: (value.attempt, value.committed),
            default=None,
        )
        return RegisterStatus(
            voter_slot.voter_slot, voter_slot.promised, voter_slot.accepted, voter_slot.value, acknowledged_value
        )

    def _boot(self, event: events.Booted) -> None:
        for file in event.voters:
            self._add_voter_slot(file)
        for attempt in event.attempts:
            self.participants[attempt.run] = Participant(
                self._context, attempt.run, attempt.attempt, attempt.signed_command
            )
            self.fragment_store.observe_attempt(attempt.run, attempt.attempt)
        for key, owner in event.fragments:
            self.fragment_store.put(key, owner)
