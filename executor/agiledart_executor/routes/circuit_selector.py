"""Selection of the circuit that carries the rows to another executor: when to open others, switch and return. No I/O, no clock.

    works ── echo late ──> doubted ── echo ──> works
    doubted ── another circuit has answered since, and costs less ──> works, over that one
    works, relayed ── the direct circuit answers well for a while ──> works, directly
    any ── lost ──> down ── a circuit opens or is open ──> works, over that one
    doubted, down ── `route_timeout_ns` without an answer ──> abandoned

Silence alone moves no rows. A receiver that is stopped, or whose user code holds its process, answers on no other circuit either.
So rows move only to a circuit that has answered since the silence began. The selector closes the circuit that rows have left, and
dials it afresh when it is needed. So the first frame on a new circuit shows the receiver the switch, and no bytes wait in an
unused link.

Source: the shuffle spec, section 12.
"""

from collections import deque
from enum import Enum, auto
from typing import Final, NamedTuple

from agiledart_dataflow.plan.paths import AUTO, DIRECT, WARM, Paths, named
from agiledart_executor.routes.circuit_costs import PLACES, ROUNDS, Circuit, CircuitCosts, CircuitReading
from agiledart_executor.routes.direct_trust import PROVEN_NS, TRUST_NS, DirectTrust
from agiledart_executor.routes.faster_path import HELD_LATE_NS, STAY, STAY_SOON, FasterPathTrial
from agiledart_executor.routes.switch_reasons import FAULTS, SWITCH_REASONS
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.randomness import RandomStream

ASK_EVERY_NS: Final = 100 * MILLISECOND
"""Shortest time between two probes while frames go out; with many circuits `SHARE_NS` for each, so at most 20 probes a second."""

SHARE_NS: Final = 50 * MILLISECOND

WAITING_EVERY_NS: Final = SECOND
"""Time between two probes while no frame goes out and some are not acknowledged: the way back may be broken."""

TICK_NS: Final = 50 * MILLISECOND
"""Time between two inspections while a probe is out. An inspection that comes later was itself delayed, which excuses the
circuits."""

GRACE_NS: Final = 30 * MILLISECOND
"""Time for which the circuit in use may still answer after another one has; its round trip where that is longer."""

OTHERS: Final = 2
"""Number of spare circuits beside the one in use, where spare ones are kept."""

DIAL_EVERY_NS: Final = 500 * MILLISECOND
DIAL_NS: Final = SECOND
LONG_DIAL_NS: Final = 5 * SECOND
RELAY_DIAL_NS: Final = 3 * SECOND
"""Time to find relays and to dial through them."""

_LONG_EVERY: Final = 4
SLOWEST_DIAL_NS: Final = 8 * SECOND

BACK_NS: Final = SECOND
"""Time between two direct dials while rows go through a relay."""

LINGER_NS: Final = 10 * SECOND
"""Time for which spare circuits stay open after a suspicion."""

AGAIN_NS: Final = 30 * SECOND
"""Time after which another relay is tried while spare circuits stay open; the most expensive circuit is then closed."""

CHANGES_KEPT: Final = 8


class InspectCircuits(NamedTuple):
    """Event: an inspection is due or the owner makes one.

    `seen` are readings of all open circuits; `is_waiting`: some frames of the channels are not acknowledged.
    """

    seen: tuple[CircuitReading, ...] = ()
    is_waiting: bool = False


class ProbeEchoed(NamedTuple):
    """Event: the other end of a circuit has answered a probe."""

    circuit: int
    probe: int


class CircuitLost(NamedTuple):
    """Event: a circuit is closed."""

    circuit: int
    why: str


class CircuitOpened(NamedTuple):
    """Event: a dial has opened a circuit, direct or through `relay`. A dial through relays may open several."""

    dial: int
    circuit: int
    relay: str = ""
    took_ns: int = 0


class CircuitDialEnded(NamedTuple):
    """Event: a dial is over. `why` is the reason of its failure, empty when it opened a circuit."""

    dial: int
    why: str = ""


class PathPromised(NamedTuple):
    """Event: the agent's neighbours promise a path through relays of this cost in slots."""

    cost: float


class RequestPromise(NamedTuple):
    """Effect: ask the agent for the least cost through relays, as its neighbours have it."""


class SendProbe(NamedTuple):
    """Effect: send a probe over a circuit, which asks for an echo."""

    circuit: int
    probe: int


class DialCircuit(NamedTuple):
    """Effect: dial within a timeout, directly or through up to `max_relays` relays, none of them named in `avoid`.

    `is_trial`: a faster path is sought, so the port of the target's own agent is no answer.
    """

    dial: int
    timeout_ns: int
    max_relays: int = 0
    avoid: tuple[str, ...] = ()
    is_trial: bool = False


class SwitchCircuit(NamedTuple):
    """Effect: move the rows to this circuit."""

    circuit: int


class CloseCircuit(NamedTuple):
    """Effect: close this circuit."""

    circuit: int


class InspectAt(NamedTuple):
    """Effect: inspect at this instant, which replaces an earlier request."""

    at: int


class AbandonRoute(NamedTuple):
    """Effect: abandon the route, because no circuit has answered for the whole timeout."""

    why: str


Event = InspectCircuits | ProbeEchoed | CircuitLost | CircuitOpened | CircuitDialEnded | PathPromised
Effect = RequestPromise | SendProbe | DialCircuit | SwitchCircuit | CloseCircuit | InspectAt | AbandonRoute


class CircuitState(Enum):
    """State of the circuit in use: it answers, its answer is late, nothing moves, or there is no circuit."""

    WORKS = auto()
    DOUBTED = auto()
    SILENT = auto()
    DOWN = auto()


class CircuitSwitch(NamedTuple):
    """Move of the rows from one circuit to another, each named by its relay ("": direct)."""

    at: int
    before: str
    after: str
    reason: str


class CircuitSelector:
    """Selector among the circuits to one executor.

    Args:
        paths: allowed paths.
        first: number and relay of the circuit that is open already.
        route_timeout_ns: time without an answer after which the route is abandoned.
        random: spreads dials and breaks ties.
        now: the present instant.
        took_ns: how long the opening of the first circuit took.

    Attributes:
        used: the circuit that carries the rows; None while there is none.
        circuits: all open circuits, by number.
        since: instant at which the present trouble began; None without trouble.
        tried: dials since then.
        why: result of the last dial.
        used_since: instant at which rows moved to the present circuit.
        changes: the last moves.
        moves: number of moves, by reason.
    """

    def __init__(
        self,
        paths: Paths,
        first: tuple[int, str],
        route_timeout_ns: int,
        random: RandomStream,
        now: int,
        took_ns: int = 0,
    ) -> None:
        self._route_timeout_ns, self._random = route_timeout_ns, random
        self._names = named(paths)
        mode = paths[0] if paths and not self._names else AUTO
        self._may_direct, self._may_relay = not self._names, bool(self._names) or mode != DIRECT
        self._is_warm = mode == WARM and not self._names
        self._others = min(OTHERS, len(self._names) - 1) if self._names else OTHERS if mode == WARM else 0
        self.costs = CircuitCosts(random)
        self.circuits: dict[int, Circuit] = {}
        self.used: Circuit | None = self._take(first[0], first[1], now, took_ns)
        self.since: int | None = None
        self.used_since, self.tried, self.why = now, 0, ""
        self.changes: deque[CircuitSwitch] = deque(maxlen=CHANGES_KEPT)
        self.moves = dict.fromkeys(SWITCH_REASONS, 0)
        self._left_as, self._left = "", ""
        self._dials, self._probes = 0, 0
        self._direct_dials: dict[int, None] = {}
        self._relay_dial: int | None = None
        self._relay_dial_at = self._direct_at = self._dial_at = 0
        self._relay_dial_pause = self._pause_ns = DIAL_EVERY_NS
        self._again_at, self._looks_again = now + AGAIN_NS, False
        self._ask_at = 0
        self._is_waiting = False
        self._look_at: int | None = None
        self._answered: int | None = None  # instant at which another circuit first answered in the present silence
        self._trust = DirectTrust()
        self._better_since = now  # instant since which another relayed circuit has always cost less
        self._abandoned = False
        self._doubted = now - LINGER_NS
        self._trial = FasterPathTrial(now, is_allowed=self._may_direct and self._may_relay)

    # ---- what is known

    def state(self, now: int) -> CircuitState:
        """Return the state of the circuit in use."""
        if self.used is None:
            return CircuitState.DOWN
        if self.used.is_silent(now):
            return CircuitState.SILENT
        return CircuitState.DOUBTED if self.used.is_late(now) else CircuitState.WORKS

    def _rate(self) -> float:
        return self.used.rate if self.used is not None else 0.0

    # ---- events

    def step(self, event: Event, now: int) -> list[Effect]:
        """Handle an event and return the effects to carry out, in order."""
        self._excuse(now)
        self.costs.age(now)
        match event:
            case InspectCircuits(seen, is_waiting):
                self._is_waiting = is_waiting
                for reading in seen:
                    if (circuit := self.circuits.get(reading.circuit)) is not None:
                        circuit.look(reading, now)
                effects: list[Effect] = []
            case ProbeEchoed(number, probe):
                effects = self._echoed(number, probe, now)
            case CircuitLost(number, why):
                effects = self._lost(number, why, now)
            case CircuitOpened():
                effects = self._opened(event, now)
            case CircuitDialEnded(dial, why):
                effects = self._dial_ended(dial, why, now)
            case PathPromised(cost):
                effects = self._promised(cost, now)
        if self._abandoned:
            return effects
        for circuit in self.circuits.values():
            self.costs.note(circuit, circuit.slots(now))
        return [*effects, *self._go_on(now)]

    def _excuse(self, now: int) -> None:
        """Excuse all circuits by the time that this inspection came late, because this process was delayed itself."""
        if self._look_at is None:
            return
        if (late := now - self._look_at) > TICK_NS:
            for circuit in self.circuits.values():
                circuit.excuse(late)
            if self._answered is not None:
                self._answered += late
        if late >= 0:
            self._look_at = None

    def _echoed(self, number: int, probe: int, now: int) -> list[Effect]:
        circuit = self.circuits.get(number)
        if circuit is None or circuit.asked is None or probe != circuit.probe:
            return []  # an echo of an earlier circuit, or a forged one
        self.costs.note(circuit, circuit.answer(now), arrived=True)
        if circuit is not self.used:
            if self.used is not None and self.used.asked is not None and self._answered is None:
                self._answered = now
            return []
        self.since, self._answered = None, None
        self.tried, self.why, self._pause_ns = 0, "", DIAL_EVERY_NS
        return []

    def _lost(self, number: int, why: str, now: int) -> list[Effect]:
        circuit = self.circuits.pop(number, None)
        if circuit is None:
            return []
        if circuit is not self.used:
            if not circuit.relay:
                self._direct_at = now + self._spread(BACK_NS)
            return []
        self._leave(circuit, "lost", now)
        self.used, self.why = None, why
        self.since = now if self.since is None else self.since
        if circuit.rounds:
            self._dial_at = now
        else:  # the circuit opened and was lost unanswered, so the other end refuses what it is sent: back off
            self._pause_ns = min(SLOWEST_DIAL_NS, 2 * self._pause_ns)
            self._dial_at = now + self._spread(self._pause_ns)
        return []

    def _opened(self, opened: CircuitOpened, now: int) -> list[Effect]:
        is_wanted = self._may_relay if opened.relay else self._may_direct
        has_one = any(other.relay == opened.relay and other is not self.used for other in self.circuits.values())
        if self._abandoned or not is_wanted or has_one or len(self.circuits) >= PLACES:
            return [CloseCircuit(opened.circuit)]
        is_same = self.used is not None and self.used.relay == opened.relay and self.used.asked is None
        if is_same and not (self._trial.is_open and opened.relay):  # in a trial the relay may lead by other relays now
            return [CloseCircuit(opened.circuit)]  # the circuit in use has answered meanwhile
        circuit = self._take(opened.circuit, opened.relay, now, opened.took_ns)
        if self.used is None or not self.used.is_silent(now):
            if self.used is not None and self.used.asked is not None and self._answered is None:
                self._answered = now
            return []
        return self._move(circuit, "silent", now)

    def _promised(self, cost: float, now: int) -> list[Effect]:
        if self.used and self._trial.promised(cost, self.costs.of(self.used, now, self._rate()), now):
            self._better_since = now
        return []

    def _dial_ended(self, dial: int, why: str, now: int) -> list[Effect]:
        self._direct_dials.pop(dial, None)
        if dial == self._relay_dial:
            self._relay_dial = None
            if self._looks_again:
                return self._open_afresh(now) if why else []
            self._relay_dial_pause = min(SLOWEST_DIAL_NS, 2 * self._relay_dial_pause) if why else DIAL_EVERY_NS
            self._relay_dial_at = now + self._spread(self._relay_dial_pause)
        if why and self.since is not None:
            self.why = why
        return []

    # ---- decisions

    def _go_on(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        used, state = self.used, self.state(now)
        if state is not CircuitState.WORKS:
            self._trial.interrupt()
        if state in (CircuitState.SILENT, CircuitState.DOWN):
            if self.since is None:
                assert used is not None
                self.since = used.asked
                self._dial_at = now
                self.why = self.why or "no answer"
            assert self.since is not None
            if now - self.since >= self._route_timeout_ns:
                self._abandoned = True
                return [
                    *(CloseCircuit(number) for number in self.circuits if used is None or number != used.number),
                    AbandonRoute(self.why),
                ]
            effects += self._dial_again(now)
        effects += self._choose(state, now)
        effects += self._keep_others(self.state(now), now)
        effects += self._ask(now)
        if used is not None and self._trial.is_request_due(used.sent, now):
            effects.append(RequestPromise())
        return [*effects, *self._next_look(now)]

    def _choose(self, state: CircuitState, now: int) -> list[Effect]:
        used = self.used
        others = [circuit for circuit in self.circuits.values() if circuit is not used]
        if used is None:
            best = self.costs.cheapest(others, now)
            return [] if best is None else self._move(best, "lost", now)
        if state is not CircuitState.WORKS:
            assert used.asked is not None
            is_slow_only = not used.relay and now - used.asked < HELD_LATE_NS
            if is_slow_only and self._trial.is_held(now):
                return []
            grace = used.stall_ns if used.is_delivered else max(GRACE_NS, used.rtt_ns)
            if self._answered is None or now < self._answered + grace:
                return []
            rate = 0.0 if state is CircuitState.SILENT else self._rate()
            best = self.costs.cheapest([circuit for circuit in others if circuit.last_answer > used.asked], now, rate)
            if best is None or self.costs.of(best, now, rate) >= STAY * self.costs.of(used, now):
                return []
            return self._move(
                best, "thin" if used.is_thin else "silent" if state is CircuitState.SILENT else "slow", now
            )
        measured = [circuit for circuit in others if circuit.rounds >= ROUNDS and not circuit.is_late(now)]
        home = next((circuit for circuit in measured if not circuit.relay), None) if self._may_direct else None
        if used.relay and home is not None:
            rate = self._rate()
            if self._trust.is_earned(home, self.costs.of(home, now, rate), self.costs.of(used, now, rate), now):
                return self._move(home, "direct again", now)
        self._trial.check(self.costs.of(used, now, self._rate()), now)
        if not used.relay and not self._is_warm and not self._trial.is_open:
            return []  # stay direct while that works
        best = self.costs.cheapest([circuit for circuit in measured if circuit.relay], now, self._rate())
        share = STAY_SOON if self.changes and now - self.used_since < PROVEN_NS else STAY
        if best is None or self.costs.of(best, now, self._rate()) >= share * self.costs.of(used, now):
            self._better_since = now
            return []
        trust_ns = TRUST_NS if self._trial.is_open else self._trust.needs_ns
        if now - max(self.used_since, self._better_since) < trust_ns:
            return []
        return self._move(best, "better", now)

    def _move(self, circuit: Circuit, reason: str, now: int) -> list[Effect]:
        old, effects = self.used, list[Effect]()
        if old is not None:
            self._leave(old, reason, now)
            del self.circuits[old.number]
            effects.append(CloseCircuit(old.number))
        self.used, self.used_since = circuit, now
        self.moves[self._left_as or reason] += 1
        self.changes.append(CircuitSwitch(now, self._left, circuit.relay, self._left_as or reason))
        if not circuit.relay:
            self._trust.returned(now)
        self._trial.moved(now, is_return=not circuit.relay and bool(self._left))
        self.since, self._answered, self.tried = None, None, 0
        circuit.begin()
        self._left_as, self._ask_at = "", now
        return [SwitchCircuit(circuit.number), *effects]

    def _leave(self, circuit: Circuit, reason: str, now: int) -> None:
        """Record that rows leave a circuit, and how long to distrust the direct one."""
        self._left_as, self._left = reason, circuit.relay
        if reason == "thin":
            self.costs.left_thin(circuit, now)
        elif circuit.relay and reason in FAULTS and now - self.used_since < PROVEN_NS:
            self.costs.left_soon(circuit, now)
        if circuit.relay:
            return
        self._direct_at = now + self._spread(BACK_NS)
        self._trust.left(now)

    # ---- opening and asking

    def _dial_again(self, now: int) -> list[Effect]:
        """Dial the direct circuit afresh during a silence and after a loss; `_keep_others` opens relayed ones."""
        if now < self._dial_at:
            return []
        self._dial_at = now + self._spread(self._pause_ns)
        self.tried += 1
        if not self._may_direct:
            return []
        timeout = LONG_DIAL_NS if self.tried % _LONG_EVERY == 0 else DIAL_NS
        return [self._dial_directly(timeout)]

    def _dial_directly(self, timeout: int) -> DialCircuit:
        self._dials += 1
        self._direct_dials[self._dials] = None
        return DialCircuit(self._dials, timeout)

    def _wanted(self, state: CircuitState, now: int) -> int:
        """Return the number of relayed circuits to keep open beside the one in use."""
        if not self._may_relay:
            return 0
        used = self.used
        if state is not CircuitState.WORKS:
            self._doubted = now
        unproven = self._trust.is_unproven(now)
        if used is None or (used.relay and not self._names) or unproven or now - self._doubted < LINGER_NS:
            return OTHERS
        return max(self._others, int(self._trial.is_open))

    def _keep_others(self, state: CircuitState, now: int) -> list[Effect]:
        effects: list[Effect] = []
        used = self.used
        silent = [circuit for circuit in self.circuits.values() if circuit is not used and circuit.is_silent(now)]
        effects += [self._close(circuit, now) for circuit in silent]
        wanted = self._wanted(state, now)
        relayed = [circuit for circuit in self.circuits.values() if circuit is not used and circuit.relay]
        for circuit in self._too_many(relayed, wanted, now):
            relayed.remove(circuit)
            effects.append(self._close(circuit, now))
        avoid = tuple(
            circuit.relay for circuit in relayed + ([used] if used and not used.is_silent(now) else []) if circuit.relay
        )
        is_left = not self._names or any(name not in avoid for name in self._names)
        looks_again = (
            len(relayed) == wanted > 0 and state is CircuitState.WORKS and now >= self._again_at and not self._names
        )
        if self._trial.is_open and self._trial.needs_dial and self._relay_dial is None:
            self._trial.needs_dial = self._looks_again = False
            self._relay_dial = self._dials = self._dials + 1
            effects.append(DialCircuit(self._dials, RELAY_DIAL_NS, 1, tuple(c.relay for c in relayed), is_trial=True))
        elif (
            is_left
            and self._relay_dial is None
            and not self._trial.is_open
            and (looks_again or (len(relayed) < wanted and now >= self._relay_dial_at))
        ):
            self._dials += 1
            self._relay_dial, self._looks_again = self._dials, looks_again
            self._again_at = now + AGAIN_NS
            effects.append(DialCircuit(self._dials, RELAY_DIAL_NS, max(1, wanted - len(relayed)), avoid))
        has_direct = any(not circuit.relay for circuit in self.circuits.values())
        by_others = used is not None and used.relay and self._may_direct
        if by_others and not has_direct and not self._direct_dials and now >= self._direct_at:
            self._direct_at = now + self._spread(BACK_NS)
            effects.append(self._dial_directly(DIAL_NS))
        return effects

    def _open_afresh(self, now: int) -> list[Effect]:
        """Close the most expensive relayed circuit so that it is dialled again: its relay may know a better path by now.

        This happens when no other relay leads to the executor.
        """
        relayed = [circuit for circuit in self.circuits.values() if circuit is not self.used and circuit.relay]
        self._relay_dial_at = now
        return [self._close(max(relayed, key=lambda circuit: self.costs.of(circuit, now)), now)] if relayed else []

    def _too_many(self, relayed: list[Circuit], wanted: int, now: int) -> list[Circuit]:
        """Return the surplus circuits, most expensive last; a circuit that is still being measured may be one above the limit."""
        is_new = any(circuit.rounds < ROUNDS and not circuit.is_late(now) for circuit in relayed)
        most = wanted + 1 if wanted and is_new else wanted
        by_cost = sorted(relayed, key=lambda circuit: self.costs.of(circuit, now))
        return by_cost[most:]

    def _close(self, circuit: Circuit, now: int) -> CloseCircuit:
        del self.circuits[circuit.number]
        if not circuit.relay:
            self._direct_at = now + self._spread(BACK_NS)
        return CloseCircuit(circuit.number)

    def _ask(self, now: int) -> list[Effect]:
        """Probe all circuits at the same time while frames go out, because a delay at the other end affects all of them alike."""
        used = self.used
        if used is None or now < self._ask_at:
            return []
        if used.asked is None and used.sent == used.asked_sent and not self._is_answer_overdue(now):
            return []
        idle = [circuit for circuit in self.circuits.values() if circuit.asked is None]
        if not idle:
            return []
        self._ask_at = now + max(ASK_EVERY_NS, SHARE_NS * len(self.circuits))
        effects: list[Effect] = []
        for circuit in idle:
            self._probes += 1
            circuit.ask(self._probes, now)
            effects.append(SendProbe(circuit.number, self._probes))
        return effects

    def _is_answer_overdue(self, now: int) -> bool:
        """Return whether frames wait for an acknowledgement for so long that the circuit is probed without further ones.

        Their acknowledgement may be lost with the way back. A full window sends nothing that would show it.
        """
        return self._is_waiting and now >= self._ask_at + WAITING_EVERY_NS

    def _next_look(self, now: int) -> list[Effect]:
        used = self.used
        if used is not None and all(circuit.asked is None for circuit in self.circuits.values()) and self.since is None:
            if used.sent == used.asked_sent and used.rounds:
                return []  # nothing is pending, so the owner's periodic inspections are enough
            at = max(self._ask_at, now + 1)
        else:
            at = now + TICK_NS
        self._look_at = at
        return [InspectAt(at)]

    def _take(self, number: int, relay: str, now: int, took_ns: int) -> Circuit:
        place = min(set(range(PLACES)) - {circuit.place for circuit in self.circuits.values()})
        self.costs.begin(place, took_ns)
        circuit = self.circuits[number] = Circuit(number, place, relay, now, now, now, rtt_ns=took_ns // 3)
        return circuit

    def _spread(self, pause_ns: int) -> int:
        return int(pause_ns * self._random.between(0.8, 1.2))
