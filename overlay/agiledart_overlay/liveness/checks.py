"""Checks of single peers: direct probes, indirect probes, suspicion, death; SWIM with Lifeguard's local health.

A check goes through these stages; any message from the peer itself ends it. `failure_detector` chooses the peers.

    DIRECT    probed, waiting max(probe_timeout, 4 RTT); a lost link starts at INDIRECT at once, a refused one at SUSPECT
    INDIRECT  three leaves were asked to probe it, and it was probed again; waiting twice that time
    SUSPECT   it and the leaf set were notified; it may refute, others may confirm; waiting 1 to 2 s (lan), or 0.2 s where its
              machine refuses connections to this node and to a confirming one: no process listens there, so slowness is no
              explanation
    dead      removed; the leaf set is notified, and each leaf checks for itself

The awkward case is a node that is itself slow or was asleep: to it all others seem dead. When its own timer comes late it
lengthens its waits, and when it comes very late all unfinished checks start anew.

Source: [SWIM] §4, [Lifeguard] §IV; figures from the project's overlay specification §6.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.effects import PeerFailed
from agiledart_overlay.wire.messages import (
    ConfirmSuspicion,
    DeclaredFailed,
    IndirectProbe,
    IndirectProbeAck,
    PeerProbe,
    Suspect,
)
from agiledart_overlay.wire.observations import NodeWasLate, PeerDeclaredFailed, PeerSuspected, SuspicionRefuted

_WORST_HEALTH = 4

_MOST_CONFIRMATIONS: Final = 3

_REFUSALS: Final = 2
"""One refused connection may be a moment's fault of a device between."""

_SHORTENING_PERMILLE: Final = ((1000,), (0, 1000), (0, 631, 1000), (0, 500, 792, 1000))
"""1000 · log(c + 1) / log(k + 1), row k = possible confirmations, column c = confirmations so far."""


class CheckStage(IntEnum):
    """Stage of a check."""

    DIRECT = 1
    INDIRECT = 2
    SUSPECT = 3


class Check:
    """One peer under examination.

    Attributes:
        first: number of the first probe; an answer to it or a later one is a sign of life.
        cause: `silent`, `link` or `rumour`, the reason given if the peer turns out dead.
        askers: other nodes that suspect it and want to know the outcome.
        confirmed: other nodes that cannot reach it either.
        refusals: times that its machine refused a connection.
        began: instant of the first probe; since: instant of the suspicion.
    """

    __slots__ = (
        "askers", "began", "cause", "confirmed", "deadline", "first", "is_declared", "peer", "refusals", "since", "stage",
    )  # fmt: skip

    def __init__(self, peer: Peer, stage: CheckStage, cause: str, first: int, now: Instant, deadline: int) -> None:
        self.peer, self.stage, self.cause, self.first, self.deadline = peer, stage, cause, first, deadline
        self.since = self.began = now
        self.askers: dict[NodeId, Peer] = {}
        self.confirmed: dict[NodeId, None] = {}
        self.is_declared = False
        self.refusals = 0


class Checks:
    """All checks of one node in progress, and its confidence in its own timing."""

    __slots__ = ("_checks", "_health", "_probes", "_view")

    def __init__(self, view: View) -> None:
        self._view = view
        self._checks: dict[NodeId, Check] = {}
        self._probes: dict[int, tuple[NodeId, Instant]] = {}
        self._health = 0

    @property
    def health(self) -> int:
        """Return the local health: 0 when this node is prompt; each step up lengthens its waits by the whole timeout."""
        return self._health

    def is_suspect(self, node: NodeId) -> bool:
        """Report whether a peer answers neither this node nor its helpers."""
        check = self._checks.get(node)
        return check is not None and check.stage is CheckStage.SUSPECT

    def __iter__(self) -> Iterator[Check]:
        yield from self._checks.values()

    def get(self, node: NodeId) -> Check | None:
        """Return the check of a peer, if one is in progress."""
        return self._checks.get(node)

    def stop(self) -> None:
        """End all checks."""
        self._checks.clear()
        self._probes.clear()
        self._view.cancel_timer("checks")

    # ---- probes

    def _wait_ns(self, peer: Peer) -> int:
        known = self._view.book.get(peer.node)
        rtt = known.rtt_ns if known is not None else 0
        least = self._view.config.probe_timeout_ns
        # Bounded, since a peer that slept has once answered after seconds, which predicts nothing.
        return min(max(least, 4 * rtt), 5 * least) * (1 + self._health)

    def probe(self, peer: Peer) -> int:
        """Send a probe; return its number."""
        view = self._view
        number = view.number()
        self._probes[number] = (peer.node, view.now)
        view.send(peer, PeerProbe(number, view.refutations, view.joined))
        return number

    def answered(self, sender: Peer, number: int) -> Instant | None:
        """Take the answer to a probe; return the instant at which that was sent, if it was."""
        probe = self._probes.pop(number, None)
        return probe[1] if probe is not None and probe[0] == sender.node else None

    def forget_probes(self) -> list[int]:
        """Drop old probes that will not be answered any more; return their numbers."""
        oldest = self._view.now - 20 * self._view.config.probe_timeout_ns
        forgotten = [number for number, (_, at) in self._probes.items() if at < oldest]
        for number in forgotten:
            del self._probes[number]
        return forgotten

    # ---- one check

    def examine(self, peer: Peer, stage: CheckStage, cause: str) -> Check:
        """Begin a check with a probe."""
        view = self._view
        check = Check(peer, stage, cause, self.probe(peer), view.now, view.now + self._wait_ns(peer))
        self._checks[peer.node] = check
        view.set_timer_by("checks", check.deadline)
        return check

    def wait_for(self, peer: Peer) -> None:
        """Begin a check whose question was another message than a probe."""
        view = self._view
        check = Check(peer, CheckStage.DIRECT, "silent", view.number(), view.now, view.now + self._wait_ns(peer))
        self._checks[peer.node] = check
        view.set_timer_by("checks", check.deadline)

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
            view.send(helper, IndirectProbe(number, check.peer))
        return bool(helpers)

    # ---- deadlines

    def on_late(self, late_ns: int) -> None:
        """Note that an own timer came late: lower the local health; after a sleep begin all checks anew."""
        view = self._view
        if late_ns <= view.config.late_ns:
            return
        self.distrust()
        view.observe(NodeWasLate(late_ns))
        if late_ns > view.config.paused_ns:
            for check in list(self._checks.values()):
                fresh = self.examine(check.peer, CheckStage.DIRECT, "silent")
                fresh.askers = check.askers

    def on_time(self) -> None:
        """Note that a round was on time: raise the local health."""
        self._health = max(0, self._health - 1)

    def distrust(self) -> None:
        """Lower the local health."""
        self._health = min(_WORST_HEALTH, self._health + 1)

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
        if check.stage is CheckStage.SUSPECT or (check.is_declared and check.stage is CheckStage.INDIRECT):
            self.declare(check)
        elif check.stage is CheckStage.DIRECT:
            check.stage = CheckStage.INDIRECT
            helped = self._ask_helpers(check)
            self.probe(check.peer)
            self._doubt_beyond(check.peer.node)
            check.deadline = view.now + self._wait_ns(check.peer) * (2 if helped else 1)
        else:
            self._suspect(check)

    def _doubt_beyond(self, node: NodeId) -> None:
        """Check the leaves beyond a silent nearest leaf: they may be in its rack. So a row of dead nodes costs the time of one."""
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
        check.stage, check.since = CheckStage.SUSPECT, view.now
        view.observe(PeerSuspected(check.peer))
        accusation = Suspect(check.peer, known.refutations)
        if check.askers:
            view.send(check.peer, accusation)
            for asker in check.askers.values():
                view.send(asker, ConfirmSuspicion(check.peer.node, check.peer.incarnation, known.refutations))
        else:
            for peer in view.leaf_set.members:
                view.send(peer, accusation)
            if check.peer.node not in view.leaf_set:
                view.send(check.peer, accusation)
        self.wait_for_confirmations(check)

    def wait_for_confirmations(self, check: Check) -> None:
        """Set a suspect's remaining time, after one more confirmation or none."""
        view = self._view
        others = min(_MOST_CONFIRMATIONS, len(view.leaf_set) - (check.peer.node in view.leaf_set))
        wait = suspicion_ns(len(check.confirmed), others, view.config.suspicion_min_ns, view.config.suspicion_max_ns)
        if check.refusals >= _REFUSALS and (check.confirmed or not others):
            wait = view.config.refused_ns
        check.deadline = check.since + wait * (1 + self._health)
        view.set_timer_by("checks", max(check.deadline, view.now))

    def declare(self, check: Check) -> None:
        """End a check in death, and notify the leaf set."""
        view = self._view
        peer = check.peer
        known = view.book.get(peer.node)
        if known is None:
            del self._checks[peer.node]
            return
        ends = (view.leaf_set.successor, view.leaf_set.predecessor)
        # Both ring neighbours' leaves together are all nodes that can have the dead one as a leaf. So each of the two notifies
        # its own leaves, even when the other one found out.
        if not check.is_declared or any(end is not None and end.node == peer.node for end in ends):
            for leaf in view.leaf_set.members:
                if leaf.node != peer.node:
                    view.send(leaf, DeclaredFailed(peer, known.refutations))
        self.mark_dead(peer, check.cause)

    def mark_dead(self, peer: Peer, reason: str) -> None:
        """End this incarnation of a peer: remove it from all tables, and notify the node above."""
        view = self._view
        known = view.book.get(peer.node)
        if known is None:
            return
        check = self._checks.pop(peer.node, None)
        view.remove(known.peer, known.refutations, has_left=False)
        tombstone = view.book.tombstone(peer.node)
        if check is not None and tombstone is not None:
            tombstone.silent_since = check.began
        view.observe(PeerDeclaredFailed(known.peer, reason))
        view.effects.append(PeerFailed(known.peer, reason))

    def note_alive(self, node: NodeId) -> None:
        """End the check of a peer that sent a message: it is alive."""
        check = self._checks.pop(node, None)
        if check is None:
            return
        view = self._view
        if not self._checks:
            view.cancel_timer("checks")
        known = view.book.get(node)
        for asker in check.askers.values():
            view.send(asker, IndirectProbeAck(0, node, known.refutations if known is not None else 0))
        if check.stage is CheckStage.SUSPECT:
            view.observe(SuspicionRefuted(check.peer))

    def forget(self, node: NodeId) -> None:
        """End a check without outcome: the peer left."""
        self._checks.pop(node, None)

    def on_link_lost(self, node: NodeId, *, refused: bool = False) -> None:
        """Check a peer at once, with helpers, when a connection broke. When it was refused, suspect it at once, too."""
        known = self._view.book.get(node)
        check = self._checks.get(node)
        if known is None:
            return
        if check is None:
            check = self.examine(known.peer, CheckStage.INDIRECT, "link")
            self._ask_helpers(check)
        elif check.stage is CheckStage.DIRECT:
            check.stage, check.cause = CheckStage.INDIRECT, "link"
            self._ask_helpers(check)
        if not refused:
            return
        check.refusals += 1
        if check.stage is CheckStage.INDIRECT:
            self._suspect(check)
        else:
            self.wait_for_confirmations(check)

    def doubt(self, node: NodeId) -> None:
        """Check a peer that another part got no answer from."""
        known = self._view.book.get(node)
        if known is not None and node not in self._checks:
            self.examine(known.peer, CheckStage.DIRECT, "silent")

    def violations(self) -> list[str]:
        """Check deadlines against the timer, ids of checks, and the range of the local health."""
        view, complaints = self._view, []
        if self._checks:
            complaints = view.missing_timer("checks", min(check.deadline for check in self._checks.values()))
        for node, check in self._checks.items():
            if check.peer.node != node or node == view.me.node or not check.began <= check.since <= view.now:
                complaints.append(f"check: that of {node.short} makes no sense")
        if not 0 <= self._health <= _WORST_HEALTH:
            complaints.append(f"check: the own health is {self._health}")
        return complaints


def suspicion_ns(confirmations: int, others: int, shortest_ns: int, longest_ns: int) -> int:
    """Return the time that a suspect has to refute, given how many other nodes confirm the suspicion.

    Alone, a node may be wrong because its own link is bad: it waits longest. Each independent confirmation shortens the wait, on
    a logarithmic scale because the first ones tell most. The logarithms are a table, so that all platforms agree.

    Args:
        confirmations: other nodes that confirmed so far.
        others: other nodes that could; with none, waiting longer would bring nothing.
        shortest_ns, longest_ns: bounds of the answer.

    Source: [Lifeguard] §IV-B.
    """
    row = _SHORTENING_PERMILLE[max(0, min(others, _MOST_CONFIRMATIONS))]
    shortening = row[max(0, min(confirmations, len(row) - 1))]
    return longest_ns - (longest_ns - shortest_ns) * shortening // 1000
