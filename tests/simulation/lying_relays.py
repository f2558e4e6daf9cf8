"""A relay that lies: it claims the least possible costs, so that circuits lead through it, and then spoils them."""

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from agiledart_executor.routes.circuit_selector import DialCircuit
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.randomness import RandomStream
from agiledart_simulation.paths.relaying_agents import RelayBooking
from agiledart_simulation.paths.spliced_circuit import SplicedCircuit
from agiledart_simulation.runs.routes_run import RoutesRun
from agiledart_simulation.runs.scenario import draw

LIAR: Final = 2
"""Number of the relay that lies; the first one is honest."""

LIES: Final = ("alters rows", "alters all", "leads elsewhere", "cuts", "invents a path")
"""Lies: bytes of rows or of every frame change, circuits end at another node, break at any time, or have no path behind the relay.

Links between executors are TLS: an altered, repeated or dropped record ends the link, and another node has another certificate.
"""


class LyingRelayRun(RoutesRun):
    """A run with a relay that lies, whose way is the shortest.

    Attributes:
        liar: the relay; -1 until the run is made.
        lied: how often the lie was used on a circuit.
    """

    def __init__(self, seed: int, lie: str) -> None:
        self.lie, self.liar, self.lied = lie, -1, 0
        self.lying = RandomStream(seed, "lies")
        self._unconnected: tuple[str, ...] = ()
        drawn = draw(seed, name="routes")
        kinds = tuple(kind for kind in drawn.kinds if kind not in ("low-liar", "stalling-liar", "no-direct"))
        # Rows need a relay, and one relay of two or more lies.
        super().__init__(
            draw(seed, name="routes", fixed={"kinds": (*kinds, "no-direct"), "nodes": max(4, drawn.nodes)})
        )
        self.liar = LIAR
        self.agents.all[self.liar].announces_low = True
        if lie != "cuts":  # its circuits work at times
            self._stalls |= {self.liar}

    def _delays(self) -> dict[tuple[int, int], int]:
        """Return delays in which the way by the liar is the shortest."""
        near = ((0, LIAR), (LIAR, 0), (LIAR, self.sink), (self.sink, LIAR))
        return super()._delays() | dict.fromkeys(near, MILLISECOND)

    def _is_good(self) -> bool:
        """Return whether rows take a path that works: a liar may keep them from the best one, as requests go to it first."""
        is_shut = any(self.wires.is_so("cut", self.now, *hop) for hop in pairwise(self.used.path))
        return (
            self.choosing.used is not None and not is_shut and not any(node in self._stalls for node in self.used.path)
        )

    def _is_lied_to(self, path: tuple[int, ...]) -> bool:
        self.lied += self.liar in path[1:-1]
        return self.liar in path[1:-1]

    def _open(self, path: tuple[int, ...], holds: tuple[RelayBooking, ...]) -> SplicedCircuit:
        stalls, self._stalls = self._stalls, self._stalls - {self.liar}  # it stalls nothing, but no path by it is good
        circuit = super()._open(path, holds)
        self._stalls = stalls
        if self.lie == "cuts" and self._is_lied_to(path):
            self.at(self.now + int(4 * SECOND * self.lying.uniform()), lambda: self._lose(circuit.number, "cut"))
        return circuit

    def _arrives(self, circuit: SplicedCircuit, is_down: bool, kind: int, body: bytes) -> None:
        is_altered = self.lie == "alters all" or (self.lie == "alters rows" and kind == FrameKind.DATA)
        if is_altered and circuit.number in self.circuits and self._is_lied_to(circuit.path):
            self._lose(circuit.number, "bad record")
        elif not (is_altered and self.liar in circuit.path[1:-1]):
            super()._arrives(circuit, is_down, kind, body)

    def _dial(self, dial: DialCircuit) -> None:
        """Avoid the relays of the last dial whose circuits did not open, and doubt them, as `DataRoute` does."""
        if dial.max_relays:
            dial, self._unconnected = dial._replace(avoid=(*dial.avoid, *self._unconnected)), ()
        super()._dial(dial)

    def _connect(
        self,
        path: tuple[int, ...],
        holds: tuple[RelayBooking, ...],
        began: int,
        dial: DialCircuit,
        ended: Callable[[], None],
    ) -> None:
        def failed() -> None:
            self.agents.all[0].proposals.doubt((self.agents.peers[path[1]].name,), self.now)
            self._unconnected = (*self._unconnected, f"a{path[1]}")
            ended()

        if self.lie == "leads elsewhere" and self._is_lied_to(path):
            self.at(self._crossing((path[0], path[1], path[0]), self.now), failed)  # the certificate is another node's
        elif self.lie == "invents a path" and self._is_lied_to(path):
            self.at(self.wires.awake(0, self.now + dial.timeout_ns), failed)  # nothing answers
        else:
            super()._connect(path, holds, began, dial, ended)
