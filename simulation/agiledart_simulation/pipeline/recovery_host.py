"""Virtual node: the recovery machine, with a disk and an engine that carry out its effects."""

from collections.abc import Callable
from hashlib import sha256
from typing import Protocol

import msgspec

from agiledart_kernel.codec import Codec
from agiledart_kernel.instants import MILLISECOND, Instant
from agiledart_kernel.machine import Completed, Effect, Event, Failed, Message, Received, Send, SetTimer, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observer
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.limits import MAX_CONTENT_BYTES
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire.events import (
    AttemptBroken,
    Booted,
    InstanceRowsPassed,
    PinnedInstancePrepared,
    SnapshotTaken,
)
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId
from agiledart_recovery.wire.register_value import Assignment, InstanceSnapshot, Plan, RegisterValue, SavedState
from agiledart_simulation.pipeline.disk import Disk, VirtualSourceLog
from agiledart_simulation.pipeline.instances import VirtualSource, VirtualStage, joined
from agiledart_simulation.pipeline.pipeline_engine import PipelineEngine
from agiledart_simulation.pipeline.pipeline_messages import (
    END,
    FrameAck,
    InstanceState,
    PipelineFrame,
    PipelineRow,
    Position,
    SourceState,
    source_state,
)
from agiledart_simulation.pipeline.snapshot_chains import SnapshotChains, WrongChain, built, whole
from agiledart_simulation.pipeline.standby_events import count_standby
from agiledart_simulation.pipeline.tables import JOINED, is_shared, owned, tables_of

Action = Callable[[], object]

_PUMP_NS = 20 * MILLISECOND
_MEMORY = Codec[InstanceState](InstanceState)

_KEY_WAITS = 500
"""Writes for which an attempt waits for the run's key: a few seconds."""

IN_REGISTER = "Y"
"""Stage whose snapshot is in the register, where a run saves less: it stands for the steps without state."""

SIGNED_COMMAND = b"an admin has signed this"
"""The one command that is valid in a world without keys."""


def _is_signed_command(_: RunId, command: bytes, last: bytes) -> bool:
    return command == SIGNED_COMMAND and command != last


class HostEnvironment(Protocol):
    """Functions that a host needs of the world around it."""

    rows: int
    snapshot_bytes: int
    saves_less: bool
    splits_key: bool

    def write(self, host: "RecoveryHost", action: Action, event: Event | None) -> None:
        """Change the host's disk later, in order; then give the host the event."""
        ...

    def available(self, source: int, number: int) -> bool:
        """Return whether the outside world has produced the row of this number at a source yet."""
        ...

    def fetch(self, host: "RecoveryHost", instance: InstanceId, snapshot: InstanceSnapshot) -> bytes | None:
        """Return a snapshot of an instance, from as many fragments as it needs."""
        ...

    def fetch_from_origin(
        self, host: "RecoveryHost", origin: Peer, instance: InstanceId, snapshot: InstanceSnapshot
    ) -> bytes | None:
        """Return a snapshot of an instance, from the host that saved it."""
        ...

    def store(self, host: "RecoveryHost", effect: asked.SendFragment) -> None:
        """Store a fragment at its replica node."""
        ...

    def reached(self, what: str) -> None:
        """Count a named event."""
        ...

    def report_violation(self, line: str) -> None:
        """Report a violation."""
        ...


class RecoveryHost:
    """One incarnation of a virtual node. `held`: state that it holds ready for the next attempt."""

    def __init__(
        self,
        me: Peer,
        disk: Disk,
        world: HostEnvironment,
        config: RecoveryConfig,
        random: RandomStream,
        observer: Observer,
    ) -> None:
        self.me, self.disk, self.world, self.random = me, disk, world, random
        self.machine = RecoveryMachine(me, config, random, observer, _is_signed_command)
        self.engine: PipelineEngine | None = None
        self.held: asked.HoldStandby | asked.ReleaseStandby | None = None
        self.chains = SnapshotChains()
        self._lacking: tuple[NodeId, ...] = ()  # replica nodes of a snapshot that could not be rebuilt
        self.now = Instant(0)
        self.out: list[Effect] = []

    def report_violation(self, line: str) -> None:
        """Report a violation."""
        self.world.report_violation(line)

    # ---- the machine's contract

    def step(self, event: Event, now: Instant) -> list[Effect]:
        """Process an event: frames go to the engine, all others to the machine."""
        self.now, self.out = now, []
        if isinstance(event, Received) and isinstance(event.message, PipelineFrame | FrameAck):
            if self.engine is not None and isinstance(event.message, PipelineFrame):
                self.engine.on_frame(event.sender, event.message)
            elif self.engine is not None and isinstance(event.message, FrameAck):
                self.engine.on_ack(event.message)
        elif isinstance(event, TimerFired) and event.name == "pump":
            if self.engine is not None:
                self.engine.pump()
                self._report_rows(self.engine)
            self.out.append(SetTimer("pump", Instant(now + _PUMP_NS)))
        elif isinstance(event, _AttemptEntered):
            self._entered(event)
        elif isinstance(event, _SnapshotFetched):
            self._take_over(event.effect)
        elif isinstance(event, _StatePreloaded):
            self._preload_state(event.effect)
        else:
            if isinstance(event, Booted):
                self.out.append(SetTimer("pump", now))
            self._pass_on(event)
        return self.out

    def _report_rows(self, engine: PipelineEngine) -> None:
        """Report to the machine that rows have passed since the last report."""
        if self.world.saves_less and engine.has_passed_rows:
            engine.has_passed_rows = False
            self._pass_on(InstanceRowsPassed(engine.run))

    def statistics(self) -> object:
        """Return the machine's statistics."""
        return self.machine.statistics()

    def boot(self) -> Booted:
        """Return the content of the disk for a starting process."""
        disk = self.disk
        return Booted(tuple(disk.voters.values()), tuple(disk.attempts.values()), tuple(disk.owners.items()))

    def send(self, to: Peer, message: Message) -> None:
        """Send a message, also to this node itself."""
        self.out.append(Send(to, message))

    def reached(self, what: str) -> None:
        """Count a named event."""
        self.world.reached(what)

    # ---- what the machine asks for

    def _pass_on(self, event: Event) -> None:
        for effect in self.machine.step(event, self.now):
            self._carry_out(effect)

    def flush(self) -> None:
        """Carry out the effects of a call to the machine."""
        for effect in self.machine.take_effects():
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        disk = self.disk
        match effect:
            case asked.StoreVoter(request=request, file=file):
                self.world.write(self, lambda: disk.voters.__setitem__(file.run, file), Completed(request))
            case asked.StoreAttempt(request=request, file=attempt):
                self.world.write(self, lambda: disk.attempts.__setitem__(attempt.run, attempt), Completed(request))
            case asked.EnterAttempt():
                self._enter(effect)
            case asked.BeginSources():
                if self.engine is not None:
                    self.engine.is_started = True
            case asked.EmitBarrier():
                if self.engine is not None and self.engine.attempt == effect.attempt:
                    self.engine.barrier(effect.epoch, effect.after)
            case asked.SyncRunLogs(request=request):
                self.world.write(self, self._sync(), Completed(request))
            case asked.CommitCheckpoint():
                self.world.write(self, lambda: self._commit(effect), Completed(effect.request))
            case asked.SendFragment():
                self.world.store(self, effect)
            case asked.DeleteFragments(keys=keys):
                for key in keys:
                    disk.fragments.pop(key, None)
                    disk.owners.pop(key, None)
            case asked.CloseRun():
                self.engine = None
            case _:
                self._carry_out_of_change(effect)

    def _carry_out_of_change(self, effect: Effect) -> None:
        match effect:
            case asked.MakeGenerationReady(request=request):
                self._make_ready(effect, request)
            case asked.PreloadState():
                self.world.write(self, lambda: None, _StatePreloaded(effect))
            case asked.TakeOver():
                self.world.write(self, lambda: None, _SnapshotFetched(effect))
            case asked.HoldStandby() | asked.ReleaseStandby():
                self.held = effect
            case asked.DiscardGeneration(attempt=attempt, digest=digest):
                if self.engine is not None and self.engine.attempt == attempt:
                    self.engine.drop_generation(digest)
            case asked.RunKeyFound():
                pass  # actions that need the key look for it again
            case _:
                self.out.append(effect)

    def _sync(self) -> Action:
        """Return an action that syncs logs up to their current end."""
        upto = {instance: len(log.rows) for instance, log in self.disk.logs.items()}

        def sync() -> None:
            for instance, length in upto.items():
                log = self.disk.logs[instance]
                log.synced = max(log.synced, min(length, len(log.rows)))

        return sync

    def _make_ready(self, effect: asked.MakeGenerationReady, request: int) -> None:
        """Start executors, or refuse for lack of capacity."""
        engine = self.engine
        if engine is None or engine.attempt != effect.attempt:
            return
        if effect.assignments and self.random.index(20) == 0:
            self.world.write(self, lambda: None, Failed(request, "no capacity"))
            return
        engine.make_ready(effect)
        self.world.write(self, lambda: None, Completed(request))

    def _preload_state(self, effect: asked.PreloadState) -> None:
        """Fetch and build the committed state of old instances."""
        reason = ""
        engine = self.engine
        for saved in effect.saved:
            state = self._restored_state(saved)
            if state is None:
                reason = f"fewer than m fragments of {saved.instance} can be reached"
            elif engine is not None and engine.attempt == effect.attempt and effect.after.digest in engine.waiting:
                engine.waiting[effect.after.digest].built[saved.instance] = saved.chain[-1].digest, state
        self._pass_on(Failed(effect.request, reason) if reason else Completed(effect.request))

    def _take_previous_state(self, effect: asked.TakeOver) -> bytes | None:
        """Return what an old instance left: its delta on the preloaded state, or its whole chain."""
        waiting = None if self.engine is None else self.engine.waiting.get(effect.digest)
        onto, state = (b"", b"") if waiting is None else waiting.built.get(effect.saved.instance, (b"", b""))
        if not self.rests_on(effect.saved, onto):
            return self._restored_state(effect.saved, origin=effect.origin)
        snapshot = effect.saved.chain[-1]
        self.world.reached("applied to preloaded state")
        return self._restored_state(SavedState(effect.saved.instance, (snapshot,)), state, effect.origin)

    @staticmethod
    def rests_on(saved: SavedState, built: bytes) -> bool:
        """Return whether what was handed over builds on the preloaded snapshot."""
        return len(saved.chain) > 1 and saved.chain[-2].digest == built

    def _take_over(self, effect: asked.TakeOver) -> None:
        """Fetch the snapshot of an old instance, and take over."""
        raw = self._take_previous_state(effect)
        if self.engine is not None and self.engine.attempt == effect.attempt and raw is not None:
            self.engine.take_over(effect, _MEMORY.decode(raw))
        lacking = f"fewer than m fragments of {effect.saved.instance} can be reached" if raw is None else ""
        self._pass_on(Failed(effect.request, lacking) if lacking else Completed(effect.request))

    def _restored_state(self, saved: SavedState, state: bytes = b"", origin: Peer | None = None) -> bytes | None:
        """Return the state of a chain of snapshots. `state`: what they build on; `origin`: the host that saved them."""
        for snapshot in saved.chain:
            raw = snapshot.content or self.disk.snapshots.get((saved.instance, snapshot.checkpoint))
            if raw is None and origin is not None:
                raw = self.world.fetch_from_origin(self, origin, saved.instance, snapshot)
            raw = raw or self.world.fetch(self, saved.instance, snapshot)
            if raw is None:
                self._lacking = tuple(replica_node for replica_node in snapshot.replica_nodes if replica_node)
                return None
            try:
                state = built(state, raw)
            except WrongChain as error:
                self.world.report_violation(f"V2: {saved.instance}: {error}")
                return None
        if len(saved.chain) > 1:
            self.world.reached("restored from a chain")
        return state

    def _enter(self, effect: asked.EnterAttempt) -> None:
        """End what runs, truncate the sink's part, then restore."""
        self.engine = None
        self.chains = SnapshotChains()
        ends = [end.offset for end in effect.ends]

        def cut() -> None:
            self.cut(ends[0] if ends else 0)

        self.world.write(self, cut, _AttemptEntered(effect))

    def cut(self, end: int) -> None:
        """Truncate a part of a sink to exactly what the register names."""
        part = self.disk.part
        del part.rows[end:]
        part.committed = min(end, len(part.rows))

    def _entered(self, event: "_AttemptEntered") -> None:
        entry = event.entry
        if event.waits < _KEY_WAITS and lacks_key(self, entry.run):
            self.world.write(self, lambda: None, _AttemptEntered(entry, event.waits + 1))
            return
        self._lacking = ()
        memories: dict[InstanceId, InstanceState] = {}
        reason = ""
        for mine in entry.assignments:
            of_stage = [saved for saved in entry.saved if saved.instance.stage == mine.instance.stage and saved.chain]
            own = [saved for saved in of_stage if saved.instance == mine.instance] or of_stage
            raw = [self._restored_state(saved) for saved in own]
            if None in raw:
                reason = f"fewer than m fragments of {mine.instance} can be reached"
                break
            parts = [_MEMORY.decode(state) for state in raw if state is not None]
            if len({part.frontier for part in parts}) > 1:
                reason = "S2: the old instances of a term did not stand at one frontier"
                self.world.report_violation(reason)
            if parts:
                memories[mine.instance] = joined(
                    mine.instance.stage,
                    owned(entry.plan, mine.instance),
                    parts,
                    None,
                    entry.base,
                    shares=is_shared(tables_of(entry.plan), JOINED, mine.instance.stage),
                )
        if reason:
            outcome: Event = Failed(entry.request, reason)
            self.machine.participants[entry.run].lacks(entry.attempt, self._lacking)
        else:
            outcome = Completed(entry.request)
            current = self.machine.participants[entry.run]
            if current.attempt == entry.attempt:
                count_standby(self.world.reached, self.held, entry)
                self.engine = PipelineEngine(self, entry, memories)
        self._pass_on(outcome)

    def _commit(self, effect: asked.CommitCheckpoint) -> None:
        """Write COMMIT at the sink's part, trim logs, delete snapshots."""
        value, disk = effect.value, self.disk
        for end in value.parts:
            if end.host == self.me.node and end.offset <= len(disk.part.rows):
                disk.part.committed = max(disk.part.committed, end.offset)
        for saved in value.saved:
            log = disk.logs.get(saved.instance)
            if log is not None and saved.position:
                log.trimmed = max(log.trimmed, source_state(_read_again_from(value, saved)).position)
            self.chains.committed(saved.instance, saved.checkpoint)
        if self.engine is not None:
            self.engine.committed(value.plan)
        needed = value.needed
        for instance, checkpoint in list(disk.snapshots):
            if (instance, checkpoint) not in needed and checkpoint.epoch <= value.committed.epoch:
                del disk.snapshots[instance, checkpoint]

    # ---- what the engine asks for

    def read(self, mine: Assignment, number: int) -> PipelineRow | Position | None:
        """Return a source's row: by its number where it can be read again, else from the log, else from the world."""
        if number >= self.world.rows:
            return END
        index = mine.instance.index
        if not mine.has_log:
            return (
                PipelineRow((10 * number + 7 * number % 10, index), number, 0)
                if self.world.available(index, number)
                else None
            )
        log = self.disk.logs.setdefault(mine.instance, VirtualSourceLog())
        if number < len(log.rows):
            return log.rows[number]
        if not self.world.available(index, number):
            return None
        row = self.decide_row(index, number)
        log.rows.append(row)
        if not self.random.index(50):
            self.world.write(self, self._sync(), None)
        return row

    def decide_row(self, index: int, number: int) -> PipelineRow:
        """Draw a row of a source that cannot be read again: its content depends on when it was read."""
        return PipelineRow((10 * number + self.random.index(10), index), number, self.random.bits(30))

    def store_position(
        self,
        engine: PipelineEngine,
        source: VirtualSource,
        checkpoint: CheckpointId,
        after: Plan | None,
        *,
        has_ended: bool,
    ) -> None:
        """Prepare a source when its log is on the disk up to its barrier."""
        state = SourceState(source.position, engine.overtaken(source.instance))
        saved = SavedState(source.instance, (), msgspec.msgpack.encode(state))
        event = PinnedInstancePrepared(engine.run, source.instance, checkpoint, saved, 0, after, True, has_ended)
        self.world.write(self, self._sync(), event)

    def store_snapshot(
        self,
        engine: PipelineEngine,
        stage: VirtualStage,
        checkpoint: CheckpointId,
        raw: bytes,
        after: Plan | None,
        *,
        has_ended: bool,
    ) -> None:
        """Write a stage's snapshot to the local disk, then replicate it."""
        key, onto = (stage.instance, checkpoint), b""
        is_small = self.world.saves_less and stage.instance.stage == IN_REGISTER and after is None
        if is_small and len(content := whole(raw)) <= MAX_CONTENT_BYTES:
            self._store_in_register(engine, stage, checkpoint, content, has_ended=has_ended)
            return
        if has_ended:
            raw = whole(raw)
        else:
            raw, onto = self.chains.saved(stage.instance, checkpoint, raw, is_last=after is not None)
        event = SnapshotTaken(
            engine.run,
            stage.instance,
            checkpoint,
            sha256(raw).digest(),
            self.world.snapshot_bytes,
            onto,
            after,
            stage.is_caught_up,
            has_ended,
        )
        self.world.write(self, lambda: self.disk.snapshots.__setitem__(key, raw), event)

    def _store_in_register(
        self, engine: PipelineEngine, stage: VirtualStage, checkpoint: CheckpointId, raw: bytes, *, has_ended: bool
    ) -> None:
        """Give a stage's snapshot to the register instead of the disk."""
        self.world.reached("saved in the register")
        about = (engine.run, stage.instance, checkpoint, sha256(raw).digest(), len(raw), b"", None)
        event = SnapshotTaken(*about, stage.is_caught_up, has_ended, content=raw)
        self.world.write(self, lambda: None, event)

    def store_rows(
        self,
        engine: PipelineEngine,
        stage: VirtualStage,
        checkpoint: CheckpointId,
        raw: bytes,
        rows: list[PipelineRow],
        end: int,
        after: Plan | None,
        *,
        has_ended: bool,
    ) -> None:
        """Prepare a sink when its rows before the barrier and those that wait in its merge are on the disk."""
        is_pinned, key = stage.mine.is_pinned, (stage.instance, checkpoint)
        raw = whole(raw)
        chain = (InstanceSnapshot(checkpoint, sha256(raw).digest(), len(raw), 1, ()),) if is_pinned else ()
        event = PinnedInstancePrepared(
            engine.run, stage.instance, checkpoint, SavedState(stage.instance, chain), end, after, True, has_ended
        )

        def keep() -> None:
            self.disk.part.rows.extend(rows)
            if is_pinned:
                self.disk.snapshots[key] = raw

        self.world.write(self, keep, event)

    def broken(self, engine: PipelineEngine, reason: str) -> None:
        """Report to the machine that its attempt cannot continue."""
        self._pass_on(AttemptBroken(engine.run, engine.attempt, reason))


def lacks_key(host: RecoveryHost, run: RunId) -> bool:
    """Return whether a host cannot make or read fragments of a run yet."""
    lacks = host.world.splits_key and not host.machine.run_key(run)
    host.flush()
    return lacks


def _read_again_from(value: RegisterValue, saved: SavedState) -> bytes:
    """Return the position up to which a log may be trimmed. Where the run may roll back, the previous epoch needs it, too."""
    saved_states = value.before if value.fallback_checkpoint is not None else value.saved
    return next((saved_state.position for saved_state in saved_states if saved_state.instance == saved.instance), b"")


class _AttemptEntered(Event, frozen=True, gc=False):
    """Event: the sink's part is truncated; restore now."""

    entry: asked.EnterAttempt
    waits: int = 0


class _StatePreloaded(Event, frozen=True, gc=False):
    """Event: the fetch of committed snapshots has taken its time."""

    effect: asked.PreloadState


class _SnapshotFetched(Event, frozen=True, gc=False):
    """Event: the fetch of a snapshot has taken its time."""

    effect: asked.TakeOver
