"""`RecoveryService`: the recovery machine inside a node.

Its events come from the ring, from executors and from the disk; its effects become files, orders to executors, and new lives of
what is hosted here.

| who says | what it becomes |
|---|---|
| the overlay: a peer is gone, or known | `HostLost`, `HostBack` |
| an executor: saved, crashed | `SnapshotTaken`, `PinnedInstancePrepared`, `AttemptBroken` |
| the disk, at the start | `Booted` |
| the machine: `EnterAttempt` | `fetching` of state, `lending` of code, `restart`; nothing for the first life, deployed in waves |
| the machine: fragments | `fetching` brings them out and back, `shelving` judges those of others |
| the machine: an epoch | `EmitBarrier`, `CommitEpochRows`, `RetainSnapshots` |
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
from agiledart_node.context.node_context import NodeContext
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.hosting.hosted_application import HostedApplication, Key
from agiledart_node.records.records import Records
from agiledart_node.recovery.attempt_entry import AttemptEntry
from agiledart_node.recovery.attempt_records import AttemptRecords
from agiledart_node.recovery.bundle_transfer import bundle_answer
from agiledart_node.recovery.change_finaliser import ChangeFinaliser
from agiledart_node.recovery.end_reporter import EndReporter
from agiledart_node.recovery.fragment_admission import FragmentAdmission
from agiledart_node.recovery.garbage_collector import GarbageCollector
from agiledart_node.recovery.hosted_run import HostedRun
from agiledart_node.recovery.register_bootstrap import (
    InitialCheckpoint,
    bootstrap_register,
    choose_voters,
    instance_id_of,
    plan_of,
    run_key,
)
from agiledart_node.recovery.run_status import (
    StatusRows,
    as_plain,
    changes_in,
    changes_of,
    epoch_row_in_minority,
    minority_status,
    run_status,
    saved_snapshots,
)
from agiledart_node.recovery.stage_changes import StageChanges, barrier_of
from agiledart_node.recovery.state_fetcher import StateFetcher
from agiledart_node.wire.change_responses import ChangeRow
from agiledart_node.wire.effects import (
    CommitEpochRows,
    CommitLogs,
    ForgetPart,
    ForgetRun,
    KeepFile,
    RetainSnapshots,
    SyncSourceLogs,
)
from agiledart_node.wire.events import InstanceFailed, InstancePrepared, RunsFound
from agiledart_node.wire.formation_messages import Acknowledged
from agiledart_node.wire.fragment_effects import DropStoredFragments, FragmentOffered, FragmentStored
from agiledart_node.wire.recovery_messages import (
    AttemptListening,
    BootstrapRegister,
    CreateVoter,
    GenerationListening,
    QueryRecovery,
    RecoveryStatus,
    RequestPart,
    VoterCreated,
)
from agiledart_recovery.limits import SEAL_BYTES
from agiledart_recovery.recovery_context import IsCommandAuthorised, accept_any_command
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire import events
from agiledart_recovery.wire.messages import RequestVoterSlot, RunMessage
from agiledart_recovery.wire.names import CheckpointId, GenerationPause, RunId
from agiledart_recovery.wire.register_value import (
    InstanceRole,
    InstanceSnapshot,
    Plan,
    RegisterValue,
    RunState,
    SavedState,
)

CONSEQUENCE_NS = Duration(1_600 * MILLISECOND)
"""For a broken link to be explained by a dead host: a little more than the overlay needs to declare one dead whose links broke."""

_PART: Codec[DeploymentPart] = Codec(DeploymentPart)
_VALUE: Codec[RegisterValue] = Codec(RegisterValue, limit=MAX_RECORD_BYTES)
_VOTER: Codec[asked.VoterFile] = Codec(asked.VoterFile, limit=MAX_RECORD_BYTES)
_ATTEMPT: Codec[asked.AttemptFile] = Codec(asked.AttemptFile)


class RecoveryService:
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
        context: NodeContext,
        records: Records,
        hosting: ApplicationHost,
        random: RandomStream,
        secret: bytes = b"",
        is_command_authorised: IsCommandAuthorised = accept_any_command,
    ) -> None:
        self._context, self._records, self._hosting, self._secret = context, records, hosting, secret
        self.machine = RecoveryMachine(
            context.me, context.config.recovery, random, context.observe, is_command_authorised
        )
        self._fragment_admission = FragmentAdmission(context, records, self.machine)
        self._state_fetcher = StateFetcher(context, self.machine, self.step, self.flush)
        self._garbage_collector = GarbageCollector(context, records, hosting, self)
        self._watched: dict[RunId, tuple[Peer, ...]] = {}
        self.runs: dict[Key, HostedRun] = {}
        self._change_finaliser = ChangeFinaliser(
            context, records, hosting, self.runs, lambda key, part: self.keep(key, "part", encode(part))
        )
        self._attempt_entry = attempt_entry = AttemptEntry(
            context, hosting, self, self._state_fetcher, self._change_finaliser
        )
        about = (
            attempt_entry.obtain_run,
            attempt_entry.ensure_old_state,
            self._report_preload_progress,
            attempt_entry.check_free_capacity,
        )
        self._stage_changes = StageChanges(context, self.step, *about, self._change_finaliser)
        self.attempt_records = AttemptRecords(context, records, self)
        self.end_reporter = EndReporter(context, hosting, self)
        self.closed: Callable[[HostedApplication, str, str], None] = lambda hosted, state, reason: None
        self.scaling_of: Callable[[RunId], tuple[dict[str, object], ...]] = lambda run: ()
        self._known: dict[NodeId, int] = {}
        self.runs_on_disk: dict[Key, None] = {}
        hosting.on_part = self._take_part

    # ---- founding

    async def found(
        self,
        part: DeploymentPart,
        places: dict[tuple[int, int], Peer],
        guards: tuple[Peer, ...],
        initial_checkpoint: InitialCheckpoint | None = None,
    ) -> None:
        """Give a run that was deployed its register; it enters its first life then. Raises CommandRefused.

        Args:
            brought: the checkpoint that it begins with.
        """
        run = RunId(part.application, part.version)
        plan = plan_of(part.plan, places)
        key = run_key(self._secret, run, part.number)
        await bootstrap_register(
            self._context, run, plan, choose_voters(part.plan, places, guards), key, initial_checkpoint
        )

    def make_voter(self, sender: Peer, message: CreateVoter) -> None:
        """A scheduler wants a seat here."""
        run = RunId(message.application, message.version)
        self.step(events.MakeVoterSlot(run))
        voter_slot = self.machine.voter_slots.get(run)
        if voter_slot is not None:
            voter_slot.keep(lambda: self._context.send(sender, VoterCreated(message.request, voter_slot.voter_slot)))
            self.flush()

    def bootstrap_register(self, sender: Peer, message: BootstrapRegister) -> None:
        """The seats are made: this node writes the first value."""
        try:
            value = _VALUE.decode(message.value)
        except RemoteProtocolError:
            self._context.drop("register form")
            return
        known = value.run in self.machine.voter_slots and not value.faults()
        if known:
            self.step(events.BootstrapRun(value))
        self._context.send(sender, Acknowledged(message.request, "" if known else "no seat of this run is here"))

    def _take_part(self, hosted: HostedApplication, part: DeploymentPart) -> None:
        """Instances were given to this node: remember them with the code, on the disk too."""
        if not part.by_epoch or not part.instances:
            return
        run = self.runs.get(hosted.key)
        earlier: tuple[PlacedInstance, ...] = ()
        if run is not None and run.part.attempt == part.attempt:
            earlier = tuple(one for one in run.part.instances if one not in part.instances)
        whole = msgspec.structs.replace(part, bundle=hosted.bundle, instances=(*earlier, *part.instances))
        self.runs[hosted.key] = HostedRun(whole, part.attempt - 1)
        self.keep(hosted.key, "part", encode(whole))

    # ---- events

    def received(self, sender: Peer, message: RunMessage) -> None:
        """A word of the register's protocol. Who leaves takes no seat: others are asked then."""
        if not (self._context.is_leaving and isinstance(message, RequestVoterSlot)):
            self.step(Received(sender, message))

    def timer_fired(self, name: Hashable) -> None:
        """A timer of the machine."""
        self.step(TimerFired(name))

    def found_on_disk(self, event: RunsFound) -> None:
        """The process has started; this is what it left when it last ended."""
        self.runs_on_disk = dict.fromkeys(event.folders)
        voters: list[asked.VoterFile] = []
        attempts: list[asked.AttemptFile] = []
        for file in event.files:
            try:
                if file.name == "voter":
                    voters.append(_VOTER.decode(file.content))
                elif file.name == "life":
                    attempts.append(_ATTEMPT.decode(file.content))
                elif file.name == "part":
                    part = _PART.decode(file.content)
                    self.runs[part.application, part.version] = HostedRun(part, part.attempt - 1)
                elif file.name == "record" and (run := self.runs.get((file.application, file.version))) is not None:
                    run.record = file.content
            except RemoteProtocolError:
                self._context.drop("stored file")
        self.step(events.Booted(tuple(voters), tuple(attempts), event.fragments))

    def peers_changed(self) -> None:
        """The overlay knows others than before."""
        for peer in self._context.overlay.known_peers():
            if self._known.get(peer.node) != peer.incarnation:
                self._known[peer.node] = peer.incarnation
                self.step(events.HostBack(peer))
        self._update_candidates()

    def peer_gone(self, peer: Peer) -> None:
        """A peer is dead, cut off, or has left."""
        self._known.pop(peer.node, None)
        self._update_candidates()
        self.step(events.HostLost(peer.node))

    def _update_candidates(self) -> None:
        """Who could hold fragments or take something over: the nearest first."""
        room = self._context.nearest_of(tuple(self._context.overlay.known_peers()))
        self.step(events.CandidatesFound(tuple(peer for peer in room if self._context.overlay.is_alive(peer.node))))

    def offered(self, event: FragmentOffered) -> None:
        """A peer wants a fragment to be kept here."""
        self._fragment_admission.offered(event)

    def damaged(self, event: events.FragmentDamaged) -> None:
        """A fragment that was kept here is not whole any more: whose it is makes it again."""
        self.step(event)

    @property
    def lacking(self) -> int:
        """Fragments of elements that were saved here, which nobody has."""
        return self.machine.lacking

    def stored(self, event: FragmentStored) -> None:
        """A fragment is on the disk."""
        self.machine.fragment_store.put(event.key, event.owner.node)

    def prepared(self, event: InstancePrepared) -> None:
        """A local instance is saved."""
        key = (event.application, event.version)
        run, hosted = self.runs.get(key), self._hosting.table.get(key)
        part = self.machine.participants.get(RunId(*key))
        if run is None or hosted is None or part is None or part.value is None:
            return
        instance = instance_id_of(event.stage, event.index, event.generation)
        is_pinned = any(one.is_pinned for one in part.value.plan.assignments if one.instance == instance)
        after = part.generation_preparation.plan if event.after else None
        if event.after and (after is None or after.digest != event.after):
            self.step(
                events.AttemptBroken(
                    RunId(*key), part.attempt, f"{instance} passed a barrier with a plan that nobody knows here"
                )
            )
            return
        checkpoint = CheckpointId(part.attempt, event.epoch)
        about = (RunId(*key), instance, checkpoint)
        changeover_pauses = tuple(
            GenerationPause(str(stage), generation, gap) for stage, generation, gap in event.changeover_pauses
        )
        if not is_pinned:
            length = event.size + SEAL_BYTES
            snapped = events.SnapshotTaken(
                *about,
                event.digest,
                length,
                event.onto,
                after,
                event.caught_up,
                event.ended,
                sum(event.ends),
                changeover_pauses,
                event.pause_ns,
            )
            self.step(snapped)
        else:
            snapshot = InstanceSnapshot(checkpoint, event.digest, event.size, 1, ())
            self.step(
                events.PinnedInstancePrepared(
                    *about,
                    SavedState(instance, (snapshot,)),
                    sum(event.ends),
                    after,
                    event.caught_up,
                    event.ended,
                    changeover_pauses,
                    event.pause_ns,
                )
            )

    def broken(self, hosted: HostedApplication, event: InstanceFailed) -> None:
        """A local instance cannot go on, through no fault of the user's code."""
        run = RunId(*hosted.key)
        part = self.machine.participants.get(run)
        if part is None or not part.is_in_attempt:
            return  # of what ends anyway
        broken = events.AttemptBroken(run, part.attempt, event.message)
        if event.is_consequence:
            self._context.requests.begin(self._broken_later(broken))
        else:
            self.step(broken)

    async def _broken_later(self, broken: events.AttemptBroken) -> None:
        """Who says that a link broke is often faster than who says that its other end is dead, and a plan with a dead host in it
        would cost one life more.
        """
        await self._context.requests.pause(CONSEQUENCE_NS)
        self.step(broken)

    def listening(self, sender: Peer, message: AttemptListening) -> None:
        """Another host's instances listen."""
        key = (message.application, message.version)
        run, part = self.runs.get(key), self.machine.participants.get(RunId(*key))
        if run is None or part is None or part.value is None:
            return  # not so far yet: it is said again
        if message.attempt > run.attempt and sender.node not in part.value.plan.hosts:
            return  # this node has not heard of the plan in which the sender hosts something
        if not run.note(message.attempt, message.addresses):
            return  # it is said again when this node is so far
        if run.has_all() and run.awaited is not None:
            self._context.requests.answered(run.awaited[2], True)
        self._context.send(sender, Acknowledged(message.request))

    def ask_part(self, sender: Peer, message: RequestPart) -> None:
        """A host of the life wants the code."""
        key = (message.application, message.version)
        part = self.machine.participants.get(RunId(*key))
        value, pending = (part.value, part.generation_preparation.plan) if part is not None else (None, None)
        answer = bundle_answer(self.runs.get(key), value, pending, sender, message)
        if answer is not None:
            self._context.send(sender, answer)

    def change(self, run: RunId, plan: Plan) -> str:
        """Stages of a run that this node coordinates are to take new terms. Why not; empty: it is under way."""
        why = self.machine.request_change(run, plan)
        self.flush()
        return why

    def evacuate(self, run: RunId, host: Peer) -> str:
        """The next life of a run that this node coordinates is to be without a host. Why not; empty: so it is."""
        why = self.machine.request_evacuation(run, host)
        self.flush()
        return why

    def flush_request(self, why: str) -> str:
        """Carry out what a request to the machine has begun; says why it was not taken, as the machine did."""
        self.flush()
        return why

    def generation_listening(self, sender: Peer, message: GenerationListening) -> None:
        """Another host's new instances listen."""
        self._stage_changes.listening(sender, message)

    def ask_recovery(self, sender: Peer, message: QueryRecovery) -> None:
        """Somebody wants to know how it stands with a run."""
        rows = as_plain(self.run_status((message.application, message.version)))
        run = RunId(message.application, message.version)
        coordinator = self.machine.coordinators.get(run)
        changes = tuple(msgspec.to_builtins(row) for row in changes_of(coordinator))
        snapshots: tuple[dict[str, object], ...] = ()
        if coordinator is not None and coordinator.is_coordinating and coordinator.proposer.value is not None:
            if message.begin:
                coordinator.commit_protocol.want_epoch()
            if message.snapshots:
                snapshots = saved_snapshots(coordinator.value, self.machine.name_of)
        self._context.send(sender, RecoveryStatus(message.request, *rows, changes, snapshots, self.scaling_of(run)))

    def changes_known(self, key: Key) -> list[ChangeRow]:
        """Changes of a run that this node hosts, as the last epoch that it heard of has them."""
        part = self.machine.participants.get(RunId(*key))
        return changes_in(part.value) if part is not None and part.value is not None else []

    def run_status(self, key: Key) -> StatusRows:
        """How it stands with a run that this node coordinates, or knows to work on without who does."""
        run, now, known = RunId(*key), self._context.now, self._context.known()
        coordinator, part = self.machine.coordinators.get(run), self.machine.participants.get(run)
        recovery, epoch = run_status(coordinator, now, known, self.machine.name_of)
        if part is not None and part.is_in_attempt:
            value, since = part.value, part.committed_at
        elif coordinator is not None:
            value, since = coordinator.known, coordinator.progress.committed_at
        else:
            return recovery, epoch
        cut_off = minority_status(value, since, now, self.machine.can_reach, self.machine.name_of)
        if value is None or cut_off is None:
            return recovery, epoch
        return cut_off, epoch or epoch_row_in_minority(value, since, now, known)

    def commit_ages(self, now: Instant) -> tuple[tuple[str, float], ...]:
        """(application, seconds since its last commit) of runs that this node coordinates."""
        led = [
            (run.app, one.progress.committed_at)
            for run, one in self.machine.coordinators.items()
            if one.is_coordinating
        ]
        return tuple((name, (now - at) / SECOND) for name, at in led if at is not None)

    def missing(self) -> tuple[tuple[str, int], ...]:
        """(application, nodes for which it waits) of runs that this node coordinates."""
        led = [one for one in self.machine.coordinators.values() if one.is_coordinating]
        return tuple((one.run.app, len(one.progress.waits_for)) for one in led)

    def patrol(self) -> None:
        """What is over elsewhere, or went elsewhere, ends here, too."""
        self._garbage_collector.patrol()

    def forget(self, hosted: HostedApplication) -> None:
        """An application is over here."""
        if hosted.has_moved:
            self.release_run(hosted.key)
            return
        emitted = self.emitted(hosted.key)
        if self.forget_run(hosted.key) or hosted.part.by_epoch:
            self._context.emit(ForgetRun(*hosted.key, emitted, self._hosting.why_closed(hosted)))

    def emitted(self, key: Key) -> tuple[bytes, ...]:
        """Elements of the sinks here in the last committed epoch that this node knows of."""
        value = self.value(RunId(*key))
        return self._emitted_here(value) if value is not None else ()

    def hosted_runs(self) -> dict[Key, int]:
        """Runs of which this node has the code, and the life that it was in last."""
        attempts = {key: self.machine.participants.get(RunId(*key)) for key in self.runs}
        return {key: part.attempt if part is not None else 0 for key, part in attempts.items()}

    def forget_run(self, key: Key) -> bool:
        """A run is over: nothing of it is known here any more. False when nothing was."""
        run = RunId(*key)
        self._watch(run, ())
        self.end_reporter.forget(run)
        self.attempt_records.forget(run)
        self.runs_on_disk.pop(key, None)
        self.machine.drop_fragments_of(run)
        known = self.runs.pop(key, None) is not None
        known |= self.machine.forget(run)
        self.flush()
        return known

    def release_run(self, key: Key) -> None:
        """Everything that was hosted here runs elsewhere now. What this node votes, and the life that it has entered, stay."""
        if self.runs.pop(key, None) is not None:
            self._context.emit(ForgetPart(*key))

    # ---- effects

    def step(self, event: Event) -> None:
        """An event for the machine."""
        self._carry_out(self.machine.step(event, self._context.now))
        self._look_at_coordinators()

    def flush(self) -> None:
        """Carry out what a call to the machine has begun."""
        self._carry_out(self.machine.take_effects())

    def _report_preload_progress(self, run: RunId, digest: bytes, got: int, of: int) -> None:
        self.machine.report_generation_progress(run, digest, got, of)
        self.flush()

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in tuple(effects):  # a step within this loop begins another list
            match effect:
                case Send():
                    self._context.emit(effect)
                case SetTimer(name=name, at=at):
                    self._context.emit(SetTimer(("recovery", name), at))
                case asked.StoreVoter(request=request, file=file):
                    self._ask_to_keep(request, (file.run.app, file.run.version), "voter", encode(file))
                case asked.StoreAttempt(request=request, file=entered):
                    self._ask_to_keep(request, (entered.run.app, entered.run.version), "life", encode(entered))
                case asked.EnterAttempt():
                    self._stage_changes.entered(effect.run, effect.saved)
                    self.attempt_records.restore_record((effect.run.app, effect.run.version), effect.plan)
                    self._context.requests.begin(self._attempt_entry.enter(effect))
                case asked.BeginSources(run=run):
                    hosted = self._hosting.table.get((run.app, run.version))
                    if hosted is not None:
                        self._hosting.flow(hosted)
                        self.attempt_records.record_attempt(hosted, effect.attempt)
                case asked.EmitBarrier():
                    self._context.emit(barrier_of(effect, self.value(effect.run)))
                case asked.CommitCheckpoint():
                    self._commit(effect)
                case asked.SyncRunLogs(request=request, run=run):
                    self._context.requests.begin(
                        self._driven(request, lambda n: SyncSourceLogs(n, run.app, run.version))
                    )
                case asked.MakeGenerationReady() | asked.PreloadState() | asked.TakeOver() | asked.DiscardGeneration():
                    self._stage_changes.carry_out(effect)
                case _:
                    self._carry_out_of_fragments(effect)

    def _carry_out_of_fragments(self, effect: Effect) -> None:
        match effect:
            case asked.SendFragment(key=about):
                value = self.value(about.run)
                self._state_fetcher.send(effect, value.key if value is not None else b"")
            case asked.FetchStripe():
                self._state_fetcher.fetch(effect)
            case asked.DeleteFragments(keys=keys):
                self._context.emit(DropStoredFragments(keys))

    def _ask_to_keep(self, request: int, key: Key, name: str, content: bytes) -> None:
        self._context.requests.begin(self._driven(request, lambda number: KeepFile(number, *key, name, content)))

    async def _driven(self, request: int, effect: Callable[[int], Effect]) -> None:
        """Have the driver do something that the machine asked for."""
        number = self._context.requests.number()
        answers = await self._context.ask_driver(number, effect(number), self._context.config.start_timeout_ns)
        answer = answers.get(number)
        reason = answer.reason if isinstance(answer, Failed) else "" if answer is not None else "the disk is silent"
        self.step(Failed(request, reason) if reason else Completed(request, None))

    def keep(self, key: Key, name: str, content: bytes) -> None:
        """Keep a file without waiting: files are written in order, so what waits for a later one waits for it, too."""
        self._context.emit(KeepFile(self._context.requests.number(), *key, name, content))

    def value(self, run: RunId) -> RegisterValue | None:
        """What this node knows of the register as a host."""
        part = self.machine.participants.get(run)
        return part.value if part is not None else None

    def _commit(self, effect: asked.CommitCheckpoint) -> None:
        key = (effect.run.app, effect.run.version)
        committed = effect.value.committed
        self._context.emit(CommitEpochRows(*key, committed.epoch))
        run = self.runs.get(key)
        plan = effect.value.plan
        self._stage_changes.plan_committed(effect.run, plan)
        # Who only waits for a plan to come knows the run under the one before (`ChangeFinaliser.adopt`). A coordinator that slept may
        # still tell an epoch of an older one: by that nothing is to be settled there.
        if plan.at(self._context.me.node) or not self._stage_changes.waits(effect.run):
            self._change_finaliser.committed(key, effect.value, self._stage_changes.slots_of(effect.run, plan))
        if run is not None:
            needed = dict.fromkeys(snapshot.digest for snapshot in effect.value.needed.values())
            self._context.emit(RetainSnapshots(*key, tuple(needed), run.base + committed.attempt, committed.epoch))
        emitted = (
            self._emitted_here(effect.value) if run is not None and effect.value.state is RunState.FINISHED else ()
        )
        if emitted:
            self._context.requests.begin(
                self._driven(effect.request, lambda n: CommitLogs(n, *key, committed.epoch, emitted))
            )
        else:
            self.step(Completed(effect.request, None))

    def _emitted_here(self, value: RegisterValue) -> tuple[bytes, ...]:
        """Elements of the sinks here: they say up to where rows count."""
        sinks = [each for each in value.plan.at(self._context.me.node) if each.role is InstanceRole.SINK]
        instance_ids = {each.instance: None for each in sinks}
        chains = [saved.chain for saved in value.emitted if saved.instance in instance_ids]
        return tuple(chain[-1].digest for chain in chains if chain)

    # ---- ends

    def _watch(self, run: RunId, hosts: tuple[Peer, ...]) -> None:
        """Have the overlay probe those of a run for whose death this node has to act."""
        before = self._watched.pop(run, ())
        if hosts:
            self._watched[run] = hosts
        for peer in hosts:
            self._context.watch(peer)
        for peer in before:
            self._context.unwatch(peer)

    def _look_at_coordinators(self) -> None:
        """Whoever coordinates a run watches its hosts, the other voters watch who does."""
        for run, coordinator in self.machine.coordinators.items():
            value = coordinator.proposer.value if coordinator.leads else None
            leader = coordinator.leader if value is None and not coordinator.is_over else None
            hosts = tuple(value.plan.hosts.values()) if value is not None else () if leader is None else (leader,)
            if hosts != self._watched.get(run, ()):
                self._watch(run, hosts)
            self.end_reporter.look(run, coordinator)
            if value is not None:
                self.attempt_records.record_voters(run, value)
