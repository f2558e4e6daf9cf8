"""Who says what counts: the voter of a run that holds the highest ballot.

| phase | who moves it |
|---|---|
| FOLLOWING | another voter leads. Nothing heard for `silence` → READING |
| READING | the register is read: finished or failed → CLOSING; life 0 → a life is begun; else → RESETTING |
| RESETTING | RESET goes to all hosts. All answer → RUNNING. One was ended since, or the time is over → a life is begun |
| RUNNING | epochs, see `committing`. A host lost, a change late, NEED_LIFE → a life is begun |
| WAITING | the next life could not run: a pinned host, or all room, is missing. Somebody comes back → RESETTING |
| CLOSING | COMMITTED goes out until everybody has it |
| any | a higher ballot is seen → FOLLOWING |

While a run is WAITING its life stays, so that what the other side of a partition does keeps its worth.
"A life is begun": a plan for ℓ + 1 is made, ACCEPTed, and only then acted upon → RESETTING.

The awkward cases. (1) Taking over: what was prepared is asked for by RESET of the *same* life, which hosts that are in it answer
with what they have; so there is one way in, and a coordinator that was only slow costs nothing. (2) Two at once: each acts on a
value that it has read or written under its ballot; the one that was overtaken finds out at its next ACCEPT, which is the only
thing that commits.
"""

from enum import Enum

import msgspec

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.desk import Desk
from agiledart_recovery.lives.committing import Committing
from agiledart_recovery.lives.eras import Eras, first_ballot_of
from agiledart_recovery.lives.next_life import NextLife
from agiledart_recovery.lives.progress import Progress
from agiledart_recovery.lives.replacing import Replacing
from agiledart_recovery.register.ballots import rank
from agiledart_recovery.register.proposer import Outcome, Proposer
from agiledart_recovery.register.proposer import Phase as Hold
from agiledart_recovery.register.voter import VoterSeat
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Ballot, Snapshot, Voter
from agiledart_recovery.wire.observations import (
    CoordinationBegan,
    CoordinationLost,
    LifeBegan,
    MessageIgnored,
    Recovered,
    RunWaits,
)
from agiledart_recovery.wire.value import Plan, State, Value


class Phase(Enum):
    """See the module."""

    FOLLOWING = "following"
    READING = "reading"
    RESETTING = "resetting"
    RUNNING = "running"
    WAITING = "waiting"
    CLOSING = "closing"


class Coordinator:
    """The part of a voter that coordinates, or would if nobody else did.

    Attributes:
        progress: how far a recovery is, for people.
        leader: who said last that it coordinates.
        lacks_voters: the voters that answer are no majority, so nothing of the run counts.
    """

    def __init__(self, desk: Desk, seat: VoterSeat) -> None:
        self._desk, self._seat, self.run = desk, seat, seat.run
        self.phase = Phase.FOLLOWING
        self.proposer = Proposer(desk, seat.run)
        self.proposer.highest = seat.promised
        self.committing = Committing(desk, seat.run)
        self.replacing = Replacing(desk, seat.run)
        self.eras = Eras(desk, seat, self.proposer)
        self.next_life = NextLife(desk)
        self._heard = desk.now
        self.leader: Peer | None = None
        self._founding: Value | None = None
        self._before: Value | None = None
        self._need = ""
        self._deadline = self._room_at = 0
        self._answered: dict[NodeId, None] = {}
        self._refused: dict[NodeId, None] = {}
        self._relieved: dict[NodeId, Peer] = {}
        self.progress = Progress()
        self.lacks_voters = False
        self._is_over, self._over_since = False, desk.now
        self._beat()

    # ---- leading or following

    @property
    def value(self) -> Value:
        """The newest acknowledged value that this coordinator knows of."""
        value = self.proposer.value
        assert value is not None
        return value

    @property
    def node(self) -> NodeId:
        """Whose coordinator this is."""
        return self._desk.me.node

    @property
    def known(self) -> Value | None:
        """The newest value that this node knows of, acknowledged or not; for people."""
        return self.proposer.value or self._known()

    @property
    def leads(self) -> bool:
        """Whether it believes that it holds the highest ballot."""
        return self.phase is not Phase.FOLLOWING

    @property
    def is_at_work(self) -> bool:
        """Whether it leads a run that goes on."""
        return self.leads and self.phase is not Phase.CLOSING

    @property
    def is_over(self) -> bool:
        """Whether the run has ended and everybody whom it concerns knows."""
        return self._is_over

    def found(self, value: Value) -> None:
        """A run is to be: write its first value, if nobody has written one."""
        self._founding = value
        if self.phase is Phase.FOLLOWING:
            self._take_over()

    def regain(self, value: Value, below: Ballot) -> None:
        """The majority of its voters is gone for ever: go on from this value, with the voters that it names."""
        self.eras.regained(value)
        self.committing.changing.forget()
        self.proposer.release()
        self._founding, self._need, self._heard, self.phase = value, "", self._desk.now, Phase.READING
        self.progress = Progress()
        self.proposer.regain(value, below)

    def _let_go(self, sender: Peer, ballot: Ballot, order: bytes) -> None:
        """Of a run that goes on in a later era, without this voter."""
        if self.eras.is_later(sender, ballot, order, self._known()):
            self.proposer.release()
            self.committing.changing.forget()
            self.phase, self._need, self.progress = Phase.FOLLOWING, "", Progress()

    def on_refused(self, sender: Peer, message: wire.Refused) -> None:
        """A voter has promised a higher ballot."""
        is_mine = message.ballot == self.proposer.ballot
        if is_mine and self.eras.is_proven(sender, message.promised, message.order):
            self.outcome(self.proposer.on_refused(sender, message))
            self._let_go(sender, message.promised, message.order)

    def _beat(self) -> None:
        self._desk.set_timer((self.run, "tick"), self._desk.config.tick_ns)

    def _known(self) -> Value | None:
        """Whom to ask: what was acknowledged, or what this node's own seat accepted, whichever may be newer."""
        newer = self.proposer.value if self.proposer.stamp > self._seat.accepted else self._seat.value
        return newer or self._founding

    def _take_over(self) -> None:
        known = self._known()
        self._heard = self._desk.now
        if self.eras.is_left(known) or self.eras.is_spent:
            self.phase = Phase.FOLLOWING
        elif known is not None:
            self.proposer.highest = max(self.proposer.highest, self._seat.promised)
            self.phase = Phase.READING
            self.proposer.begin(known)

    def on_leading(self, sender: Peer, message: wire.Leading) -> None:
        """Another voter says that it coordinates."""
        if message.ballot.node != sender.node or self.eras.refuses(sender, message.ballot):
            return
        if not self.eras.is_proven(sender, message.ballot, message.order) or self.eras.is_far_above(message.ballot):
            return
        if message.ballot < self._seat.promised and message.ballot < self.proposer.highest:
            return
        self._heard, self.leader, self._is_over = self._desk.now, sender, message.is_over
        self.outcome(self.proposer.saw(message.ballot))
        self._desk.send(sender, wire.Following(self.run, message.ballot, self._seat.seat))
        self._let_go(sender, message.ballot, message.order)

    def outcome(self, outcome: Outcome | None) -> None:
        """Something became of what the proposer asked."""
        if outcome is Outcome.OVERTAKEN:
            self._desk.observe(CoordinationLost(self.run, self.proposer.ballot))
            self.committing.changing.forget()
            self.phase, self._heard, self._need = Phase.FOLLOWING, self._desk.now, ""
            self.progress = Progress()
        elif outcome is Outcome.READ and not self._is_voter(self.value.voters):
            # Its seat was given to another node while it was away: it has read that, and leaves the run alone.
            self.proposer.release()
            self.phase, self._heard = Phase.FOLLOWING, self._desk.now
        elif outcome is Outcome.READ:
            self._desk.observe(CoordinationBegan(self.run, self.proposer.ballot))
            self.replacing.began(self.value)
            self.next_life.forget_silence()
            self._before = self.value
            self._act_on_value()
        elif outcome is Outcome.WRITTEN:
            self.replacing.written(self.value)
            self.committing.changing.written(self._before, self.value)
            self._before = self.value
            if self._is_voter((*self.value.voters, *self.value.outgoing)):
                self._act_on_written()
            else:  # it has given its seat away: hosts take nothing from it any more
                self.proposer.release()
                self.committing.changing.forget()
                self.phase, self._heard, self._need, self.progress = Phase.FOLLOWING, self._desk.now, "", Progress()

    # ---- time

    def on_tick(self) -> None:
        """Repeat what was not answered, and look at what is late. Where a run is over and all know it, it is silent."""
        if self._is_over and (self.phase is Phase.FOLLOWING or self.replacing.all_heard_since(self._over_since)):
            return
        self._beat()
        if self.phase is Phase.FOLLOWING:
            self._watch_leader()
            return
        self.proposer.repeat()
        self._lead()
        self._look_for_voters()
        if self.phase is Phase.READING:
            if self._desk.now - self._heard > 4 * self._desk.config.silence_ns:
                self.proposer.release()
                self._take_over()
            return
        self.replacing.on_tick(
            self.proposer, is_free=self.phase is Phase.RUNNING and not self._need and not self.committing.has_request
        )
        if self.proposer.phase is not Hold.LEADING:
            return
        if self.phase is Phase.RESETTING:
            self._tick_resetting()
        elif self.phase is Phase.WAITING and self._desk.now >= self._room_at:
            self._try_again()
        elif self.phase is Phase.RUNNING:
            self._tick_running()
        elif self.phase is Phase.CLOSING:
            self.committing.tell(self.value)
            if not self._is_over and self.committing.all_told(self.value):
                self._is_over, self._over_since = True, self._desk.now

    def _watch_leader(self) -> None:
        """Take over from a coordinator of whom nothing has been heard for too long."""
        known = self._known()
        if (
            known is None
            or self._is_over
            or self.eras.is_left(known)
            or not self._is_voter((*known.voters, *known.outgoing))
        ):
            return
        if self._desk.now - self._heard > self._patience(known):
            self._take_over()

    def _patience(self, known: Value) -> int:
        """How long to hear nothing before this voter prepares: the nearest to the key that lives goes first.

        From a coordinator that is known to be dead, or to have given its seat away, nothing more is to be heard.
        """
        living = [voter for voter in known.voters if voter.peer.node not in self._desk.lost]
        leader = self.leader
        is_gone = leader is not None and (leader.node in self._desk.lost or not known.may_be_told_by(leader.node))
        silence = 0 if is_gone else self._desk.config.silence_ns
        return silence + self._desk.config.silence_ns * rank(living, self.run, self._desk.me.node) // 2

    def _lead(self) -> None:
        """Tell the other voters that somebody coordinates."""
        if self.proposer.phase in (Hold.LEADING, Hold.WRITING):
            leading = wire.Leading(self.run, self.proposer.ballot, self._is_over, self.value.order)
            for voter in (*self.value.voters, *self.value.outgoing):
                if voter.peer.node != self._desk.me.node:
                    self._desk.send(voter.peer, leading)
            self.replacing.heard(self._desk.me, self._seat.seat)
            self.eras.tell_returned(leading)

    def on_following(self, sender: Peer, message: wire.Following) -> None:
        """A voter has heard that this one coordinates, or one that the run was made to go on without has."""
        self.eras.has_heard(sender)
        self.replacing.heard(sender, message.seat)

    def _look_for_voters(self) -> None:
        """Without a majority of its voters nothing of a run counts: say so, and who is missing."""
        now, limit = self._desk.now, 2 * self._desk.config.silence_ns
        if self.proposer.phase in (Hold.LEADING, Hold.WRITING):
            missing = self.replacing.missing(self.value, Instant(now - limit))
        else:
            missing = self.proposer.silent() if now - self._heard > limit else ()
        if missing and self.phase is not Phase.CLOSING:
            self.progress.enter("waiting", now, "the voters of its register that answer are no majority")
            self.progress.waits_for = missing
        elif self.lacks_voters and self.phase is Phase.RUNNING:
            self.progress.enter("replay", now)
        self.lacks_voters = bool(missing)

    def _is_voter(self, voters: tuple[Voter, ...]) -> bool:
        chair = (self._desk.me.node, self._seat.seat)
        return any(voter.chair == chair for voter in voters)

    def _tick_resetting(self) -> None:
        lost = [node for node in self.value.plan.hosts if not self._desk.can_reach(node) and node not in self._answered]
        if lost:
            self._begin_life("a host was lost while a life was entered", "lost")
        elif self._desk.now >= self._deadline:
            for node in self.value.plan.hosts:
                if node not in self._answered and node not in self._refused:
                    self.next_life.was_silent(node)
            self._begin_life("hosts did not enter the life in time", "late")
        else:
            self._send_resets()

    def _tick_running(self) -> None:
        lost = [node for node in self.value.plan.hosts if not self._desk.can_reach(node)]
        if self._need or lost:
            self._begin_life(self._need or "a host was lost", "lost" if lost else "broken")
            return
        self.committing.tell(self.value)
        need = self.committing.on_tick(self.value, self.proposer.ballot)
        if need:
            self._begin_life(need)
            return
        self._commit()
        self._note()

    def _note(self) -> None:
        """What became of a change, or that one is under way, is in the register before anything depends on it."""
        noted = self.committing.changing.noted(self.value)
        if noted != self.value and self.proposer.phase is Hold.LEADING:
            self.proposer.write(noted)

    # ---- what the register says

    def _act_on_value(self) -> None:
        self.committing.enter(self.value)
        if self.value.state is not State.RUNNING:
            self._close()
        elif self.value.life == 0:
            self._begin_life("first life", "first")
        elif self.value.is_regained:
            self._begin_life(self.value.reason or "the majority of its voters was lost", "regained")
        else:
            self._reset(self._desk.config.gather_ns)

    def _act_on_written(self) -> None:
        """The register has what was wanted. Whatever it says now, it says to everybody."""
        value = self.value
        if value.state is not State.RUNNING:
            self._close()
        elif value.life != self.committing.life:
            self.next_life.pace.began(self._desk.now)
            self.progress.attempt += 1
            self._reset()
        elif self.committing.written(value):
            self.progress.committed_at, self.progress.epoch_ns = self._desk.now, self.committing.took_ns
            self.progress.pause_ns = self.committing.pause_ns
            self.next_life.pace.gets_on()
            self._has_recovered()
            self.committing.tell(value)

    def _has_recovered(self) -> None:
        """An epoch of this life is committed: nothing that was lost is left to be done."""
        reason = self.progress.reason
        took = self.progress.end(self._desk.now)
        if took:
            self._desk.observe(Recovered(self.run, self.value.life, reason, took))

    def _close(self) -> None:
        self.phase = Phase.CLOSING
        self._has_recovered()
        self.committing.enter(self.value)
        self.committing.tell(self.value)

    def tell_again(self, to: Peer) -> None:
        """The end of the run, to a host that said that it knows: it may have been restarted since."""
        if self.phase is Phase.CLOSING:
            self._desk.send(to, wire.Committed(self.run, self.value.life, self.value))

    # ---- entering a life

    def _reset(self, patience_ns: int = 0) -> None:
        self.phase = Phase.RESETTING
        self._need = ""
        self._answered, self._refused = {}, {}
        self.next_life.is_tried()
        self.progress.hosts = {}
        self.progress.enter("restore", self._desk.now)
        self._deadline = self._desk.now + (patience_ns or self._desk.config.reset_timeout_ns)
        self.committing.enter(self.value)
        self._send_resets()

    def _send_resets(self) -> None:
        """RESET to all hosts; parts of sinks that have moved on must hear of it, too, but nobody waits for them."""
        message = wire.Reset(self.run, self.proposer.ballot, self.value)
        for node, peer in (self._relieved | self.value.nodes).items():
            if node not in self._answered and node not in self._refused:
                self._desk.send(peer, message)

    def on_reset_ok(self, sender: Peer, message: wire.ResetOk) -> None:
        """A host is in the life."""
        if self.proposer.value is None or message.life != self.value.life:
            return
        self.committing.heard(sender, message)
        if self.phase is Phase.RESETTING:
            self._answered[sender.node] = None
            self._refused.pop(sender.node, None)
            self._look_at_answers()

    def on_reset_refused(self, sender: Peer, message: wire.ResetRefused) -> None:
        """A host cannot enter the life, or has entered a later one."""
        if self.proposer.phase is not Hold.LEADING:
            return
        if self.phase is not Phase.RESETTING and not (self.phase is Phase.WAITING and message.lacks):
            return
        if sender.node not in self._relieved and sender.node not in self.value.nodes:
            self._desk.observe(MessageIgnored(sender.node, "host"))
        elif (first := first_ballot_of(message.life)).era > self.value.era:
            if self.eras.is_proven(sender, first, message.order):
                self._let_go(sender, first, message.order)
        elif message.life > self.value.life:
            # Somebody has begun a later life: the register knows more than this coordinator.
            self.proposer.release()
            self._take_over()
        elif message.life == self.value.life and (planned := self.value.plan.hosts.get(sender.node)) is not None:
            self._refused[sender.node] = None
            if message.lacks:
                self.next_life.lacks(sender.node, message.lacks, message.reason)
            elif planned.incarnation == sender.incarnation:
                self.next_life.could_not(sender.node, message.reason)
            self._look_at_answers()

    def on_entering(self, sender: Peer, message: wire.Entering) -> None:
        """A host is on its way into the life: who gets farther has more time."""
        is_asked = self.phase is Phase.RESETTING and sender.node in self.value.plan.hosts
        if is_asked and message.life == self.value.life and self.progress.heard(sender.node, message):
            self._deadline = self._desk.now + self._desk.config.reset_timeout_ns
            if self.progress.phase != self.progress.resetting():
                self.progress.enter(self.progress.resetting(), self._desk.now)

    def _look_at_answers(self) -> None:
        hosts, refusal = self.value.plan.hosts, self.next_life.refusal
        if self.next_life.lacking:  # the others wait for who lacks it
            self._wait_for(self.next_life.holders, refusal, self._desk.config.state_patience_ns)
            self.progress.reason = refusal  # rather than what the recovery began with: here somebody can do something
        elif all(node in self._answered or node in self._refused for node in hosts):
            if any(node in self._refused for node in hosts):
                self._begin_life(refusal or "a host was ended and came back", "broken" if refusal else "restarted")
            else:
                self._start()

    def _wait_for(self, missing: tuple[NodeId, ...], reason: str, span_ns: int) -> None:
        """The life stays, until somebody is back or this time is over."""
        if missing != self.progress.waits_for:
            peers = tuple(self._desk.peer(Peer(node)) for node in missing)
            self._desk.observe(RunWaits(self.run, self.value.life, peers, reason))
        self.progress.enter("waiting", self._desk.now, reason)
        self.progress.waits_for = missing
        self.phase, self._room_at = Phase.WAITING, self._desk.now + span_ns

    def _try_again(self) -> None:
        """Something may have changed for a run that waits."""
        if self.next_life.looks_again():
            self._begin_life(self.next_life.refusal or "its state may be there again")
        else:
            self._reset()

    def _start(self) -> None:
        self.phase = Phase.RUNNING
        self.next_life.has_begun()
        self.progress.enter("replay", self._desk.now)
        for peer in self.value.plan.hosts.values():
            self._desk.send(peer, wire.Start(self.run, self.value.life))
        self.committing.started(self.value)

    def _begin_life(self, reason: str, kind: str = "broken") -> None:
        """Make a plan for the next life and write it; nobody acts on it before the register has it."""
        desk, value, pace = self._desk, self.value, self.next_life.pace
        if value.life and self.progress.phase != "waiting":
            self.progress.enter("plan", desk.now, reason)
        if self.proposer.phase is not Hold.LEADING or desk.now < pace.due(desk.now):
            self._need = self._need or reason
            self.phase = Phase.RUNNING if self.phase is Phase.READING else self.phase
            return
        value = self.committing.changing.in_next_life(value, reason)
        if pace.is_spent(desk.now):
            self._fail(value, f"{reason[:300]}; {pace.spent_text()}")
            return
        decision = self.next_life.decide(value)
        if decision.ends:
            self._fail(value, decision.ends)
        elif decision.value is None:
            self._wait_for(decision.missing, reason, desk.config.room_retry_ns)
        else:
            self._need = ""
            text = "; ".join(part for part in (reason, decision.note) if part)
            desk.observe(LifeBegan(self.run, decision.value.life, kind, text))
            self.proposer.write(decision.value)

    def _fail(self, value: Value, reason: str) -> None:
        self.proposer.write(msgspec.structs.replace(value, state=State.FAILED, reason=reason[:400], outgoing=()))

    # ---- what hosts say

    def is_voter(self, node: NodeId) -> bool:
        """Whether it was asked for its vote, or the run was made to go on without it."""
        return self.proposer.has_asked(node) or (self.proposer.value is not None and node in self.value.left)

    def is_host(self, node: NodeId) -> bool:
        """Whether it has anything to say of this run."""
        return node in self.value.nodes or node in self._relieved or self.committing.concerns(node)

    def on_prepared(self, sender: Peer, message: wire.Prepared) -> None:
        """A party's part of an epoch is safe."""
        if self.phase is Phase.RUNNING and self.committing.prepared(sender, message):
            self._commit()

    def on_synced(self, sender: Peer, message: wire.Synced) -> None:
        """A host's logs are on its disk."""
        if self.phase is Phase.RUNNING and self.committing.synced(sender, message):
            self._commit()

    def _commit(self) -> None:
        """The one place where an epoch is committed: the register is still in this life, below this epoch, and this is its
        holder."""
        if self.proposer.phase is Hold.LEADING:
            value = self.committing.next_value(self.value)
            if value is not None:
                self.proposer.write(value)

    def on_need_life(self, sender: Peer, message: wire.NeedLife) -> None:
        """A host says that this life cannot go on."""
        if self.phase is Phase.RUNNING and message.life == self.value.life and sender.node in self.value.nodes:
            self._need = message.reason or "a host asks for it"
            self._begin_life(self._need)

    def on_remade(self, sender: Peer, message: wire.Remade) -> None:
        """Fragments of what a host saved have other holders: the register names them, which the host is told when it does."""
        value = self.value if self.proposer.value is not None else None
        if value is None or self.phase is not Phase.RUNNING or message.life != value.life:
            return
        mine = {each.party: None for each in value.plan.at(sender.node)}
        after = value.with_holders(one for one in message.made if one.party in mine)
        if after == value:
            self._desk.send(sender, wire.Committed(self.run, value.life, value))
        elif self.proposer.phase is Hold.LEADING:  # else it is said again
            self.proposer.write(after)

    def on_host_lost(self, node: NodeId) -> None:
        """Nobody waits for a host that is dead, whether it leads, the run flows or a life is being entered."""
        if self.phase is Phase.FOLLOWING and self.leader is not None and self.leader.node == node:
            self._watch_leader()
        if not self.leads or self.proposer.phase is not Hold.LEADING or node not in self.value.plan.hosts:
            return
        if self.phase is Phase.RUNNING:
            self._tick_running()
        elif self.phase is Phase.RESETTING and node not in self._answered:
            self._begin_life("a host was lost while a life was entered", "lost")

    def on_host_back(self, peer: Peer) -> None:
        """Somebody can be reached again."""
        if self.leads and self.proposer.value is not None:
            self.eras.is_back(peer, self.value)
        self.next_life.somebody_is_back()
        if self.phase is Phase.WAITING and self.proposer.phase is Hold.LEADING:
            self._try_again()

    def on_change(self, plan: Plan) -> str:
        """Stages are to take new terms. Returns why not; empty: it is under way."""
        if self.replacing.is_leaving or self.phase is not Phase.RUNNING or self.proposer.phase is Hold.IDLE:
            return self._why_not_now()
        if self.committing.is_held:
            return "the application is being stopped"
        why = self.committing.changing.want(self.value, plan)
        self._tick_running()
        return why

    def on_term_ready(self, sender: Peer, message: wire.TermReady) -> None:
        """A host is ready for a change, or can't be."""
        self.committing.changing.on_ready(sender, message)
        self._hasten()

    def on_committed_ok(self, sender: Peer, message: wire.CommittedOk) -> None:
        """What an epoch says is carried out there."""
        self.committing.on_committed_ok(sender, message)
        self._hasten()

    def _hasten(self) -> None:
        """A change that waits for nobody any more does not wait for a tick: what comes until then is what stands still."""
        leads = self.phase is Phase.RUNNING and self.proposer.phase is Hold.LEADING
        if leads and self.committing.carries_next(self.value):
            self._tick_running()

    def on_relief(self, host: Peer) -> str:
        """A host wants to run nothing of it any more: the next life is without it. Returns why not; empty: so it is."""
        if not self.value.plan.at(host.node):
            if self.is_at_work and self.proposer.phase is Hold.LEADING:  # it may not have heard of the life without it
                self._desk.send(host, wire.Reset(self.run, self.proposer.ballot, self.value))
            return ""
        if self.phase is not Phase.RUNNING or self.proposer.phase is not Hold.LEADING or self._need:
            return "the application is being brought back" if self.is_at_work else "another node coordinates it"
        if self.committing.is_held:
            return "the application is being stopped"
        if not any(
            peer.node != host.node and self._desk.can_reach(peer.node) for peer in (self._desk.me, *self._desk.room)
        ):
            return "there is no other node"
        self._relieved[host.node] = host
        self.next_life.leaves(host.node)
        self._begin_life(f"{host.name or host.node.short} is drained", "drained")
        return ""

    def on_seat_relief(self, host: Peer) -> tuple[str, bool]:
        """A voter is about to leave. Why nobody takes its seat, and whether somebody has it, and the register says so."""
        value = self.value
        if all(voter.peer.node != host.node for voter in (*value.voters, *value.outgoing)):
            return "", True
        return self.replacing.wants_to_go(host.node, value), False

    # ---- ending with the state kept

    def _why_not_now(self) -> str:
        is_mine = self.is_at_work and not self.replacing.is_leaving
        return "the application is being brought back" if is_mine else "another node coordinates it"

    def on_hold(self) -> str:
        """Nothing more is to be read behind the next epoch. Returns why not; empty: it is under way, see `committing.held`."""
        if self.replacing.is_leaving or self.phase is not Phase.RUNNING or self.proposer.phase is Hold.IDLE:
            return self._why_not_now()
        if not self.committing.is_held and self.committing.changing.plan.changes:
            return "a change of it is under way"
        self.committing.hold()
        return ""

    def on_end_held(self, at: Snapshot, reason: str) -> str:
        """Write that the run has ended at the epoch behind which nothing was read. Returns why not; empty: it is being written."""
        if self.phase is not Phase.RUNNING or self.proposer.phase is not Hold.LEADING or self._need:
            return "the application is being brought back" if self.is_at_work else "another node coordinates it"
        if self.committing.held != at or self.value.committed != at:
            return "it has gone on meanwhile"
        finished = msgspec.structs.replace(self.value, state=State.FINISHED, reason=reason[:400], outgoing=())
        self.proposer.write(finished)
        return ""

    def on_release(self, reason: str) -> None:
        """It was held, and is to go on: sources read on from the committed epoch, in the next life."""
        if self.phase is Phase.RUNNING and self.committing.is_held:
            self._need = reason
            self._begin_life(reason)

    def violations(self) -> list[str]:
        """What must never be so."""
        found = []
        if self.phase in (Phase.RUNNING, Phase.RESETTING) and self.committing.life > self.value.life:
            found.append(
                f"{self.run.app}: coordinates life {self.committing.life} above the register's {self.value.life}"
            )
        if self.phase is Phase.FOLLOWING and self.proposer.phase is not Hold.IDLE:
            found.append(f"{self.run.app}: follows and holds a ballot")
        return found
