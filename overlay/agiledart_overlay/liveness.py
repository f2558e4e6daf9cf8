"""Who is alive: direct probes, indirect probes, suspicion, refutation; SWIM with Lifeguard's local health.

A check of one peer goes through these stages; any message from the peer itself ends it.

    DIRECT    probed, waiting max(probe_timeout, 4 RTT); a lost link starts at INDIRECT at once
    INDIRECT  three leaves were asked to probe it, and it was probed again; waiting twice that time
    SUSPECT   it and the leaf set were told; it may refute, others may confirm; waiting 1 to 2 s (lan)
    dead      buried; the leaf set is told, and each of them looks for itself

The awkward case is a node that is itself slow or was asleep: to it all others look dead. When an own timer comes late it
stretches its waits, and when it comes very late all unfinished checks start anew.

Source: [SWIM] §4, [Lifeguard] §IV; figures from the project's overlay specification §6.
"""

from collections.abc import Iterable
from enum import IntEnum

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.effects import PeerFailed
from agiledart_overlay.messages import (
    Confirm,
    DeclaredFailed,
    Probe,
    ProbeAck,
    ProbedForYou,
    ProbeForMe,
    Refute,
    Suspect,
)
from agiledart_overlay.observations import (
    NodeWasLate,
    PeerDeclaredFailed,
    PeerSuspected,
    SelfRefuted,
    SuspicionRefuted,
)
from agiledart_overlay.outside import step_out
from agiledart_overlay.suspicion import MOST_CONFIRMATIONS, suspicion_ns
from agiledart_overlay.view import View

_MAX_ERRANDS = 256
_WORST_HEALTH = 4


class Stage(IntEnum):
    """Where a check stands."""

    DIRECT = 1
    INDIRECT = 2
    SUSPECT = 3


class Check:
    """One peer under examination.

    Attributes:
        first: number of the first probe; an answer to it or a later one is a sign of life.
        cause: `silent`, `link` or `rumour`, the reason to give if it turns out dead.
        askers: others who want to know the outcome (they suspect it).
        confirmed: others who cannot reach it either.
        began: when it was asked first; since: when it was suspected.
    """

    __slots__ = ("askers", "began", "cause", "confirmed", "deadline", "first", "is_declared", "peer", "since", "stage")

    def __init__(self, peer: Peer, stage: Stage, cause: str, first: int, now: Instant, deadline: int) -> None:
        self.peer, self.stage, self.cause, self.first, self.deadline = peer, stage, cause, first, deadline
        self.since = self.began = now
        self.askers: dict[NodeId, Peer] = {}
        self.confirmed: dict[NodeId, None] = {}
        self.is_declared = False


class Liveness:
    """The failure detector of one node."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._checks: dict[NodeId, Check] = {}
        self._probes: dict[int, tuple[NodeId, Instant]] = {}
        self._errands: dict[int, tuple[Peer, int, NodeId]] = {}
        self._turn: list[NodeId] = []
        self._rounds = 0
        self._health = 0

    @property
    def health(self) -> int:
        """0: this node is prompt; each step up lengthens its waits by the whole time-out."""
        return self._health

    def is_suspect(self, node: NodeId) -> bool:
        """Whether a peer answers neither this node nor its helpers."""
        check = self._checks.get(node)
        return check is not None and check.stage is Stage.SUSPECT

    def is_in_doubt(self, node: NodeId) -> bool:
        """Whether a check of this peer is under way."""
        return node in self._checks

    def start(self) -> None:
        """Begin the rounds; the first one at a random time, so that nodes do not march in step."""
        view = self._view
        view.set_timer("round", view.now + int(view.config.lease_beat_ns * view.random.uniform()))

    def stop(self) -> None:
        """End all rounds and checks."""
        self._checks.clear()
        self._probes.clear()
        self._errands.clear()
        self._view.cancel_timer("round")
        self._view.cancel_timer("checks")

    # ---- own rounds

    def on_round(self, asked: Iterable[Peer] = ()) -> None:
        """Examine ring neighbours, the watched, the suspects, and now and then one more peer in turn.

        Args:
            asked: ring neighbours that were asked for a lease just now, which is as good as a probe.
        """
        view = self._view
        config = view.config
        view.set_timer("round", view.now + config.lease_beat_ns)
        self._rounds += 1
        targets: dict[NodeId, Peer] = {}
        for peer in (view.leaf_set.successor, view.leaf_set.predecessor):
            if peer is not None:
                targets[peer.node] = peer
        if self._rounds % (config.probe_interval_ns // config.lease_beat_ns) == 0:
            self._forget_probes()
            peer = self._next_in_turn()
            if peer is not None:
                targets[peer.node] = peer
            for node in view.watched:
                acquaintance = view.book.get(node)
                if acquaintance is not None and node not in view.leaf_set:
                    targets[node] = acquaintance.peer
        for peer in asked:
            targets.pop(peer.node, None)
            if peer.node not in self._checks and peer.node in view.book:
                self._await(peer)
        for peer in targets.values():
            if peer.node not in self._checks:
                self._examine(peer, Stage.DIRECT, "silent")
        for check in self._checks.values():
            if check.stage is Stage.SUSPECT:
                self._probe(check.peer)
                self._remind(check)

    def _await(self, peer: Peer) -> None:
        """A check that begins with another question than a probe."""
        view = self._view
        check = Check(peer, Stage.DIRECT, "silent", view.number(), view.now, view.now + self._wait_ns(peer))
        self._checks[peer.node] = check
        view.set_timer_by("checks", check.deadline)

    def _remind(self, check: Check) -> None:
        """Tell one more leaf of the suspicion: an answer that was lost comes again, also that it is dead already."""
        view = self._view
        known = view.book.get(check.peer.node)
        leaves = [peer for peer in view.leaf_set.members if peer.node != check.peer.node]
        if known is not None and leaves:
            view.send(view.random.choice(leaves), Suspect(check.peer, known.refutations))

    def _next_in_turn(self) -> Peer | None:
        """A leaf in shuffled round robin; every fourth time another known peer."""
        view = self._view
        if self._rounds % 4 == 0:
            others = [peer for peer in view.known() if peer.node not in view.leaf_set]
            if others:
                return view.random.choice(others)
        while True:
            if not self._turn:
                self._turn = [peer.node for peer in view.leaf_set.members]
                view.random.shuffle(self._turn)
                if not self._turn:
                    return None
            peer = view.leaf_set.get(self._turn.pop())
            if peer is not None:
                return peer

    def _wait_ns(self, peer: Peer) -> int:
        known = self._view.book.get(peer.node)
        rtt = known.rtt_ns if known is not None else 0
        least = self._view.config.probe_timeout_ns
        # Bounded, since a peer that slept has answered once after seconds, which says nothing about the next time.
        return min(max(least, 4 * rtt), 5 * least) * (1 + self._health)

    def _probe(self, peer: Peer) -> int:
        view = self._view
        number = view.number()
        self._probes[number] = (peer.node, view.now)
        view.send(peer, Probe(number, view.refutations, view.joined))
        return number

    def _examine(self, peer: Peer, stage: Stage, cause: str) -> Check:
        view = self._view
        check = Check(peer, stage, cause, self._probe(peer), view.now, view.now + self._wait_ns(peer))
        self._checks[peer.node] = check
        view.set_timer_by("checks", check.deadline)
        return check

    def _ask_helpers(self, check: Check) -> bool:
        view = self._view
        helpers = [
            peer
            for peer in (view.leaf_set.members or tuple(view.known()))
            if peer.node != check.peer.node and peer.node not in self._checks
        ]
        view.random.shuffle(helpers)
        number = view.number()
        for helper in helpers[: view.config.indirect_probes]:
            view.send(helper, ProbeForMe(number, check.peer))
        return bool(helpers)

    # ---- deadlines

    def on_late(self, late_ns: int) -> None:
        """An own timer came so late: trust the own judgement less; after a sleep not at all."""
        view = self._view
        if late_ns <= view.config.late_ns:
            return
        self._health = min(_WORST_HEALTH, self._health + 1)
        view.observe(NodeWasLate(late_ns))
        if late_ns > view.config.paused_ns:
            for check in list(self._checks.values()):
                fresh = self._examine(check.peer, Stage.DIRECT, "silent")
                fresh.askers = check.askers

    def on_time(self) -> None:
        """A round was on time: trust the own judgement more."""
        self._health = max(0, self._health - 1)

    def on_checks(self) -> None:
        """Move every check whose deadline has passed one stage on."""
        view = self._view
        for check in [check for check in self._checks.values() if check.deadline <= view.now]:
            if self._checks.get(check.peer.node) is check:
                self._advance(check)
        if self._checks:
            view.set_timer_by("checks", min(check.deadline for check in self._checks.values()))

    def _advance(self, check: Check) -> None:
        view = self._view
        if check.stage is Stage.SUSPECT or (check.is_declared and check.stage is Stage.INDIRECT):
            self._declare(check)
        elif check.stage is Stage.DIRECT:
            check.stage = Stage.INDIRECT
            helped = self._ask_helpers(check)
            self._probe(check.peer)
            self._doubt_beyond(check.peer.node)
            check.deadline = view.now + self._wait_ns(check.peer) * (2 if helped else 1)
        else:
            self._suspect(check)

    def _doubt_beyond(self, node: NodeId) -> None:
        """The nearest leaf of a side is silent: who stands in its rack may be, too. So a row of dead costs the time of one."""
        leaf_set = self._view.leaf_set
        for side in (leaf_set.clockwise, leaf_set.counterclockwise):
            if side and side[0].node == node:
                for peer in side[1:]:
                    self.doubt(peer.node)

    def _suspect(self, check: Check) -> None:
        view = self._view
        known = view.book.get(check.peer.node)
        if known is None:
            self._checks.pop(check.peer.node, None)
            return
        check.stage, check.since = Stage.SUSPECT, view.now
        view.observe(PeerSuspected(check.peer))
        accusation = Suspect(check.peer, known.refutations)
        if check.askers:
            view.send(check.peer, accusation)
            for asker in check.askers.values():
                view.send(asker, Confirm(check.peer.node, check.peer.incarnation, known.refutations))
        else:
            for peer in view.leaf_set.members:
                view.send(peer, accusation)
            if check.peer.node not in view.leaf_set:
                view.send(check.peer, accusation)
        self._set_suspicion_deadline(check)

    def _set_suspicion_deadline(self, check: Check) -> None:
        view = self._view
        others = min(MOST_CONFIRMATIONS, len(view.leaf_set) - (check.peer.node in view.leaf_set))
        wait = suspicion_ns(len(check.confirmed), others, view.config.suspicion_min_ns, view.config.suspicion_max_ns)
        check.deadline = check.since + wait * (1 + self._health)
        view.set_timer_by("checks", max(check.deadline, view.now))

    def _declare(self, check: Check) -> None:
        view = self._view
        peer = check.peer
        known = view.book.get(peer.node)
        if known is None:
            del self._checks[peer.node]
            return
        ends = (view.leaf_set.successor, view.leaf_set.predecessor)
        # The leaves of both ring neighbours together are all that can hold the dead one for a leaf: each of the two tells its own,
        # even when it was the other that found out.
        if not check.is_declared or any(end is not None and end.node == peer.node for end in ends):
            for leaf in view.leaf_set.members:
                if leaf.node != peer.node:
                    view.send(leaf, DeclaredFailed(peer, known.refutations))
        self.bury(peer, check.cause)

    def bury(self, peer: Peer, reason: str) -> None:
        """This life of a peer is over: out of all tables, and the node above is told."""
        view = self._view
        known = view.book.get(peer.node)
        if known is None:
            return
        check = self._checks.pop(peer.node, None)
        view.remove(known.peer, known.refutations, has_left=False)
        grave = view.book.grave(peer.node)
        if check is not None and grave is not None:
            grave.silent_since = check.began
        view.observe(PeerDeclaredFailed(known.peer, reason))
        view.effects.append(PeerFailed(known.peer, reason))

    # ---- what comes in

    def heard(self, node: NodeId) -> None:
        """A peer sent something: it lives."""
        check = self._checks.pop(node, None)
        if check is None:
            return
        view = self._view
        known = view.book.get(node)
        for asker in check.askers.values():
            view.send(asker, ProbedForYou(0, node, known.refutations if known is not None else 0))
        if check.stage is Stage.SUSPECT:
            view.observe(SuspicionRefuted(check.peer))

    def forget(self, node: NodeId) -> None:
        """End a check without outcome: the peer left."""
        self._checks.pop(node, None)

    def on_link_lost(self, node: NodeId) -> None:
        """A connection broke: try the peer at once, and ask others to."""
        known = self._view.book.get(node)
        check = self._checks.get(node)
        if known is None or (check is not None and check.stage is not Stage.DIRECT):
            return
        if check is None:
            check = self._examine(known.peer, Stage.INDIRECT, "link")
        check.stage, check.cause = Stage.INDIRECT, "link"
        self._ask_helpers(check)

    def doubt(self, node: NodeId) -> None:
        """Another part got no answer from this peer: have a look."""
        known = self._view.book.get(node)
        if known is not None and node not in self._checks:
            self._examine(known.peer, Stage.DIRECT, "silent")

    def on_probe_ack(self, sender: Peer, message: ProbeAck) -> None:
        """An answer: a round trip, and perhaps the end of an errand."""
        view = self._view
        probe = self._probes.pop(message.number, None)
        if probe is not None and probe[0] == sender.node:
            view.measure(sender.node, probe[1], message.vitals)
        errand = self._errands.pop(message.number, None)
        if errand is not None and errand[2] == sender.node:
            view.send(errand[0], ProbedForYou(errand[1], sender.node, message.refutations, message.joined))

    def on_probe_for_me(self, sender: Peer, message: ProbeForMe) -> None:
        """Probe somebody for somebody else; only peers that this node knows, so that it cannot be used to reach strangers."""
        view = self._view
        known = view.book.get(message.target.node)
        if known is None or len(self._errands) >= _MAX_ERRANDS:
            if not view.tell_of_death(sender, message.target, 0):
                view.drop("errand")
            return
        self._errands[self._probe(known.peer)] = (sender, message.number, message.target.node)

    def on_probed_for_you(self, _sender: Peer, message: ProbedForYou) -> None:
        """A helper reached the peer: it lives, only the way to it is bad. So its own word that it is out may not come through."""
        check = self._checks.get(message.target)
        known = self._view.book.get(message.target)
        if check is None or known is None or message.refutations < known.refutations:
            return
        if not message.joined:
            step_out(self._view, message.target, message.refutations)
        else:
            known.refutations = message.refutations
        self.heard(message.target)

    def on_suspect(self, sender: Peer, message: Suspect) -> None:
        """Somebody suspects: refute if it is this node, else look for oneself and tell what was found."""
        view = self._view
        target = message.target
        if target.node == view.me.node:
            if target.incarnation == view.me.incarnation and view.joined:
                self.refute(message.refutations, sender)
            return
        if view.tell_of_death(sender, target, message.refutations):
            return
        known = view.book.get(target.node)
        if known is None or known.peer.incarnation != target.incarnation or known.refutations > message.refutations:
            return
        check = self._checks.get(target.node)
        if check is None:
            check = self._examine(known.peer, Stage.DIRECT, "silent")
        if check.stage is Stage.SUSPECT:
            check.confirmed.setdefault(sender.node)
            self._set_suspicion_deadline(check)
            view.send(sender, Confirm(target.node, target.incarnation, message.refutations))
        elif len(check.askers) < view.config.leaf_count:
            check.askers[sender.node] = sender

    def on_confirm(self, sender: Peer, message: Confirm) -> None:
        """Another node cannot reach the suspect either."""
        check = self._checks.get(message.target)
        if check is None or check.stage is not Stage.SUSPECT or check.peer.incarnation != message.incarnation:
            return
        if sender.node != message.target and sender.node not in check.confirmed:
            check.confirmed[sender.node] = None
            self._set_suspicion_deadline(check)

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
        check = self._checks.get(target.node)
        if check is None:
            check = self._examine(known.peer, Stage.DIRECT, "rumour")
            self._probe(known.peer)
        check.is_declared = True
        if check.stage is Stage.SUSPECT:
            self._declare(check)

    def refute(self, refutations: int, accuser: Peer | None) -> None:
        """Speak up: this node lives."""
        view = self._view
        if refutations < view.refutations:
            if accuser is not None:
                view.send(accuser, Refute(view.refutations))
            return
        view.refutations = refutations + 1
        self._health = min(_WORST_HEALTH, self._health + 1)
        view.observe(SelfRefuted(view.refutations))
        told = {peer.node: peer for peer in view.known()}
        if accuser is not None:
            told[accuser.node] = accuser
        for peer in told.values():
            view.send(peer, Refute(view.refutations))

    def _forget_probes(self) -> None:
        oldest = self._view.now - 20 * self._view.config.probe_timeout_ns
        for number in [number for number, (_, at) in self._probes.items() if at < oldest]:
            del self._probes[number]
            self._errands.pop(number, None)
