"""What a recovery machine is told by its own node. Messages come as `Received`, outcomes as `Completed` and `Failed`."""

from agiledart_kernel.machine import Event
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.effects import AttemptFile, FragmentKey, VoterFile
from agiledart_recovery.wire.names import Ballot, CheckpointId, GenerationPause, InstanceId, RunId
from agiledart_recovery.wire.register_value import Plan, RegisterValue, SavedState


class Booted(Event, frozen=True, gc=False):
    """The process has started; this was on its disk: of fragments, also the host that had each put here."""

    voters: tuple[VoterFile, ...] = ()
    attempts: tuple[AttemptFile, ...] = ()
    fragments: tuple[tuple[FragmentKey, NodeId], ...] = ()


class BootstrapRun(Event, frozen=True, gc=False):
    """A run is to be: life 0 with its first plan. `value.voters` hold seats that they were asked for; this node is one of them."""

    value: RegisterValue


class RecoverQuorum(Event, frozen=True, gc=False):
    """The majority of a run's voters is gone for ever: write this first value of an era, whose ballots are above `below`.

    This node is one of its voters, all of which hold the seats that it names.
    """

    value: RegisterValue
    below: Ballot


class VoterEvacuation(Event, frozen=True, gc=False):
    """A voter of a run that this node coordinates is about to leave."""

    run: RunId
    host: Peer


class MakeVoterSlot(Event, frozen=True, gc=False):
    """This node asks itself for a seat of a run that it will found."""

    run: RunId


class HostLost(Event, frozen=True, gc=False):
    """The overlay's failure detector has declared a node dead, or cut off."""

    node: NodeId


class HostBack(Event, frozen=True, gc=False):
    """A node that was lost, or is new, can be reached."""

    peer: Peer


class CandidatesFound(Event, frozen=True, gc=False):
    """Nodes that could take over an instance, best first: ring successors of hosts, then by load."""

    peers: tuple[Peer, ...]


class SnapshotTaken(Event, frozen=True, gc=False):
    """The element of a party that may move is on the local disk for a barrier; fragments of it are to be sent.

    Args:
        onto: digest of the committed element that this one rests on; empty: it is whole.
        has_ended: there was no barrier but the end; the element is named by the epoch *above* the last barrier that was passed.
        gaps, pause_ns: as `wire.Prepared` has them.
    """

    run: RunId
    instance: InstanceId
    checkpoint: CheckpointId
    digest: bytes
    length: int
    onto: bytes = b""
    after: Plan | None = None
    is_caught_up: bool = True
    has_ended: bool = False
    offset: int = 0
    changeover_pauses: tuple[GenerationPause, ...] = ()
    pause_ns: int = 0


class PinnedInstancePrepared(Event, frozen=True, gc=False):
    """A source or sink that stays on its node, so it saves nothing at holders, has its part of a barrier on the disk."""

    run: RunId
    instance: InstanceId
    checkpoint: CheckpointId
    saved: SavedState
    offset: int = 0
    after: Plan | None = None
    is_caught_up: bool = True
    has_ended: bool = False
    changeover_pauses: tuple[GenerationPause, ...] = ()
    pause_ns: int = 0


class FragmentDamaged(Event, frozen=True, gc=False):
    """A fragment that this node keeps for another is not whole any more, and was let go."""

    key: FragmentKey


class AttemptBroken(Event, frozen=True, gc=False):
    """Something of a life cannot go on here: an instance died, two barriers of one number differ, a channel has a gap."""

    run: RunId
    attempt: int
    reason: str


class ChangeRequested(Event, frozen=True, gc=False):
    """Stages are to take new terms: another plan, see `GenerationChange.want`."""

    run: RunId
    plan: Plan
