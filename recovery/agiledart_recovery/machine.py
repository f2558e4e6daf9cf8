"""`RecoveryMachine`: all that one node has to do with recovery, as one machine.

It holds a voter's seat and a coordinator for each run that it votes for, a participant for each run that it hosts, and a shelf of
others' fragments. One table says which role a message is for. A message from the network never raises: what does not fit is ignored
and observed, by its reason.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Completed, Effect, Event, Failed, Message, Received, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observe import Observer, ignore
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.config import RecoveryConfig
from agiledart_recovery.desk import Desk, IsOrdered, as_told
from agiledart_recovery.fragments.rebuild import Rebuild
from agiledart_recovery.fragments.shelf import Shelf
from agiledart_recovery.limits import MAX_RUNS
from agiledart_recovery.lives.coordinator import Coordinator
from agiledart_recovery.lives.participant import Participant
from agiledart_recovery.register.voter import VoterSeat
from agiledart_recovery.wire import events, messages
from agiledart_recovery.wire.effects import DropFragments, VoterFile
from agiledart_recovery.wire.names import Party, Run, Snapshot
from agiledart_recovery.wire.observations import MessageIgnored
from agiledart_recovery.wire.register_left import Standing
from agiledart_recovery.wire.value import Element, Plan, State, Value

_SEAT_BITS = 60


_WITHOUT_A_VALUE = (
    messages.Start, messages.Begin, messages.Ask, messages.Sync, messages.PrepareTerm, messages.TermLetGo
)  # fmt: skip
"""A coordinator's words that do not say themselves who may say them."""


_VOTES = (messages.Promise, messages.Accepted, messages.Refused, messages.Following)
"""What only who was asked for a vote has to say."""


def _is_with_order(message: messages.RunMessage) -> bool:
    """Whether it brings an admin's order, which is judged by itself, whoever brings it."""
    return isinstance(message, messages.Refused) and message.order != b""


class _Judged(Protocol):
    def violations(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class RecoveryStatistics:
    """What a node has to do with recovery now."""

    seats: int
    coordinated: int
    hosted: int


class RecoveryMachine:
    """One node's recovery.

    Args:
        me: this life of this node.
        random: draws the numbers of voters' seats.
        is_ordered: judges an admin's order with which an era begins.
    """

    def __init__(
        self,
        me: Peer,
        config: RecoveryConfig,
        random: RandomStream,
        observer: Observer = ignore,
        is_ordered: IsOrdered = as_told,
    ) -> None:
        self._desk = Desk(me, config, random, observer, is_ordered)
        self.seats: dict[Run, VoterSeat] = {}
        self.coordinators: dict[Run, Coordinator] = {}
        self.participants: dict[Run, Participant] = {}
        self.shelf = Shelf()
        self._messages: dict[type, Callable[[Peer, messages.RunMessage], None]] = {
            messages.Prepare: self._to_seat,
            messages.Accept: self._to_seat,
            messages.AskSeat: self._on_ask_seat,
            messages.Reset: self._to_participant,
            messages.Start: self._to_participant,
            messages.Begin: self._to_participant,
            messages.Ask: self._to_participant,
            messages.Sync: self._to_participant,
            messages.Committed: self._to_participant,
            messages.PrepareTerm: self._to_participant,
            messages.TermLetGo: self._to_participant,
            messages.Handed: self._to_participant,
            messages.HandedOk: self._to_participant,
            messages.Kept: self._on_kept,
            messages.Holds: self._on_holds,
        }

    # ---- the contract

    def step(self, event: Event, now: Instant) -> Sequence[Effect]:
        """See `agiledart_kernel.machine`."""
        desk = self._desk
        desk.now, desk.effects = now, []
        if isinstance(event, Received):
            desk.meet(event.sender)
            self._receive(event.sender, event.message)
        elif isinstance(event, Completed):
            desk.answered(event.request, event.result, "")
        elif isinstance(event, Failed):
            desk.answered(event.request, None, event.reason or "it failed")
        elif isinstance(event, TimerFired):
            self._on_timer(event.name)
        else:
            self._on_local(event)
        while desk.outbox:
            self._receive(desk.me, desk.outbox.pop(0))
        return self.take_effects()

    def take_effects(self) -> list[Effect]:
        """Effects of a call from outside a step: what a part was asked to do by its node."""
        effects, self._desk.effects = self._desk.effects, []
        return effects

    def name_of(self, node: NodeId) -> str:
        """For people, also of a node that is gone."""
        return self._desk.peer(Peer(node)).name or node.short

    def can_reach(self, node: NodeId) -> bool:
        """As far as the failure detector knows."""
        return self._desk.can_reach(node)

    def rebuild(self, run: Run, party: Party, element: Element) -> Rebuild:
        """Fetch an element's fragments from all holders that can be reached; `take_effects` has the first questions."""
        live = {holder: None for holder in element.holders if holder and self._desk.can_reach(holder)}
        return Rebuild(self._desk, run, party, element, live)

    def tell_entering(self, run: Run, life: int, phase: str, got: int = 0, of: int = 0) -> None:
        """The coordinator is to know how far this host is."""
        part = self.participants.get(run)
        if part is not None:
            part.tell_entering(life, phase, got, of)

    def tell_term_progress(self, run: Run, digest: bytes, got: int, of: int) -> None:
        """The coordinator of a change is to know how much of what is to be built beforehand is here."""
        part = self.participants.get(run)
        if part is not None:
            part.readying.tell_progress(digest, got, of)

    def request_change(self, run: Run, plan: Plan) -> str:
        """Stages of a run are to take new terms; `take_effects` has the first steps. Returns why not; empty: it is under way."""
        coordinator = self.coordinators.get(run)
        return coordinator.on_change(plan) if coordinator is not None else "another node coordinates it"

    def request_relief(self, run: Run, host: Peer) -> str:
        """What a host runs of a run, also sources and sinks that may move, is to run elsewhere. As `request_change`."""
        coordinator = self.coordinators.get(run)
        return coordinator.on_relief(host) if coordinator is not None else "another node coordinates it"

    def request_seat_relief(self, run: Run, host: Peer) -> tuple[str, bool]:
        """Another node is to vote in place of a host, which leaves. Why not, and whether it is so."""
        coordinator = self.coordinators.get(run)
        if coordinator is None or not coordinator.is_at_work or coordinator.proposer.value is None:
            return "another node coordinates it", False
        return coordinator.on_seat_relief(host)

    def request_hold(self, run: Run) -> str:
        """Nothing more of a run is to be read behind the next epoch. As `request_change`."""
        coordinator = self.coordinators.get(run)
        return coordinator.on_hold() if coordinator is not None else "another node coordinates it"

    def request_end_held(self, run: Run, at: Snapshot, reason: str) -> str:
        """A run that is held at a committed epoch is to end there. As `request_change`."""
        coordinator = self.coordinators.get(run)
        return coordinator.on_end_held(at, reason) if coordinator is not None else "another node coordinates it"

    def request_release(self, run: Run, reason: str) -> None:
        """A run that is held is to go on."""
        coordinator = self.coordinators.get(run)
        if coordinator is not None:
            coordinator.on_release(reason)

    def tell_end_again(self, run: Run, to: Peer) -> None:
        """A host does not answer, though it knew that a run is over: it may have been restarted, and know it no more."""
        coordinator = self.coordinators.get(run)
        if coordinator is not None:
            coordinator.tell_again(to)

    @property
    def lacking(self) -> int:
        """Fragments of elements that were saved here, which nobody has."""
        return sum(part.repairing.lacking for part in self.participants.values())

    def drop_shelf(self, run: Run) -> None:
        """A run of which something lies here is over."""
        if gone := self.shelf.drop_run(run):
            self._desk.do(DropFragments(gone))

    def is_over(self, run: Run) -> bool:
        """Whether the register says that a run has ended, and all its hosts know that: what is here of it is of no more use."""
        coordinator, part = self.coordinators.get(run), self.participants.get(run)
        if coordinator is not None:
            return coordinator.is_over
        return part is not None and part.is_closed

    def has_ended(self, run: Run) -> bool:
        """Whether this host knows that a run is over, and what it has of its end is carried out."""
        part = self.participants.get(run)
        return part is not None and part.is_closed

    def forget(self, run: Run) -> bool:
        """The application is over: nothing of the run is known here any more. False when nothing was."""
        parts = (self.seats, self.coordinators, self.participants)
        known = [part.pop(run, None) is not None for part in parts]
        return any(known)

    def statistics(self) -> RecoveryStatistics:
        """See `RecoveryStatistics`."""
        return RecoveryStatistics(
            len(self.seats), sum(each.leads for each in self.coordinators.values()), len(self.participants)
        )

    def violations(self) -> list[str]:
        """What must never be so, in any part."""
        roles: tuple[_Judged, ...] = (*self.seats.values(), *self.coordinators.values(), *self.participants.values())
        return [line for part in (*roles, self.shelf) for line in part.violations()]

    # ---- messages

    def _receive(self, sender: Peer, message: Message) -> None:
        if not isinstance(message, messages.RunMessage):
            self._desk.observe(MessageIgnored(sender.node, "kind"))
            return
        handle = self._messages.get(type(message))
        if handle is not None:
            handle(sender, message)
        else:
            self._to_coordinator(sender, message)

    def _to_seat(self, sender: Peer, message: messages.RunMessage) -> None:
        """PREPARE and ACCEPT: only the holder of a ballot asks under it."""
        seat = self.seats.get(message.run)
        ballot = message.ballot if isinstance(message, messages.Prepare) else None
        if isinstance(message, messages.Accept):
            ballot = message.stamp.ballot
            if message.value.run != message.run or message.value.faults():
                self._desk.observe(MessageIgnored(sender.node, "value"))
                return
        if seat is None or ballot is None or (ballot.node, ballot.incarnation) != (sender.node, sender.incarnation):
            self._desk.observe(MessageIgnored(sender.node, "ballot" if seat is not None else "seat"))
        elif isinstance(message, messages.Prepare):
            seat.on_prepare(sender, message)
        elif isinstance(message, messages.Accept):
            seat.on_accept(sender, message)

    def _on_ask_seat(self, sender: Peer, message: messages.RunMessage) -> None:
        seat = self._make_seat(message.run)
        if seat is not None:
            seat.keep(lambda: self._desk.send(sender, messages.Seat(message.run, seat.seat)))

    def _make_seat(self, run: Run) -> VoterSeat | None:
        seat = self.seats.get(run)
        if seat is None and len(self.seats) < MAX_RUNS:
            seat = self._sit(VoterFile(run, self._desk.random.bits(_SEAT_BITS)))
        return seat

    def _sit(self, file: VoterFile) -> VoterSeat:
        seat = self.seats[file.run] = VoterSeat(self._desk, file)
        self.coordinators[file.run] = Coordinator(self._desk, seat)
        return seat

    def _to_participant(self, sender: Peer, message: messages.RunMessage) -> None:
        run = message.run
        part = self.participants.get(run)
        opens = isinstance(message, messages.Reset | messages.Committed)
        if part is None and opens and len(self.participants) < MAX_RUNS:
            part = self.participants[run] = Participant(self._desk, run)
        self._tell_participant(part, sender, message)
        if opens and part is not None and part.is_blank:
            del self.participants[run]  # at the word of who may not say so

    def _tell_participant(self, part: Participant | None, sender: Peer, message: messages.RunMessage) -> None:
        if part is None:
            # What is said about a life to a host that knows of none is answered by one that has lost its disk.
            self._desk.observe(MessageIgnored(sender.node, "run"))
            Participant(self._desk, message.run).on_other(sender, message)
        elif isinstance(message, messages.Reset | messages.Committed) and part.is_unproven(message.value):
            self._desk.observe(MessageIgnored(sender.node, "era"))
        elif isinstance(message, _WITHOUT_A_VALUE) and not part.is_led_by(sender.node):
            self._desk.observe(MessageIgnored(sender.node, "coordinator"))
        elif isinstance(message, messages.Reset):
            self._knows(sender, message.value)
            part.on_reset(sender, message)
        elif isinstance(message, messages.Start):
            part.on_start(sender, message)
        elif isinstance(message, messages.Begin):
            part.on_begin(sender, message)
        elif isinstance(message, messages.Ask):
            part.on_ask(sender, message)
        elif isinstance(message, messages.Sync):
            part.on_sync(sender, message)
        elif isinstance(message, messages.Committed):
            self._knows(sender, message.value)
            part.on_committed(sender, message)
        elif isinstance(message, messages.PrepareTerm):
            part.readying.on_prepare(sender, message)
        elif isinstance(message, messages.TermLetGo):
            part.readying.on_let_go(message)
        elif isinstance(message, messages.Handed):
            part.readying.on_handed(sender, message)
        elif isinstance(message, messages.HandedOk):
            part.handing.on_ok(sender, message)

    def _knows(self, sender: Peer, value: Value) -> None:
        """What an acknowledged value lets go of; nothing at the word of who does not vote."""
        if not value.may_be_told_by(sender.node):
            return
        ended = value.state is State.FINISHED
        gone = self.shelf.drop_run(value.run) if ended else self.shelf.release(value)
        if gone:
            self._desk.do(DropFragments(gone))

    def _on_kept(self, sender: Peer, message: messages.RunMessage) -> None:
        assert isinstance(message, messages.Kept)
        if gone := self.shelf.keep(sender.node, message):
            self._desk.do(DropFragments(gone))
        if message.asks:
            self._tell_held(sender, message.run, message.party)

    def _tell_held(self, to: Peer, run: Run, party: Party) -> None:
        self._desk.send(to, messages.Holds(run, party, self.shelf.held_for(run, party)))

    def _on_holds(self, sender: Peer, message: messages.RunMessage) -> None:
        assert isinstance(message, messages.Holds)
        part = self.participants.get(message.run)
        if part is None or not part.repairing.parties(sender.node):
            self._desk.observe(MessageIgnored(sender.node, "holder"))
        else:
            part.repairing.on_holds(sender.node, message.party, message.held)

    def _to_coordinator(self, sender: Peer, message: messages.RunMessage) -> None:
        coordinator = self.coordinators.get(message.run)
        if coordinator is None:
            self._desk.observe(MessageIgnored(sender.node, "coordinator"))
        elif isinstance(message, messages.Leading) and message.ballot.node != sender.node:
            self._desk.observe(MessageIgnored(sender.node, "ballot"))
        elif isinstance(message, _VOTES) and not (coordinator.is_voter(sender.node) or _is_with_order(message)):
            self._desk.observe(MessageIgnored(sender.node, "voter"))
        elif isinstance(message, messages.Leading):
            coordinator.on_leading(sender, message)
        elif isinstance(message, messages.Promise):
            coordinator.proposer.on_promise(sender, message)
        elif isinstance(message, messages.Accepted):
            coordinator.replacing.heard(sender, message.seat)
            coordinator.outcome(coordinator.proposer.on_accepted(sender, message))
        elif isinstance(message, messages.Refused):
            coordinator.on_refused(sender, message)
        elif isinstance(message, messages.Following):
            coordinator.on_following(sender, message)
        elif isinstance(message, messages.Seat):
            coordinator.replacing.on_seat(sender, message.seat)
        else:
            self._from_host(coordinator, sender, message)

    def _from_host(self, coordinator: Coordinator, sender: Peer, message: messages.RunMessage) -> None:
        if coordinator.leads and coordinator.proposer.value is not None and not coordinator.is_host(sender.node):
            self._desk.observe(MessageIgnored(sender.node, "host"))
        elif isinstance(message, messages.ResetOk):
            coordinator.on_reset_ok(sender, message)
        elif isinstance(message, messages.ResetRefused):
            coordinator.on_reset_refused(sender, message)
        elif isinstance(message, messages.Prepared):
            coordinator.on_prepared(sender, message)
        elif isinstance(message, messages.Synced):
            coordinator.on_synced(sender, message)
        elif isinstance(message, messages.CommittedOk):
            coordinator.on_committed_ok(sender, message)
        elif isinstance(message, messages.NeedLife):
            coordinator.on_need_life(sender, message)
        elif isinstance(message, messages.Entering):
            coordinator.on_entering(sender, message)
        elif isinstance(message, messages.Remade):
            coordinator.on_remade(sender, message)
        elif isinstance(message, messages.TermReady):
            coordinator.on_term_ready(sender, message)
        elif isinstance(message, messages.TermProgress):
            coordinator.committing.changing.on_progress(sender, message)
        else:
            self._desk.observe(MessageIgnored(sender.node, "kind"))

    # ---- what the node itself says

    def _on_timer(self, name: object) -> None:
        match name:
            case (Run() as run, "tick") if run in self.coordinators:
                self.coordinators[run].on_tick()
            case (Run() as run, "save", Party() as party, Snapshot() as snapshot) if run in self.participants:
                self.participants[run].on_save_timeout(party, snapshot)
            case (Run() as run, "remade") if run in self.participants:
                self.participants[run].repairing.on_timer()
            case (Run() as run, "term", bytes() as digest) if run in self.participants:
                self.participants[run].readying.on_timer(digest)

    def _on_local(self, event: Event) -> None:
        desk = self._desk
        if isinstance(event, events.PartyPrepared | events.PartySnapped | events.LifeBroken):
            self._on_party(event)
        elif isinstance(event, events.HostLost):
            desk.lost[event.node] = None
            for coordinator in self.coordinators.values():
                coordinator.on_host_lost(event.node)
            self._repair()
        elif isinstance(event, events.HostBack):
            desk.meet(event.peer)
            desk.lost.pop(event.peer.node, None)
            for coordinator in self.coordinators.values():
                coordinator.on_host_back(event.peer)
            for part in self.participants.values():
                part.ask_held(event.peer)
        elif isinstance(event, events.RoomSeen):
            desk.room = event.peers
            self._repair()
        elif isinstance(event, events.FragmentDamaged):
            owner = self.shelf.damaged(event.key)
            if owner:
                self._tell_held(Peer(owner), event.key.run, event.key.party)
        elif isinstance(event, events.ChangeRequested | events.SeatRelief):
            self._on_request(event)
        elif isinstance(event, events.FoundRun | events.RegainRun):
            self._found(event)
        elif isinstance(event, events.MakeSeat):
            self._make_seat(event.run)
        elif isinstance(event, events.Booted):
            self._boot(event)

    def _on_request(self, event: events.ChangeRequested | events.SeatRelief) -> None:
        if isinstance(event, events.SeatRelief):
            self.request_seat_relief(event.run, event.host)
        else:
            self.request_change(event.run, event.plan)

    def _repair(self) -> None:
        for part in self.participants.values():
            part.repairing.look()

    def _on_party(self, event: events.PartyPrepared | events.PartySnapped | events.LifeBroken) -> None:
        part = self.participants.get(event.run)
        if part is None:
            return
        if isinstance(event, events.PartyPrepared):
            part.on_prepared(event)
        elif isinstance(event, events.PartySnapped):
            part.on_snapped(event)
        else:
            part.on_broken(event.life, event.reason)

    def _found(self, event: events.FoundRun | events.RegainRun) -> None:
        coordinator = self.coordinators.get(event.value.run)
        if coordinator is None or event.value.faults():
            return
        if isinstance(event, events.RegainRun):
            coordinator.regain(event.value, event.below)
        else:
            coordinator.found(event.value)

    def register_at(self, run: Run) -> Standing:
        """What this node has of a run's register."""
        seat, part = self.seats.get(run), self.participants.get(run)
        told = part.value if part is not None else None
        if seat is None:
            return Standing(told=told)
        led = self.coordinators[run].proposer.value
        told = max(
            (one for one in (told, led) if one is not None), key=lambda one: (one.life, one.committed), default=None
        )
        return Standing(seat.seat, seat.promised, seat.accepted, seat.value, told)

    def _boot(self, event: events.Booted) -> None:
        for file in event.voters:
            self._sit(file)
        for life in event.lives:
            self.participants[life.run] = Participant(self._desk, life.run, life.life, life.order)
            self.shelf.knows_life(life.run, life.life)
        for key, owner in event.fragments:
            self.shelf.put(key, owner)
