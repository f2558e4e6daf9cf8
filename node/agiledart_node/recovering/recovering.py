"""`Recovering`: the recovery machine inside a node.

Its events come from the ring, from executors and from the disk; its effects become files, orders to executors, and new lives of
what is hosted here.

| who says | what it becomes |
|---|---|
| the overlay: a peer is gone, or known | `HostLost`, `HostBack` |
| an executor: saved, crashed | `PartySnapped`, `PartyPrepared`, `LifeBroken` |
| the disk, at the start | `Booted` |
| the machine: `EnterLife` | `bring_back`, or nothing for the first life, which was deployed in waves |
| the machine: an epoch | `PassBarrier`, `CountEpoch`, `KeepElements` |
| the register: the end | `RunClosed` to the node that writes the application's record |
"""

from collections.abc import Callable, Hashable, Sequence

import msgspec

from agiledart_dataflow.plan.deployment import DeploymentPart, PlacedInstance
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.instants import Duration
from agiledart_kernel.limits import MAX_RECORD_BYTES
from agiledart_kernel.machine import Completed, Effect, Event, Failed, Received, Send, SetTimer, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.desk.desk import Desk
from agiledart_node.hosting.hosted import Hosted, Key
from agiledart_node.hosting.hosting import Hosting
from agiledart_node.records.application import RECORD_CODEC, RUNNING, ApplicationRecord, HistoryEntry, kept_history
from agiledart_node.records.records import Records
from agiledart_node.recovering.bringing_back import HostedRun, bring_back
from agiledart_node.recovering.founding import copy_of, found_register, party_of, plan_of, voters_among
from agiledart_node.wire.effects import CountEpoch, ForgetRun, KeepElements, KeepFile, PassBarrier
from agiledart_node.wire.events import InstanceFailed, InstancePrepared, RunsFound
from agiledart_node.wire.formation_messages import Acknowledged
from agiledart_node.wire.recovery_messages import FoundRegister, Listening, MakeVoter, RunClosed, VoterMade
from agiledart_recovery.machine import RecoveryMachine
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire import events
from agiledart_recovery.wire.messages import RunMessage
from agiledart_recovery.wire.names import Run, Snapshot
from agiledart_recovery.wire.value import Element, Role, Saved, State, Value

_PART: Codec[DeploymentPart] = Codec(DeploymentPart)
_VALUE: Codec[Value] = Codec(Value, limit=MAX_RECORD_BYTES)
_VOTER: Codec[asked.VoterFile] = Codec(asked.VoterFile, limit=MAX_RECORD_BYTES)
_LIFE: Codec[asked.LifeFile] = Codec(asked.LifeFile)


class Recovering:
    """What this node has to do with runs that survive their hosts.

    Attributes:
        closed: told of a run that has ended in its register: (hosted, state, reason).
    """

    def __init__(self, desk: Desk, records: Records, hosting: Hosting, random: RandomStream) -> None:
        self._desk, self._records, self._hosting = desk, records, hosting
        self.machine = RecoveryMachine(desk.me, desk.config.recovery, random, desk.observe)
        self.runs: dict[Key, HostedRun] = {}
        self.closed: Callable[[Hosted, str, str], None] = lambda hosted, state, reason: None
        self._known: dict[NodeId, int] = {}
        self._reported: dict[Run, bool] = {}
        hosting.on_part = self._take_part

    # ---- founding

    async def found(self, part: DeploymentPart, places: dict[tuple[int, int], Peer], guards: tuple[Peer, ...]) -> None:
        """Give a run that was deployed its register; it enters its first life then. Raises CommandRefused."""
        run = Run(part.application, part.version)
        plan = plan_of(part.plan, places)
        await found_register(self._desk, run, plan, voters_among(part.plan, places, guards))

    def make_voter(self, sender: Peer, message: MakeVoter) -> None:
        """A scheduler wants a seat here."""
        run = Run(message.application, message.version)
        self._step(events.MakeSeat(run))
        seat = self.machine.seats.get(run)
        if seat is not None:
            self.machine.take_effects()
            seat.keep(lambda: self._desk.send(sender, VoterMade(message.request, seat.seat)))
            self._carry_out(self.machine.take_effects())

    def found_register(self, sender: Peer, message: FoundRegister) -> None:
        """The seats are made: this node writes the first value."""
        try:
            value = _VALUE.decode(message.value)
        except RemoteProtocolError:
            self._desk.drop("register form")
            return
        known = value.run in self.machine.seats and not value.faults()
        if known:
            self._step(events.FoundRun(value))
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
        self._keep(hosted.key, "part", encode(whole))

    # ---- events

    def received(self, sender: Peer, message: RunMessage) -> None:
        """A word of the register's protocol."""
        self._step(Received(sender, message))

    def timer_fired(self, name: Hashable) -> None:
        """A timer of the machine."""
        self._step(TimerFired(name))

    def found_on_disk(self, event: RunsFound) -> None:
        """The process has started; this is what it left when it last ended."""
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
        self._step(events.Booted(tuple(voters), tuple(lives)))

    def peers_changed(self) -> None:
        """The overlay knows others than before."""
        for peer in self._desk.overlay.known_peers():
            if self._known.get(peer.node) != peer.incarnation:
                self._known[peer.node] = peer.incarnation
                self._step(events.HostBack(peer))

    def peer_gone(self, peer: Peer) -> None:
        """A peer is dead, cut off, or has left."""
        self._known.pop(peer.node, None)
        self._step(events.HostLost(peer.node))

    def prepared(self, event: InstancePrepared) -> None:
        """A local instance is saved."""
        key = (event.application, event.version)
        run, hosted = self.runs.get(key), self._hosting.table.get(key)
        part = self.machine.participants.get(Run(*key))
        if run is None or hosted is None or part is None or part.value is None:
            return
        run.saved.setdefault(event.epoch, []).append(event.digest)
        party = party_of(event.stage, event.index)
        role = next((one.role for one in part.value.plan.assignments if one.party == party), Role.STAGE)
        passed = event.epoch - 1 if event.ended else event.epoch
        snapshot = Snapshot(part.life, passed)
        about = (Run(*key), party, snapshot)
        if role is Role.STAGE:
            snapped = events.PartySnapped(*about, event.digest, event.size, Saved(party), has_ended=event.ended)
            self._step(snapped)
        else:
            element = Element(snapshot, event.digest, event.size, 1, ())
            self._step(events.PartyPrepared(*about, Saved(party, (element,)), sum(event.ends), has_ended=event.ended))

    def broken(self, hosted: Hosted, event: InstanceFailed) -> None:
        """A local instance cannot go on, through no fault of the user's code."""
        run = Run(*hosted.key)
        part = self.machine.participants.get(run)
        if part is not None:
            self._step(events.LifeBroken(run, part.life, event.message))

    def listening(self, sender: Peer, message: Listening) -> None:
        """Another host's instances listen."""
        run = self.runs.get((message.application, message.version))
        if run is not None and any(peer.node == sender.node for peer in run.part.nodes):
            run.note(message.life, message.addresses)
            if run.has_all() and run.wanted is not None:
                self._desk.talks.answered(run.wanted[2], True)
        self._desk.send(sender, Acknowledged(message.request))

    def run_closed(self, sender: Peer, message: RunClosed) -> None:
        """The register says that a run is over, and all its hosts know it."""
        hosted = self._hosting.table.get((message.application, message.version))
        self._desk.send(sender, Acknowledged(message.request))
        if hosted is not None and hosted.part.coordinator.node == self._desk.me.node:
            self.closed(hosted, message.state, message.reason)

    def forget(self, hosted: Hosted) -> None:
        """An application is over here."""
        run = Run(*hosted.key)
        self.runs.pop(hosted.key, None)
        if self.machine.forget(run) or hosted.part.by_epoch:
            self._desk.emit(ForgetRun(*hosted.key))
        self._reported.pop(run, None)

    # ---- effects

    def _step(self, event: Event) -> None:
        self._carry_out(self.machine.step(event, self._desk.now))
        self._tell_ends()

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
                    self._desk.talks.begin(self._enter(effect))
                case asked.StartSources(run=run):
                    hosted = self._hosting.table.get((run.app, run.version))
                    if hosted is not None:
                        self._hosting.flow(hosted)
                        self._note_life(hosted, effect.life)
                case asked.PassBarrier(run=run, epoch=epoch):
                    self._desk.emit(PassBarrier(run.app, run.version, epoch))
                case asked.CommitEpoch():
                    self._commit(effect)
                case asked.SyncLogs(request=request):
                    self._step(Completed(request, None))
                case asked.SendFragment(request=request) | asked.FetchStripe(request=request):
                    self._step(Failed(request, "this node keeps no fragments"))
                case _:
                    continue

    def _ask_to_keep(self, request: int, key: Key, name: str, content: bytes) -> None:
        self._desk.talks.begin(self._kept(request, key, name, content))

    async def _kept(self, request: int, key: Key, name: str, content: bytes) -> None:
        number = self._desk.talks.number()
        effect = KeepFile(number, *key, name, content)
        answers = await self._desk.driven(number, effect, self._desk.config.start_timeout_ns)
        answer = answers.get(number)
        reason = answer.reason if isinstance(answer, Failed) else "" if answer is not None else "the disk is silent"
        self._step(Failed(request, reason) if reason else Completed(request, None))

    def _keep(self, key: Key, name: str, content: bytes) -> None:
        """Keep a file without waiting: files are written in order, so what waits for a later one waits for it, too."""
        self._desk.emit(KeepFile(self._desk.talks.number(), *key, name, content))

    async def _enter(self, effect: asked.EnterLife) -> None:
        key = (effect.run.app, effect.run.version)
        run, hosted = self.runs.get(key), self._hosting.table.get(key)
        part = self.machine.participants.get(effect.run)
        mine = [copy_of(one.party) for one in effect.assignments]
        if run is None or part is None or part.value is None:
            self._step(Failed(effect.request, f"{self._desk.me.name} does not have the code of {effect.run.app}"))
            return
        if hosted is None:
            hosted = self._hosting.adopt(run.part)
        hosted.has_register = True
        if effect.life == 1 and run.life == 0 and all(copy in hosted.instances for copy in mine):
            run.life = 1
            self._step(Completed(effect.request, None))
            return
        hosted.begin_again(dict.fromkeys(mine, 0))
        try:
            lived = await bring_back(self._desk, run, effect, part.value.committed.epoch)
        except OperationFailed as error:
            self._step(Failed(effect.request, str(error)))
            return
        hosted.part = msgspec.structs.replace(lived, bundle=b"")
        self._step(Completed(effect.request, None))

    def noted(self, hosted: Hosted, record: ApplicationRecord) -> None:
        """The record of an application that is hosted here was read: keep it for the day when the ring has forgotten it."""
        run = self.runs.get(hosted.key)
        if run is not None and not run.record and record.state == RUNNING:
            run.record = RECORD_CODEC.encode(record)
            self._keep(hosted.key, "record", run.record)

    def _note_life(self, hosted: Hosted, life: int) -> None:
        """Whoever notes the end of an application keeps its record, and notes in it that it was brought back."""
        if hosted.part.coordinator.node == self._desk.me.node:
            self._desk.talks.begin(self._noted_life(hosted, life))

    async def _noted_life(self, hosted: Hosted, life: int) -> None:
        run = self.runs.get(hosted.key)
        entry = HistoryEntry(self._desk.wall_ms, RUNNING, f"brought back, life {life}")
        try:
            revision, found = await self._records.application(hosted.part.application)
            if found is None and run is not None and run.record:
                known = RECORD_CODEC.decode(run.record)
                await self._records.create(revision, msgspec.structs.replace(known, life=life))
                await self._records.add_name(known.name)
            elif found is not None:
                self.noted(hosted, found)
        except OperationFailed:
            return  # the next life, or the patrol, finds the ring again
        if life == 1:
            return
        await self._records.change(
            *hosted.key,
            lambda record: (
                None
                if record.is_final
                else msgspec.structs.replace(record, life=life, history=kept_history(record.history, entry))
            ),
        )

    def _commit(self, effect: asked.CommitEpoch) -> None:
        key = (effect.run.app, effect.run.version)
        epoch, run = effect.value.committed.epoch, self.runs.get(key)
        self._desk.emit(CountEpoch(*key, epoch))
        if run is not None:
            run.saved = {number: digests for number, digests in run.saved.items() if number > epoch}
            needed = [element.digest for element in effect.value.needed.values()]
            later = [digest for digests in run.saved.values() for digest in digests]
            self._desk.emit(KeepElements(*key, tuple(dict.fromkeys((*needed, *later)))))
        self._step(Completed(effect.request, None))

    # ---- ends

    def _tell_ends(self) -> None:
        """Whoever coordinates a run that is over says so to the node that notes it, once all hosts know."""
        for run, coordinator in self.machine.coordinators.items():
            if coordinator.leads and coordinator.is_over and run not in self._reported:
                self._reported[run] = True
                self._desk.talks.begin(self._tell_end(run, coordinator.value))

    async def _tell_end(self, run: Run, value: Value) -> None:
        sinks = [one.host for one in value.plan.of(Role.SINK)]
        to = min(sinks, key=lambda peer: peer.node)
        state = "finished" if value.state is State.FINISHED else "failed"
        message = RunClosed(0, run.app, run.version, state, value.reason)
        for _ in range(10):
            number = self._desk.talks.number()
            said = msgspec.structs.replace(message, request=number)
            timeout = Duration(self._desk.config.ask_timeout_ns)
            if await self._desk.talks.ask(to, said, number, Acknowledged, timeout) is not None:
                return
