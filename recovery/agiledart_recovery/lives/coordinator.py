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
from agiledart_recovery.lives.pace import Pace
from agiledart_recovery.lives.progress import Progress
from agiledart_recovery.lives.replacing import Replacing
from agiledart_recovery.lives.replan import next_plan
from agiledart_recovery.register.ballots import rank
from agiledart_recovery.register.proposer import Outcome, Proposer
from agiledart_recovery.register.proposer import Phase as Hold
from agiledart_recovery.register.voter import VoterSeat
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Voter
from agiledart_recovery.wire.observations import CoordinationBegan, CoordinationLost, LifeBegan, Recovered, RunWaits
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
    """

    def __init__(self, desk: Desk, seat: VoterSeat) -> None:
        self._desk, self._seat, self.run = desk, seat, seat.run
        self.phase = Phase.FOLLOWING
        self.proposer = Proposer(desk, seat.run)
        self.proposer.highest = seat.promised
        self.committing = Committing(desk, seat.run)
        self.replacing = Replacing(desk, seat.run)
        self._pace = Pace(desk.config)
        self._heard = desk.now
        self._founding: Value | None = None
        self._need = self._refusal = ""
        self._deadline = self._room_at = 0
        self._answered: dict[NodeId, None] = {}
        self._refused: dict[NodeId, None] = {}
        self._silent: dict[NodeId, None] = {}
        self._unfit: dict[NodeId, Instant] = {}
        self.progress = Progress()
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
    def leads(self) -> bool:
        """Whether it believes that it holds the highest ballot."""
        return self.phase is not Phase.FOLLOWING

    @property
    def is_over(self) -> bool:
        """Whether the run has ended and everybody whom it concerns knows."""
        return self._is_over

    def found(self, value: Value) -> None:
        """A run is to be: write its first value, if nobody has written one."""
        self._founding = value
        if self.phase is Phase.FOLLOWING:
            self._take_over()

    def _beat(self) -> None:
        self._desk.set_timer((self.run, "tick"), self._desk.config.tick_ns)

    def _known(self) -> Value | None:
        """Whom to ask: what was acknowledged, or what this node's own seat accepted, whichever may be newer."""
        newer = self.proposer.value if self.proposer.stamp > self._seat.accepted else self._seat.value
        return newer or self._founding

    def _take_over(self) -> None:
        known = self._known()
        self._heard = self._desk.now
        if known is not None:
            self.proposer.highest = max(self.proposer.highest, self._seat.promised)
            self.phase = Phase.READING
            self.proposer.begin(known)

    def on_leading(self, sender: Peer, message: wire.Leading) -> None:
        """Another voter says that it coordinates."""
        if message.ballot < self._seat.promised and message.ballot < self.proposer.highest:
            return
        self._heard, self._is_over = self._desk.now, message.is_over
        self.outcome(self.proposer.saw(message.ballot))
        self._desk.send(sender, wire.Following(self.run, message.ballot, self._seat.seat))

    def outcome(self, outcome: Outcome | None) -> None:
        """Something became of what the proposer asked."""
        if outcome is Outcome.OVERTAKEN:
            self._desk.observe(CoordinationLost(self.run, self.proposer.ballot))
            self.phase, self._heard, self._need = Phase.FOLLOWING, self._desk.now, ""
            self.progress = Progress()
        elif outcome is Outcome.READ and not self._is_voter(self.value.voters):
            # Its seat was given to another node while it was away: it has read that, and leaves the run alone.
            self.proposer.release()
            self.phase, self._heard = Phase.FOLLOWING, self._desk.now
        elif outcome is Outcome.READ:
            self._desk.observe(CoordinationBegan(self.run, self.proposer.ballot))
            self.replacing.began(self.value)
            self._silent = {}
            self._act_on_value()
        elif outcome is Outcome.WRITTEN:
            self.replacing.written(self.value)
            self._act_on_written()

    # ---- time

    def on_tick(self) -> None:
        """Repeat what was not answered, and look at what is late. Where a run is over and all know it, it is silent."""
        if self._is_over and (self.phase is Phase.FOLLOWING or self.replacing.all_heard_since(self._over_since)):
            return
        self._beat()
        if self.phase is Phase.FOLLOWING:
            known = self._known()
            if known is None or self._is_over:
                return
            config = self._desk.config
            place = rank(known.voters, self.run, self._desk.me.node)
            if self._desk.now - self._heard > config.silence_ns * (2 + place) // 2 and self._is_voter(
                (*known.voters, *known.outgoing)
            ):
                self._take_over()
            return
        self.proposer.repeat()
        self._lead()
        if self.phase is Phase.READING:
            if self._desk.now - self._heard > 4 * self._desk.config.silence_ns:
                self.proposer.release()
                self._take_over()
            return
        self.replacing.on_tick(self.proposer)
        if self.proposer.phase is not Hold.LEADING:
            return
        if self.phase is Phase.RESETTING:
            self._tick_resetting()
        elif self.phase is Phase.WAITING and self._desk.now >= self._room_at:
            self._silent = {}
            self._reset()
        elif self.phase is Phase.RUNNING:
            self._tick_running()
        elif self.phase is Phase.CLOSING:
            self.committing.tell(self.value)
            if not self._is_over and self.committing.all_told(self.value):
                self._is_over, self._over_since = True, self._desk.now

    def _lead(self) -> None:
        """Tell the other voters that somebody coordinates."""
        if self.proposer.phase in (Hold.LEADING, Hold.WRITING):
            for voter in (*self.value.voters, *self.value.outgoing):
                if voter.peer.node != self._desk.me.node:
                    self._desk.send(voter.peer, wire.Leading(self.run, self.proposer.ballot, self._is_over))
            self.replacing.heard(self._desk.me, self._seat.seat)

    def _is_voter(self, voters: tuple[Voter, ...]) -> bool:
        chair = (self._desk.me.node, self._seat.seat)
        return any(voter.chair == chair for voter in voters)

    def _tick_resetting(self) -> None:
        lost = [node for node in self.value.plan.hosts if not self._desk.can_reach(node) and node not in self._answered]
        if lost:
            self._begin_life("a host was lost while a life was entered")
        elif self._desk.now >= self._deadline:
            for node in self.value.plan.hosts:
                if node not in self._answered and node not in self._refused:
                    self._silent[node] = None
            self._begin_life("hosts did not enter the life in time")
        else:
            self._send_resets()

    def _tick_running(self) -> None:
        lost = [node for node in self.value.plan.hosts if not self._desk.can_reach(node)]
        if self._need or lost:
            self._begin_life(self._need or "a host was lost")
            return
        self.committing.tell(self.value)
        need = self.committing.on_tick(self.value, self.proposer.ballot)
        if need:
            self._begin_life(need)
        else:
            self._commit()

    # ---- what the register says

    def _act_on_value(self) -> None:
        self.committing.enter(self.value)
        if self.value.state is not State.RUNNING:
            self._close()
        elif self.value.life == 0:
            self._begin_life("first life")
        else:
            self._reset(self._desk.config.gather_ns)

    def _act_on_written(self) -> None:
        """The register has what was wanted. Whatever it says now, it says to everybody."""
        value = self.value
        if value.state is not State.RUNNING:
            self._close()
        elif value.life != self.committing.life:
            self._pace.began(self._desk.now)
            self.progress.attempt += 1
            self._reset()
        elif self.committing.written(value):
            self.progress.committed_at, self.progress.epoch_ns = self._desk.now, self.committing.took_ns
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

    # ---- entering a life

    def _reset(self, patience_ns: int = 0) -> None:
        self.phase = Phase.RESETTING
        self._need = ""
        self._answered, self._refused = {}, {}
        self.progress.hosts = {}
        self.progress.enter("restore", self._desk.now)
        self._deadline = self._desk.now + (patience_ns or self._desk.config.reset_timeout_ns)
        self.committing.enter(self.value)
        self._send_resets()

    def _send_resets(self) -> None:
        """RESET to all hosts; parts of sinks that have moved on must hear of it, too, but nobody waits for them."""
        message = wire.Reset(self.run, self.proposer.ballot, self.value)
        for node, peer in self.value.nodes.items():
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
        if self.phase is not Phase.RESETTING or self.proposer.phase is not Hold.LEADING:
            return
        if message.life > self.value.life:
            # Somebody has begun a later life: the register knows more than this coordinator.
            self.proposer.release()
            self._take_over()
        elif message.life == self.value.life and (planned := self.value.plan.hosts.get(sender.node)) is not None:
            self._refused[sender.node] = None
            if planned.incarnation == sender.incarnation:
                # It was not ended since: it cannot. Somebody else may take what is not bound to it.
                self._unfit[sender.node] = self._desk.now
                self._refusal = message.reason
            self._look_at_answers()

    def on_entering(self, sender: Peer, message: wire.Entering) -> None:
        """A host is on its way into the life: who gets farther has more time."""
        is_asked = self.phase is Phase.RESETTING and sender.node in self.value.plan.hosts
        if is_asked and message.life == self.value.life and self.progress.heard(sender.node, message):
            self._deadline = self._desk.now + self._desk.config.reset_timeout_ns
            if self.progress.phase != self.progress.resetting():
                self.progress.enter(self.progress.resetting(), self._desk.now)

    def _look_at_answers(self) -> None:
        hosts = self.value.plan.hosts
        if all(node in self._answered or node in self._refused for node in hosts):
            if any(node in self._refused for node in hosts):
                self._begin_life(self._refusal or "a host was ended and came back")
            else:
                self._start()

    def _start(self) -> None:
        self.phase, self._unfit, self._refusal = Phase.RUNNING, {}, ""
        self.progress.enter("replay", self._desk.now)
        for peer in self.value.plan.hosts.values():
            self._desk.send(peer, wire.Start(self.run, self.value.life))
        self.committing.started(self.value)

    def _begin_life(self, reason: str) -> None:
        """Make a plan for the next life and write it; nobody acts on it before the register has it."""
        desk, value = self._desk, self.value
        if value.life and self.progress.phase != "waiting":
            self.progress.enter("plan", desk.now, reason)
        if self.proposer.phase is not Hold.LEADING or desk.now < self._pace.due(desk.now):
            self._need = self._need or reason
            self.phase = Phase.RUNNING if self.phase is Phase.READING else self.phase
            return
        if self._pace.is_spent(desk.now):
            self.proposer.write(msgspec.structs.replace(value, state=State.FAILED, reason=reason[:400], outgoing=()))
            return

        plan, missing = next_plan(
            value,
            lambda node: desk.can_reach(node) and node not in self._silent,
            (*desk.room, desk.me),
            desk.peer,
            tuple(node for node, at in self._unfit.items() if desk.now - at < 2 * desk.config.state_patience_ns),
        )
        if plan is None:
            if missing != self.progress.waits_for:
                desk.observe(RunWaits(self.run, value.life, tuple(desk.peer(Peer(node)) for node in missing)))
            self.progress.enter("waiting", desk.now, reason)
            self.progress.waits_for = missing
            self.phase, self._room_at = Phase.WAITING, desk.now + desk.config.room_retry_ns
            return
        desk.observe(LifeBegan(self.run, value.life + 1, reason))
        self._need = ""
        self.proposer.write(msgspec.structs.replace(value, life=value.life + 1, plan=plan, outgoing=()))

    # ---- what hosts say

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

    def on_host_lost(self, node: NodeId) -> None:
        """Nobody waits for a host that is dead, whether the run flows or a life is being entered."""
        if not self.leads or self.proposer.phase is not Hold.LEADING or node not in self.value.plan.hosts:
            return
        if self.phase is Phase.RUNNING:
            self._tick_running()
        elif self.phase is Phase.RESETTING and node not in self._answered:
            self._begin_life("a host was lost while a life was entered")

    def on_host_back(self) -> None:
        """Somebody can be reached again."""
        self._unfit = {}
        if self.phase is Phase.WAITING and self.proposer.phase is Hold.LEADING:
            self._silent = {}
            self._reset()

    def on_change(self, plan: Plan) -> None:
        """Instances are to move."""
        if self.phase is Phase.RUNNING:
            self.committing.want(self.value, plan)

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
