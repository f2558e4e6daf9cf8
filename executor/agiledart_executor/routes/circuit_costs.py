"""Cost estimates of each circuit to one executor: slots that passed while a probe was out, echoes, silence, byte rate.

TCP hides lost packets but not the time that they cost. So an attempt is a slot that passes while the circuit's one probe is out,
counted as it passes; a success is the echo that the link at the other end sends by itself. Half of each estimate is forgotten in
two seconds. The index is that of the path planner, so costs are slots. No I/O. Source: the shuffle spec, section 12.
"""

from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.cheapest import cheapest_link
from agiledart_shuffle.divergence import COST_MAX
from agiledart_shuffle.estimates import EstimateMemory, Estimates
from agiledart_shuffle.graph import LinkGraph
from agiledart_shuffle.link_indices import KL_EXPLORATION
from agiledart_shuffle.policies.kl import KlIndex
from agiledart_shuffle.policy import Journey

SLOT_NS: Final = 5 * MILLISECOND
HALF_LIFE_NS: Final = 2 * SECOND
PLACES: Final = 8
"""Highest number of circuits to one executor at a time, including those that are just closing."""

SUSPECT_NS: Final = 100 * MILLISECOND
"""Shortest wait for an echo before other circuits are probed; three round trips where that is longer."""

STALL_NS: Final = 700 * MILLISECOND
"""Shortest time without any progress before a circuit counts as silent; ten round trips where that is longer, at most
`LONG_STALL_NS`."""

LONG_STALL_NS: Final = 3 * SECOND

ROUNDS: Final = 3
"""Echoes after which a circuit's cost may be compared."""

THIN_NS: Final = 10 * SECOND
"""Time for which the byte rate of a circuit is remembered that carried too little. It doubles each time, up to `LONG_THIN_NS`.

An empty circuit always looks good, so without this memory two thin circuits would alternate."""

LONG_THIN_NS: Final = 300 * SECOND
THIN_CIRCUIT_COST: Final = COST_MAX / 2
_RATE_NS: Final = SECOND // 2
_FULL_NS: Final = 2 * SECOND
_WAITS: Final = 0.1
"""Seconds of bytes that wait on a full link: more than a window that is just being sent."""

_STEADY: Final = 0.8
_STEADY_FIRST: Final = 0.9
_LEAST_WAITING: Final = 2_048
"""Bytes: less may wait on any link for an instant. Credit is a second of rows, so no more than that waits on a thin link."""

_MEMORY: Final = EstimateMemory(keep=0.5 ** (SLOT_NS / HALF_LIFE_NS), forgets_used=True)


class CircuitReading(NamedTuple):
    """Progress of an open circuit at one instant.

    Args:
        circuit: number of its link.
        sent, came: frames sent and received over it.
        acknowledged, queued: bytes that the next host's kernel has acknowledged, and bytes that still wait for that.
        held_us: microseconds for which the next host's kernel had no buffer space because its process did not read.
        round_trip_us: microseconds of the shortest round trip to the next host; bytes on their way for so long do not wait.
    """

    circuit: int
    sent: int
    came: int = 0
    acknowledged: int = 0
    queued: int = 0
    held_us: int = 0
    round_trip_us: int = 0


@dataclass(eq=False, slots=True)
class Circuit:
    """State of an open circuit.

    Attributes:
        number: of its link.
        place: number of its link in the estimates.
        relay: name of the relay; empty for a direct circuit.
        since: instant of its opening.
        well_since: instant since which no echo was late.
        last_answer: instant of the last echo.
        rounds: number of echoes.
        probe, asked: number of the last probe and the instant when it was sent; `asked` is None while no probe is out.
        moved: instant of the last progress while the probe was out.
        use: share of the last seconds in which bytes waited for the link, though the process at its end read.
        is_delivered: the far host's kernel has taken the probe, so the circuit is good whatever the process there does.
    """

    number: int
    place: int
    relay: str
    since: int
    well_since: int
    last_answer: int
    rtt_ns: int = 0
    rounds: int = 0
    probe: int = 0
    asked: int | None = None
    moved: int = 0
    is_delivered: bool = False
    asked_sent: int = -1
    sent: int = 0
    queued: int = 0
    rate: float = 0.0
    use: float = 0.0
    _came: int = 0
    _acknowledged: int = -1
    _until: int = 0
    _counted: int = 0
    _looked: int = 0
    _held_us: int = 0
    _steady: float = _STEADY_FIRST

    @property
    def usual_ns(self) -> int:
        """Nanoseconds for which its echo may be out before the circuit is suspected."""
        return max(SUSPECT_NS, 3 * self.rtt_ns)

    @property
    def stall_ns(self) -> int:
        """Nanoseconds without progress after which the circuit is silent."""
        return max(STALL_NS, min(10 * self.rtt_ns, LONG_STALL_NS))

    @property
    def is_thin(self) -> bool:
        """True when bytes passed steadily while others waited: the circuit is slow. On a lossy circuit they come in bursts."""
        return self._steady > _STEADY and self.queued > self.rate * 0.1

    def is_late(self, now: int) -> bool:
        """Return True when its echo is out for longer than usual and the delay is not in the remote process."""
        return self.asked is not None and not self.is_delivered and now - self.asked > self.usual_ns

    def is_silent(self, now: int) -> bool:
        """Return True when a probe is out and nothing has moved for too long."""
        return self.asked is not None and now - self.moved > self.stall_ns

    def begin(self) -> None:
        """Reset the measurements because rows move to this circuit."""
        self.rounds, self.asked_sent, self._steady = 0, -1, _STEADY_FIRST

    def ask(self, probe: int, now: int) -> None:
        """Record a probe that is sent now."""
        self.probe, self.asked, self.moved, self.is_delivered = probe, now, now, False
        self.asked_sent, self._counted = self.sent + 1, 0
        self._until = self._acknowledged + self.queued

    def excuse(self, late_ns: int) -> None:
        """Excuse a delay of this process: it did not read for `late_ns`, so echoes of that time are not late."""
        if self.asked is not None:
            self.asked += late_ns
            self.moved += late_ns

    def look(self, seen: CircuitReading, now: int) -> None:
        """Update the circuit from a reading; a delivered probe no longer counts as late."""
        if self._acknowledged >= 0 and now > self._looked:
            self._measure_rate(seen.acknowledged - self._acknowledged, now - self._looked)
            usual = (_WAITS + seen.round_trip_us / 1e6) * self.rate
            waits = seen.queued > max(_LEAST_WAITING, usual) and seen.held_us <= self._held_us
            self.use += min(1.0, (now - self._looked) / _FULL_NS) * (waits - self.use)
        moved = self._acknowledged < min(seen.acknowledged, self._until) or seen.came != self._came
        if moved:
            self.moved = now
        if not self.relay and seen.held_us > self._held_us and self.asked is not None:
            self.asked = min(
                now, self.asked + now - self._looked
            )  # the circuit is not slow: the process at its end does not read
        self.sent, self._came, self.queued, self._looked = seen.sent, seen.came, seen.queued, now
        self._acknowledged, self._held_us = seen.acknowledged, seen.held_us
        if self.asked is not None and not self.relay and seen.acknowledged > self._until:
            self.is_delivered = True

    def _measure_rate(self, passed: int, took: int) -> None:
        share = min(1.0, took / _RATE_NS)
        self.rate += share * (passed * SECOND / took - self.rate)
        if self.queued:
            self._steady += share * ((passed > 0) - self._steady)

    def slots(self, now: int) -> int:
        """Return the slots that have passed since the last call while its probe was out and not delivered."""
        if self.asked is None or self.is_delivered:
            return 0
        passed = max(0, now - self.asked) // SLOT_NS - self._counted
        self._counted += max(0, passed)
        return max(0, passed)

    def answer(self, now: int) -> int:
        """Record the echo and return the slots that are still to be counted."""
        assert self.asked is not None
        took = max(0, now - self.asked)
        if self.is_delivered:  # the rest of the time was spent in the remote process
            remaining = max(0, 1 - self._counted)
        else:
            remaining = max(1, ceil(took / SLOT_NS)) - self._counted
            if took > self.usual_ns:
                self.well_since = now
            self.rtt_ns = took if not self.rtt_ns else (7 * self.rtt_ns + min(took, 8 * self.rtt_ns)) // 8
        self.last_answer, self.asked, self.rounds = now, None, self.rounds + 1
        return max(0, remaining)


class CircuitCosts:
    """Costs of the circuits to one executor, in slots.

    Args:
        random: breaks ties.
    """

    def __init__(self, random: RandomStream) -> None:
        self._estimates = Estimates(PLACES, _MEMORY)
        self._graph = LinkGraph(2, [(0, 1)] * PLACES)
        self._index, self._random = KlIndex(KL_EXPLORATION), random
        self._costs = [1.0] * PLACES
        self._slot, self._began = 0, -1
        self._thin: dict[str, tuple[float, int, int]] = {}  # relay → rate, until when, for how long
        self._broken: dict[str, tuple[int, int]] = {}  # relay → until when, for how long

    def begin(self, place: int, took_ns: int) -> None:
        """Start the estimate of a circuit whose opening took three round trips."""
        self._estimates.begin_anew(place)
        self._estimates.record(place, max(1, took_ns // 3 // SLOT_NS), arrived=True)

    def note(self, circuit: Circuit, slots: int, *, arrived: bool = False) -> None:
        """Record slots that have passed, and whether the echo came."""
        if slots or arrived:
            self._estimates.record(circuit.place, slots, arrived=arrived)

    def age(self, now: int) -> None:
        """Let the estimates age up to `now`."""
        if self._began < 0:
            self._began = now
        slot = (now - self._began) // SLOT_NS
        if slot > self._slot:
            self._estimates.end_packet(slot - self._slot)
            self._slot = slot

    def left_thin(self, circuit: Circuit, now: int) -> None:
        """Remember the byte rate of a circuit that rows leave because it carried too little."""
        _, until, pause = self._thin.get(circuit.relay, (0.0, 0, THIN_NS // 2))
        pause = min(LONG_THIN_NS, 2 * pause) if now - until < LONG_THIN_NS else THIN_NS
        self._thin[circuit.relay] = (circuit.rate, now + pause, pause)

    def left_soon(self, circuit: Circuit, now: int) -> None:
        """Avoid a relay for a while that failed soon after rows took it: it may pass probes, and spoil or delay rows."""
        until, pause = self._broken.get(circuit.relay, (0, THIN_NS // 2))
        pause = min(LONG_THIN_NS, 2 * pause) if now - until < LONG_THIN_NS else THIN_NS
        self._broken[circuit.relay] = (now + pause, pause)

    def is_too_thin(self, circuit: Circuit, rate: float, now: int) -> bool:
        """Return True when the circuit carried less than about this byte rate when it was last used."""
        carried, until, _ = self._thin.get(circuit.relay, (0.0, 0, 0))
        return now < until and rate > 0.9 * carried

    def of(self, circuit: Circuit, now: int, rate: float = 0.0) -> float:
        """Return the cost of a circuit, at least the slots that its probe is overdue.

        Args:
            circuit: to assess.
            now: the present instant.
            rate: bytes a second that the circuit must carry.
        """
        if self.is_too_thin(circuit, rate, now) or now < self._broken.get(circuit.relay, (0, 0))[0]:
            return THIN_CIRCUIT_COST
        self._index.refresh(self._costs, (circuit.place,), self._estimates, self._slot + 1)
        waits = 0.0
        if circuit.asked is not None and not circuit.is_delivered:
            waits = (now - circuit.asked - 3 * circuit.rtt_ns) / SLOT_NS
        return max(self._costs[circuit.place], waits)

    def success(self, circuit: Circuit) -> float:
        """Return the estimated echoes per slot, the circuit's θ."""
        passed, tried = self._estimates.counts(circuit.place)
        return passed / tried if tried > 0 else 1.0

    def cheapest(self, circuits: list[Circuit], now: int, rate: float = 0.0) -> Circuit | None:
        """Return the circuit with the lowest cost; None without circuits."""
        costs = [COST_MAX] * PLACES
        for circuit in circuits:
            costs[circuit.place] = self.of(circuit, now, rate)
        journey = Journey(0)
        places = {circuit.place: circuit for circuit in circuits}
        journey.closed.update(dict.fromkeys(place for place in range(PLACES) if place not in places))
        chosen = cheapest_link(self._graph, journey, costs, (0.0, 0.0), self._random)
        return None if chosen is None else places[chosen]
