"""Routed messages, hop by hop: each hop is acknowledged, repeated, and led past a node that does not answer.

A silent hop that the routing table chose is replaced. A hop that the leaf set chose is the only right one: the message waits
until that node answers or is declared dead, so that impatience never ends it at the second closest. Only a node that claims the
key delivers it. A key that no node claims at the moment (its owner is joining, or has died) waits in a small buffer at the node
that seems closest; when that is full the sender gets no acknowledgement and repeats. A message may arrive twice when an
acknowledgement was lost and the route changed; the layer above numbers messages that must take effect once.

Source: the project's overlay specification §4 and §6 (time-outs from measured round trips).
"""

from agiledart_kernel.instants import MILLISECOND, SECOND, Instant
from agiledart_kernel.limits import MAX_PATH
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.liveness.checks import Checks
from agiledart_overlay.state.view import View
from agiledart_overlay.tables.next_hop import Rule
from agiledart_overlay.wire.effects import Delivered, Forwarding
from agiledart_overlay.wire.messages import RouteAck, RouteHop

_TRIES = 3
_MAX_SEEN = 8_192
_FORWARD_TIMEOUT_NS = 10 * SECOND
"""Longest time for which one node keeps trying to pass a message on; a silent leaf is declared dead well before."""

_LONGEST_RETRY_NS = 500 * MILLISECOND


class PendingHop:
    """Message that was passed on and is not acknowledged yet."""

    __slots__ = ("avoid", "deadline", "given_up_at", "message", "previous", "rule", "to", "tries", "wait_ns")

    def __init__(
        self,
        message: RouteHop,
        to: Peer,
        rule: Rule,
        previous: Peer | None,
        avoid: tuple[NodeId, ...],
        given_up_at: int,
    ) -> None:
        self.message, self.to, self.rule, self.previous, self.avoid = message, to, rule, previous, avoid
        self.given_up_at = given_up_at
        self.tries = 1
        self.wait_ns = self.deadline = 0


class WaitingMessage:
    """Message for a key that no node claims at the moment."""

    __slots__ = ("avoid", "given_up_at", "key", "path", "payload", "previous")

    def __init__(
        self,
        key: NodeId,
        payload: bytes,
        path: tuple[Peer, ...],
        previous: Peer | None,
        avoid: tuple[NodeId, ...],
        given_up_at: int,
    ) -> None:
        self.key, self.payload, self.path, self.previous, self.avoid = key, payload, path, previous, avoid
        self.given_up_at = given_up_at


class Router:
    """Forwarder of routed messages."""

    __slots__ = ("_checks", "_pending", "_seen", "_view", "_waiting")

    def __init__(self, view: View, checks: Checks) -> None:
        self._view = view
        self._checks = checks
        self._pending: dict[int, PendingHop] = {}
        self._seen: dict[tuple[NodeId, int, int], None] = {}
        self._waiting: list[WaitingMessage] = []

    @property
    def pending(self) -> int:
        """Return the number of messages that wait for an acknowledgement, or for a node that claims their key."""
        return len(self._pending) + len(self._waiting)

    def stop(self) -> None:
        """Drop all waiting messages."""
        for _ in range(self.pending):
            self._view.drop("hop-left")
        self._pending.clear()
        self._waiting.clear()
        self._view.cancel_timer("hops")

    def route(self, key: NodeId, payload: bytes) -> None:
        """Start a message here."""
        view = self._view
        if not view.joined and not view.agreed.rejoined:
            view.drop("route-outside")
        elif not self._pass_on(key, payload, (view.me,), None, (), view.now + _FORWARD_TIMEOUT_NS):
            view.drop("route-unclaimed")

    def on_route(self, sender: Peer, message: RouteHop) -> None:
        """Take a routed message from the previous hop."""
        view = self._view
        if not view.agreed.active:
            view.drop("route-outside")
            return
        if message.path[-1].node != sender.node:
            view.drop("route-path")
            return
        mark = (sender.node, sender.incarnation, message.number)
        if mark in self._seen:
            view.send(sender, RouteAck(message.number))
            return
        if len(self._pending) >= view.config.max_hops_pending:
            view.drop("route-full")
            return
        path = (*message.path, view.me)
        if not self._pass_on(message.key, message.payload, path, sender, (), view.now + _FORWARD_TIMEOUT_NS):
            return
        self._seen[mark] = None
        if len(self._seen) > _MAX_SEEN:
            del self._seen[next(iter(self._seen))]
        view.send(sender, RouteAck(message.number, view.distances.vitals))

    def on_ack(self, sender: Peer, message: RouteAck) -> None:
        """Take the acknowledgement of the next node."""
        hop = self._pending.get(message.number)
        if hop is not None and hop.to.node == sender.node:
            del self._pending[message.number]
            if not self._pending and not self._waiting:
                self._view.cancel_timer("hops")
            if hop.tries == 1:
                self._view.measure(sender.node, Instant(hop.deadline - hop.wait_ns), message.vitals)

    def _pass_on(
        self,
        key: NodeId,
        payload: bytes,
        path: tuple[Peer, ...],
        previous: Peer | None,
        avoid: tuple[NodeId, ...],
        given_up_at: int,
    ) -> bool:
        """Deliver, pass on or keep a message; return False when it should wait here and the buffer is full."""
        view = self._view
        if view.is_root(key):
            view.effects.append(Delivered(key, payload, path[0], path))
            return True
        hop = view.next_hop(key, avoid)
        if hop.peer is None:
            if len(self._waiting) >= view.config.max_waiting:
                return False
            self._waiting.append(WaitingMessage(key, payload, path, previous, avoid, given_up_at))
            view.set_timer_by("hops", view.now + view.config.hop_timeout_ns)
            return True
        digits = view.config.id_bits // view.config.digit_bits
        if len(path) >= min(MAX_PATH, max(8, 2 * digits)):
            view.drop("route-ttl")
            return True
        if len(self._pending) >= view.config.max_hops_pending:
            view.drop("route-full")
            return True
        message = RouteHop(view.number(), key, payload, path)
        pending = PendingHop(message, hop.peer, hop.rule, previous, avoid, given_up_at)
        pending.wait_ns = self._wait_ns(hop.peer)
        pending.deadline = view.now + pending.wait_ns
        self._pending[message.number] = pending
        view.effects.append(Forwarding(key, payload, path[0], previous, hop.peer))
        view.send(hop.peer, message)
        view.set_timer_by("hops", pending.deadline)
        return True

    def _wait_ns(self, peer: Peer) -> int:
        known = self._view.book.get(peer.node)
        if known is None or known.rtt_ns == 0:
            return self._view.config.probe_timeout_ns
        return max(self._view.config.hop_timeout_ns, known.rtt_ns + 4 * known.variation_ns)

    def on_hops_timer(self) -> None:
        """Repeat unacknowledged messages, lead them past silent nodes, or give them up."""
        view = self._view
        self.on_change()
        for number, hop in [(number, hop) for number, hop in self._pending.items() if hop.deadline <= view.now]:
            if self._pending.get(number) is hop:
                self._retry(number, hop)
        if self._pending:
            view.set_timer_by("hops", min(hop.deadline for hop in self._pending.values()))

    def on_change(self) -> None:
        """Try waiting messages again: a node may claim their keys by now."""
        view = self._view
        waiting, self._waiting = self._waiting, []
        for waiting_message in waiting:
            if view.now >= waiting_message.given_up_at:
                view.drop("route-undelivered")
            else:
                self._pass_on(
                    waiting_message.key,
                    waiting_message.payload,
                    waiting_message.path,
                    waiting_message.previous,
                    waiting_message.avoid,
                    waiting_message.given_up_at,
                )

    def _retry(self, number: int, hop: PendingHop) -> None:
        view = self._view
        if view.now >= hop.given_up_at:
            del self._pending[number]
            view.drop("route-undelivered")
            return
        if hop.to.node not in view.book:
            self._reroute(number, hop, hop.avoid)
            return
        if hop.tries >= _TRIES:
            self._checks.doubt(hop.to.node)
            if hop.rule is not Rule.LEAF:
                self._reroute(number, hop, (*hop.avoid, hop.to.node))
                return
        hop.tries += 1
        hop.wait_ns = min(2 * hop.wait_ns, _LONGEST_RETRY_NS)
        hop.deadline = view.now + hop.wait_ns
        view.send(hop.to, hop.message)

    def _reroute(self, number: int, hop: PendingHop, avoid: tuple[NodeId, ...]) -> None:
        del self._pending[number]
        message = hop.message
        if not self._pass_on(message.key, message.payload, message.path, hop.previous, avoid, hop.given_up_at):
            self._view.drop("route-unclaimed")

    def on_gone(self, gone: list[Peer]) -> None:
        """Reroute messages that wait for dead or departed peers."""
        dead = {peer.node: None for peer in gone}
        for number, hop in list(self._pending.items()):
            if hop.to.node in dead:
                self._reroute(number, hop, hop.avoid)

    def violations(self) -> list[str]:
        """Check that messages passed on have a timer, and that all buffers are bounded."""
        view, config, complaints = self._view, self._view.config, []
        if self._pending:
            complaints = view.missing_timer("hops", min(hop.deadline for hop in self._pending.values()))
        elif self._waiting:
            complaints = view.missing_timer("hops")
        for name, count, limit in (
            ("hops are pending", len(self._pending), config.max_hops_pending),
            ("messages wait for an owner", len(self._waiting), config.max_waiting),
            ("hops are remembered", len(self._seen), _MAX_SEEN),
        ):
            if count > limit:
                complaints.append(f"bound: {count} {name}, at most {limit}")
        return complaints
