"""What is known of each circuit to one executor: slots that passed while a probe was out, answers, waiting, what it carries.

TCP hides what it loses, but not the time that it takes. So an attempt is a slot that passes while the circuit's one probe is out,
counted as it passes, and a success is the echo that the link at the other end gives by itself. Half of what is known is
forgotten in two seconds. The index is that of the planner, so costs are slots. No I/O. Source: the shuffle spec, section 12.
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
from agiledart_shuffle.policies.kl import KlIndex
from agiledart_shuffle.policy import Journey
from agiledart_shuffle.registry import KL_EXPLORATION

SLOT_NS: Final = 5 * MILLISECOND
HALF_LIFE_NS: Final = 2 * SECOND
PLACES: Final = 8
"""Circuits to one executor at one time, among them those that are just ending."""

SUSPECT_NS: Final = 100 * MILLISECOND
"""For which an echo may be late at the least before other ways are asked; three round trips where that is more."""

STALL_NS: Final = 700 * MILLISECOND
"""For which nothing may move at the least before the circuit counts as silent; ten round trips where that is more, at most
`LONG_STALL_NS`."""

LONG_STALL_NS: Final = 3 * SECOND

ROUNDS: Final = 3
"""Answers after which a circuit's cost is worth comparing."""

THIN_NS: Final = 10 * SECOND
"""For which it is remembered what a circuit carried that was too thin. Doubled each time, up to `LONG_THIN_NS`: an empty circuit
always looks good, so without this two of them would take turns."""

LONG_THIN_NS: Final = 300 * SECOND
THIN_CIRCUIT_COST: Final = COST_MAX / 2
_RATE_NS: Final = SECOND // 2
_STEADY: Final = 0.8
_STEADY_FIRST: Final = 0.9
_MEMORY: Final = EstimateMemory(keep=0.5 ** (SLOT_NS / HALF_LIFE_NS), forgets_used=True)


class CircuitReading(NamedTuple):
    """An open circuit at one instant.

    Args:
        sent, came: frames that it was given, that it has brought.
        acknowledged, queued: bytes that the next host's kernel has acknowledged, and that still wait for that.
        held_us: for how long the next host's kernel has had no room, because its process did not read.
    """

    circuit: int
    sent: int
    came: int = 0
    acknowledged: int = 0
    queued: int = 0
    held_us: int = 0


@dataclass(eq=False, slots=True)
class Circuit:
    """One that is open.

    Attributes:
        number: of its connection; `place`: its link in the estimates.
        relay: by way of whom; empty: directly.
        since: when it was opened; `well_since`: since when no echo was late.
        heard: when it answered last; `rounds`: how often.
        probe, asked: the last probe and when it was sent; None: none is out.
        moved: when anything moved last while the probe was out.
        is_delivered: the far host's kernel has taken the probe: the way is good, whatever the process there does.
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
    _came: int = 0
    _acknowledged: int = -1
    _until: int = 0
    _counted: int = 0
    _looked: int = 0
    _held_us: int = 0
    _steady: float = _STEADY_FIRST

    @property
    def usual_ns(self) -> int:
        """For which its echo may be away without a doubt."""
        return max(SUSPECT_NS, 3 * self.rtt_ns)

    @property
    def stall_ns(self) -> int:
        """For which nothing may move."""
        return max(STALL_NS, min(10 * self.rtt_ns, LONG_STALL_NS))

    @property
    def is_thin(self) -> bool:
        """Has it let bytes through all the time in which some waited? Where it loses, they come in bursts."""
        return self._steady > _STEADY and self.queued > self.rate * 0.1

    def is_late(self, now: int) -> bool:
        """Is its echo away for longer than usual, and not with the process at the other end?"""
        return self.asked is not None and not self.is_delivered and now - self.asked > self.usual_ns

    def is_silent(self, now: int) -> bool:
        """Has nothing moved for too long?"""
        return self.asked is not None and now - self.moved > self.stall_ns

    def begin(self) -> None:
        """Rows go over to it."""
        self.rounds, self.asked_sent, self._steady = 0, -1, _STEADY_FIRST

    def ask(self, probe: int, now: int) -> None:
        """A probe goes out."""
        self.probe, self.asked, self.moved, self.is_delivered = probe, now, now, False
        self.asked_sent, self._counted = self.sent + 1, 0
        self._until = self._acknowledged + self.queued

    def excuse(self, late_ns: int) -> None:
        """This process did not look for so long: what came meanwhile is not late."""
        if self.asked is not None:
            self.asked += late_ns
            self.moved += late_ns

    def look(self, seen: CircuitReading, now: int) -> None:
        """What has moved; a delivered probe is no longer waited for."""
        if self._acknowledged >= 0 and now > self._looked:
            self._measure_rate(seen.acknowledged - self._acknowledged, now - self._looked)
        moved = self._acknowledged < min(seen.acknowledged, self._until) or seen.came != self._came
        if moved:
            self.moved = now
        if not self.relay and seen.held_us > self._held_us and self.asked is not None:
            self.asked = min(now, self.asked + now - self._looked)  # not the way is slow: nobody reads at its end
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
        """Slots that have passed since it was last asked for them, while its probe was out and not delivered."""
        if self.asked is None or self.is_delivered:
            return 0
        passed = max(0, now - self.asked) // SLOT_NS - self._counted
        self._counted += max(0, passed)
        return max(0, passed)

    def answer(self, now: int) -> int:
        """Its echo is there; the slots that are still to be counted."""
        assert self.asked is not None
        took = max(0, now - self.asked)
        if self.is_delivered:  # the rest of the time was the process's
            left = max(0, 1 - self._counted)
        else:
            left = max(1, ceil(took / SLOT_NS)) - self._counted
            if took > self.usual_ns:
                self.well_since = now
            self.rtt_ns = took if not self.rtt_ns else (7 * self.rtt_ns + min(took, 8 * self.rtt_ns)) // 8
        self.last_answer, self.asked, self.rounds = now, None, self.rounds + 1
        return max(0, left)


class CircuitCosts:
    """What the circuits to one executor cost, in slots.

    Args:
        random: decides between equal ones.
    """

    def __init__(self, random: RandomStream) -> None:
        self._estimates = Estimates(PLACES, _MEMORY)
        self._graph = LinkGraph(2, [(0, 1)] * PLACES)
        self._index, self._random = KlIndex(KL_EXPLORATION), random
        self._costs = [1.0] * PLACES
        self._slot, self._began = 0, -1
        self._thin: dict[str, tuple[float, int, int]] = {}  # by relay: rate, until when, for how long

    def begin(self, place: int, took_ns: int) -> None:
        """A circuit was opened, in three round trips."""
        self._estimates.begin_anew(place)
        self._estimates.record(place, max(1, took_ns // 3 // SLOT_NS), arrived=True)

    def note(self, circuit: Circuit, slots: int, *, arrived: bool = False) -> None:
        """Slots that have passed, and whether the echo came."""
        if slots or arrived:
            self._estimates.record(circuit.place, slots, arrived=arrived)

    def age(self, now: int) -> None:
        """Time has passed."""
        if self._began < 0:
            self._began = now
        slot = (now - self._began) // SLOT_NS
        if slot > self._slot:
            self._estimates.end_packet(slot - self._slot)
            self._slot = slot

    def left_thin(self, circuit: Circuit, now: int) -> None:
        """It is left because it carried too little."""
        _, until, pause = self._thin.get(circuit.relay, (0.0, 0, THIN_NS // 2))
        pause = min(LONG_THIN_NS, 2 * pause) if now - until < LONG_THIN_NS else THIN_NS
        self._thin[circuit.relay] = (circuit.rate, now + pause, pause)

    def is_too_thin(self, circuit: Circuit, rate: float, now: int) -> bool:
        """Did it carry less than this when it was last tried?"""
        carried, until, _ = self._thin.get(circuit.relay, (0.0, 0, 0))
        return now < until and rate > 0.9 * carried

    def of(self, circuit: Circuit, now: int, rate: float = 0.0) -> float:
        """Never less than what its probe waits already beyond the usual.

        Args:
            rate: bytes a second that it shall carry.
        """
        if self.is_too_thin(circuit, rate, now):
            return THIN_CIRCUIT_COST
        self._index.refresh(self._costs, (circuit.place,), self._estimates, self._slot + 1)
        waits = 0.0
        if circuit.asked is not None and not circuit.is_delivered:
            waits = (now - circuit.asked - 3 * circuit.rtt_ns) / SLOT_NS
        return max(self._costs[circuit.place], waits)

    def success(self, circuit: Circuit) -> float:
        """Answers a slot: θ of the circuit as it is known now."""
        passed, tried = self._estimates.counts(circuit.place)
        return passed / tried if tried > 0 else 1.0

    def cheapest(self, circuits: list[Circuit], now: int, rate: float = 0.0) -> Circuit | None:
        """The one that costs least."""
        costs = [COST_MAX] * PLACES
        for circuit in circuits:
            costs[circuit.place] = self.of(circuit, now, rate)
        journey = Journey(0)
        places = {circuit.place: circuit for circuit in circuits}
        journey.closed.update(dict.fromkeys(place for place in range(PLACES) if place not in places))
        chosen = cheapest_link(self._graph, journey, costs, (0.0, 0.0), self._random)
        return None if chosen is None else places[chosen]
