"""TLS session between two ends of a simulation: frames come in order, late, or not at all; relays pass them on unread."""

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Final

from agiledart_executor.routes.circuit_costs import CircuitReading
from agiledart_kernel.node_id import NodeId
from agiledart_simulation.paths.wires import NEVER, Wires

SMALL_BYTES: Final = 300
"""Size below which a relay that stalls rows still passes frames, such as probes: it reads nothing but the size."""

UPSTREAM: Final = NodeId(1)
At = Callable[[int, Callable[[], None]], None]


class Face:
    """Link as the machines at one end see it.

    Args:
        send: takes a frame away; ended: called when this end has closed it.
    """

    def __init__(self, number: int, relay: str, send: Callable[[int, bytes], None], ended: Callable[[], None]) -> None:
        self.number, self.relay, self._send, self._ended = number, relay, send, ended
        self.closed, self.writable, self.has_more = False, True, False
        self.peer = SimpleNamespace(agent_id=UPSTREAM)

    def send(self, kind: int, body: bytes) -> None:
        """Send a frame; do nothing on a closed link."""
        if not self.closed:
            self._send(kind, body)

    def close(self, reason: str) -> None:
        """Close this end."""
        if not self.closed:
            self.closed = True
            self._ended()


class _Direction:
    """One direction through all hops."""

    def __init__(self, wires: Wires, path: tuple[int, ...], dies: int, stalls: frozenset[int]) -> None:
        self._wires, self._path, self._dies, self._stalls = wires, path, dies, stalls
        self._free = [0] * (len(path) - 1)
        self._acknowledged_at = self.acknowledged = self.given = 0
        self._acknowledgements: deque[tuple[int, int]] = deque()
        self._stalled = False

    def send(self, size: int, at: int) -> int:
        """Return the instant at which a frame reaches the far end; `NEVER` if it does not."""
        self.given += size
        wires, path = self._wires, self._path
        for hop, (here, there) in enumerate(pairwise(path)):
            at = self._free[hop] = max(self._free[hop], wires.passes(here, there, at))
            if at == NEVER:
                return NEVER
            if hop == 0:
                self._note_acknowledged(wires.passes(there, here, at), size)
            if there != path[-1]:
                self._stalled |= there in self._stalls and size > SMALL_BYTES
                at = wires.awake(there, at)
                if at >= self._dies or (self._stalled and there in self._stalls):
                    return NEVER
        return wires.awake(path[-1], at)

    def _note_acknowledged(self, at: int, size: int) -> None:
        self._acknowledged_at = max(self._acknowledged_at, at)
        self._acknowledgements.append((self._acknowledged_at, size))

    def look(self, now: int) -> tuple[int, int]:
        """Return (bytes that the next host's kernel has acknowledged, bytes that wait for that)."""
        while self._acknowledgements and self._acknowledgements[0][0] <= now:
            self.acknowledged += self._acknowledgements.popleft()[1]
        return self.acknowledged, self.given - self.acknowledged


class SplicedCircuit:
    """One circuit.

    Args:
        path: nodes from the sending end to the receiving one.
        stalls: relays that stop at the first large frame, and pass nothing behind it.
        clock: returns the time.
        at: schedules an action at an instant.
        arrives: receives a frame at an end: the circuit, whether it is the receiving end, kind, body.
        ended: called when the receiving end has closed it.
    """

    def __init__(
        self,
        number: int,
        path: tuple[int, ...],
        relay: str,
        wires: Wires,
        stalls: frozenset[int],
        clock: Callable[[], int],
        at: At,
        arrives: "Callable[[SplicedCircuit, bool, int, bytes], None]",
        ended: Callable[[int], None],
    ) -> None:
        self.number, self.path, self.relay, self._clock, self._at, self._arrives = (
            number,
            path,
            relay,
            clock,
            at,
            arrives,
        )
        self.dies = min((wires.dies(node, clock()) for node in path[1:-1]), default=NEVER)
        self._down = _Direction(wires, path, self.dies, stalls)
        self._up = _Direction(wires, path[::-1], self.dies, stalls)
        self.upper = Face(number, relay, lambda kind, body: self._send(self._down, True, kind, body), lambda: None)
        self.lower = Face(
            number, relay, lambda kind, body: self._send(self._up, False, kind, body), lambda: ended(number)
        )
        self.frames_out = self.frames_in = 0

    def _send(self, direction: _Direction, is_down: bool, kind: int, body: bytes) -> None:
        self.frames_out += is_down
        when = direction.send(len(body) + 30, self._clock())
        if when < NEVER:
            self._at(when, lambda: self._come(is_down, kind, body))

    def _come(self, is_down: bool, kind: int, body: bytes) -> None:
        face = self.lower if is_down else self.upper
        if not face.closed:
            self.frames_in += not is_down
            self._arrives(self, is_down, kind, body)

    def seen(self) -> CircuitReading:
        """Return the circuit's counters as the sending end sees them."""
        acknowledged, queued = self._down.look(self._clock())
        return CircuitReading(self.number, self.frames_out, self.frames_in, acknowledged, queued)
