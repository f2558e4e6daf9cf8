"""Bugs to plant in what lets rows find their way; `test_routes` sees that each is found, by a complaint of its own."""

from collections import deque
from collections.abc import Iterable
from typing import Any

import pytest

from agiledart_dataflow.runtime.resending import Unacknowledged
from agiledart_executor.channels.data_links import ChannelSender, DataPort, _IncomingChannel, barrier_mark
from agiledart_executor.instances.running_instance import InputEnd
from agiledart_executor.routes.circuit_costs import Circuit
from agiledart_executor.routes.circuit_selector import CircuitOpened, CircuitSelector, CircuitState, Effect
from agiledart_kernel.frames import BARRIER, PUNCTUATION_ONLY, DataHeader, FrameKind
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.forming import join_protocol
from agiledart_node.forming.join_protocol import JoinProtocol
from agiledart_shuffle import proposals
from agiledart_shuffle.cost_exchange import CostExchange
from agiledart_simulation.paths import relaying_agents
from agiledart_simulation.paths.channel_ends import ChannelEnds
from agiledart_simulation.runs.routes_run import RoutesRun
from agiledart_transport.circuit_tickets import Booking, CircuitTickets
from agiledart_transport.link import Link
from tests.simulation.mutants import Mutant

BREAKS = {"kinds": ("cut", "loss", "reset", "cut-back"), "steps": 30, "step_ms": 1_000, "quiet_s": 60}
STALE = {
    "kinds": ("no-direct", "cut-any", "untold", "circle"),
    "steps": 30,
    "nodes": 7,
    "step_ms": 4_000,
    "quiet_s": 60,
}
LOW = {"kinds": ("low-liar", "cut"), "steps": 4, "nodes": 7, "step_ms": 20_000}
HELD = {"kinds": ("hold-receiver", "no-direct"), "steps": 20, "step_ms": 8_000}
SLOW = {"kinds": ("slow-operator",), "steps": 20, "step_ms": 4_000}
_out_of_order = DataPort._out_of_order


def doubles_are_taken(patch: pytest.MonkeyPatch) -> None:
    """A frame that has come before is taken as the next one."""

    def wrong(self: DataPort, route: _IncomingChannel, link: Link, number: int, body: bytes) -> None:
        header, came = DataHeader.unpack(body), route.end.channel
        if number >= came.expected:
            _out_of_order(self, route, link, number, body)
            return
        barrier = barrier_mark(header)
        self._take(route, link, came.expected, came.rows, header.rows, barrier, body)

    patch.setattr(DataPort, "_out_of_order", wrong)


def told_before_it_is_taken(patch: pytest.MonkeyPatch) -> None:
    """Frames are acknowledged when they have come."""

    def wrong(self: InputEnd, batches: int, *, finished: bool) -> None:
        while self.batches_taken < batches:
            self.batches_taken += 1
            self.rows_or_watermark.popleft()
        if self.acknowledge is not None and (due := self.channel.due(self.channel.frames, all_of_it=True)):
            self.acknowledge(*due)

    patch.setattr(InputEnd, "taken", wrong)


def the_window_stays_behind(patch: pytest.MonkeyPatch) -> None:
    """Only what is new goes over the new link."""

    def wrong(self: ChannelSender, link: Link) -> None:
        self.link = link
        self.ready()

    patch.setattr(ChannelSender, "move", wrong)


def marks_overtake(patch: pytest.MonkeyPatch) -> None:
    """Watermarks have no rows: they go first over another link, and need not wait for their turn."""

    def first(self: Unacknowledged) -> None:
        self.line = deque([*self._watermarks, *self._frames])
        self._line_bytes = self._bytes

    patch.setattr(Unacknowledged, "begin_again", first)

    def wrong(self: DataPort, route: _IncomingChannel, link: Link, number: int, body: bytes) -> None:
        header, came = DataHeader.unpack(body), route.end.channel
        if number > came.expected and header.flags == PUNCTUATION_ONLY:
            self._take(route, link, came.expected, came.rows, 0, None, body)
        else:
            _out_of_order(self, route, link, number, body)

    patch.setattr(DataPort, "_out_of_order", wrong)


def barriers_count_twice(patch: pytest.MonkeyPatch) -> None:
    """A barrier that has come before counts again."""

    def wrong(self: DataPort, route: _IncomingChannel, link: Link, number: int, body: bytes) -> None:
        header, came = DataHeader.unpack(body), route.end.channel
        if number < came.expected and header.flags & BARRIER:
            self._take(route, link, came.expected, came.rows, 0, barrier_mark(header), body)
        else:
            _out_of_order(self, route, link, number, body)

    patch.setattr(DataPort, "_out_of_order", wrong)


def visited_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """A relay that has been asked before is asked again."""
    ranked = proposals.Proposals.ranked

    def wrong(self: Any, relays: Any, target: NodeId, now: int, visited: tuple[NodeId, ...] = ()) -> Any:
        return ranked(self, relays, target, now)

    patch.setattr(proposals.Proposals, "ranked", wrong)
    patch.setattr(relaying_agents, "may_relay", lambda me, visited: len(visited) <= proposals.MAX_RELAYS)


def unreachable_for_ever(patch: pytest.MonkeyPatch) -> None:
    """An infinite cost to go is believed, whatever the same neighbour says afterwards."""
    receive = CostExchange.receive

    def wrong(self: CostExchange, neighbour: int, claims: Iterable[tuple[int, float]]) -> None:
        before = dict(self._received[neighbour])
        receive(self, neighbour, claims)
        self._received[neighbour].update({where: cost for where, cost in before.items() if cost == float("inf")})

    patch.setattr(CostExchange, "receive", wrong)


def tickets_are_good_twice(patch: pytest.MonkeyPatch) -> None:
    """A ticket stays after it was taken."""
    redeem = CircuitTickets.redeem

    def wrong(self: CircuitTickets, ticket: bytes, now: int) -> Booking:
        booked = self._booked.get(ticket)
        found = redeem(self, ticket, now)
        if booked is not None:
            self._booked[ticket] = booked
        return found

    patch.setattr(CircuitTickets, "redeem", wrong)


def silence_moves_rows(patch: pytest.MonkeyPatch) -> None:
    """Rows leave a way that does not answer, though no other has answered since."""
    choose = CircuitSelector._choose

    def wrong(self: CircuitSelector, state: CircuitState, now: int) -> Any:
        others = [one for one in self.circuits.values() if one is not self.used]
        if state is CircuitState.SILENT and others:
            return self._move(others[0], "silent", now)
        return choose(self, state, now)

    patch.setattr(CircuitSelector, "_choose", wrong)


def the_operator_echoes(patch: pytest.MonkeyPatch) -> None:
    """A probe is answered when the operator has taken all that came before it."""
    work, receive_frame = ChannelEnds.work, ChannelEnds.receive_frame
    waiting: dict[int, list[tuple[int, Any, bytes]]] = {}
    seen: dict[int, int] = {}

    def later(self: RoutesRun, circuit: Any, body: bytes) -> None:
        due = seen.get(id(self.ends), 0)
        waiting.setdefault(id(self.ends), []).append((due, circuit, body))
        release(self.ends)

    def release(ends: ChannelEnds) -> None:
        left = []
        for due, circuit, body in waiting.pop(id(ends), []):
            if due <= ends.taken:
                circuit.lower.send(FrameKind.ECHO, body)
            else:
                left.append((due, circuit, body))
        if left:
            waiting[id(ends)] = left

    def counted(self: ChannelEnds, face: Any, body: bytes) -> None:
        receive_frame(self, face, body)
        seen[id(self)] = self.taken + len(self.waiting)

    def worked(self: ChannelEnds, *, is_last: bool) -> None:
        work(self, is_last=is_last)
        release(self)

    # Also where the kernel reports that the other end has the probe: its answer is ignored.
    patch.setattr(Circuit, "is_late", lambda self, now: self.asked is not None and now - self.asked > self.usual_ns)
    patch.setattr(RoutesRun, "answer_probe", later)
    patch.setattr(ChannelEnds, "receive_frame", counted)
    patch.setattr(ChannelEnds, "work", worked)


def promises_are_believed(patch: pytest.MonkeyPatch) -> None:
    """Rows take a promised path as soon as its circuit is open, whatever it is measured to cost."""
    opened = CircuitSelector._opened

    def wrong(self: CircuitSelector, event: CircuitOpened, now: int) -> list[Effect]:
        effects = opened(self, event, now)
        taken = self.circuits.get(event.circuit)
        if self._trial.is_open and event.relay and taken is not None and taken is not self.used:
            return [*effects, *self._move(taken, "better", now)]
        return effects

    patch.setattr(CircuitSelector, "_opened", wrong)


def a_join_loops(patch: pytest.MonkeyPatch) -> None:
    """A JOIN comes by its first hop twice, and the sink takes its path all the same."""
    arrived = JoinProtocol._arrived

    def wrong(self: JoinProtocol, number: int, path: tuple[Peer, ...]) -> None:
        arrived(self, number, (*path[:-1], path[0], *path[1:]) if len(path) > 1 else path)

    patch.setattr(JoinProtocol, "_arrived", wrong)
    patch.setattr(join_protocol, "is_path", lambda path, source, sink: path[0].node == source and path[-1].node == sink)


ROUTES_MUTANTS = [
    Mutant("a JOIN loops", a_join_loops, "applications", {"nodes": 8, "steps": 6}, complaint="jo_1"),
    Mutant("a promise is believed", promises_are_believed, "routes", LOW, complaint="P9", known=11),
    Mutant("doubles not dropped", doubles_are_taken, "routes", BREAKS),
    Mutant("acknowledged before it is taken", told_before_it_is_taken, "routes", complaint="P6", known=3),
    Mutant("window not sent again", the_window_stays_behind, "routes", BREAKS, complaint="P7"),
    Mutant("a mark overtakes rows", marks_overtake, "routes", BREAKS, complaint="P2", known=3),
    Mutant("barrier doubled", barriers_count_twice, "routes", BREAKS, complaint="P2"),
    Mutant("visited list ignored", visited_is_ignored, "routes", STALE, complaint="P3"),
    Mutant("infinite cost to go believed", unreachable_for_ever, "routes", STALE, complaint="P7"),
    Mutant("ticket taken twice", tickets_are_good_twice, "routes", complaint="P4"),
    Mutant("silence alone moves rows", silence_moves_rows, "routes", HELD, complaint="P5"),
    Mutant("echo by the operator", the_operator_echoes, "routes", SLOW, complaint="P5"),
]
