"""Two executors joined by several ways, all of numbers: when each way loses, how long it takes, when the receiver is held up."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agiledart_dataflow.plan.paths import Paths
from agiledart_executor.routes.circuit_costs import CircuitReading
from agiledart_executor.routes.circuit_selector import (
    AbandonRoute,
    CircuitDialEnded,
    CircuitLost,
    CircuitOpened,
    CircuitSelector,
    CloseCircuit,
    DialCircuit,
    Effect,
    Event,
    InspectAt,
    InspectCircuits,
    PathPromised,
    ProbeEchoed,
    RequestPromise,
    SendProbe,
    SwitchCircuit,
)
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.randomness import RandomStream

PATIENCE_NS = 60 * SECOND
BEAT_NS = SECOND // 2
Spans = Sequence[tuple[int, int]]
FRAME_BYTES = 1_000


@dataclass
class SimulatedPath:
    """One way.

    Args:
        one_way_ns: it takes; slow: spans in which it takes `slow_ns`.
        cuts: spans in which nothing passes; lossy: in which each packet is lost with 80 %.
        bytes_per_second: that pass; 0: as many as come.
    """

    one_way_ns: int
    cuts: Spans = ()
    lossy: Spans = ()
    bytes_per_second: int = 0
    is_there: bool = True
    slow: Spans = ()
    slow_ns: int = 0

    def delay_ns(self, at: int) -> int:
        return self.slow_ns if any(since <= at < to for since, to in self.slow) else self.one_way_ns


@dataclass
class Connection:
    """One circuit over a way."""

    way: str
    since: int
    sent: int = 0
    acknowledged: int = 0
    queued: float = 0.0
    looked: int = 0
    dead_from: int = -1
    came: int = 0
    in_flight: list[tuple[int, float]] = field(default_factory=list)
    delivered: list[tuple[int, int]] = field(default_factory=list)  # when, acknowledged by then


class World:
    """Frames go out at a steady rate over the circuit in use.

    Args:
        ways: by the relay's name; "": directly.
        held: spans in which the receiver's process does nothing; its kernel acknowledges bytes that then wait.
        asleep: spans in which the sender's does nothing.
        rate: frames a second.
        promise: cost in slots that the agent's neighbours promise at an instant; None: the agent has no answer.
        full_from: instant from which the window is full: no frame goes out, and some are not acknowledged; None: never.
    """

    def __init__(
        self,
        ways: dict[str, SimulatedPath],
        paths: Paths = ("auto",),
        *,
        seed: int = 1,
        held: Spans = (),
        asleep: Spans = (),
        rate: int = 200,
        promise: Callable[[int], float] | None = None,
        full_from: int | None = None,
    ) -> None:
        self.ways, self.held, self.asleep, self.rate = ways, held, asleep, rate
        self.promise, self.full_from = promise, full_from
        self.random = RandomStream(seed, "world")
        self.now = self._order = self._numbers = 0
        self._due: list[tuple[int, int, Callable[[], Event | None]]] = []
        self.connections: dict[int, Connection] = {}
        self.log: list[tuple[int, Effect]] = []
        self._looks_at = -1
        first = "" if paths[0] in ("auto", "warm", "direct") else paths[0]
        number = self._connect(first)
        self.machine = CircuitSelector(
            paths, (number, first), PATIENCE_NS, RandomStream(seed, "choosing"), 0, MILLISECOND
        )
        self.used: list[tuple[int, str]] = [(0, first)]
        self._beat()

    def _connect(self, way: str) -> int:
        self._numbers += 1
        self.connections[self._numbers] = Connection(way, self.now, looked=self.now)
        return self._numbers

    def _at(self, at: int, event: Callable[[], Event | None]) -> None:
        self._order += 1
        heapq.heappush(self._due, (self._awake(max(at, self.now), self.asleep), self._order, event))

    @staticmethod
    def _awake(at: int, spans: Spans) -> int:
        return next((to for since, to in spans if since <= at < to), at)

    def _passes(self, way: SimulatedPath, at: int) -> int:
        """When a packet that is sent now comes through, after TCP has sent it again often enough; -1: never on this connection."""
        pause = 200 * MILLISECOND
        while True:
            if not any(since <= at < to for since, to in way.cuts):
                lossy = any(since <= at < to for since, to in way.lossy)
                if not lossy or self.random.uniform() > 0.8:
                    return at + way.delay_ns(at)
            at += pause
            pause *= 2
            if pause > 20 * SECOND:
                return -1

    def _round_trip(self, way: SimulatedPath, at: int) -> int:
        there = self._passes(way, at)
        if there < 0:
            return -1
        return self._passes(way, self._awake(there, self.held))

    def _beat(self) -> None:
        def beat() -> Event:
            self._beat()
            return self._look()

        self._at(self.now + BEAT_NS, beat)

    def _look(self) -> InspectCircuits:
        seen = tuple(self._seen(number, one) for number, one in self.connections.items())
        return InspectCircuits(seen, self._is_full)

    @property
    def _is_full(self) -> bool:
        return self.full_from is not None and self.now >= self.full_from

    def _seen(self, number: int, one: Connection) -> CircuitReading:
        way, took = self.ways[one.way], self.now - one.looked
        one.looked = self.now
        is_used = self.machine.used is not None and self.machine.used.number == number
        if is_used and not self._is_full:
            one.sent += max(1, took * self.rate // SECOND)
            one.queued = min(1 << 20, one.queued + took * self.rate * FRAME_BYTES / SECOND)
        stands = any(since <= self.now < to for since, to in (*way.cuts, *way.lossy))
        passed = 0.0 if stands else one.queued if not way.bytes_per_second else took * way.bytes_per_second / SECOND
        passed = min(one.queued, passed)
        if way.slow:  # the kernel at the other end acknowledges after a round trip
            one.in_flight.append(
                (self.now + 2 * way.delay_ns(self.now), one.queued - sum(size for _, size in one.in_flight))
            )
            passed = sum(size for back, size in one.in_flight if back <= self.now)
            one.in_flight = [(back, size) for back, size in one.in_flight if back > self.now]
        one.queued -= passed
        one.acknowledged += int(passed)
        while one.delivered and one.delivered[0][0] <= self.now:
            one.acknowledged += one.delivered.pop(0)[1]
        return CircuitReading(number, one.sent, one.came, one.acknowledged, int(one.queued))

    def run(self, until: int) -> "World":
        while self._due and self._due[0][0] <= until:
            self.now, _, make = heapq.heappop(self._due)
            event = make()
            if event is not None:
                self._step(event)
        self.now = until
        return self

    def _step(self, event: Event) -> None:
        for effect in self.machine.step(event, self.now):
            self.log.append((self.now, effect))
            match effect:
                case SendProbe(circuit, probe):
                    self._probe(circuit, probe)
                case DialCircuit():
                    self._dial(effect)
                case SwitchCircuit(circuit):
                    self.used.append((self.now, self.connections[circuit].way))
                case CloseCircuit(circuit):
                    self.connections.pop(circuit, None)
                case InspectAt(at):
                    self._looks_at = at
                    self._at(at, lambda at=at: self._look() if at == self._looks_at else None)
                case RequestPromise():
                    if (promise := self.promise) is not None:
                        self._at(self.now + MILLISECOND, lambda: PathPromised(promise(self.now)))
                case AbandonRoute():
                    pass

    def _probe(self, circuit: int, probe: int) -> None:
        one = self.connections[circuit]
        one.sent += 1
        way = self.ways[one.way]
        waits = int(one.queued * SECOND / way.bytes_per_second) if way.bytes_per_second else 0
        there = self._passes(way, self.now + waits)
        if there >= 0 and (acknowledged := self._passes(way, there)) >= 0:
            one.delivered.append((acknowledged, 50))
        back = self._round_trip(way, self.now + waits)
        if back >= 0:
            self._at(back, lambda: ProbeEchoed(circuit, probe) if circuit in self.connections else None)

    def _dial(self, dial: DialCircuit) -> None:
        names = [name for name in self.ways if name and name not in dial.avoid and self.ways[name].is_there]
        names = names[: dial.max_relays] if dial.max_relays else [""]
        last = self.now
        came = 0
        for name in names:
            way, at = self.ways[name], self.now
            for _ in range(3):
                at = self._round_trip(way, at) if at >= 0 else at
            if 0 <= at <= self.now + dial.timeout_ns:
                came += 1
                self._at(at, lambda name=name, at=at, began=self.now: self._open(dial.dial, name, at - began))
                last = max(last, at)
        if came:
            self._at(last + 1, lambda: CircuitDialEnded(dial.dial))
        else:
            self._at(self.now + dial.timeout_ns, lambda: CircuitDialEnded(dial.dial, "timed out"))

    def _open(self, dial: int, name: str, took: int) -> Event:
        return CircuitOpened(dial, self._connect(name), name, took)

    def lose(self, at: int, way: str) -> "World":
        """The circuit over a way is reset."""

        def lost() -> Event | None:
            number = next((number for number, one in self.connections.items() if one.way == way), None)
            if number is None:
                return None
            del self.connections[number]
            return CircuitLost(number, "reset")

        self._at(at, lost)
        return self

    # ---- what became of it

    def moves(self, since: int = 0, until: int = 1 << 62) -> list[str]:
        """Ways that rows went over to."""
        return [way for at, way in self.used[1:] if since <= at < until]

    def first_move(self, since: int) -> int:
        """When rows first went over to another way after an instant."""
        return next(at for at, _ in self.used[1:] if at >= since)

    def share(self, way: str, since: int, until: int) -> float:
        """Of the time, that rows went this way."""
        total = 0
        for (begin, name), (end, _) in zip(self.used, [*self.used[1:], (until, "")], strict=True):
            if name == way:
                total += max(0, min(end, until) - max(begin, since))
        return total / (until - since)

    def dials(self) -> list[int]:
        """When anything was dialled."""
        return [at for at, effect in self.log if isinstance(effect, DialCircuit)]

    def probes(self, since: int, until: int) -> int:
        """Probes of all circuits."""
        return sum(isinstance(effect, SendProbe) and since <= at < until for at, effect in self.log)
