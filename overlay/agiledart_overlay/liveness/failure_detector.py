"""Who is alive: whom a node looks at in each round, what it hears of others, and what it answers when it is itself suspected.

How a single peer is looked at: `checks`.

Source: [SWIM] §4, [Lifeguard] §IV; figures from the project's overlay specification §6.
"""

from collections.abc import Iterable

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.liveness.checks import Check, Checks, CheckStage
from agiledart_overlay.state.agreement import FOREVER
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.effects import PeerLeft
from agiledart_overlay.wire.messages import (
    ConfirmSuspicion,
    DeclaredFailed,
    IndirectProbe,
    IndirectProbeAck,
    ProbeAck,
    Refute,
    Suspect,
)
from agiledart_overlay.wire.observations import SelfRefuted

_MAX_INDIRECT_PROBES = 256


class FailureDetector:
    """The failure detector of one node."""

    __slots__ = ("_indirect_probes", "_probe_order", "_rounds", "_view", "checks")

    def __init__(self, view: View) -> None:
        self._view = view
        self.checks = Checks(view)
        self._indirect_probes: dict[int, tuple[Peer, int, NodeId]] = {}
        self._probe_order: list[NodeId] = []
        self._rounds = 0

    def start(self) -> None:
        """Begin the rounds; the first one at a random time, so that nodes do not march in step."""
        view = self._view
        view.set_timer("round", view.now + int(view.config.lease_renewal_ns * view.random.uniform()))

    def stop(self) -> None:
        """End all rounds and checks."""
        self.checks.stop()
        self._indirect_probes.clear()
        self._view.cancel_timer("round")

    # ---- own rounds

    def on_round(self, asked: Iterable[Peer] = ()) -> None:
        """Examine ring neighbours, the watched, the suspects, and now and then one more peer in turn.

        Args:
            asked: ring neighbours that were asked for a lease just now, which is as good as a probe.
        """
        view = self._view
        config = view.config
        view.set_timer("round", view.now + config.lease_renewal_ns)
        self._rounds += 1
        targets: dict[NodeId, Peer] = {}
        for peer in (view.leaf_set.successor, view.leaf_set.predecessor):
            if peer is not None:
                targets[peer.node] = peer
        if self._rounds % (config.probe_interval_ns // config.lease_renewal_ns) == 0:
            for number in self.checks.forget_probes():
                self._indirect_probes.pop(number, None)
            peer = self._next_probe_target()
            if peer is not None:
                targets[peer.node] = peer
            for node in view.watched:
                acquaintance = view.book.get(node)
                if acquaintance is not None and node not in view.leaf_set:
                    targets[node] = acquaintance.peer
        for peer in asked:
            targets.pop(peer.node, None)
            if self.checks.get(peer.node) is None and peer.node in view.book:
                self.checks.wait_for(peer)
        for peer in targets.values():
            if self.checks.get(peer.node) is None:
                self.checks.examine(peer, CheckStage.DIRECT, "silent")
        for check in self.checks:
            if check.stage is CheckStage.SUSPECT:
                self.checks.probe(check.peer)
                self._remind(check)

    def _remind(self, check: Check) -> None:
        """Tell one more leaf of the suspicion: an answer that was lost comes again, also that it is dead already."""
        view = self._view
        known = view.book.get(check.peer.node)
        leaves = [peer for peer in view.leaf_set.members if peer.node != check.peer.node]
        if known is not None and leaves:
            view.send(view.random.choice(leaves), Suspect(check.peer, known.refutations))

    def _next_probe_target(self) -> Peer | None:
        """A leaf in shuffled round robin; every fourth time another known peer."""
        view = self._view
        if self._rounds % 4 == 0:
            others = [peer for peer in view.known() if peer.node not in view.leaf_set]
            if others:
                return view.random.choice(others)
        while True:
            if not self._probe_order:
                self._probe_order = [peer.node for peer in view.leaf_set.members]
                view.random.shuffle(self._probe_order)
                if not self._probe_order:
                    return None
            peer = view.leaf_set.get(self._probe_order.pop())
            if peer is not None:
                return peer

    # ---- what comes in

    def on_probe_ack(self, sender: Peer, message: ProbeAck) -> None:
        """An answer: a round trip, and perhaps the end of an errand."""
        view = self._view
        sent_at = self.checks.answered(sender, message.number)
        if sent_at is not None:
            view.measure(sender.node, sent_at, message.vitals)
        errand = self._indirect_probes.pop(message.number, None)
        if errand is not None and errand[2] == sender.node:
            view.send(errand[0], IndirectProbeAck(errand[1], sender.node, message.refutations, message.joined))

    def on_indirect_probe(self, sender: Peer, message: IndirectProbe) -> None:
        """Probe somebody for somebody else; only peers that this node knows, so that it cannot be used to reach strangers."""
        view = self._view
        known = view.book.get(message.target.node)
        if known is None or len(self._indirect_probes) >= _MAX_INDIRECT_PROBES:
            if not view.report_death(sender, message.target, 0):
                view.drop("errand")
            return
        self._indirect_probes[self.checks.probe(known.peer)] = (sender, message.number, message.target.node)

    def on_indirect_probe_ack(self, _sender: Peer, message: IndirectProbeAck) -> None:
        """A helper reached the peer: it lives, only the way to it is bad. So its own word that it is out may not come through."""
        check = self.checks.get(message.target)
        known = self._view.book.get(message.target)
        if check is None or known is None or message.refutations < known.refutations:
            return
        if not message.joined:
            step_out(self._view, message.target, message.refutations)
        else:
            known.refutations = message.refutations
        self.checks.note_alive(message.target)

    def on_suspect(self, sender: Peer, message: Suspect) -> None:
        """Somebody suspects: refute if it is this node, else look for oneself and tell what was found."""
        view = self._view
        target = message.target
        if target.node == view.me.node:
            if target.incarnation == view.me.incarnation and view.joined:
                self.refute(message.refutations, sender)
            return
        if view.report_death(sender, target, message.refutations):
            return
        known = view.book.get(target.node)
        if known is None or known.peer.incarnation != target.incarnation:
            return
        if known.refutations > message.refutations:
            # It has refuted this already, but the way from it to the sender may be broken.
            if known.is_placed:
                view.send(sender, IndirectProbeAck(0, target.node, known.refutations))
            return
        check = self.checks.get(target.node)
        if check is None:
            check = self.checks.examine(known.peer, CheckStage.DIRECT, "silent")
        if check.stage is CheckStage.SUSPECT:
            check.confirmed.setdefault(sender.node)
            self.checks.wait_for_confirmations(check)
            view.send(sender, ConfirmSuspicion(target.node, target.incarnation, message.refutations))
        elif len(check.askers) < view.config.leaf_count:
            check.askers[sender.node] = sender

    def on_confirm(self, sender: Peer, message: ConfirmSuspicion) -> None:
        """Another node cannot reach the suspect either."""
        check = self.checks.get(message.target)
        if check is None or check.stage is not CheckStage.SUSPECT or check.peer.incarnation != message.incarnation:
            return
        if sender.node != message.target and sender.node not in check.confirmed:
            check.confirmed[sender.node] = None
            self.checks.wait_for_confirmations(check)

    def on_declared_failed(self, _sender: Peer, message: DeclaredFailed) -> None:
        """Somebody declared a peer dead. Own probes and those of helpers decide: a rumour alone kills nobody.

        Two lost probes are no proof either: a node with a bad connection spreads such rumours of everybody.
        """
        view = self._view
        target = message.target
        if target.node == view.me.node:
            if target.incarnation == view.me.incarnation and view.joined:
                self.refute(message.refutations, None)
            return
        known = view.book.get(target.node)
        if known is None or known.peer.incarnation != target.incarnation or known.refutations > message.refutations:
            return
        check = self.checks.get(target.node)
        if check is None:
            check = self.checks.examine(known.peer, CheckStage.DIRECT, "rumour")
            self.checks.probe(known.peer)
        check.is_declared = True
        if check.stage is CheckStage.SUSPECT:
            self.checks.declare(check)

    def refute(self, refutations: int, accuser: Peer | None) -> None:
        """Speak up: this node lives."""
        view = self._view
        if refutations < view.refutations:
            if accuser is not None:
                view.send(accuser, Refute(view.refutations))
            return
        if not view.outrank(refutations):
            return
        self.checks.distrust()
        view.observe(SelfRefuted(view.refutations))
        told = {peer.node: peer for peer in view.known()}
        if accuser is not None:
            told[accuser.node] = accuser
        for peer in told.values():
            view.send(peer, Refute(view.refutations))

    def violations(self) -> list[str]:
        """Rounds go on while the node is in the ring; errands are bounded."""
        view = self._view
        found = self.checks.violations()
        # A machine that was put into a finished ring has no rounds.
        if view.joined and view.agreed.wake_deadline < FOREVER:
            found.extend(view.missing_timer("round"))
        if len(self._indirect_probes) > _MAX_INDIRECT_PROBES:
            found.append(f"bound: {len(self._indirect_probes)} errands, at most {_MAX_INDIRECT_PROBES}")
        return found


def step_out(view: View, node: NodeId, refutations: int) -> None:
    """A peer lives but is not in the ring, by its own word or by that of a helper: out of the tables; a watched one stays known.

    It joins again, or it went and its good-bye was lost. If that is old news, it will refute.
    """
    known = view.book.get(node)
    if known is None:
        return
    if refutations > known.refutations:
        view.step_aside(known, refutations)
    elif node not in view.watched:
        view.remove(known.peer, known.refutations, has_left=False)
        view.effects.append(PeerLeft(known.peer))
