"""Failure detector: the peers that a node examines in each round, news of others, and its answers when it is itself suspected.

The check of a single peer: `checks`. Source: [SWIM] §4, [Lifeguard] §IV; figures from the project's overlay specification §6.
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
    """Failure detector of one node."""

    __slots__ = ("_indirect_probes", "_probe_order", "_rounds", "_view", "checks")

    def __init__(self, view: View) -> None:
        self._view = view
        self.checks = Checks(view)
        self._indirect_probes: dict[int, tuple[Peer, int, NodeId]] = {}
        self._probe_order: list[NodeId] = []
        self._rounds = 0

    def start(self) -> None:
        """Begin the rounds; the first one at a random time, so that nodes do not act in step."""
        view = self._view
        view.set_timer("round", view.now + int(view.config.lease_renewal_ns * view.random.uniform()))

    def stop(self) -> None:
        """End all rounds and checks."""
        self.checks.stop()
        self._indirect_probes.clear()
        self._view.cancel_timer("round")

    # ---- own rounds

    def on_round(self, asked: Iterable[Peer] = ()) -> None:
        """Examine ring neighbours, watched peers and suspects, and now and then one more peer in turn.

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
        """Repeat the suspicion to one more leaf: an answer that was lost comes again, even that the peer is already dead."""
        view = self._view
        known = view.book.get(check.peer.node)
        leaves = [peer for peer in view.leaf_set.members if peer.node != check.peer.node]
        if known is not None and leaves:
            view.send(view.random.choice(leaves), Suspect(check.peer, known.refutations))

    def _next_probe_target(self) -> Peer | None:
        """Return a leaf in shuffled round robin; every fourth time another known peer."""
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

    # ---- received messages

    def on_probe_ack(self, sender: Peer, message: ProbeAck) -> None:
        """Take an answer: it gives a round trip, and may end an indirect probe."""
        view = self._view
        sent_at = self.checks.answered(sender, message.number)
        if sent_at is not None:
            view.measure(sender.node, sent_at, message.vitals)
        indirect_probe = self._indirect_probes.pop(message.number, None)
        if indirect_probe is not None and indirect_probe[2] == sender.node:
            view.send(
                indirect_probe[0], IndirectProbeAck(indirect_probe[1], sender.node, message.refutations, message.joined)
            )

    def on_indirect_probe(self, sender: Peer, message: IndirectProbe) -> None:
        """Probe a peer for another node; only known peers, so that this node cannot be used to reach strangers."""
        view = self._view
        known = view.book.get(message.target.node)
        if known is None or len(self._indirect_probes) >= _MAX_INDIRECT_PROBES:
            if not view.report_death(sender, message.target, 0):
                view.drop("errand")
            return
        self._indirect_probes[self.checks.probe(known.peer)] = (sender, message.number, message.target.node)

    def on_indirect_probe_ack(self, _sender: Peer, message: IndirectProbeAck) -> None:
        """Take a helper's report that the peer lives and only the path to it is bad; the helper also reports its membership."""
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
        """Answer a suspicion: refute one of this node, else check the peer and report the result."""
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
            # The peer has refuted this already, but its path to the sender may be broken.
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
        """Note that another node cannot reach the suspect either."""
        check = self.checks.get(message.target)
        if check is None or check.stage is not CheckStage.SUSPECT or check.peer.incarnation != message.incarnation:
            return
        if sender.node != message.target and sender.node not in check.confirmed:
            check.confirmed[sender.node] = None
            self.checks.wait_for_confirmations(check)

    def on_declared_failed(self, _sender: Peer, message: DeclaredFailed) -> None:
        """Check a peer that another node declared dead. Own probes and those of helpers decide: a rumour alone kills no peer.

        Two lost probes are no proof either: a node with a bad connection spreads such rumours about all peers.
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
        """Refute: this node is alive."""
        view = self._view
        if refutations < view.refutations:
            if accuser is not None:
                view.send(accuser, Refute(view.refutations))
            return
        if not view.outrank(refutations):
            return
        self.checks.distrust()
        view.observe(SelfRefuted(view.refutations))
        receivers = {peer.node: peer for peer in view.known()}
        if accuser is not None:
            receivers[accuser.node] = accuser
        for peer in receivers.values():
            view.send(peer, Refute(view.refutations))

    def violations(self) -> list[str]:
        """Check that rounds go on while the node is in the ring, and that indirect probes are bounded."""
        view = self._view
        complaints = self.checks.violations()
        # A machine that was put into a finished ring has no rounds.
        if view.joined and view.agreed.wake_deadline < FOREVER:
            complaints.extend(view.missing_timer("round"))
        if len(self._indirect_probes) > _MAX_INDIRECT_PROBES:
            complaints.append(f"bound: {len(self._indirect_probes)} indirect probes, at most {_MAX_INDIRECT_PROBES}")
        return complaints


def step_out(view: View, node: NodeId, refutations: int) -> None:
    """Remove a live peer that is out of the ring, by its own report or a helper's; a watched one stays known.

    It rejoins, or it left and its farewell was lost. If the news is old, it will refute.
    """
    known = view.book.get(node)
    if known is None:
        return
    if refutations > known.refutations:
        view.step_aside(known, refutations)
    elif node not in view.watched:
        view.remove(known.peer, known.refutations, has_left=False)
        view.effects.append(PeerLeft(known.peer))
