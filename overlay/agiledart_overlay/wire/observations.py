"""Observations that an overlay machine reports to its observer."""

from agiledart_kernel.observation import Observation
from agiledart_kernel.peer import Peer


class RingJoined(Observation, frozen=True, gc=False):
    """This node became a member, after this time and this many attempts."""

    waited_ns: int
    attempts: int


class RingRejoining(Observation, frozen=True, gc=False):
    """The ring goes on without this node, which rejoins."""

    reason: str


class AdmissionAborted(Observation, frozen=True, gc=False):
    """This node, as range owner, gave up a joiner that had answered its invitation."""

    joiner: Peer


class SuccessorReplaced(Observation, frozen=True, gc=False):
    """The successor was dead; this peer is the successor now."""

    successor: Peer


class RingLeft(Observation, frozen=True, gc=False):
    """This node left on purpose."""


class PeerSuspected(Observation, frozen=True, gc=False):
    """A peer answers neither this node nor its helpers."""

    peer: Peer


class SuspicionRefuted(Observation, frozen=True, gc=False):
    """A suspect showed a sign of life."""

    peer: Peer


class PeerDeclaredFailed(Observation, frozen=True, gc=False):
    """A peer was declared dead."""

    peer: Peer
    reason: str


class SelfRefuted(Observation, frozen=True, gc=False):
    """This node refuted a suspicion or report of its death; growing numbers mean a node or link that is too slow."""

    refutations: int


class NodeWasLate(Observation, frozen=True, gc=False):
    """An own timer fired so late that this node trusts its own checks less."""

    late_ns: int


class JoinerAdmitted(Observation, frozen=True, gc=False):
    """This node, as range owner, admitted a joiner."""

    joiner: Peer


class RecordConflictMerged(Observation, frozen=True, gc=False):
    """Two different copies of a record were merged: two roots wrote while the ring was partitioned."""

    version: int


class MessageDropped(Observation, frozen=True, gc=False):
    """A message or request was dropped; `reason` is from a bounded set."""

    reason: str
