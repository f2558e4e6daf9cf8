"""The virtual world: an event queue, a clock in nanoseconds, and nodes that each run one machine.

Any machine with `step(event, now) → effects` can run here: the overlay alone, or a whole composed node. The world carries out
`Send`, `SetTimer` and `CancelTimer`; every other effect is passed to `on_effect`, which may answer by injecting events.
"""

import gc
from bisect import insort
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from agiledart_kernel.codec import Codec
from agiledart_kernel.instants import MILLISECOND, Instant
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
from agiledart_simulation.world.latency_models import Latency
from agiledart_simulation.world.network import Network, NetworkConfig
from agiledart_simulation.world.queues import QUEUES, Entry
from agiledart_simulation.world.simulated_node import SimulatedNode as SimulatedNode
from agiledart_simulation.world.trace import Trace

M = TypeVar("M", bound=Machine)

Action = Callable[[], None]

_STALE_TIMERS = 4_096
"""Cancelled timers that may stay in the queue before they are removed."""


class World(Generic[M]):
    """Nodes, their network, and time.

    Args:
        seed: of everything random.
        make: builds the machine of a node.
        network: delays and losses; the default is a quiet local network.
        codec: when given, every message is encoded and decoded on its way, to prove that it survives the wire.
        on_effect: receives every effect that the world does not carry out itself.
        trace: receives every event.
        queue: `heap` or `wheel`, see `queues`.
        latency: places of nodes, see `latency_models`.
        size_of: bytes of a message, for `bytes_sent` and for limits of bandwidth; default: 0, or its wire form with a codec.

    Attributes:
        now: instant of the world; each node has a clock of its own, see `SimulatedNode.local`.
        events: steps taken by all machines.
        messages_sent, bytes_sent: by all nodes, whether they arrive or not.
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
        *,
        queue: str = "heap",
        latency: Latency | None = None,
        size_of: Callable[[Message], int] | None = None,
    ) -> None:
        self.seed = seed
        self.now = Instant(0)
        self.events = self.messages_sent = self.bytes_sent = 0
        self.nodes: dict[NodeId, SimulatedNode[M]] = {}
        self.observers: list[Callable[[SimulatedNode[M]], None]] = []
        self.network = Network(network or NetworkConfig(), RandomStream(seed, "network"), latency)
        self._make, self._codec, self._on_effect, self._trace, self._size_of = make, codec, on_effect, trace, size_of
        self._queue = QUEUES[queue]()
        self._number = 0
        self._stale = 0
        self._ids: list[NodeId] = []

    # ---- nodes

    @property
    def live(self) -> tuple[SimulatedNode[M], ...]:
        """Return the nodes that are up, sorted by id; paused ones too."""
        nodes = self.nodes
        return tuple(node for node in map(nodes.__getitem__, self._ids) if node.is_up)

    def start(
        self, peer: Peer, *, rate_ppb: int | None = None, offset_ns: int = 0, forgets: bool = False
    ) -> SimulatedNode[M]:
        """Start a node, or the next incarnation of one that is down.

        Args:
            peer: its handle; the incarnation is one more than the last one's, if not higher.
            rate_ppb, offset_ns: of its clock; without a rate the clock of the last incarnation runs on.
            forgets: its disk is lost: the incarnation has the number that `peer` says.
        """
        old = self.nodes.get(peer.node)
        if old is not None:
            if old.is_up:
                raise ValueError(f"{peer.node.short} is up")
            if peer.incarnation <= old.peer.incarnation and not forgets:
                peer = Peer(peer.node, old.peer.incarnation + 1, peer.name, peer.address, peer.zone, peer.host)
            if rate_ppb is None:
                rate_ppb, offset_ns = old.rate_ppb, old.offset_ns
        else:
            insort(self._ids, peer.node)
        self.network.place(peer.node, peer.zone)
        random = RandomStream(self.seed, "node", int(peer.node), peer.incarnation)
        node = self.nodes[peer.node] = SimulatedNode(peer, self._make(peer, random), rate_ppb or 0, offset_ns)
        return node

    def crash(self, node: NodeId, *, silent: bool = False) -> None:
        """End a node: as a killed process, whose host resets its connections, or silently, as by loss of power."""
        victim = self.nodes[node]
        victim.is_up = False
        victim.host_is_up = not silent
        victim.timers.clear()
        victim.waiting.clear()
        if not silent:
            for other in self.nodes:
                if other != node and self.network.has_link(node, other):
                    self._reset(node, other, refused=False)
        self.network.forget_links(node)

    def pause(self, node: NodeId, duration_ns: int) -> None:
        """Stop a node for a while; events wait meanwhile."""
        sleeper = self.nodes[node]
        sleeper.paused_until = max(sleeper.paused_until, self.now + duration_ns)
        self.call(sleeper.paused_until - self.now, lambda: self._wake(sleeper))

    def stutter(self, node: NodeId, period_ns: int) -> None:
        """Let a node process its events only once in a period, until the period is 0: a slow observer."""
        self.nodes[node].stutter_ns = period_ns

    def set_rate(self, node: NodeId, rate_ppb: int) -> None:
        """Let a node's clock run at another speed; its timers follow that clock."""
        drifting = self.nodes[node]
        timers = self._queue.pull(
            lambda entry: (
                entry[2] is drifting and type(entry[3]) is TimerFired and drifting.timers.get(entry[3].name) == entry[1]
            )
        )
        due = [(drifting.local(at), event) for at, _, _, event in timers]
        drifting.set_rate(self.now, rate_ppb)
        for local, event in due:
            self._set_timer(drifting, event.name, local)

    def heal(self, but: tuple[NodeId, ...] = ()) -> None:
        """Undo all partitions of the network, except those of these nodes; messages that held links kept back travel now."""
        network = self.network
        held = network.held(self.now)
        network.heal(but)
        if not held:
            return
        waiting = self._queue.pull(
            lambda entry: type(entry[3]) is Received and (entry[3].sender.node, entry[2].peer.node) in held
        )
        latest = {link: network.release_held(*link, self.now) for link in held}
        for at, number, target, event in waiting:
            self._queue.push(min(at, latest[event.sender.node, target.peer.node]), number, target, event)

    def inject(self, node: NodeId, event: Event, delay_ns: int = 0) -> None:
        """Give a node an event, as its own driver would."""
        self._push(self.now + delay_ns, self.nodes[node], event)

    def call(self, delay_ns: int, action: Action) -> None:
        """Run an action on the world later."""
        self._push(self.now + delay_ns, None, action)

    # ---- time

    def run_for(self, duration_ns: int) -> None:
        """Let time pass. The garbage collector is off meanwhile: machines make no cycles, and it would scan all nodes again and
        again.
        """
        until = self.now + duration_ns
        pop, step = self._queue.pop, self._step
        was_on = gc.isenabled()
        gc.disable()
        try:
            while (entry := pop(until)) is not None:
                self.now, number, node, event = entry
                if node is None:
                    event()
                elif not node.is_up:
                    continue
                elif node.stutter_ns or self.now < node.paused_until:
                    self._put_off(node, event, number)
                else:
                    step(node, event, number)
        finally:
            if was_on:
                gc.enable()
        self.now = Instant(until)

    def run_until(self, condition: Callable[[], bool], limit_ns: int, every_ns: int = 50 * MILLISECOND) -> bool:
        """Let time pass until a condition holds, checked now and then; return false when the limit came first."""
        deadline = self.now + limit_ns
        while not condition():
            if self.now >= deadline:
                return False
            self.run_for(min(every_ns, deadline - self.now))
        return True

    @property
    def pending(self) -> int:
        """Return the number of events to come, with cancelled timers that are still in the queue."""
        return len(self._queue)

    def _push(self, at: int, node: SimulatedNode[M] | None, event: Event | Action) -> None:
        self._number += 1
        self._queue.push(at, self._number, node, event)

    def _put_off(self, node: SimulatedNode[M], event: Any, number: int) -> None:
        """Postpone an event of a node that sleeps or stutters."""
        if self.now < node.paused_until:
            node.waiting.append((number, event))
            return
        if node.stutter_ns and self.now % node.stutter_ns:
            node.waiting.append((number, event))
            self.pause(node.peer.node, node.stutter_ns - self.now % node.stutter_ns)
            return
        self._step(node, event, number)

    def _wake(self, node: SimulatedNode[M]) -> None:
        if not node.is_up or self.now < node.paused_until:
            return
        waiting, node.waiting = node.waiting, []
        for number, event in waiting:
            if node.is_up:
                self._step(node, event, number)

    def _step(self, node: SimulatedNode[M], event: Event, number: int) -> None:
        if type(event) is TimerFired:
            if node.timers.get(event.name) != number:
                self._stale -= 1
                return
            del node.timers[event.name]
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
            kind = type(effect)
            if kind is Send:
                self._send(node, effect.to, effect.message)  # type: ignore[attr-defined]
            elif kind is SetTimer:
                self._set_timer(node, effect.name, effect.at)  # type: ignore[attr-defined]
            elif kind is CancelTimer:
                self._drop_timer(node.timers.pop(effect.name, None))  # type: ignore[attr-defined]
            elif self._on_effect is not None:
                self._on_effect(node.peer, effect)

    def _set_timer(self, node: SimulatedNode[M], name: Any, local: int) -> None:
        self._number += 1
        self._drop_timer(node.timers.get(name))
        node.timers[name] = self._number
        self._queue.push(max(node.world_instant(local), self.now), self._number, node, TimerFired(name))

    def _drop_timer(self, number: int | None) -> None:
        """Count one more invalid timer in the queue; remove them when they are most of it."""
        if number is None:
            return
        self._stale += 1
        if self._stale > _STALE_TIMERS and 2 * self._stale > len(self._queue):
            self._stale = 0
            self._queue.keep(_is_wanted)

    def _send(self, source: SimulatedNode[M], to: Peer, message: Message) -> None:
        target = self.nodes.get(to.node)
        if target is None:
            return
        self.messages_sent += 1
        size = self._size_of(message) if self._size_of is not None else 0
        if self._codec is not None:
            raw = self._codec.encode(message)
            size = size or len(raw)
            message = self._codec.decode(raw)
        self.bytes_sent += size
        me, there = source.peer.node, to.node
        if not target.is_up:
            if target.host_is_up:
                self._reset(there, me, refused=True)
            return
        received = Received(source.peer, message)
        for at in self.network.arrivals(me, there, self.now, size):
            self._number += 1
            self._queue.push(at, self._number, target, received)

    def _reset(self, dead: NodeId, other: NodeId, *, refused: bool) -> None:
        """Notify a node that another process is gone: an open connection is reset, a new one is refused."""
        node = self.nodes.get(other)
        if node is None or not node.is_up or self.network.is_cut(dead, other):
            return
        self._push(self.now + self.network.distance_ns(dead, other), node, LinkLost(dead, refused))


def _is_wanted(entry: Entry) -> bool:
    """Return whether an entry still matters: its node is up, and its timer is valid."""
    _, number, node, event = entry
    if node is None:
        return True
    return node.is_up and (type(event) is not TimerFired or node.timers.get(event.name) == number)
