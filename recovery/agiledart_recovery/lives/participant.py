"""A host's side of one run.

| state | who moves it |
|---|---|
| OUT | no life, or one that was entered by an earlier process. RESET of a later life → STORING, if its plan knows of this process |
| STORING | the life is being written; nothing of an older life is taken any more. Written → ENTERING |
| ENTERING | the driver ends what ran, cuts sinks, restores. Done → READY, RESET_OK; failed → OUT, RESET_REFUSED |
| READY | START or BEGIN → RUNNING |
| RUNNING | barriers pass, parties prepare. Something breaks → BROKEN |
| BROKEN | every word of the coordinator is answered by NEED_LIFE, a RESET of this life by RESET_REFUSED |
| CLOSED | the run has ended |
| any | RESET of a later life → STORING |

The awkward case: RESET of the life that is on the disk. In the process that entered it, it is a question: what have you prepared?
In a later process it is refused: the part has forgotten what it had taken, and an old RESET would cut off what was committed
since.
"""

from enum import Enum

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.desk import Desk
from agiledart_recovery.fragments.placement import spread
from agiledart_recovery.fragments.repairing import Repairing
from agiledart_recovery.fragments.saving import Outcome, Saving
from agiledart_recovery.limits import LIVES_OF_AN_ERA, MAX_CHAIN, MAX_ERAS, MAX_FRAGMENTS, MAX_OPEN_EPOCHS
from agiledart_recovery.lives.handing import Handing
from agiledart_recovery.lives.readying import Readying
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.events import PartyPrepared, PartySnapped
from agiledart_recovery.wire.names import Party, Run, Snapshot
from agiledart_recovery.wire.observations import ElementDegraded, LifeEntered, MessageIgnored
from agiledart_recovery.wire.value import Element, Plan, Role, Saved, State, Value


class Phase(Enum):
    """See the module."""

    OUT = "out"
    STORING = "storing"
    ENTERING = "entering"
    READY = "ready"
    RUNNING = "running"
    BROKEN = "broken"
    CLOSED = "closed"


class Participant:
    """What one node knows of a run that it hosts, or has a part of a sink of.

    Attributes:
        life: the last life that was entered; on the disk before anything was answered.
        begun: the highest barrier that this host's sources were told of in this life.
        committed_at: when this host last heard of a commit, or entered the life; None: neither.
    """

    def __init__(self, desk: Desk, run: Run, life: int = 0, order: bytes = b"") -> None:
        self._desk, self.run, self.life, self._order = desk, run, life, order
        self.phase = Phase.OUT
        self.begun = 0
        self.value: Value | None = None
        self.committed_at: Instant | None = None
        self._plan = Plan(())
        self._leader: Peer | None = None
        self._committed = Snapshot(0, 0)
        self._committing = Snapshot(0, 0)
        self._prepared: dict[tuple[int, Party], wire.Prepared] = {}
        self._ended: dict[Party, wire.Prepared] = {}
        self._saving: dict[tuple[Party, Snapshot], Saving] = {}
        self._again: dict[tuple[Party, Snapshot], PartySnapped] = {}
        self._begins: dict[int, bytes] = {}
        self._holders: dict[Party, dict[NodeId, None]] = {}
        self._reason = ""
        self.readying = Readying(desk, run, self)
        self.handing = Handing(desk, run)
        self.repairing = Repairing(desk, run, self._tell_remade)
        self._lacks: tuple[NodeId, ...] = ()

    # ---- lives

    def on_reset(self, sender: Peer, message: wire.Reset) -> None:
        """Enter a life, or say what was prepared in it."""
        value = message.value
        is_ballots = message.ballot.node == sender.node
        if value.run != self.run or value.faults() or not value.may_be_told_by(sender.node) or not is_ballots:
            self._desk.observe(MessageIgnored(sender.node, "reset"))
        elif value.life > self.life and self._was_planned_for_another(value):
            self._desk.send(
                sender, wire.ResetRefused(self.run, value.life, "this host was ended since the plan was made")
            )
        elif value.life > self.life:
            self._enter(sender, value)
        elif value.life < self.life:
            why = "a later life was entered"
            self._desk.send(sender, wire.ResetRefused(self.run, self.life, why, order=self._order))
        elif self.phase in (Phase.READY, Phase.RUNNING):
            self._leader = sender
            self._answer_reset()
        elif self.phase in (Phase.STORING, Phase.ENTERING):
            self._leader = sender
        else:
            reason = self._reason or "it was entered by a process that has ended"
            self._desk.send(sender, wire.ResetRefused(self.run, self.life, reason, self._lacks))

    def is_unproven(self, value: Value) -> bool:
        """Whether a value is of an era that is not known here, and that no admin has ordered since the last one."""
        era = self.life // LIVES_OF_AN_ERA
        return value.era > era and not (
            value.era <= MAX_ERAS and self._desk.is_ordered(self.run, value.order, self._order)
        )

    def is_led_by(self, node: NodeId) -> bool:
        """Whether a node may say what is to be done in the life that is known here. Who takes over says RESET first."""
        is_leader = self._leader is not None and self._leader.node == node
        return self.value is None or is_leader or self.value.may_be_told_by(node)

    @property
    def is_blank(self) -> bool:
        """Whether nothing is known of the run."""
        return self.value is None and not self.life

    def _was_planned_for_another(self, value: Value) -> bool:
        """A plan names lives of hosts, so that one that lost its disk can't enter a life a second time."""
        planned = value.plan.hosts.get(self._desk.me.node)
        return planned is not None and planned.incarnation < self._desk.me.incarnation

    def _enter(self, sender: Peer, value: Value) -> None:
        if value.era > self.life // LIVES_OF_AN_ERA:
            self._order = value.order
        self.life, self.value, self._plan, self._leader = value.life, value, value.plan, sender
        self.phase, self._reason, self._lacks = Phase.STORING, "", ()
        self.begun = value.committed.epoch
        self._committed = self._committing = value.committed
        self.committed_at = self._desk.now
        self._prepared, self._ended, self._begins, self._saving, self._again = {}, {}, {}, {}, {}
        self.readying.enter(value)
        self.handing.forget()
        self.repairing.forget()
        file = asked.LifeFile(self.run, value.life, self._order)
        self._desk.ask(lambda request: asked.KeepLife(request, file), lambda _, reason: self._stored(value, reason))

    def _stored(self, value: Value, reason: str) -> None:
        if value.life != self.life or self.phase is not Phase.STORING:
            return
        if reason:
            self._refuse(reason)
            return
        self.phase = Phase.ENTERING
        me = self._desk.me.node
        mine = value.plan.at(me)
        saved = tuple({saved.party: saved for each in mine for saved in value.saved_for(each.party)}.values())
        ends = tuple(end for end in value.parts if end.host == me)
        sinks = {each.party: None for each in mine if each.role is Role.SINK and value.gone_back is not None}
        shown = tuple(saved for saved in value.shown if saved.party in sinks)
        self._desk.ask(
            lambda request: asked.EnterLife(
                request, self.run, value.life, value.committed.epoch, value.plan, mine, saved, ends, shown
            ),
            lambda _, reason: self._entered(value, reason),
        )

    def _entered(self, value: Value, reason: str) -> None:
        if value.life != self.life or self.phase is not Phase.ENTERING:
            return
        if reason:
            self._refuse(reason)
            return
        self.phase = Phase.READY
        self._desk.observe(LifeEntered(self.run, self.life))
        self._answer_reset()

    def lacks(self, life: int, holders: tuple[NodeId, ...]) -> None:
        """A state cannot be rebuilt without fragments of these; the life cannot be entered, which is told with the reason."""
        if life == self.life and self.phase is Phase.ENTERING:
            self._lacks = holders[:MAX_FRAGMENTS]

    def tell_entering(self, life: int, phase: str, got: int, of: int) -> None:
        """The coordinator is to know how far this host is."""
        if life == self.life and self.phase is Phase.ENTERING and self._leader is not None:
            self._desk.send(self._leader, wire.Entering(self.run, life, phase, got, of))

    def _refuse(self, reason: str) -> None:
        self.phase, self._reason = Phase.OUT, reason[:400]
        if self._leader is not None:
            self._desk.send(self._leader, wire.ResetRefused(self.run, self.life, self._reason, self._lacks))

    def _answer_reset(self) -> None:
        if self._leader is not None:
            answers = (*self._prepared.values(), *self._ended.values())
            self._desk.send(self._leader, wire.ResetOk(self.run, self.life, self.begun, answers))

    def _is_mine(self, sender: Peer, life: int) -> bool:
        """Whether a coordinator's word is about the life that this host is in. One that is broken answers what it needs."""
        if life > self.life:
            # The coordinator goes by this host's RESET_OK, of which nothing is left here: its disk was lost.
            self._desk.send(sender, wire.NeedLife(self.run, life, "this host has never been in that life"))
            return False
        if life != self.life or self.phase in (Phase.STORING, Phase.ENTERING):
            return False
        if self.phase in (Phase.OUT, Phase.BROKEN):
            reason = self._reason or "it was entered by a process that has ended"
            self._desk.send(sender, wire.NeedLife(self.run, self.life, reason))
            return False
        return self.phase is not Phase.CLOSED

    def on_other(self, sender: Peer, message: wire.RunMessage) -> None:
        """A word about a life came to a host that knows nothing of the run."""
        if isinstance(message, wire.Start | wire.Begin | wire.Ask | wire.Sync):
            self._is_mine(sender, message.life)

    def on_start(self, sender: Peer, message: wire.Start) -> None:
        """Everybody is in the life."""
        if self._is_mine(sender, message.life):
            self._start()

    def _start(self) -> None:
        if self.phase is Phase.READY:
            self.phase = Phase.RUNNING
            self._desk.do(asked.StartSources(self.run, self.life))
            self._know_elements()

    @property
    def is_in_life(self) -> bool:
        """Whether the life has been entered here, and goes on."""
        return self.phase in (Phase.READY, Phase.RUNNING)

    def on_broken(self, life: int, reason: str) -> None:
        """Something of this life cannot go on here."""
        if life == self.life and self.phase in (Phase.READY, Phase.RUNNING):
            self.phase, self._reason = Phase.BROKEN, reason[:400]
            if self._leader is not None:
                self._desk.send(self._leader, wire.NeedLife(self.run, self.life, self._reason))

    # ---- epochs

    def on_begin(self, sender: Peer, message: wire.Begin) -> None:
        """Send a barrier. BEGIN implies START: everybody is in the life."""
        if not self._is_mine(sender, message.life):
            return
        self._leader = sender
        self._start()
        request = message.after.digest if message.after is not None else b""
        known = self._begins.get(message.epoch)
        if known is not None and known != request:
            self.on_broken(self.life, f"two requests under epoch {message.epoch}")
        elif known is not None or message.epoch <= self.begun:
            self._tell_prepared(sender, message.epoch - 1)
        elif message.before != self._plan.digest and self._has_source:
            self.on_broken(self.life, f"epoch {message.epoch} is begun under a plan that no longer holds here")
        elif message.epoch <= self._committed.epoch + MAX_OPEN_EPOCHS * MAX_OPEN_EPOCHS:
            self._begins[message.epoch], self.begun = request, message.epoch
            if message.after is not None:
                self._plan = message.after
            self._desk.do(
                asked.PassBarrier(self.run, self.life, message.epoch, message.before, message.after, message.holds)
            )
        else:  # so many were passed over that nothing here may remember them: a life later all begin behind the committed one
            self.on_broken(
                self.life, f"epoch {message.epoch} is begun, and none behind {self._committed.epoch} was committed"
            )

    @property
    def is_closed(self) -> bool:
        """Whether the register has said that the run has ended, and that was carried out here."""
        return self.phase is Phase.CLOSED

    @property
    def _has_source(self) -> bool:
        """Whether barriers begin here; to all others BEGIN only says that a change comes."""
        value = self.value
        return value is not None and any(each.role is Role.SOURCE for each in value.plan.at(self._desk.me.node))

    def on_ask(self, sender: Peer, message: wire.Ask) -> None:
        """Tell again what was prepared."""
        if self._is_mine(sender, message.life):
            self._leader = sender
            self._tell_prepared(sender, message.epoch)
            self.handing.repeat()

    def _tell_prepared(self, to: Peer, above: int) -> None:
        for (epoch, _), answer in self._prepared.items():
            if epoch > above:
                self._desk.send(to, answer)
        for answer in self._ended.values():
            self._desk.send(to, answer)

    def on_prepared(self, event: PartyPrepared) -> None:
        """A source or sink that stays here has its part of a barrier on the disk."""
        if self._takes(event.snapshot):
            self._prepare(event, event.saved, event.offset)

    def on_snapped(self, event: PartySnapped) -> None:
        """The element of a party that may move is on the local disk: now to its holders."""
        chain = self._chain_to(event)
        if not self._takes(event.snapshot) or chain is None:
            return  # what it rests on is needed by nobody any more: the epoch is passed over
        config = self._desk.config
        reachable = [peer for peer in self._desk.room if self._desk.can_reach(peer.node)]
        where = spread(self._desk.me, reachable, event.length, config.m, config.k)
        element = Element(event.snapshot, event.digest, event.length, where.m, where.holders)
        if event.after is not None and not event.has_ended:
            here = Element(event.snapshot, event.digest, event.length, where.m, ())
            self.handing.hand_over(self.life, event.snapshot.epoch, Saved(event.party, (*chain, here)), event.after)
        patience = config.ack_timeout_ns + event.length * config.slowest_ns
        self._desk.set_timer((self.run, "save", event.party, event.snapshot), patience)

        def settled(saving: Saving) -> None:
            self._settled(event, saving, where.wanted)

        saving = Saving(self._desk, self.run, event.party, element, where, settled)
        if saving.outcome is Outcome.SENDING:
            self._saving[event.party, event.snapshot] = saving

    def on_save_timeout(self, party: Party, snapshot: Snapshot) -> None:
        """`ack_timeout` has passed for an element."""
        saving = self._saving.get((party, snapshot))
        again = self._again.pop((party, snapshot), None)
        if saving is not None:
            saving.on_timeout()
        elif again is not None:
            self.on_snapped(again)

    def _settled(self, event: PartySnapped, saving: Saving, wanted: int) -> None:
        self._saving.pop((event.party, event.snapshot), None)
        before = self._chain_to(event)
        if not self._takes(event.snapshot) or before is None:
            return
        if saving.outcome is not Outcome.SAFE:
            if event.has_ended:
                # No later barrier will save it once more.
                self._again[event.party, event.snapshot] = event
                name = (self.run, "save", event.party, event.snapshot)
                self._desk.set_timer(name, self._desk.config.ack_timeout_ns)
            return
        element = saving.element
        if sum(1 for holder in element.holders if holder) < wanted:
            self._desk.observe(ElementDegraded(self.run, event.party, element.survives))
        self._prepare(event, Saved(event.party, (*before, element)), event.offset)

    def _chain_to(self, event: PartySnapped) -> tuple[Element, ...] | None:
        """What an element rests on; None when that is not kept, or the chain would be too long."""
        if not event.onto:
            return ()
        chain = () if self.value is None else self.value.chain_to(event.party, event.onto)
        return chain if 0 < len(chain) < MAX_CHAIN else None

    def _takes(self, snapshot: Snapshot) -> bool:
        """Nothing of another life counts."""
        return snapshot.life == self.life and self.phase in (Phase.READY, Phase.RUNNING)

    def _prepare(self, event: PartyPrepared | PartySnapped, saved: Saved, offset: int) -> None:
        # An end is named by the epoch above the last barrier: its element must not replace that barrier's.
        epoch = event.snapshot.epoch - event.has_ended
        answer = wire.Prepared(
            self.run,
            self.life,
            epoch,
            event.party,
            saved,
            offset,
            event.after,
            event.is_caught_up,
            event.has_ended,
            event.gaps,
            event.pause_ns,
        )
        if event.has_ended:
            self._ended[event.party] = answer
        else:
            self._prepared[epoch, event.party] = answer
        if event.after is not None:
            self._plan = event.after
            if not event.has_ended:
                self.handing.hand_over(self.life, epoch, saved, event.after)
        if self._leader is not None:
            self._desk.send(self._leader, answer)

    # ---- what is committed

    def on_sync(self, sender: Peer, message: wire.Sync) -> None:
        """Put logs on the disk."""
        if self._is_mine(sender, message.life):
            answer = wire.Synced(self.run, message.life, message.epoch)
            self._desk.ask(
                lambda request: asked.SyncLogs(request, self.run, message.life),
                lambda _, reason: None if reason else self._desk.send(sender, answer),
            )

    def on_committed(self, sender: Peer, message: wire.Committed) -> None:
        """The register has an epoch. A node that has only an old part of a sink hears of lives in this way."""
        value = message.value
        if (
            value.run != self.run
            or value.faults()
            or value.life != message.life
            or not value.may_be_told_by(sender.node)
        ):
            self._desk.observe(MessageIgnored(sender.node, "committed"))
        elif value.life > self.life and self._desk.me.node not in value.plan.hosts:
            self._enter(sender, value)
        elif self._is_over(value) or self._is_mine(sender, message.life):
            self._commit(sender, value)

    def _is_over(self, value: Value) -> bool:
        """The end needs no life: what a sink has to show is on its disk."""
        is_entering = self.phase in (Phase.STORING, Phase.ENTERING)
        return value.state is not State.RUNNING and value.life >= self.life and not is_entering

    def _commit(self, sender: Peer, value: Value) -> None:
        answer = wire.CommittedOk(self.run, value.life, value.committed)
        if value.committed <= self._committed:
            if value.state is State.FAILED:
                if self.value is not None or self.phase is Phase.OUT:
                    self.value = value  # nothing more is committed with it; who votes says the end
                if self.phase is Phase.OUT:
                    self.phase = Phase.CLOSED  # a later process: nothing of it runs here
            elif value.state is State.FINISHED and self.phase is not Phase.CLOSED:
                if self._committing > self._committed:
                    return  # it is said again
                self.value = value  # it was ended behind an epoch that is committed here
                self._tell_holders(value)
                self._close()
            elif (value.life, value.committed) == (self.life, self._committed) and self.phase is Phase.RUNNING:
                self.value = value  # it may name other holders
                self._know_elements()
            self._desk.send(sender, answer)
        elif value.committed > self._committing:
            self.value, self._committing = value, value.committed
            self._desk.ask(
                lambda request: asked.CommitEpoch(request, self.run, value.life, value),
                lambda _, reason: self._done(sender, value, answer, reason),
            )

    def _done(self, sender: Peer, value: Value, answer: wire.CommittedOk, reason: str) -> None:
        if value.life < self.life:
            return
        if reason:
            self._committing = self._committed
            return
        self._committed, self.committed_at = max(self._committed, value.committed), self._desk.now
        self.readying.committed(value)
        self.handing.forget()  # the value says it from now on
        epoch = self._committed.epoch
        self._prepared = {key: each for key, each in self._prepared.items() if key[0] > epoch}
        self._begins = {begun: each for begun, each in self._begins.items() if begun > epoch}
        self._desk.send(sender, answer)
        self._tell_holders(value)
        self._know_elements()
        if value.state is not State.RUNNING and self.phase is not Phase.CLOSED:
            self._close()

    def _close(self) -> None:
        assert self.value is not None, "a value says that it has ended"
        self.phase = Phase.CLOSED
        self.repairing.forget()
        self._desk.do(asked.CloseRun(self.run, self.value.state.value))

    def _tell_holders(self, value: Value) -> None:
        """Holders of what was saved here hear what is needed of it; one that does not hear it hears the next word."""
        needed = value.needed
        mine = [each.party for each in value.plan.at(self._desk.me.node)]
        for party in dict.fromkeys((*mine, *self._holders)):
            about = {at: element for (whose, at), element in needed.items() if whose == party}
            now = {holder: None for element in about.values() for holder in element.holders if holder}
            is_over = value.state is not State.RUNNING
            message = wire.Kept(self.run, value.life, party, value.committed, tuple(about), is_over)
            for holder in {**self._holders.get(party, {}), **now}:
                self._desk.send(Peer(holder), message)
            self._holders[party] = now
            if not now and party not in mine:
                del self._holders[party]

    # ---- fragments between epochs

    def _know_elements(self) -> None:
        """What is committed of what was saved here, and may need fragments that nobody has any more."""
        if self.value is None or self.phase is not Phase.RUNNING or self.value.state is not State.RUNNING:
            return
        mine = {each.party: None for each in self.value.plan.at(self._desk.me.node) if not each.is_pinned}
        elements = {
            (saved.party, element.snapshot): element
            for saved in self.value.saved
            if saved.party in mine
            for element in saved.chain
        }
        self.repairing.know(self.life, elements)

    def _tell_remade(self, message: wire.Remade) -> None:
        if self._leader is not None:
            self._desk.send(self._leader, message)

    def ask_held(self, holder: Peer) -> None:
        """A holder may be another process than before: what does it still have?"""
        value = self.value
        if value is None or self.phase is not Phase.RUNNING:
            return
        for party in self.repairing.parties(holder.node):
            needed = tuple(at for whose, at in value.needed if whose == party)
            message = wire.Kept(self.run, value.life, party, value.committed, needed, asks=True)
            self._desk.send(holder, message)
        self.repairing.look()

    def violations(self) -> list[str]:
        """What must never be so."""
        found = [
            f"prepared in life {each.life}, not {self.life}"
            for each in self._prepared.values()
            if each.life != self.life
        ]
        if self._committed.life > self.life and not self.is_closed:  # the end needs no life, also on a new disk
            found.append(f"committed {self._committed} above life {self.life}")
        return found
