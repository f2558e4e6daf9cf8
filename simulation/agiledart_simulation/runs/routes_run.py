"""Run of one channel between two executors whose rows choose their path: links lose and break, relays die and lie.

The machines that choose, number frames, rank relays and take tickets are those of agents and executors. Always: P1 rows once
and in order, P2 watermarks and barriers in their places, P3 no relay twice in a circuit, P4 a ticket is used once, P5 rows
leave no path that works, nor any while the receiver's process stands still, P6 nothing is acknowledged before it is taken, P8 a
relay that stalls costs one deadline, P9 no move to a better path makes it longer. In the end: P7 all rows have come, by a path of
at most 1.3 times the best one's length.
"""

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final

from agiledart_dataflow.plan.paths import AUTO, WARM, Paths
from agiledart_executor.routes.circuit_selector import (
    AbandonRoute,
    CircuitDialEnded,
    CircuitLost,
    CircuitOpened,
    CircuitSelector,
    CloseCircuit,
    DialCircuit,
    Event,
    InspectAt,
    InspectCircuits,
    PathPromised,
    ProbeEchoed,
    RequestPromise,
    SendProbe,
    SwitchCircuit,
)
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.divergence import COST_MAX
from agiledart_simulation.paths.channel_ends import ChannelEnds
from agiledart_simulation.paths.relaying_agents import RelayBooking, RelayingAgents
from agiledart_simulation.paths.spliced_circuit import SplicedCircuit
from agiledart_simulation.paths.wires import NEVER, Wires
from agiledart_simulation.runs.route_faults import draw_faults
from agiledart_simulation.runs.run_report import RunReport
from agiledart_simulation.runs.scenario import Scenario
from agiledart_simulation.world.latency_models import Latency
from agiledart_simulation.world.trace import Trace

STALL_TIMEOUT_NS: Final = 3_600 * SECOND
CALM_NS: Final = 3 * SECOND
"""Time before the first fault: agents learn what their links cost."""

FAR: Final = 1.3
"""Factor by which the path may be longer than the best one in the end."""

SLACK_NS: Final = 5 * MILLISECOND
"""One slot: a shorter difference does not count."""

STEADY_NS: Final = 5 * SECOND
MOST_RELAYS: Final = 3
VISIT_NS: Final = 4 * SECOND
"""Longest time that rows may be with a stalling relay while no other fault happens: a silence, and a new request for relays.
"""

_ROW_NS: Final = 60 * MILLISECOND
_TICK_NS: Final = SECOND // 2
_MOST_COMPLAINTS: Final = 50


class RoutesRun:
    """One run of the scenario `routes`."""

    def __init__(self, scenario: Scenario, *, trace: Trace | None = None, latency: Latency | None = None) -> None:
        self.scenario, self.trace = scenario, trace or Trace()
        self.random = random = RandomStream(scenario.seed, "routes")
        self.now = self._order = self.events = 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self.violations: dict[str, None] = {}
        self.nodes = max(3, min(9, scenario.nodes))
        self.sink = self.nodes - 1
        delays = self._delays()
        self.faults = draw_faults(scenario, self.nodes, [(a, b) for a, b in delays if a < b], CALM_NS, random)
        self.wires = Wires(delays, self.faults.troubles, RandomStream(scenario.seed, "wires"))
        self.agents = RelayingAgents(self.wires, self.nodes, random, lambda: self.now, self.at, self.complain)
        if self.faults.low >= 0:
            self.agents.all[self.faults.low].announces_low = True
        self._stalls = frozenset({self.faults.stalling} - {-1})
        self.circuits: dict[int, SplicedCircuit] = {}
        self._holds: dict[int, tuple[RelayBooking, ...]] = {}
        self._reset: dict[int, None] = {}
        self._numbers = self._looks_at = 0
        self.moves: dict[str, int] = {}
        self._begin()

    def _delays(self) -> dict[tuple[int, int], int]:
        """Draw the delays: both ends know each other and a relay; of the other pairs some do."""
        random, delays = self.random, dict[tuple[int, int], int]()
        for first in range(self.nodes):
            for second in range(first + 1, self.nodes):
                is_needed = (first, second) == (0, self.sink) or 1 in (first, second)
                if is_needed or random.uniform() < 0.6:
                    delays[first, second] = delays[second, first] = int(random.between(5, 60) * MILLISECOND)
        return delays

    def _begin(self) -> None:
        self.mode: Paths = self.random.choice(((AUTO,), (AUTO,), (WARM,)))
        first = self._open((0, self.sink), ())
        self.choosing = CircuitSelector(
            self.mode, (first.number, ""), STALL_TIMEOUT_NS, RandomStream(self.scenario.seed, "choosing"), 0
        )
        self.used = first
        self.used_since = 0
        self.ends = ChannelEnds(self.random.choice((2, 4, 16)), first.upper, self.complain)
        self.is_over = False
        self.agents.begin()
        self.at(0, self._produce)
        self.at(0, self._work)
        self.at(_TICK_NS, self._tick)
        for when, kind in self.faults.moments:
            self.at(when, partial(self._momentary, kind))

    # ---- time

    def at(self, when: int, call: Callable[[], None]) -> None:
        """Schedule an action at an instant."""
        if when < NEVER:
            self._order += 1
            heappush(self._due, (max(when, self.now), self._order, call))

    def run_until(self, until: int) -> None:
        """Let time pass."""
        while self._due and self._due[0][0] <= until and not self.violations:
            self.now, _, call = heappop(self._due)
            self.events += 1
            call()
        if not self.violations:
            self.now = until

    def complain(self, line: str) -> None:
        """Report a violation."""
        if len(self.violations) < _MOST_COMPLAINTS:
            self.violations[f"{line} at {self.now / SECOND:.6f} s"] = None

    def _note(self, kind: str) -> None:
        self.trace.add(self.now, NodeId(0), None, kind, None)

    # ---- the two executors

    def _produce(self) -> None:
        """Produce upstream: rows, at times a watermark alone or a barrier."""
        if self.is_over:
            return
        drawn = self.random.uniform()
        self.ends.produce(0 if drawn < 0.1 else 1 + self.random.index(3), barrier=drawn > 0.95)
        self.at(self.wires.awake(0, self.now + _ROW_NS), self._produce)

    def _work(self) -> None:
        """Work downstream: one batch, now and then a slow one."""
        self.ends.work(is_last=self.is_over)
        is_slow = self.wires.is_so("slow", self.now, self.sink)
        pause = 400 * MILLISECOND if is_slow else 10 * MILLISECOND
        self.at(self.wires.awake(self.sink, self.now + pause), self._work)

    def _tick(self) -> None:
        self._step(self._look())
        self.at(self.wires.awake(0, self.now + _TICK_NS), self._tick)

    def _look(self) -> InspectCircuits:
        is_waiting = self.ends.end.sender.kept.kept_bytes > 0
        return InspectCircuits(tuple(circuit.seen() for circuit in self.circuits.values()), is_waiting)

    def _arrives(self, circuit: SplicedCircuit, is_down: bool, kind: int, body: bytes) -> None:
        """Process a frame at either end."""
        self._note(f"{circuit.number} {kind}")
        if kind == FrameKind.DATA:
            self.ends.receive_frame(circuit.lower, body)
        elif kind == FrameKind.PROBE:
            self.answer_probe(circuit, body)
        elif kind == FrameKind.ACK:
            self.ends.receive_ack(body)
        elif is_down is False and kind == FrameKind.ECHO:
            self._step(ProbeEchoed(circuit.number, int.from_bytes(body, "big")))

    def answer_probe(self, circuit: SplicedCircuit, body: bytes) -> None:
        """Answer a probe at the receiving link, whatever the operator behind it does."""
        circuit.lower.send(FrameKind.ECHO, body)

    def _closed_below(self, number: int) -> None:
        """Report a closed circuit to the sending end some time later, if the path allows it."""
        if (circuit := self.circuits.get(number)) is not None:
            self.at(self._crossing(circuit.path[::-1], self.now), lambda: self._lose(number, "closed"))

    def _crossing(self, path: tuple[int, ...], at: int) -> int:
        for first, second in pairwise(path):
            at = self.wires.passes(first, second, at) if at < NEVER else NEVER
        return at

    def _lose(self, number: int, why: str) -> None:
        if number in self.circuits:
            self._reset[number] = None
            self._close(number)
            self._step(CircuitLost(number, why))

    def _close(self, number: int) -> None:
        circuit = self.circuits.pop(number, None)
        if circuit is None:
            return
        circuit.upper.closed = True
        if self.random.uniform() < 0.5:  # else frames in transit come all the same, after frames of the next circuit
            circuit.lower.closed = True
        for hold in self._holds.pop(number, ()):
            self.agents.ended(hold)

    # ---- decisions

    def _step(self, event: Event) -> None:
        for effect in self.choosing.step(event, self.now):
            self._note(repr(effect))
            match effect:
                case SendProbe(circuit, probe):
                    if (probed := self.circuits.get(circuit)) is not None:
                        probed.upper.send(FrameKind.PROBE, probe.to_bytes(8, "big"))
                case DialCircuit():
                    self._dial(effect)
                case RequestPromise():
                    promised = PathPromised(self._promise())
                    self.at(self.wires.awake(0, self.now + MILLISECOND), partial(self._step, promised))
                case SwitchCircuit(circuit):
                    self._move(self.circuits[circuit])
                case CloseCircuit(circuit):
                    self._close(circuit)
                case InspectAt(at):
                    self._looks_at = at
                    self.at(self.wires.awake(0, at), partial(self._look_if, at))
                case AbandonRoute(why):
                    self.complain(f"P7: route abandoned: {why}")

    def _promise(self) -> float:
        """Return the least cost through a relay, as the neighbours of the sending node announce it."""
        agent = self.agents.all[0]
        costs = [
            cost + agent.exchange.received_cost(relay, self.sink)
            for relay, cost in agent.costs.items()
            if relay != self.sink
        ]
        return min(costs, default=COST_MAX)

    def _look_if(self, at: int) -> None:
        if at == self._looks_at:
            self._step(self._look())

    def _move(self, circuit: SplicedCircuit) -> None:
        reason = self.choosing.changes[-1].reason
        self.moves[reason] = self.moves.get(reason, 0) + 1
        self._check_move(self.used, circuit, reason)
        self.used, self.used_since = circuit, self.now
        self.ends.move(circuit.upper)

    def _check_move(self, old: SplicedCircuit, new: SplicedCircuit, reason: str) -> None:
        is_stalling = any(node in self._stalls for node in old.path)
        if is_stalling and self.now - self.used_since > VISIT_NS and not self._is_troubled(self.used_since):
            self.complain(f"P8: rows were with a relay that stalls for {(self.now - self.used_since) / SECOND:.1f} s")
        was_lost = old.number in self._reset or old.dies <= self.now
        is_of_will = reason in ("better", "direct again")
        if not is_of_will and not was_lost and not is_stalling and not self.wires.excuses(old.path, self.now):
            self.complain(f"P5: rows left {old.path} for {new.path} ({reason}), and nothing was wrong with it")
        is_calm = not self._is_troubled(self.used_since) and not self.wires.excuses(old.path, self.now)
        if reason == "better" and is_calm and self._length(new.path) > self._length(old.path) + SLACK_NS:
            self.complain(f"P9: rows left {old.path} for {new.path}, which takes longer")
        held = self.wires.since("asleep", self.now, self.sink)
        if held is not None and not was_lost and self.now > held + 2 * SECOND and reason == "silent":
            self.complain(f"P5: rows left {old.path} ({reason}) while the receiver's process stood still")

    def _is_troubled(self, since: int) -> bool:
        return any(
            trouble.begin <= self.now and since < trouble.end + CALM_NS and trouble.end < NEVER
            for trouble in self.wires.troubles
        )

    # ---- dialling

    def _dial(self, dial: DialCircuit) -> None:
        if not dial.max_relays:
            path = (0, self.sink)
            self._connect(path, (), self.now, dial, lambda: self._step(CircuitDialEnded(dial.dial)))
            return
        agent, target = self.agents.all[0], self.sink
        avoid = [int(name[1:]) for name in dial.avoid]
        ranked = agent.ranked(target, (self.agents.peers[0].node, self.agents.peers[target].node), self.now)
        relays = [relay for relay in ranked if relay not in avoid][:MOST_RELAYS]
        if not relays:
            self.at(self.now + 1, lambda: self._step(CircuitDialEnded(dial.dial, "no relay reaches the target")))
            return
        began, left = self.now, [len(relays), dial.max_relays]

        def ended() -> None:
            left[0] -= 1
            if not left[0]:
                self._step(CircuitDialEnded(dial.dial))

        def booked(path: tuple[int, ...], holds: tuple[RelayBooking, ...]) -> None:
            if not path or not left[1]:
                ended()
                return
            left[1] -= 1
            self._connect((0, *path), holds, began, dial, ended)

        for relay in relays:
            self.agents.ask(0, relay, target, (0,), booked)

    def _connect(
        self,
        path: tuple[int, ...],
        holds: tuple[RelayBooking, ...],
        began: int,
        dial: DialCircuit,
        ended: Callable[[], None],
    ) -> None:
        """Set up a circuit: three round trips by all nodes of the path."""
        if len(set(path)) != len(path) or len(path) > 2 + MOST_RELAYS:
            self.complain(f"P3: a circuit by {path}")
        at = self.now
        for _ in range(3):
            at = self.wires.awake(self.sink, self._crossing(path, at))
            at = self._crossing(path[::-1], at)
        dies = min((self.wires.dies(node, self.now) for node in path[1:-1]), default=NEVER)
        deadline = self.now + dial.timeout_ns

        def opened() -> None:
            taken = [hold for hold in holds if self.agents.redeem(hold) is not None]
            if len(taken) < len(holds):
                for hold in taken:
                    self.agents.ended(hold)
            else:
                circuit = self._open(path, holds)
                self._step(CircuitOpened(dial.dial, circuit.number, circuit.relay, self.now - began))
            ended()

        if self.wires.awake(0, at) <= min(deadline, dies - 1):
            self.at(self.wires.awake(0, at), opened)
        else:
            self.at(self.wires.awake(0, deadline), ended)

    def _open(self, path: tuple[int, ...], holds: tuple[RelayBooking, ...]) -> SplicedCircuit:
        self._numbers += 1
        relay = f"a{path[1]}" if len(path) > 2 else ""
        circuit = SplicedCircuit(
            self._numbers,
            path,
            relay,
            self.wires,
            self._stalls,
            lambda: self.now,
            self.at,
            self._arrives,
            self._closed_below,
        )
        self.circuits[circuit.number], self._holds[circuit.number] = circuit, holds
        # The relay's kernel resets it, or stays silent where the whole machine is gone.
        if circuit.dies < NEVER and self.random.uniform() < 0.5:
            self.at(self._crossing(path[1::-1], circuit.dies), lambda: self._lose(circuit.number, "reset"))
        return circuit

    # ---- other faults

    def _momentary(self, kind: str) -> None:
        self._note(kind)
        if kind == "reset":
            self._lose(self.used.number, "reset")
        elif kind == "replay":
            for hold in list(self.agents.redeemed)[-3:]:
                self.agents.redeem(hold)
        elif kind == "circle":
            relay = 1 + self.random.index(self.sink - 1)
            if (0, relay) in self.wires.delays_ns:
                self.agents.ask(0, relay, self.sink, (0, relay), lambda path, holds: None)

    # ---- the run

    def run(self) -> RunReport:
        """Apply faults, let it rest, check the outcome."""
        ends, second = self.faults.ends, SECOND
        while self.now < ends and not self.violations:
            self.run_until(min(ends, self.now + second))
        began, good_since = self.now, -1
        while not self.violations and self.now - began < self.scenario.quiet_s * second:
            self.run_until(self.now + second // 2)
            if not self._is_good():
                good_since = -1
            elif good_since < 0:
                good_since = self.now
            elif self.now - good_since >= STEADY_NS:
                break
        quiet_ns = max(0, good_since - began)
        self._end(good_since >= 0)
        counts = {**self.faults.counts, **{f"move-{why.replace(' ', '-')}": count for why, count in self.moves.items()}}
        counts["circuits"] = self._numbers
        counts["doubled"] = self.ends.input.early.duplicate_frames
        counts["resent"] = self.ends.end.frames_resent
        counts["circles"], counts["reused"] = self.agents.circles, self.agents.reused
        return RunReport(
            violations=tuple(self.violations),
            events=self.events,
            messages=self.agents.messages,
            digest=self.trace.digest,
            virtual_s=round(self.now / SECOND, 3),
            quiet_ns=quiet_ns,
            reached=tuple(sorted((name, count) for name, count in counts.items() if count)),
        )

    def _end(self, is_good: bool) -> None:
        """End the run: no more rows, and rows in transit arrive."""
        if not self.violations and not is_good:
            took, best = self._length(self.used.path) / SECOND, self._best() / SECOND
            self.complain(f"P7: rows go by {self.used.path}, which takes {took:.4f} s, the best path {best:.4f} s")
        self.is_over = True
        until = self.now + 30 * SECOND
        while not self.violations and self.now < until and not (self.ends.is_idle and not self.ends.waiting):
            self.run_until(self.now + SECOND // 2)
        if not self.violations and (self.ends.came != self.ends.put or not self.ends.is_idle):
            self.complain(f"P7: {self.ends.came} of {self.ends.put} rows have come")

    def _length(self, path: tuple[int, ...]) -> int:
        return sum(self.wires.delays_ns[pair] for pair in pairwise(path))

    def _is_good(self) -> bool:
        """Return whether rows take a path that is nearly the best of this mode."""
        path = self.used.path
        is_shut = any(self.wires.is_so("cut", self.now, first, second) for first, second in pairwise(path))
        if self.choosing.used is None or is_shut or any(node in self._stalls for node in path):
            return False
        if self.mode == (AUTO,) and not self.used.relay:
            return True  # a faster path is not sought while the direct one works
        return self._length(path) <= FAR * self._best() + SLACK_NS

    def _best(self) -> int:
        """Return the length of the shortest working path; a relay with a link to the target takes that one."""
        lengths = {0: 0}
        for _ in range(MOST_RELAYS + 1):
            for (first, second), delay in self.wires.delays_ns.items():
                is_straight = first == 0 or second == self.sink or not self._works(first, self.sink)
                if first in lengths and first not in self._stalls and is_straight and self._works(first, second):
                    lengths[second] = min(lengths.get(second, NEVER), lengths[first] + delay)
        return lengths.get(self.sink, NEVER)

    def _works(self, first: int, second: int) -> bool:
        return (first, second) in self.wires.delays_ns and not self.wires.is_so("cut", self.now, first, second)
