"""The recovery state machine's driver inside a node.

`RecoveryService` turns events of the ring, the executors and the disk into events of the machine. It turns the machine's effects
into files, effects for executors, and new attempts of the runs that this node hosts.

| source | what it becomes |
|---|---|
| the overlay: a peer is gone, or known | `HostLost`, `HostBack` |
| an executor: an instance was saved, or crashed | `SnapshotTaken`, `PinnedInstancePrepared`, `AttemptBroken` |
| the disk, at the start | `Booted` |
| the machine: `EnterAttempt` | `AttemptEntry`: state, code, restart; nothing for the first attempt, which is deployed in waves |
| the machine: fragments | `StateFetcher` sends and fetches them, `FragmentAdmission` checks those of other nodes |
| the machine: an epoch | `EmitBarrier`, `CommitEpochRows`, `RetainSnapshots` |
| the register: the end | `RunClosed` to the node that writes the application's record |
"""

from collections.abc import Callable, Hashable, Sequence

import msgspec

from agiledart_dataflow.plan.deployment import DeploymentPart, PlacedInstance
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import MILLISECOND, Duration
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
from agiledart_node.recovery.placement_host_rules import PlacementHostRules
from agiledart_node.recovery.prepared_event import prepared_event
from agiledart_node.recovery.recovery_status_reporter import RecoveryStatusReporter
from agiledart_node.recovery.register_bootstrap import (
    RegisterBootstrap,
)
from agiledart_node.recovery.stage_changes import StageChanges, barrier_of
from agiledart_node.recovery.standby_service import StandbyService
from agiledart_node.recovery.state_fetcher import StateFetcher
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
    GenerationListening,
    RequestPart,
)
from agiledart_recovery.recovery_context import IsCommandAuthorised, accept_any_command
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire import events
from agiledart_recovery.wire.messages import RequestVoterSlot, RunMessage
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import (
    InstanceRole,
    Plan,
    RegisterValue,
    RunState,
)

CONSEQUENCE_NS = Duration(1_600 * MILLISECOND)
"""Wait before a broken link counts as a failure of its own, because a dead host may explain it.

It is a little longer than the overlay needs to declare a host dead whose links broke.
"""

_PART: Codec[DeploymentPart] = Codec(DeploymentPart)
_VOTER: Codec[asked.VoterFile] = Codec(asked.VoterFile, limit=MAX_RECORD_BYTES)
_ATTEMPT: Codec[asked.AttemptFile] = Codec(asked.AttemptFile)


class RecoveryService:
    """Recovery of the runs that this node hosts, coordinates or votes on.

    Attributes:
        closed: callback for a run that has ended in its register: (hosted, state, reason).
        attempt_records: writes attempts and voters of runs into application records.
        end_reporter: reports the ends of runs, and receives such reports.
        bootstrap: creates registers of new runs.
        status: rows about runs for users and metrics.
        runs_on_disk: runs that had files on the disk at the start, readable or not.

    Args:
        secret: drawn by the driver; the keys of runs whose registers this node bootstraps are derived from it.
        is_command_authorised: checks an admin's command to continue without lost voters.
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
        self._context, self._records, self._hosting = context, records, hosting
        self.machine = RecoveryMachine(
            context.me, context.config.recovery, random, context.observe, is_command_authorised
        )
        self.host_rules = PlacementHostRules(context)
        self.machine.set_host_rules(self.host_rules)
        self._fragment_admission = FragmentAdmission(context, records, self.machine)
        self._state_fetcher = StateFetcher(context, self.machine, self.step, self.flush)
        self._garbage_collector = GarbageCollector(context, records, hosting, self)
        self._watched: dict[RunId, tuple[Peer, ...]] = {}
        self.runs: dict[Key, HostedRun] = {}
        self._change_finaliser = ChangeFinaliser(
            context, records, hosting, self.runs, lambda key, part: self.keep(key, "part", encode(part))
        )
        self.attempt_entry = attempt_entry = AttemptEntry(
            context, hosting, self, self._state_fetcher, self._change_finaliser
        )
        about = (
            attempt_entry.obtain_run,
            attempt_entry.ensure_old_state,
            self._report_preload_progress,
            attempt_entry.check_free_capacity,
        )
        self._stage_changes = StageChanges(context, self.step, *about, self._change_finaliser)
        self.standbys = StandbyService(context, attempt_entry.obtain_run, attempt_entry.ensure_old_state)
        attempt_entry.local_snapshots = self.standbys.local_snapshots
        self.attempt_records = AttemptRecords(context, records, self)
        self.end_reporter = EndReporter(context, hosting, self)
        self.closed: Callable[[HostedApplication, str, str], None] = lambda hosted, state, reason: None
        self._known: dict[NodeId, int] = {}
        self.bootstrap = RegisterBootstrap(context, self.machine, secret, self.step, self.flush)
        self.status = RecoveryStatusReporter(context, self.machine)
        self.runs_on_disk: dict[Key, None] = {}
        hosting.on_part, hosting.on_rows_passed = self._take_part, self._on_rows_passed

    def _take_part(self, hosted: HostedApplication, part: DeploymentPart) -> None:
        """Remember the instances that this node was given, together with the code, also on the disk."""
        if not part.by_epoch or not part.instances:
            return
        run = self.runs.get(hosted.key)
        earlier: tuple[PlacedInstance, ...] = ()
        if run is not None and run.part.attempt == part.attempt:
            earlier = tuple(instance for instance in run.part.instances if instance not in part.instances)
        whole = msgspec.structs.replace(part, bundle=hosted.bundle, instances=(*earlier, *part.instances))
        self.runs[hosted.key] = HostedRun(whole, part.attempt - 1)
        self.keep(hosted.key, "part", encode(whole))

    # ---- events

    def received(self, sender: Peer, message: RunMessage) -> None:
        """Pass a message of the register's protocol to the machine.

        A node that leaves the ring ignores requests for a voter slot: the coordinator asks other nodes then.
        """
        if not (self._context.is_leaving and isinstance(message, RequestVoterSlot)):
            self.step(Received(sender, message))

    def timer_fired(self, name: Hashable) -> None:
        """Pass an expired timer of the machine on."""
        self.step(TimerFired(name))

    def found_on_disk(self, event: RunsFound) -> None:
        """Boot the machine from the files that the previous process of this node left."""
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
        """Report peers that the overlay has newly discovered, or that have a new incarnation, to the machine."""
        for peer in self._context.overlay.known_peers():
            if self._known.get(peer.node) != peer.incarnation:
                self._known[peer.node] = peer.incarnation
                self.step(events.HostBack(peer))
        self._update_candidates()

    def peer_gone(self, peer: Peer) -> None:
        """Report to the machine that a peer is dead, cut off, or has left."""
        self._known.pop(peer.node, None)
        self._update_candidates()
        self.step(events.HostLost(peer.node))

    def _update_candidates(self) -> None:
        """Give the machine the live peers, nearest first, that could hold fragments or take over instances."""
        nearest = self._context.nearest_of(tuple(self._context.overlay.known_peers()))
        self.step(events.CandidatesFound(tuple(peer for peer in nearest if self._context.overlay.is_alive(peer.node))))

    def offered(self, event: FragmentOffered) -> None:
        """Decide whether this node stores a fragment that a peer offers."""
        self._fragment_admission.offered(event)

    def damaged(self, event: events.FragmentDamaged) -> None:
        """Report a damaged fragment on this disk to the machine, so that its owner makes it again."""
        self.step(event)

    @property
    def lacking(self) -> int:
        """Number of fragments of snapshots saved here that no replica node holds."""
        return self.machine.lacking

    def stored(self, event: FragmentStored) -> None:
        """Register a fragment that is now on the disk."""
        self.machine.fragment_store.put(event.key, event.owner.node)

    def prepared(self, event: InstancePrepared) -> None:
        """Report the saved snapshot of a local instance to the machine."""
        key = (event.application, event.version)
        part = self.machine.participants.get(RunId(*key))
        if key in self.runs and key in self._hosting.table and part is not None and part.value is not None:
            self.step(prepared_event(event, part, part.value))

    def _on_rows_passed(self, hosted: HostedApplication) -> None:
        """Report to the machine that rows have passed a local instance."""
        if (run := RunId(*hosted.key)) in self.machine.participants:
            self.step(events.InstanceRowsPassed(run))

    def broken(self, hosted: HostedApplication, event: InstanceFailed) -> None:
        """Report a local instance that failed, not because of the user's code."""
        run = RunId(*hosted.key)
        part = self.machine.participants.get(run)
        if part is None or not part.is_in_attempt:
            return  # the run is ending anyway
        broken = events.AttemptBroken(run, part.attempt, event.message, event.is_crash)
        if event.is_consequence:
            self._context.requests.begin(self._broken_later(broken))
        else:
            self.step(broken)

    async def _broken_later(self, broken: events.AttemptBroken) -> None:
        """Report a broken link, but only after a pause.

        The report of a broken link often arrives before the overlay's report that the host at its other end is dead.
        A plan that still contains a dead host would cost one more attempt.
        """
        await self._context.requests.pause(CONSEQUENCE_NS)
        self.step(broken)

    def listening(self, sender: Peer, message: AttemptListening) -> None:
        """Note where the instances of another host listen."""
        key = (message.application, message.version)
        run, part = self.runs.get(key), self.machine.participants.get(RunId(*key))
        if run is None or part is None or part.value is None:
            return  # this node is not that far yet: the sender repeats the message
        if message.attempt > run.attempt and sender.node not in part.value.plan.hosts:
            return  # this node has not received the plan in which the sender hosts something
        if not run.note(message.attempt, message.addresses):
            return  # the sender repeats the message until this node is that far
        if run.has_all() and run.awaited is not None:
            self._context.requests.resolve(run.awaited[2], True)
        self._context.send(sender, Acknowledged(message.request))

    def ask_part(self, sender: Peer, message: RequestPart) -> None:
        """Send the run's code to another host of the attempt."""
        key = (message.application, message.version)
        part = self.machine.participants.get(RunId(*key))
        value, pending = (part.value, part.generation_preparation.plan) if part is not None else (None, None)
        models = self.attempt_entry.models_of(key[0])
        if (answer := bundle_answer(self.runs.get(key), value, pending, sender, message, models)) is not None:
            self._context.send(sender, answer)

    def change(self, run: RunId, plan: Plan) -> str:
        """Start changing stages of a run that this node coordinates. Return why not; empty: the change has started."""
        refusal = self.machine.request_change(run, plan)
        self.flush()
        return refusal

    def evacuate(self, run: RunId, host: Peer) -> str:
        """Exclude a host from the next attempt of a run that this node coordinates. Return why not; empty: it was accepted."""
        refusal = self.machine.request_evacuation(run, host)
        self.flush()
        return refusal

    def flush_request(self, why: str) -> str:
        """Carry out the effects of a request to the machine; return `why` unchanged: the machine's refusal, or empty."""
        self.flush()
        return why

    def generation_listening(self, sender: Peer, message: GenerationListening) -> None:
        """Note where another host's instances of a new generation listen."""
        self._stage_changes.listening(sender, message)

    def patrol(self) -> None:
        """Delete what this node still has of runs that ended, or moved elsewhere, without its notice."""
        self._garbage_collector.patrol()

    def forget(self, hosted: HostedApplication) -> None:
        """Delete an application that is over here."""
        if hosted.has_moved:
            self.release_run(hosted.key)
            return
        emitted = self.emitted(hosted.key)
        if self.forget_run(hosted.key) or hosted.part.by_epoch:
            self._context.emit(ForgetRun(*hosted.key, emitted, self._hosting.why_closed(hosted)))

    def emitted(self, key: Key) -> tuple[bytes, ...]:
        """Return the digests of snapshots of local sinks in the last committed epoch that this node knows."""
        value = self.value(RunId(*key))
        return self._emitted_here(value) if value is not None else ()

    def hosted_runs(self) -> dict[Key, int]:
        """Return the runs whose code this node has, each with the attempt that it was in last."""
        attempts = {key: self.machine.participants.get(RunId(*key)) for key in self.runs}
        return {key: part.attempt if part is not None else 0 for key, part in attempts.items()}

    def forget_run(self, key: Key) -> bool:
        """Delete everything that this node knows about a run that is over. Return False when there was nothing."""
        run = RunId(*key)
        self._watch(run, ())
        self.standbys.forget(key)
        self.end_reporter.forget(run)
        self.attempt_records.forget(run)
        self.runs_on_disk.pop(key, None)
        self.machine.drop_fragments_of(run)
        known = self.runs.pop(key, None) is not None
        known |= self.machine.forget(run)
        self.flush()
        return known

    def release_run(self, key: Key) -> None:
        """Delete the part of a run whose local instances all run elsewhere now. Votes and the entered attempt stay."""
        self.standbys.forget(key)
        if self.runs.pop(key, None) is not None:
            self._context.emit(ForgetPart(*key))

    # ---- effects

    def step(self, event: Event) -> None:
        """Pass an event to the machine and carry out the effects."""
        run = self.machine.run_of(event)
        self._carry_out(self.machine.step(event, self._context.now))
        if not isinstance(event, events.InstanceRowsPassed):  # frequent, and it changes no leader and no host
            self._look_at_coordinators(run)

    def flush(self) -> None:
        """Carry out the effects that a call to the machine has produced."""
        self._carry_out(self.machine.take_effects())

    def _report_preload_progress(self, run: RunId, digest: bytes, got: int, of: int) -> None:
        self.machine.report_generation_progress(run, digest, got, of)
        self.flush()

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in tuple(effects):  # a copy: a step within this loop starts another list
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
                    self._context.requests.begin(self.attempt_entry.enter(effect))
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
                case asked.HoldStandby() | asked.ReleaseStandby():
                    self.standbys.carry_out(effect)
                case asked.MakeGenerationReady() | asked.PreloadState() | asked.TakeOver() | asked.DiscardGeneration():
                    self._stage_changes.carry_out(effect)
                case _:
                    self._carry_out_of_fragments(effect)

    def _carry_out_of_fragments(self, effect: Effect) -> None:
        match effect:
            case asked.SendFragment():
                self._state_fetcher.send(effect)
            case asked.RunKeyFound(run=run):
                self._state_fetcher.on_run_key(run)
            case asked.FetchStripe():
                self._state_fetcher.fetch(effect)
            case asked.DeleteFragments(keys=keys):
                self._context.emit(DropStoredFragments(keys))

    def _ask_to_keep(self, request: int, key: Key, name: str, content: bytes) -> None:
        self._context.requests.begin(self._driven(request, lambda number: KeepFile(number, *key, name, content)))

    async def _driven(self, request: int, effect: Callable[[int], Effect]) -> None:
        """Have the driver carry out an effect of the machine, and report its outcome to the machine."""
        number = self._context.requests.number()
        answers = await self._context.ask_driver(number, effect(number), self._context.config.start_timeout_ns)
        answer = answers.get(number)
        silent = "" if answer is not None else "the disk did not answer in time"
        reason = answer.reason if isinstance(answer, Failed) else silent
        self.step(Failed(request, reason) if reason else Completed(request, None))

    def keep(self, key: Key, name: str, content: bytes) -> None:
        """Write a file without waiting for it. Files are written in order, so a wait for a later one includes it."""
        self._context.emit(KeepFile(self._context.requests.number(), *key, name, content))

    def value(self, run: RunId) -> RegisterValue | None:
        """Return the register's value as this node knows it as a host; None when it hosts nothing of the run."""
        part = self.machine.participants.get(run)
        return part.value if part is not None else None

    def _commit(self, effect: asked.CommitCheckpoint) -> None:
        key = (effect.run.app, effect.run.version)
        committed = effect.value.committed
        self._context.emit(CommitEpochRows(*key, committed.epoch))
        run = self.runs.get(key)
        plan = effect.value.plan
        self._stage_changes.plan_committed(effect.run, plan)
        # A node that only waits for a pending plan knows the run under the plan before (`ChangeFinaliser.adopt`). A coordinator
        # that was suspended may still report an epoch of an older plan: such a report must not finalise a change there.
        if plan.at(self._context.me.node) or not self._stage_changes.waits(effect.run):
            self._change_finaliser.committed(key, effect.value, self._stage_changes.slots_of(effect.run, plan))
        if run is not None:
            needed = dict.fromkeys(snapshot.digest for snapshot in effect.value.needed.values())
            self._context.emit(RetainSnapshots(*key, tuple(needed), run.base + committed.attempt, committed.epoch))
        # When the run has finished, its last rows must be durable in the sink logs before the machine goes on.
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
        """Return the digests of snapshots of local sinks; they tell up to which position rows are committed.

        A sink whose snapshot the register holds has published all its rows at once.
        """
        mine = value.plan.at(self._context.me.node)
        instance_ids = {assignment.instance: None for assignment in mine if assignment.role is InstanceRole.SINK}
        chains = [saved.chain for saved in value.emitted if saved.instance in instance_ids]
        return tuple(chain[-1].digest for chain in chains if chain and not chain[-1].content)

    # ---- ends

    def _watch(self, run: RunId, hosts: tuple[Peer, ...]) -> None:
        """Have the overlay probe the peers of a run on whose death this node must act."""
        before = self._watched.pop(run, ())
        if hosts:
            self._watched[run] = hosts
        for peer in hosts:
            self._context.watch(peer)
        for peer in before:
            self._context.unwatch(peer)

    def _look_at_coordinators(self, only: RunId | None) -> None:
        """Watch the hosts of each run that this node coordinates; of other runs that it votes on, watch the coordinator.

        Args:
            only: the run that a step was about; None looks at all runs.
        """
        coordinators = self.machine.coordinators
        runs = tuple(coordinators) if only is None else (only,) if only in coordinators else ()
        for run in runs:
            coordinator = coordinators[run]
            value = coordinator.proposer.value if coordinator.leads else None
            leader = coordinator.leader if value is None and not coordinator.is_over else None
            hosts = tuple(value.plan.hosts.values()) if value is not None else () if leader is None else (leader,)
            if hosts != self._watched.get(run, ()):
                self._watch(run, hosts)
            self.end_reporter.look(run, coordinator)
            if value is not None:
                self.attempt_records.record_voters(run, value)
