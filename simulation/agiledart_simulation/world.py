"""The virtual world: an event heap, a clock in nanoseconds, and nodes that each run one machine.

Any machine with `step(event, now) → effects` can live here: the overlay alone, or a whole composed node. The world carries out
`Send`, `SetTimer` and `CancelTimer`; every other effect is handed to `on_effect`, which may answer by injecting events.
"""

from collections.abc import Callable, Hashable, Sequence
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from agiledart_kernel.codec import Codec
from agiledart_kernel.instants import MILLISECOND, SECOND, Instant
from agiledart_kernel.machine import (
    CancelTimer,
    Effect,
    Event,
    LinkLost,
    Machine,
    Message,
    Received,
    Send,
    SetTimer,
    TimerFired,
)
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_simulation.network import Network, NetworkConfig
from agiledart_simulation.trace import Trace

M = TypeVar("M", bound=Machine)

Action = Callable[[], None]


class SimulatedNode(Generic[M]):
    """One life of one node.

    Attributes:
        peer: its handle, with the incarnation of this life.
        machine: what it runs.
        is_up: false after a crash.
        host_is_up: false when the whole machine is gone, so that nobody even refuses connections.
        paused_until: it does nothing before this instant.
        rate_ppb: how many nanoseconds too many its clock counts in a second; 0 is a perfect clock.
        offset_ns: what its clock showed at the world's zero.
    """

    __slots__ = ("host_is_up", "is_up", "links", "machine", "offset_ns", "paused_until", "peer", "rate_ppb", "timers")

    def __init__(self, peer: Peer, machine: M) -> None:
        self.peer, self.machine = peer, machine
        self.is_up = self.host_is_up = True
        self.paused_until = 0
        self.timers: dict[Hashable, int] = {}
        self.links: dict[NodeId, None] = {}
        self.rate_ppb = self.offset_ns = 0

    def local(self, at: int) -> Instant:
        """What this node's clock shows at an instant of the world."""
        return Instant(self.offset_ns + at + at * self.rate_ppb // SECOND)

    def world_instant(self, local: int) -> Instant:
        """The first instant of the world at which this node's clock shows this, or more."""
        at = (local - self.offset_ns) * SECOND // (SECOND + self.rate_ppb)
        while self.local(at) < local:
            at += 1
        return Instant(at)


class World(Generic[M]):
    """Nodes, their network, and time.

    Args:
        seed: everything random comes from it.
        make: builds the machine of a node.
        network: delays and losses; the default is a quiet local network.
        codec: when given, every message is encoded and decoded on its way, to prove that it survives the wire.
        on_effect: gets every effect that the world does not carry out itself.
        trace: gets every event.

    Attributes:
        now: instant of the world; each node has a clock of its own, see `SimulatedNode.local`.
        observers: called with the node after each of its events, when its effects have been carried out.
    """

    def __init__(
        self,
        seed: int,
        make: Callable[[Peer, RandomStream], M],
        network: NetworkConfig | None = None,
        codec: Codec[Any] | None = None,
        on_effect: Callable[[Peer, Effect], None] | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.seed = seed
        self.now = Instant(0)
        self.events = 0
        self.nodes: dict[NodeId, SimulatedNode[M]] = {}
        self.observers: list[Callable[[SimulatedNode[M]], None]] = []
        self.network = Network(network or NetworkConfig(), RandomStream(seed, "network"))
        self._make, self._codec, self._on_effect, self._trace = make, codec, on_effect, trace
        self._heap: list[tuple[int, int, SimulatedNode[M] | None, Event | Action]] = []
        self._sequence = 0

    # ---- nodes

    @property
    def live(self) -> tuple[SimulatedNode[M], ...]:
        """Nodes that are up, sorted by id; paused ones too."""
        return tuple(self.nodes[node] for node in sorted(self.nodes) if self.nodes[node].is_up)

    def start(self, peer: Peer, *, rate_ppb: int = 0, offset_ns: int = 0) -> SimulatedNode[M]:
        """Start a node, or the next life of one that is down; a life's number is one more than the last one's, if not higher."""
        old = self.nodes.get(peer.node)
        if old is not None:
            if old.is_up:
                raise ValueError(f"{peer.node.short} is up")
            if peer.incarnation <= old.peer.incarnation:
                peer = Peer(peer.node, old.peer.incarnation + 1, peer.name, peer.address, peer.zone, peer.host)
        self.network.place(peer.node)
        random = RandomStream(self.seed, "node", int(peer.node), peer.incarnation)
        node = self.nodes[peer.node] = SimulatedNode(peer, self._make(peer, random))
        node.rate_ppb, node.offset_ns = rate_ppb, offset_ns
        return node

    def crash(self, node: NodeId, *, silent: bool = False) -> None:
        """End a node: as a killed process, whose host resets its connections, or silently, as by loss of power."""
        victim = self.nodes[node]
        victim.is_up = False
        victim.host_is_up = not silent
        victim.timers.clear()
        if silent:
            return
        for other in victim.links:
            self._refuse(node, other)

    def pause(self, node: NodeId, duration_ns: int) -> None:
        """Stop a node for a while; what arrives meanwhile waits."""
        self.nodes[node].paused_until = self.now + duration_ns

    def inject(self, node: NodeId, event: Event, delay_ns: int = 0) -> None:
        """Give a node an event, as its own driver would."""
        self._push(self.now + delay_ns, self.nodes[node], event)

    def call(self, delay_ns: int, action: Action) -> None:
        """Do something to the world later."""
        self._push(self.now + delay_ns, None, action)

    # ---- time

    def run_for(self, duration_ns: int) -> None:
        """Let time pass."""
        until = self.now + duration_ns
        heap = self._heap
        while heap and heap[0][0] <= until:
            at, _, node, event = heappop(heap)
            self.now = Instant(at)
            self._happen(node, event)
        self.now = Instant(until)

    def run_until(self, condition: Callable[[], bool], limit_ns: int, every_ns: int = 50 * MILLISECOND) -> bool:
        """Let time pass until a condition holds, looked at now and then; false when the limit came first."""
        deadline = self.now + limit_ns
        while not condition():
            if self.now >= deadline:
                return False
            self.run_for(min(every_ns, deadline - self.now))
        return True

    def _push(self, at: int, node: SimulatedNode[M] | None, event: Event | Action) -> None:
        self._sequence += 1
        heappush(self._heap, (at, self._sequence, node, event))

    def _happen(self, node: SimulatedNode[M] | None, event: Event | Action) -> None:
        if not isinstance(event, Event):
            event()
            return
        if node is None or not node.is_up:
            return
        if self.now < node.paused_until:
            self._push(node.paused_until, node, event)
            return
        if isinstance(event, _Timer):
            if node.timers.get(event.name) != event.token:
                return
            del node.timers[event.name]
            event = TimerFired(event.name)
        self.events += 1
        if self._trace is not None:
            self._note(node, event)
        self._carry_out(node, node.machine.step(event, node.local(self.now)))
        for observer in self.observers:
            observer(node)

    def _note(self, node: SimulatedNode[M], event: Event) -> None:
        assert self._trace is not None
        if isinstance(event, Received):
            sender, message = event.sender.node, event.message
            self._trace.add(self.now, node.peer.node, sender, type(message).__name__, message)
        else:
            self._trace.add(self.now, node.peer.node, None, type(event).__name__, event)

    # ---- effects

    def _carry_out(self, node: SimulatedNode[M], effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(node, effect.to, effect.message)
            elif isinstance(effect, SetTimer):
                self._sequence += 1
                token = node.timers[effect.name] = self._sequence
                heappush(
                    self._heap, (max(node.world_instant(effect.at), self.now), token, node, _Timer(effect.name, token))
                )
            elif isinstance(effect, CancelTimer):
                node.timers.pop(effect.name, None)
            elif self._on_effect is not None:
                self._on_effect(node.peer, effect)

    def _send(self, source: SimulatedNode[M], to: Peer, message: Message) -> None:
        target = self.nodes.get(to.node)
        if target is None:
            return
        if self._codec is not None:
            message = self._codec.decode(self._codec.encode(message))
        me, there = source.peer.node, to.node
        if not target.is_up:
            if target.host_is_up:
                self._refuse(there, me)
            return
        source.links[there] = None
        target.links[me] = None
        for at in self.network.arrivals(me, there, self.now):
            self._push(at, target, Received(source.peer, message))

    def _refuse(self, dead: NodeId, other: NodeId) -> None:
        """A host tells a node that there is no such process: the connection is reset or refused."""
        node = self.nodes.get(other)
        if node is None or not node.is_up or self.network.is_cut(dead, other):
            return
        self._push(self.now + self.network.distance_ns(dead, other), node, LinkLost(dead))


class _Timer(Event, frozen=True, gc=False):
    """A timer in the heap; it counts only while its token is the latest of its name."""

    name: Hashable
    token: int
