"""`Recovering`: the recovery machine inside a node.

Its events come from the ring, from executors and from the disk; its effects become files, orders to executors, and new lives of
what is hosted here.

| who says | what it becomes |
|---|---|
| the overlay: a peer is gone, or known | `HostLost`, `HostBack` |
| an executor: saved, crashed | `PartySnapped`, `PartyPrepared`, `LifeBroken` |
| the disk, at the start | `Booted` |
| the machine: `EnterLife` | `fetching` of state, `lending` of code, `bring_back`; nothing for the first life, deployed in waves |
| the machine: fragments | `fetching` brings them out and back, `shelving` judges those of others |
| the machine: an epoch | `PassBarrier`, `CountEpoch`, `KeepElements` |
| the register: the end | `RunClosed` to the node that writes the application's record |
"""

from collections.abc import Callable, Hashable, Sequence

import msgspec

from agiledart_dataflow.plan.deployment import DeploymentPart, PlacedInstance
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import MILLISECOND, SECOND, Duration, Instant
from agiledart_kernel.limits import MAX_RECORD_BYTES
from agiledart_kernel.machine import Completed, Effect, Event, Failed, Received, Send, SetTimer, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.desk.desk import Desk
from agiledart_node.hosting.hosted import Hosted, Key
from agiledart_node.hosting.hosting import Hosting
from agiledart_node.records.records import Records
from agiledart_node.recovering.bringing_back import HostedRun
from agiledart_node.recovering.ending import Ending
from agiledart_node.recovering.entering import Entering
from agiledart_node.recovering.fetching import Fetching
from agiledart_node.recovering.founding import (
    Brought,
    found_register,
    party_of,
    plan_of,
    run_key,
    voters_among,
)
from agiledart_node.recovering.lending import lent
from agiledart_node.recovering.noting_lives import NotingLives
from agiledart_node.recovering.settling import Settling
from agiledart_node.recovering.shelving import Shelving
from agiledart_node.recovering.standing import (
    Rows,
    as_plain,
    changes_in,
    changes_of,
    island,
    safe_on_an_island,
    saved_elements,
    standing,
)
from agiledart_node.recovering.taking_terms import TakingTerms, barrier_of
from agiledart_node.recovering.tidying import Tidying
from agiledart_node.wire.change_bodies import ChangeRow
from agiledart_node.wire.effects import (
    CommitLogs,
    CountEpoch,
    ForgetPart,
    ForgetRun,
    KeepElements,
    KeepFile,
    SyncSourceLogs,
)
from agiledart_node.wire.events import InstanceFailed, InstancePrepared, RunsFound
from agiledart_node.wire.formation_messages import Acknowledged
from agiledart_node.wire.fragment_effects import DropFragments, FragmentOffered, FragmentStored
from agiledart_node.wire.recovery_messages import (
    AskPart,
    AskRecovery,
    FoundRegister,
    Listening,
    MakeVoter,
    RecoveryIs,
    TermListening,
    VoterMade,
)
from agiledart_recovery.desk import IsOrdered, as_told
from agiledart_recovery.limits import SEAL_BYTES
from agiledart_recovery.machine import RecoveryMachine
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire import events
from agiledart_recovery.wire.messages import AskSeat, RunMessage
from agiledart_recovery.wire.names import Run, Snapshot, TermGap
from agiledart_recovery.wire.value import Element, Plan, Role, Saved, State, Value

CONSEQUENCE_NS = Duration(1_600 * MILLISECOND)
"""For a broken link to be explained by a dead host: a little more than the overlay needs to declare one dead whose links broke."""

_PART: Codec[DeploymentPart] = Codec(DeploymentPart)
_VALUE: Codec[Value] = Codec(Value, limit=MAX_RECORD_BYTES)
_VOTER: Codec[asked.VoterFile] = Codec(asked.VoterFile, limit=MAX_RECORD_BYTES)
_LIFE: Codec[asked.LifeFile] = Codec(asked.LifeFile)


class Recovering:
    """What this node has to do with runs that survive their hosts.

    Attributes:
        closed: told of a run that has ended in its register: (hosted, state, reason).
        noting: what records say of lives.
        ending: tells and hears of ends.
        scaling_of: what the controller of a run says of its stages.
        lying: runs of which something lay on the disk at the start, if only what could not be read.

    Args:
        secret: drawn by the driver; keys of runs that are founded here come from it.
        is_ordered: judges an admin's order to go on without voters that are lost.
    """

    def __init__(
        self,
        desk: Desk,
        records: Records,
        hosting: Hosting,
        random: RandomStream,
        secret: bytes = b"",
        is_ordered: IsOrdered = as_told,
    ) -> None:
        self._desk, self._records, self._hosting, self._secret = desk, records, hosting, secret
        self.machine = RecoveryMachine(desk.me, desk.config.recovery, random, desk.observe, is_ordered)
        self._shelving = Shelving(desk, records, self.machine)
        self._fetching = Fetching(desk, self.machine, self.step, self.flush)
        self._tidying = Tidying(desk, records, hosting, self)
        self._watched: dict[Run, tuple[Peer, ...]] = {}
        self.runs: dict[Key, HostedRun] = {}
        self._settling = Settling(
            desk, records, hosting, self.runs, lambda key, part: self.keep(key, "part", encode(part))
        )
        self._entering = entering = Entering(desk, hosting, self, self._fetching, self._settling)
        about = (entering.known_run, entering.have_of, self._tell_term_progress, entering.check_more_room)
        self._terms = TakingTerms(desk, self.step, *about, self._settling)
        self.noting = NotingLives(desk, records, self)
        self.ending = Ending(desk, hosting, self)
        self.closed: Callable[[Hosted, str, str], None] = lambda hosted, state, reason: None
        self.scaling_of: Callable[[Run], tuple[dict[str, object], ...]] = lambda run: ()
        self._known: dict[NodeId, int] = {}
        self.lying: dict[Key, None] = {}
        hosting.on_part = self._take_part

    # ---- founding

    async def found(
        self,
        part: DeploymentPart,
        places: dict[tuple[int, int], Peer],
        guards: tuple[Peer, ...],
        brought: Brought | None = None,
    ) -> None:
        """Give a run that was deployed its register; it enters its first life then. Raises CommandRefused.

        Args:
            brought: the checkpoint that it begins with.
        """
        run = Run(part.application, part.version)
        plan = plan_of(part.plan, places)
        key = run_key(self._secret, run, part.number)
        await found_register(self._desk, run, plan, voters_among(part.plan, places, guards), key, brought)

    def make_voter(self, sender: Peer, message: MakeVoter) -> None:
        """A scheduler wants a seat here."""
        run = Run(message.application, message.version)
        self.step(events.MakeSeat(run))
        seat = self.machine.seats.get(run)
        if seat is not None:
            seat.keep(lambda: self._desk.send(sender, VoterMade(message.request, seat.seat)))
            self.flush()

    def found_register(self, sender: Peer, message: FoundRegister) -> None:
        """The seats are made: this node writes the first value."""
        try:
            value = _VALUE.decode(message.value)
        except RemoteProtocolError:
            self._desk.drop("register form")
            return
        known = value.run in self.machine.seats and not value.faults()
        if known:
            self.step(events.FoundRun(value))
        self._desk.send(sender, Acknowledged(message.request, "" if known else "no seat of this run is here"))

    def _take_part(self, hosted: Hosted, part: DeploymentPart) -> None:
        """Instances were given to this node: remember them with the code, on the disk too."""
        if not part.by_epoch or not part.instances:
            return
        run = self.runs.get(hosted.key)
        earlier: tuple[PlacedInstance, ...] = ()
        if run is not None and run.part.life == part.life:
            earlier = tuple(one for one in run.part.instances if one not in part.instances)
        whole = msgspec.structs.replace(part, bundle=hosted.bundle, instances=(*earlier, *part.instances))
        self.runs[hosted.key] = HostedRun(whole, part.life - 1)
        self.keep(hosted.key, "part", encode(whole))

    # ---- events

    def received(self, sender: Peer, message: RunMessage) -> None:
        """A word of the register's protocol. Who leaves takes no seat: others are asked then."""
        if not (self._desk.is_leaving and isinstance(message, AskSeat)):
            self.step(Received(sender, message))

    def timer_fired(self, name: Hashable) -> None:
        """A timer of the machine."""
        self.step(TimerFired(name))

    def found_on_disk(self, event: RunsFound) -> None:
        """The process has started; this is what it left when it last ended."""
        self.lying = dict.fromkeys(event.folders)
        voters: list[asked.VoterFile] = []
        lives: list[asked.LifeFile] = []
        for file in event.files:
            try:
                if file.name == "voter":
                    voters.append(_VOTER.decode(file.content))
                elif file.name == "life":
                    lives.append(_LIFE.decode(file.content))
                elif file.name == "part":
                    part = _PART.decode(file.content)
                    self.runs[part.application, part.version] = HostedRun(part, part.life - 1)
                elif file.name == "record" and (run := self.runs.get((file.application, file.version))) is not None:
                    run.record = file.content
            except RemoteProtocolError:
                self._desk.drop("stored file")
        self.step(events.Booted(tuple(voters), tuple(lives), event.fragments))

    def peers_changed(self) -> None:
        """The overlay knows others than before."""
        for peer in self._desk.overlay.known_peers():
            if self._known.get(peer.node) != peer.incarnation:
                self._known[peer.node] = peer.incarnation
                self.step(events.HostBack(peer))
        self._look_for_room()

    def peer_gone(self, peer: Peer) -> None:
        """A peer is dead, cut off, or has left."""
        self._known.pop(peer.node, None)
        self._look_for_room()
        self.step(events.HostLost(peer.node))

    def _look_for_room(self) -> None:
        """Who could hold fragments or take something over: the nearest first."""
        room = self._desk.nearest_of(tuple(self._desk.overlay.known_peers()))
        self.step(events.RoomSeen(tuple(peer for peer in room if self._desk.overlay.is_alive(peer.node))))

    def offered(self, event: FragmentOffered) -> None:
        """A peer wants a fragment to be kept here."""
        self._shelving.offered(event)

    def damaged(self, event: events.FragmentDamaged) -> None:
        """A fragment that was kept here is not whole any more: whose it is makes it again."""
        self.step(event)

    @property
    def lacking(self) -> int:
        """Fragments of elements that were saved here, which nobody has."""
        return self.machine.lacking

    def stored(self, event: FragmentStored) -> None:
        """A fragment is on the disk."""
        self.machine.shelf.put(event.key, event.owner.node)

    def prepared(self, event: InstancePrepared) -> None:
        """A local instance is saved."""
        key = (event.application, event.version)
        run, hosted = self.runs.get(key), self._hosting.table.get(key)
        part = self.machine.participants.get(Run(*key))
        if run is None or hosted is None or part is None or part.value is None:
            return
        party = party_of(event.stage, event.index, event.term)
        is_pinned = any(one.is_pinned for one in part.value.plan.assignments if one.party == party)
        after = part.readying.plan if event.after else None
        if event.after and (after is None or after.digest != event.after):
            self.step(
                events.LifeBroken(Run(*key), part.life, f"{party} passed a barrier with a plan that nobody knows here")
            )
            return
        snapshot = Snapshot(part.life, event.epoch)
        about = (Run(*key), party, snapshot)
        gaps = tuple(TermGap(str(stage), term, gap) for stage, term, gap in event.gaps)
        if not is_pinned:
            length = event.size + SEAL_BYTES
            snapped = events.PartySnapped(
                *about,
                event.digest,
                length,
                event.onto,
                after,
                event.caught_up,
                event.ended,
                sum(event.ends),
                gaps,
                event.pause_ns,
            )
            self.step(snapped)
        else:
            element = Element(snapshot, event.digest, event.size, 1, ())
            self.step(
                events.PartyPrepared(
                    *about,
                    Saved(party, (element,)),
                    sum(event.ends),
                    after,
                    event.caught_up,
                    event.ended,
                    gaps,
                    event.pause_ns,
                )
            )

    def broken(self, hosted: Hosted, event: InstanceFailed) -> None:
        """A local instance cannot go on, through no fault of the user's code."""
        run = Run(*hosted.key)
        part = self.machine.participants.get(run)
        if part is None or not part.is_in_life:
            return  # of what ends anyway
        broken = events.LifeBroken(run, part.life, event.message)
        if event.is_consequence:
            self._desk.talks.begin(self._broken_later(broken))
        else:
            self.step(broken)

    async def _broken_later(self, broken: events.LifeBroken) -> None:
        """Who says that a link broke is often faster than who says that its other end is dead, and a plan with a dead host in it
        would cost one life more.
        """
        await self._desk.talks.pause(CONSEQUENCE_NS)
        self.step(broken)

    def listening(self, sender: Peer, message: Listening) -> None:
        """Another host's instances listen."""
        key = (message.application, message.version)
        run, part = self.runs.get(key), self.machine.participants.get(Run(*key))
        if run is None or part is None or part.value is None:
            return  # not so far yet: it is said again
        if message.life > run.life and sender.node not in part.value.plan.hosts:
            return  # this node has not heard of the plan in which the sender hosts something
        if not run.note(message.life, message.addresses):
            return  # it is said again when this node is so far
        if run.has_all() and run.wanted is not None:
            self._desk.talks.answered(run.wanted[2], True)
        self._desk.send(sender, Acknowledged(message.request))

    def ask_part(self, sender: Peer, message: AskPart) -> None:
        """A host of the life wants the code."""
        key = (message.application, message.version)
        part = self.machine.participants.get(Run(*key))
        value, coming = (part.value, part.readying.plan) if part is not None else (None, None)
        answer = lent(self.runs.get(key), value, coming, sender, message)
        if answer is not None:
            self._desk.send(sender, answer)

    def change(self, run: Run, plan: Plan) -> str:
        """Stages of a run that this node coordinates are to take new terms. Why not; empty: it is under way."""
        why = self.machine.request_change(run, plan)
        self.flush()
        return why

    def relieve(self, run: Run, host: Peer) -> str:
        """The next life of a run that this node coordinates is to be without a host. Why not; empty: so it is."""
        why = self.machine.request_relief(run, host)
        self.flush()
        return why

    def begun(self, why: str) -> str:
        """Carry out what a request to the machine has begun; says why it was not taken, as the machine did."""
        self.flush()
        return why

    def term_listening(self, sender: Peer, message: TermListening) -> None:
        """Another host's new instances listen."""
        self._terms.listening(sender, message)

    def ask_recovery(self, sender: Peer, message: AskRecovery) -> None:
        """Somebody wants to know how it stands with a run."""
        rows = as_plain(self.standing((message.application, message.version)))
        run = Run(message.application, message.version)
        coordinator = self.machine.coordinators.get(run)
        changes = tuple(msgspec.to_builtins(row) for row in changes_of(coordinator))
        elements: tuple[dict[str, object], ...] = ()
        if coordinator is not None and coordinator.is_at_work and coordinator.proposer.value is not None:
            if message.begin:
                coordinator.committing.want_epoch()
            if message.elements:
                elements = saved_elements(coordinator.value, self.machine.name_of)
        self._desk.send(sender, RecoveryIs(message.request, *rows, changes, elements, self.scaling_of(run)))

    def changes_known(self, key: Key) -> list[ChangeRow]:
        """Changes of a run that this node hosts, as the last epoch that it heard of has them."""
        part = self.machine.participants.get(Run(*key))
        return changes_in(part.value) if part is not None and part.value is not None else []

    def standing(self, key: Key) -> Rows:
        """How it stands with a run that this node coordinates, or knows to work on without who does."""
        run, now, known = Run(*key), self._desk.now, self._desk.known()
        coordinator, part = self.machine.coordinators.get(run), self.machine.participants.get(run)
        recovery, epoch = standing(coordinator, now, known, self.machine.name_of)
        if part is not None and part.is_in_life:
            value, since = part.value, part.committed_at
        elif coordinator is not None:
            value, since = coordinator.known, coordinator.progress.committed_at
        else:
            return recovery, epoch
        cut_off = island(value, since, now, self.machine.can_reach, self.machine.name_of)
        if value is None or cut_off is None:
            return recovery, epoch
        return cut_off, epoch or safe_on_an_island(value, since, now, known)

    def commit_ages(self, now: Instant) -> tuple[tuple[str, float], ...]:
        """(application, seconds since its last commit) of runs that this node coordinates."""
        led = [(run.app, one.progress.committed_at) for run, one in self.machine.coordinators.items() if one.is_at_work]
        return tuple((name, (now - at) / SECOND) for name, at in led if at is not None)

    def missing(self) -> tuple[tuple[str, int], ...]:
        """(application, nodes for which it waits) of runs that this node coordinates."""
        led = [one for one in self.machine.coordinators.values() if one.is_at_work]
        return tuple((one.run.app, len(one.progress.waits_for)) for one in led)

    def patrol(self) -> None:
        """What is over elsewhere, or went elsewhere, ends here, too."""
        self._tidying.patrol()

    def forget(self, hosted: Hosted) -> None:
        """An application is over here."""
        if hosted.has_moved:
            self.let_go(hosted.key)
            return
        shown = self.shown(hosted.key)
        if self.forget_run(hosted.key) or hosted.part.by_epoch:
            self._desk.emit(ForgetRun(*hosted.key, shown, self._hosting.why_closed(hosted)))

    def shown(self, key: Key) -> tuple[bytes, ...]:
        """Elements of the sinks here in the last committed epoch that this node knows of."""
        value = self.value(Run(*key))
        return self._shown_here(value) if value is not None else ()

    def hosted_runs(self) -> dict[Key, int]:
        """Runs of which this node has the code, and the life that it was in last."""
        lives = {key: self.machine.participants.get(Run(*key)) for key in self.runs}
        return {key: part.life if part is not None else 0 for key, part in lives.items()}

    def forget_run(self, key: Key) -> bool:
        """A run is over: nothing of it is known here any more. False when nothing was."""
        run = Run(*key)
        self._watch(run, ())
        self.ending.forget(run)
        self.noting.forget(run)
        self.lying.pop(key, None)
        self.machine.drop_shelf(run)
        known = self.runs.pop(key, None) is not None
        known |= self.machine.forget(run)
        self.flush()
        return known

    def let_go(self, key: Key) -> None:
        """Everything that was hosted here runs elsewhere now. What this node votes, and the life that it has entered, stay."""
        if self.runs.pop(key, None) is not None:
            self._desk.emit(ForgetPart(*key))

    # ---- effects

    def step(self, event: Event) -> None:
        """An event for the machine."""
        self._carry_out(self.machine.step(event, self._desk.now))
        self._look_at_coordinators()

    def flush(self) -> None:
        """Carry out what a call to the machine has begun."""
        self._carry_out(self.machine.take_effects())

    def _tell_term_progress(self, run: Run, digest: bytes, got: int, of: int) -> None:
        self.machine.tell_term_progress(run, digest, got, of)
        self.flush()

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in tuple(effects):  # a step within this loop begins another list
            match effect:
                case Send():
                    self._desk.emit(effect)
                case SetTimer(name=name, at=at):
                    self._desk.emit(SetTimer(("recovery", name), at))
                case asked.KeepVoter(request=request, file=file):
                    self._ask_to_keep(request, (file.run.app, file.run.version), "voter", encode(file))
                case asked.KeepLife(request=request, file=entered):
                    self._ask_to_keep(request, (entered.run.app, entered.run.version), "life", encode(entered))
                case asked.EnterLife():
                    self._terms.entered(effect.run, effect.saved)
                    self.noting.note_known((effect.run.app, effect.run.version), effect.plan)
                    self._desk.talks.begin(self._entering.enter(effect))
                case asked.StartSources(run=run):
                    hosted = self._hosting.table.get((run.app, run.version))
                    if hosted is not None:
                        self._hosting.flow(hosted)
                        self.noting.note_life(hosted, effect.life)
                case asked.PassBarrier():
                    self._desk.emit(barrier_of(effect, self.value(effect.run)))
                case asked.CommitEpoch():
                    self._commit(effect)
                case asked.SyncLogs(request=request, run=run):
                    self._desk.talks.begin(self._driven(request, lambda n: SyncSourceLogs(n, run.app, run.version)))
                case asked.MakeTermReady() | asked.BuildAhead() | asked.TakeOver() | asked.DropTerm():
                    self._terms.carry_out(effect)
                case _:
                    self._carry_out_of_fragments(effect)

    def _carry_out_of_fragments(self, effect: Effect) -> None:
        match effect:
            case asked.SendFragment(key=about):
                value = self.value(about.run)
                self._fetching.send(effect, value.key if value is not None else b"")
            case asked.FetchStripe():
                self._fetching.fetch(effect)
            case asked.DropFragments(keys=keys):
                self._desk.emit(DropFragments(keys))

    def _ask_to_keep(self, request: int, key: Key, name: str, content: bytes) -> None:
        self._desk.talks.begin(self._driven(request, lambda number: KeepFile(number, *key, name, content)))

    async def _driven(self, request: int, effect: Callable[[int], Effect]) -> None:
        """Have the driver do something that the machine asked for."""
        number = self._desk.talks.number()
        answers = await self._desk.driven(number, effect(number), self._desk.config.start_timeout_ns)
        answer = answers.get(number)
        reason = answer.reason if isinstance(answer, Failed) else "" if answer is not None else "the disk is silent"
        self.step(Failed(request, reason) if reason else Completed(request, None))

    def keep(self, key: Key, name: str, content: bytes) -> None:
        """Keep a file without waiting: files are written in order, so what waits for a later one waits for it, too."""
        self._desk.emit(KeepFile(self._desk.talks.number(), *key, name, content))

    def value(self, run: Run) -> Value | None:
        """What this node knows of the register as a host."""
        part = self.machine.participants.get(run)
        return part.value if part is not None else None

    def _commit(self, effect: asked.CommitEpoch) -> None:
        key = (effect.run.app, effect.run.version)
        committed = effect.value.committed
        self._desk.emit(CountEpoch(*key, committed.epoch))
        run = self.runs.get(key)
        plan = effect.value.plan
        self._terms.came(effect.run, plan)
        # Who only waits for a plan to come knows the run under the one before (`Settling.adopt`). A coordinator that slept may
        # still tell an epoch of an older one: by that nothing is to be settled there.
        if plan.at(self._desk.me.node) or not self._terms.waits(effect.run):
            self._settling.committed(key, effect.value, self._terms.slots_of(effect.run, plan))
        if run is not None:
            needed = dict.fromkeys(element.digest for element in effect.value.needed.values())
            self._desk.emit(KeepElements(*key, tuple(needed), run.base + committed.life, committed.epoch))
        shown = self._shown_here(effect.value) if run is not None and effect.value.state is State.FINISHED else ()
        if shown:
            self._desk.talks.begin(self._driven(effect.request, lambda n: CommitLogs(n, *key, committed.epoch, shown)))
        else:
            self.step(Completed(effect.request, None))

    def _shown_here(self, value: Value) -> tuple[bytes, ...]:
        """Elements of the sinks here: they say up to where rows count."""
        sinks = [each for each in value.plan.at(self._desk.me.node) if each.role is Role.SINK]
        parties = {each.party: None for each in sinks}
        chains = [saved.chain for saved in value.shown if saved.party in parties]
        return tuple(chain[-1].digest for chain in chains if chain)

    # ---- ends

    def _watch(self, run: Run, hosts: tuple[Peer, ...]) -> None:
        """Have the overlay probe those of a run for whose death this node has to act."""
        before = self._watched.pop(run, ())
        if hosts:
            self._watched[run] = hosts
        for peer in hosts:
            self._desk.watch(peer)
        for peer in before:
            self._desk.unwatch(peer)

    def _look_at_coordinators(self) -> None:
        """Whoever coordinates a run watches its hosts, the other voters watch who does."""
        for run, coordinator in self.machine.coordinators.items():
            value = coordinator.proposer.value if coordinator.leads else None
            leader = coordinator.leader if value is None and not coordinator.is_over else None
            hosts = tuple(value.plan.hosts.values()) if value is not None else () if leader is None else (leader,)
            if hosts != self._watched.get(run, ()):
                self._watch(run, hosts)
            self.ending.look(run, coordinator)
            if value is not None:
                self.noting.note_voters(run, value)
