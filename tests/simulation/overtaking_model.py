"""Model of barriers that overtake: two sources, a step, a merge by position that writes results; credit, crashes, roll-backs.

    live ──→ step ──→ merge ←── quiet        the quiet source may be silent for ever

The merge holds the live rows until the quiet source promises more, so their channel has no credit and no barrier could pass in
line. Here a barrier without credit overtakes the rows that wait before it. The sender's snapshot holds them, and the receiver's
holds its queue. A blocked step passes it all the same. An instance without open inputs begins the barrier itself, until all of its
output is taken.

Schedules are random: any channel may deliver next, any instance may work, a crash may come between any two steps. The planted
bugs in `MUTANTS` each break one rule, and the tests require that a seed finds each of them.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

START, END = -1, 1 << 30
WINDOW = 3
"""Rows of a channel that may be unacknowledged."""
BOUND = 2
"""Rows that may wait at a sender before it pauses."""

MUTANTS = (
    "overtaken rows not saved",
    "overtaken rows left out of the channel",
    "barrier promises overtaken rows",
    "restored rows behind new ones",
    "barrier needs credit",
    "blocked step keeps barriers",
    "queue not saved",
    "rows behind the barrier saved",
    "released rows not saved",
    "floor forgotten",
    "ended source passes no barrier",
    "ended step passes no barrier",
    "end not saved",
    "saved after new rows",
)

ENDED = ("mark", 1 << 30, None)

Item = tuple[str, int, Any]
"""Frame on a channel: (row, its position, its value), (mark, its watermark, None), (barrier, its watermark, the epoch)."""


class Channel:
    """Sender's end and wire of a channel; `credit` rows are with the receiver or on the wire."""

    def __init__(self, bugs: frozenset[str]) -> None:
        self.bugs = bugs
        self.pending: deque[Item] = deque()
        self.wire: deque[Item] = deque()
        self.in_flight = 0
        self.sent = START
        self.window = 1  # until the first acknowledgement, as the first frames of a channel have one row each

    def put(self, item: Item) -> None:
        self.pending.append(item)
        self.flush()

    def flush(self) -> None:
        while self.pending:
            kind, at, value = self.pending[0]
            has_credit = self.in_flight < self.window
            if kind == "row" and not has_credit:
                return
            if kind == "barrier" and not has_credit and "barrier needs credit" in self.bugs:
                return
            self.pending.popleft()
            self.in_flight += kind == "row"
            self.sent = max(self.sent, at)
            self.wire.append((kind, at, value))

    @property
    def blocked(self) -> bool:
        return len(self.pending) >= BOUND

    def overtaken(self) -> list[Item]:
        """Return what a barrier overtakes now."""
        self.flush()
        return [] if "barrier needs credit" in self.bugs else [item for item in self.pending if item[0] != "barrier"]

    def put_barrier(self, epoch: int, promised: int) -> None:
        """Send a barrier before all that waits. `promised`: the sender's own watermark."""
        if self.sent == END:
            return  # the receiver waits for no barrier of an ended channel
        if "barrier needs credit" in self.bugs:
            self.put(("barrier", promised, epoch))
            return
        watermark = promised if not self.pending or "barrier promises overtaken rows" in self.bugs else START
        self.wire.append(("barrier", watermark, epoch))
        if "overtaken rows left out of the channel" in self.bugs:
            self.pending.clear()


@dataclass
class Input:
    """Receiver's end of a channel."""

    channel: Channel
    watermark: int = START
    queue: list[Item] = field(default_factory=list)
    passed: int = 0
    cuts: dict[int, tuple[int, list[Item]]] = field(default_factory=dict)
    early: int = 0


class Source:
    """Source of numbered rows; `gate` rows may be read so far."""

    def __init__(self, world: "World", rows: list[int], out: Channel, memory: Any) -> None:
        self.world, self.rows, self.out = world, rows, out
        self.position: int
        self.position, waiting = memory or (0, [])
        self.watermark = self.rows[self.position - 1] if self.position else START
        self.passed, self.waiting = world.committed, list(waiting)
        self.ended = ENDED in self.waiting
        self.snapshots: dict[int, Any] = {}
        if "restored rows behind new ones" not in world.bugs:
            self.resend()

    def resend(self) -> None:
        while self.waiting:
            self.out.put(self.waiting.pop(0))

    def poll(self, gate: int) -> None:
        if self.out.blocked or self.ended:
            return
        if self.position < min(gate, len(self.rows)):
            at = self.watermark = self.rows[self.position]
            self.position += 1
            self.out.put(("row", at, at))
        elif self.position == len(self.rows) and gate > len(self.rows):
            self.ended = True
            self.out.put(ENDED)
        self.resend()

    def barrier(self, epoch: int) -> None:
        if self.passed >= epoch or self.is_done or (self.ended and "ended source passes no barrier" in self.world.bugs):
            return
        self.passed = epoch
        self.snapshots[epoch] = self.world.kept(self.position, self.out)
        self.out.put_barrier(epoch, self.watermark)

    def snapshot(self, epoch: int) -> Any:
        if epoch in self.snapshots:
            return self.snapshots[epoch]
        return (self.position, [ENDED]) if self.is_done else None

    @property
    def is_done(self) -> bool:
        """Return whether all of it is delivered and taken."""
        return self.ended and self.out.sent == END and not self.out.in_flight


class Stage:
    """Stage that merges its inputs by position and counts its rows; without an output it is the sink."""

    def __init__(self, world: "World", inputs: list[Channel], out: Channel | None, memory: Any) -> None:
        self.world, self.out = world, out
        self.inputs = [Input(channel) for channel in inputs]
        self.frontier, self.count, self.written, self.promise = START, 0, 0, START
        self.passed = world.committed
        self.snapshots: dict[int, Any] = {}
        self.waiting: list[Item] = []
        saved = None
        if memory:
            (self.frontier, self.count, self.written, self.promise, saved), self.waiting = memory[0], list(memory[1])
        for place, entry in enumerate(self.inputs):
            entry.passed = world.committed
            if saved:
                entry.watermark, entry.queue = saved[place][0], list(saved[place][1])
                entry.early = len(entry.queue)  # acknowledged in the attempt before
        self.floor = START if "floor forgotten" in world.bugs else self.frontier
        self.at_end = ENDED in self.waiting
        if "restored rows behind new ones" not in world.bugs:
            self.resend()

    def resend(self) -> None:
        while self.waiting and self.out is not None:
            self.out.put(self.waiting.pop(0))

    def deliver(self, place: int) -> None:
        """Take the next frame of an input; rows are acknowledged when they are taken out of the queue."""
        entry = self.inputs[place]
        kind, at, value = entry.channel.wire.popleft()
        if START < at < entry.watermark or (kind == "row" and at <= entry.watermark):
            self.world.violation(f"{kind} at {at} after watermark {entry.watermark}")
        entry.watermark = max(entry.watermark, at)
        if kind == "row":
            if at <= self.floor:
                self.acknowledge(entry)
            else:
                entry.queue.append((kind, at, value))
        elif kind == "barrier":
            entry.passed = value
            entry.cuts[value] = entry.watermark, list(entry.queue)
        self.pass_barriers()

    def acknowledge(self, entry: Input) -> None:
        entry.channel.in_flight -= 1
        entry.channel.window = WINDOW
        entry.channel.flush()

    def release(self) -> None:
        self.frontier = max(self.frontier, min(entry.watermark for entry in self.inputs))

    def work(self) -> None:
        """Process one released row, or pass the frontier on; a blocked instance passes barriers only."""
        self.pass_barriers()
        if self.out is not None and self.out.blocked:
            return
        self.release()
        ready = [
            (entry.queue[0][1], entry) for entry in self.inputs if entry.queue and entry.queue[0][1] <= self.frontier
        ]
        if ready:
            at, entry = min(ready, key=lambda item: item[0])
            _, _, value = entry.queue.pop(0)
            if entry.early:
                entry.early -= 1
            else:
                self.acknowledge(entry)
            self.count, self.promise = self.count + 1, at
            self.world.write(self, at, (value, self.count))
        elif self.frontier == END and not self.at_end:
            self.at_end = True
            if self.out is not None:
                self.out.put(ENDED)
        self.resend()
        self.pass_barriers()

    def pass_barriers(self) -> None:
        """Pass the barriers that came through all inputs; without an open input begin those of the open epoch here."""
        while not self.is_done:
            passed = [entry.passed for entry in self.inputs if entry.watermark != END or entry.cuts]
            if passed:
                complete = min(passed)
            else:
                complete = self.passed if "ended step passes no barrier" in self.world.bugs else self.world.open
            if complete <= self.passed:
                return
            if "blocked step keeps barriers" in self.world.bugs and self.out is not None and self.out.blocked:
                return
            self.passed += 1
            self.snapshots[self.passed] = self.memory(self.passed)
            if self.out is not None:
                self.out.put_barrier(self.passed, self.promise)

    @property
    def is_done(self) -> bool:
        """Return whether it has ended, and all of it is delivered and taken."""
        return self.at_end and (self.out is None or (self.out.sent == END and not self.out.in_flight))

    def memory(self, epoch: int) -> Any:
        saved = []
        for entry in self.inputs:
            watermark, queue = entry.cuts.pop(epoch, (entry.watermark, list(entry.queue)))
            released = START if "released rows not saved" in self.world.bugs else self.frontier
            # Released rows are saved even behind the barrier: when they come again they lie below the floor.
            queue = [item for item in entry.queue if item in queue or item[1] <= released]
            if "rows behind the barrier saved" in self.world.bugs:
                queue = list(entry.queue)
            saved.append((watermark, [] if "queue not saved" in self.world.bugs else queue))
        own = self.frontier, self.count, self.written, self.promise, saved
        return (own, []) if self.out is None else self.world.kept(own, self.out)

    def snapshot(self, epoch: int) -> Any:
        if epoch in self.snapshots:
            return self.snapshots[epoch]
        if not self.is_done:
            return None
        own, _ = self.memory(0)
        return own, [ENDED]


class World:
    """One run, its register, and what is committed.

    Attributes:
        committed: the last committed epoch.
        output: rows that the sink has written in this attempt; the first `durable` of them are committed.
    """

    def __init__(self, seed: int, bugs: frozenset[str], *, silent: bool) -> None:
        self.random, self.bugs, self.silent = Random(seed), bugs, silent
        times = list(range(40))
        self.random.shuffle(times)
        cut = self.random.randrange(24, 36)
        self.live, self.quiet = sorted(times[:cut]), sorted(times[cut:])
        self.committed, self.memories = 0, dict[str, Any]()
        self.output: list[Any] = []
        self.durable = self.most_held = self.crashes = 0
        self.quiet_gate = 0
        self.violations: list[str] = []
        self.begin()

    def begin(self) -> None:
        """Begin an attempt from the last committed epoch."""
        del self.output[self.durable :]
        first, second, third = (Channel(self.bugs) for _ in range(3))
        self.channels = [first, second, third]
        memory = self.memories.get
        self.sources = [
            Source(self, self.live, first, memory("live")),
            Source(self, self.quiet, third, memory("quiet")),
        ]
        self.step = Stage(self, [first], second, memory("step"))
        self.merge = Stage(self, [second, third], None, memory("merge"))
        self.open = self.committed

    def violation(self, text: str) -> None:
        self.violations.append(text)

    def kept(self, own: Any, out: Channel) -> Any:
        """Return a snapshot: an instance's own state, and the rows that the barrier overtakes in its channel."""
        if "saved after new rows" in self.bugs and self.random.random() < 0.5:
            return own, out.overtaken()[:-1]
        rows = [] if "overtaken rows not saved" in self.bugs else out.overtaken()
        rows = [ENDED] if out.sent == END else rows
        return own, [item for item in rows if item != ENDED or "end not saved" not in self.bugs]

    def write(self, stage: Stage, at: int, value: Any) -> None:
        if stage.out is not None:
            stage.out.put(("row", at, value))
            return
        self.output.append((at, value))
        stage.written = len(self.output)

    def tick(self, *, may_crash: bool) -> None:
        """Take one random step."""
        choice = self.random.random()
        if choice < 0.02 and may_crash:
            self.crashes += 1
            self.begin()
        elif choice < 0.06 and self.open == self.committed:
            self.open += 1
        elif choice < 0.3:
            self.sources[0].poll(END)
        elif choice < 0.4:
            self.sources[1].poll(self.quiet_gate)
        elif choice < 0.6:
            self.random.choice((self.step, self.merge)).work()
        else:
            stage, place = self.random.choice(((self.step, 0), (self.merge, 0), (self.merge, 1)))
            if stage.inputs[place].channel.wire:
                stage.deliver(place)
        if not self.silent and self.random.random() < 0.02:
            self.quiet_gate = self.quiet_gate + 1
        self.epoch()
        rows = [len(channel.pending) for channel in self.channels]
        rows += [len(entry.queue) for stage in (self.step, self.merge) for entry in stage.inputs]
        self.most_held = max(self.most_held, *rows)

    def epoch(self) -> None:
        if self.open == self.committed:
            return
        for source in self.sources:
            if self.random.random() < 0.3:
                source.barrier(self.open)
        parts: dict[str, Source | Stage] = {
            "live": self.sources[0],
            "quiet": self.sources[1],
            "step": self.step,
            "merge": self.merge,
        }
        snapshots = {name: part.snapshot(self.open) for name, part in parts.items()}
        if all(snapshot is not None for snapshot in snapshots.values()):
            self.committed, self.memories = self.open, snapshots
            self.durable = snapshots["merge"][0][2]


def expected(world: World) -> list[Any]:
    """Return the result of a run without failures."""
    counts = {at: number for number, at in enumerate(world.live, 1)}
    rows = [(at, (at, counts[at])) for at in world.live] + [(at, at) for at in world.quiet]
    return [(at, (value, number)) for number, (at, value) in enumerate(sorted(rows, key=lambda row: row[0]), 1)]


def faults(seed: int, bugs: frozenset[str] = frozenset(), steps: int = 2_500) -> list[str]:
    """Run one seed and return what is wrong with it; half of the seeds have a quiet source that never reads a row.

    Epochs must go on while the source is quiet. Then it reads on, and every run must end with each row once, in order.
    """
    silent = seed % 2 == 0
    world = World(seed, bugs, silent=silent)
    for _ in range(steps):
        world.tick(may_crash=True)
    before = world.committed
    for _ in range(steps):  # no more crashes: epochs go on
        world.tick(may_crash=False)
        if world.violations:
            return world.violations
    if silent and world.committed - before < 5:
        return [f"{world.committed - before} epochs while an input is silent"]
    if (
        world.most_held > WINDOW + BOUND + 1 + world.crashes
    ):  # a new channel has a row of credit beside the restored ones
        return [f"{world.most_held} rows held"]
    # Let all of it come to its end.
    world.silent, world.quiet_gate = False, END
    for _ in range(8 * steps):
        world.tick(may_crash=False)
    wanted = expected(world)
    if world.output != wanted:
        return [f"{len(world.output)} rows of {len(wanted)}: {world.output} instead of {wanted}"]
    if world.durable != len(wanted):
        return [f"{world.durable} of {len(wanted)} rows are committed"]
    return world.violations
