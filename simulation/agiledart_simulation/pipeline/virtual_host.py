"""A virtual node: the recovery machine, and around it a disk and an engine that do what the machine asks for."""

from collections.abc import Callable
from hashlib import sha256
from typing import Protocol

from agiledart_kernel.codec import Codec
from agiledart_kernel.instants import MILLISECOND, Instant
from agiledart_kernel.machine import Completed, Effect, Event, Failed, Message, Received, Send, SetTimer, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observe import Observer
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.config import RecoveryConfig
from agiledart_recovery.machine import RecoveryMachine
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire.events import Booted, LifeBroken, PartyPrepared, PartySnapped
from agiledart_recovery.wire.names import Party, Run, Snapshot
from agiledart_recovery.wire.value import Assignment, Element, Plan, Saved, Value
from agiledart_simulation.pipeline.chains import Chains, WrongChain, built, whole
from agiledart_simulation.pipeline.disk import Disk, SourceLog
from agiledart_simulation.pipeline.engine import Engine
from agiledart_simulation.pipeline.parties import Source, Stage, joined
from agiledart_simulation.pipeline.pipeline_messages import END, Frame, FrameAck, Memory, Position, Row
from agiledart_simulation.pipeline.tables import JOINED, is_shared, owned, tables_of

Action = Callable[[], object]

_PUMP_NS = 20 * MILLISECOND
_MEMORY = Codec[Memory](Memory)

ORDERED = b"an admin has signed this"
"""In a world without keys this is the one order that counts."""


def _is_ordered(_: Run, order: bytes, last: bytes) -> bool:
    return order == ORDERED and order != last


class Surroundings(Protocol):
    """What a host needs of the world around it."""

    rows: int
    element_bytes: int

    def write(self, host: "RecoveryHost", action: Action, event: Event | None) -> None:
        """Do something to the host's disk later, in order; then give it the event."""
        ...

    def available(self, source: int, number: int) -> bool:
        """Whether the outside world has brought forth a row of this number at a source yet."""
        ...

    def fetch(self, host: "RecoveryHost", party: Party, element: Element) -> bytes | None:
        """An element of a party, from as many fragments as it needs."""
        ...

    def given(self, host: "RecoveryHost", origin: Peer, party: Party, element: Element) -> bytes | None:
        """An element of a party, from the host that saved it."""
        ...

    def store(self, host: "RecoveryHost", effect: asked.SendFragment) -> None:
        """Bring a fragment to its holder."""
        ...

    def reached(self, what: str) -> None:
        """Count something that happened."""
        ...

    def wrong(self, line: str) -> None:
        """Something that must never be so."""
        ...


class RecoveryHost:
    """One life of a virtual node."""

    def __init__(
        self,
        me: Peer,
        disk: Disk,
        world: Surroundings,
        config: RecoveryConfig,
        random: RandomStream,
        observer: Observer,
    ) -> None:
        self.me, self.disk, self.world, self.random = me, disk, world, random
        self.machine = RecoveryMachine(me, config, random, observer, _is_ordered)
        self.engine: Engine | None = None
        self.chains = Chains()
        self._lacking: tuple[NodeId, ...] = ()  # holders of an element that could not be rebuilt
        self.now = Instant(0)
        self.out: list[Effect] = []

    def wrong(self, line: str) -> None:
        """Something that must never be so."""
        self.world.wrong(line)

    # ---- the machine's contract

    def step(self, event: Event, now: Instant) -> list[Effect]:
        """Frames go to the engine, all else to the machine."""
        self.now, self.out = now, []
        if isinstance(event, Received) and isinstance(event.message, Frame | FrameAck):
            if self.engine is not None and isinstance(event.message, Frame):
                self.engine.on_frame(event.sender, event.message)
            elif self.engine is not None and isinstance(event.message, FrameAck):
                self.engine.on_ack(event.message)
        elif isinstance(event, TimerFired) and event.name == "pump":
            if self.engine is not None:
                self.engine.pump()
            self.out.append(SetTimer("pump", Instant(now + _PUMP_NS)))
        elif isinstance(event, _Entered):
            self._entered(event)
        elif isinstance(event, _Fetched):
            self._take_over(event.effect)
        elif isinstance(event, _Ahead):
            self._build_ahead(event.effect)
        else:
            if isinstance(event, Booted):
                self.out.append(SetTimer("pump", now))
            for effect in self.machine.step(event, now):
                self._carry_out(effect)
        return self.out

    def statistics(self) -> object:
        """See `RecoveryMachine`."""
        return self.machine.statistics()

    def boot(self) -> Booted:
        """What the process finds on its disk."""
        disk = self.disk
        return Booted(tuple(disk.voters.values()), tuple(disk.lives.values()), tuple(disk.owners.items()))

    def send(self, to: Peer, message: Message) -> None:
        """Send, also to oneself."""
        self.out.append(Send(to, message))

    def reached(self, what: str) -> None:
        """Count something that happened."""
        self.world.reached(what)

    # ---- what the machine asks for

    def _carry_out(self, effect: Effect) -> None:
        disk = self.disk
        match effect:
            case asked.KeepVoter(request=request, file=file):
                self.world.write(self, lambda: disk.voters.__setitem__(file.run, file), Completed(request))
            case asked.KeepLife(request=request, file=life):
                self.world.write(self, lambda: disk.lives.__setitem__(life.run, life), Completed(request))
            case asked.EnterLife():
                self._enter(effect)
            case asked.StartSources():
                if self.engine is not None:
                    self.engine.is_started = True
            case asked.PassBarrier():
                if self.engine is not None and self.engine.life == effect.life:
                    self.engine.barrier(effect.epoch, effect.after)
            case asked.SyncLogs(request=request):
                self.world.write(self, self._sync(), Completed(request))
            case asked.CommitEpoch():
                self.world.write(self, lambda: self._commit(effect), Completed(effect.request))
            case asked.SendFragment():
                self.world.store(self, effect)
            case asked.DropFragments(keys=keys):
                for key in keys:
                    disk.fragments.pop(key, None)
                    disk.owners.pop(key, None)
            case asked.CloseRun():
                self.engine = None
            case _:
                self._carry_out_of_change(effect)

    def _carry_out_of_change(self, effect: Effect) -> None:
        match effect:
            case asked.MakeTermReady(request=request):
                self._make_ready(effect, request)
            case asked.BuildAhead():
                self.world.write(self, lambda: None, _Ahead(effect))
            case asked.TakeOver():
                self.world.write(self, lambda: None, _Fetched(effect))
            case asked.DropTerm(life=life, digest=digest):
                if self.engine is not None and self.engine.life == life:
                    self.engine.drop_term(digest)
            case _:
                self.out.append(effect)

    def _sync(self) -> Action:
        """Logs up to where they are now."""
        upto = {party: len(log.rows) for party, log in self.disk.logs.items()}

        def sync() -> None:
            for party, length in upto.items():
                log = self.disk.logs[party]
                log.synced = max(log.synced, min(length, len(log.rows)))

        return sync

    def _make_ready(self, effect: asked.MakeTermReady, request: int) -> None:
        """Executors start, or there is no room for them."""
        engine = self.engine
        if engine is None or engine.life != effect.life:
            return
        if effect.assignments and self.random.index(20) == 0:
            self.world.write(self, lambda: None, Failed(request, "no room"))
            return
        engine.make_ready(effect)
        self.world.write(self, lambda: None, Completed(request))

    def _build_ahead(self, effect: asked.BuildAhead) -> None:
        """What is committed of old instances is brought here, and built."""
        reason = ""
        engine = self.engine
        for saved in effect.saved:
            state = self._element(saved)
            if state is None:
                reason = f"fewer than m fragments of {saved.party} can be reached"
            elif engine is not None and engine.life == effect.life and effect.after.digest in engine.waiting:
                engine.waiting[effect.after.digest].built[saved.party] = saved.chain[-1].digest, state
        outcome: Event = Failed(effect.request, reason) if reason else Completed(effect.request)
        for after in self.machine.step(outcome, self.now):
            self._carry_out(after)

    def _handed(self, effect: asked.TakeOver) -> bytes | None:
        """What an old instance left: what has changed, put on what was built; all of its chain where it rests on something else."""
        waiting = None if self.engine is None else self.engine.waiting.get(effect.digest)
        onto, state = (b"", b"") if waiting is None else waiting.built.get(effect.saved.party, (b"", b""))
        if not self.rests_on(effect.saved, onto):
            return self._element(effect.saved, origin=effect.origin)
        element = effect.saved.chain[-1]
        self.world.reached("put on what was built")
        return self._element(Saved(effect.saved.party, (element,)), state, effect.origin)

    @staticmethod
    def rests_on(saved: Saved, built: bytes) -> bool:
        """Does what was handed over rest on the element that was built?"""
        return len(saved.chain) > 1 and saved.chain[-2].digest == built

    def _take_over(self, effect: asked.TakeOver) -> None:
        """The element of an old instance is brought here."""
        raw = self._handed(effect)
        if self.engine is not None and self.engine.life == effect.life and raw is not None:
            self.engine.take_over(effect, _MEMORY.decode(raw))
        lacking = f"fewer than m fragments of {effect.saved.party} can be reached" if raw is None else ""
        outcome: Event = Failed(effect.request, lacking) if lacking else Completed(effect.request)
        for after in self.machine.step(outcome, self.now):
            self._carry_out(after)

    def _element(self, saved: Saved, state: bytes = b"", origin: Peer | None = None) -> bytes | None:
        """The state that a chain of elements says, in their order; `state`: what they rest on; `origin`: who has saved them."""
        for element in saved.chain:
            raw = self.disk.elements.get((saved.party, element.snapshot))
            if raw is None and origin is not None:
                raw = self.world.given(self, origin, saved.party, element)
            raw = raw or self.world.fetch(self, saved.party, element)
            if raw is None:
                self._lacking = tuple(holder for holder in element.holders if holder)
                return None
            try:
                state = built(state, raw)
            except WrongChain as error:
                self.world.wrong(f"V2: {saved.party}: {error}")
                return None
        if len(saved.chain) > 1:
            self.world.reached("restored from a chain")
        return state

    def _enter(self, effect: asked.EnterLife) -> None:
        """End what runs; cut the part of the sink; restore."""
        self.engine = None
        self.chains = Chains()
        ends = [end.offset for end in effect.ends]

        def cut() -> None:
            self.cut(ends[0] if ends else 0)

        self.world.write(self, cut, _Entered(effect))

    def cut(self, end: int) -> None:
        """A part of a sink keeps exactly what the register names."""
        part = self.disk.part
        del part.rows[end:]
        part.committed = min(end, len(part.rows))

    def _entered(self, event: "_Entered") -> None:
        entry = event.entry
        self._lacking = ()
        memories: dict[Party, Memory] = {}
        reason = ""
        for mine in entry.assignments:
            of_stage = [each for each in entry.saved if each.party.stage == mine.party.stage and each.chain]
            own = [each for each in of_stage if each.party == mine.party] or of_stage
            raw = [self._element(each) for each in own]
            if None in raw:
                reason = f"fewer than m fragments of {mine.party} can be reached"
                break
            parts = [_MEMORY.decode(one) for one in raw if one is not None]
            if len({part.frontier for part in parts}) > 1:
                reason = "S2: the old instances of a term did not stand at one frontier"
                self.world.wrong(reason)
            if parts:
                memories[mine.party] = joined(
                    mine.party.stage,
                    owned(entry.plan, mine.party),
                    parts,
                    None,
                    entry.base,
                    shares=is_shared(tables_of(entry.plan), JOINED, mine.party.stage),
                )
        if reason:
            outcome: Event = Failed(entry.request, reason)
            self.machine.participants[entry.run].lacks(entry.life, self._lacking)
        else:
            outcome = Completed(entry.request)
            current = self.machine.participants[entry.run]
            if current.life == entry.life:
                self.engine = Engine(self, entry, memories)
        for effect in self.machine.step(outcome, self.now):
            self._carry_out(effect)

    def _commit(self, effect: asked.CommitEpoch) -> None:
        """COMMIT at the sink's part, trim logs, let go of elements."""
        value, disk = effect.value, self.disk
        for end in value.parts:
            if end.host == self.me.node and end.offset <= len(disk.part.rows):
                disk.part.committed = max(disk.part.committed, end.offset)
        for saved in value.saved:
            log = disk.logs.get(saved.party)
            if log is not None and saved.position:
                log.trimmed = max(log.trimmed, int(_read_again_from(value, saved)))
            self.chains.committed(saved.party, saved.snapshot)
        if self.engine is not None:
            self.engine.committed(value.plan)
        needed = value.needed
        for party, snapshot in list(disk.elements):
            if (party, snapshot) not in needed and snapshot.epoch <= value.committed.epoch:
                del disk.elements[party, snapshot]

    # ---- what the engine asks for

    def read(self, mine: Assignment, number: int) -> Row | Position | None:
        """A source's row: by its number where it can be read again, else from the log, else from the world."""
        if number >= self.world.rows:
            return END
        index = mine.party.index
        if not mine.has_log:
            return (
                Row((10 * number + 7 * number % 10, index), number, 0) if self.world.available(index, number) else None
            )
        log = self.disk.logs.setdefault(mine.party, SourceLog())
        if number < len(log.rows):
            return log.rows[number]
        if not self.world.available(index, number):
            return None
        row = self.judge(index, number)
        log.rows.append(row)
        if not self.random.index(50):
            self.world.write(self, self._sync(), None)
        return row

    def judge(self, index: int, number: int) -> Row:
        """A row of a source that cannot be read again: what it says depends on when it was looked at."""
        return Row((10 * number + self.random.index(10), index), number, self.random.bits(30))

    def keep_position(
        self, engine: Engine, source: Source, snapshot: Snapshot, after: Plan | None, *, has_ended: bool
    ) -> None:
        """A source is prepared when its log is on the disk up to its barrier."""
        saved = Saved(source.party, (), str(source.position).encode())
        event = PartyPrepared(engine.run, source.party, snapshot, saved, 0, after, True, has_ended)
        self.world.write(self, self._sync(), event)

    def keep_element(
        self, engine: Engine, stage: Stage, snapshot: Snapshot, raw: bytes, after: Plan | None, *, has_ended: bool
    ) -> None:
        """A stage's element goes to the local disk, then to its holders."""
        key, onto = (stage.party, snapshot), b""
        if has_ended:
            raw = whole(raw)
        else:
            raw, onto = self.chains.saved(stage.party, snapshot, raw, is_last=after is not None)
        event = PartySnapped(
            engine.run,
            stage.party,
            snapshot,
            sha256(raw).digest(),
            self.world.element_bytes,
            onto,
            after,
            stage.is_caught_up,
            has_ended,
        )
        self.world.write(self, lambda: self.disk.elements.__setitem__(key, raw), event)

    def keep_rows(
        self,
        engine: Engine,
        stage: Stage,
        snapshot: Snapshot,
        raw: bytes,
        rows: list[Row],
        end: int,
        after: Plan | None,
        *,
        has_ended: bool,
    ) -> None:
        """A sink is prepared when its rows before the barrier are on the disk, and what waits in its merge.

        One that may move has one input, so nothing waits there.
        """
        is_pinned, key = stage.mine.is_pinned, (stage.party, snapshot)
        raw = whole(raw)
        chain = (Element(snapshot, sha256(raw).digest(), len(raw), 1, ()),) if is_pinned else ()
        event = PartyPrepared(engine.run, stage.party, snapshot, Saved(stage.party, chain), end, after, True, has_ended)

        def keep() -> None:
            self.disk.part.rows.extend(rows)
            if is_pinned:
                self.disk.elements[key] = raw

        self.world.write(self, keep, event)

    def broken(self, engine: Engine, reason: str) -> None:
        """Tell the machine that its life cannot go on."""
        for effect in self.machine.step(LifeBroken(engine.run, engine.life, reason), self.now):
            self._carry_out(effect)


def _read_again_from(value: Value, saved: Saved) -> bytes:
    """Up to where a log may be cut: where the run may go back, the epoch before the committed one needs it, too."""
    earlier = value.before if value.earlier is not None else value.saved
    return next((one.position for one in earlier if one.party == saved.party), b"") or b"0"


class _Entered(Event, frozen=True, gc=False):
    """The sink's part is cut: restore now."""

    entry: asked.EnterLife


class _Ahead(Event, frozen=True, gc=False):
    """It took a moment to bring committed elements here."""

    effect: asked.BuildAhead


class _Fetched(Event, frozen=True, gc=False):
    """It took a moment to bring an element here."""

    effect: asked.TakeOver
