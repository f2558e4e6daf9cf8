"""Events that a recovery machine receives from its own node. Messages come as `Received`, outcomes as `Completed` and `Failed`."""

from agiledart_kernel.machine import Event
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.effects import AttemptFile, FragmentKey, VoterFile
from agiledart_recovery.wire.key_share import KeyShare
from agiledart_recovery.wire.names import Ballot, CheckpointId, GenerationPause, InstanceId, RunId
from agiledart_recovery.wire.register_value import Plan, RegisterValue, SavedState


class Booted(Event, frozen=True, gc=False):
    """The process has started with this content of its disk. A fragment comes with the host that had it stored here."""

    voters: tuple[VoterFile, ...] = ()
    attempts: tuple[AttemptFile, ...] = ()
    fragments: tuple[tuple[FragmentKey, NodeId], ...] = ()


class BootstrapRun(Event, frozen=True, gc=False):
    """Start a run: attempt 0 with its first plan. `value.voters` have voter slots that they were asked for; this node is one of
    them.
    """

    value: RegisterValue


class RecoverQuorum(Event, frozen=True, gc=False):
    """Write the first value of a new configuration, after the majority of a run's voters was lost for ever.

    The ballots of the configuration are above `below`. This node is one of its voters; all of them have the slots that it names.
    """

    value: RegisterValue
    below: Ballot


class VoterEvacuation(Event, frozen=True, gc=False):
    """A voter of a run that this node coordinates is about to leave."""

    run: RunId
    host: Peer


class MakeVoterSlot(Event, frozen=True, gc=False):
    """This node is to have a voter slot for a run that will start.

    Args:
        dealer, share: of the run's key, for this slot.
    """

    run: RunId
    dealer: NodeId = NodeId(0)
    share: KeyShare | None = None


class HostLost(Event, frozen=True, gc=False):
    """The overlay's failure detector has declared a node dead or unreachable."""

    node: NodeId


class HostBack(Event, frozen=True, gc=False):
    """A node that was lost, or is new, can be reached."""

    peer: Peer


class CandidatesFound(Event, frozen=True, gc=False):
    """Nodes that could take over an instance, best first: ring successors of hosts, then by load."""

    peers: tuple[Peer, ...]


class SnapshotTaken(Event, frozen=True, gc=False):
    """The snapshot of a movable instance for a barrier is on the local disk; its fragments are to be sent.

    Args:
        onto: digest of the committed snapshot that this one builds on; empty: it is a full one.
        has_ended: the input ended without a barrier. The snapshot is named by the epoch *above* the last barrier passed.
        changeover_pauses, pause_ns: as in `wire.Prepared`.
        content: all of the snapshot, which is on no disk: the register holds it.
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
    content: bytes = b""


class PinnedInstancePrepared(Event, frozen=True, gc=False):
    """A pinned source or sink has its part of a barrier on the disk. It stays on its node, so it needs no replica nodes."""

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


class InstanceRowsPassed(Event, frozen=True, gc=False):
    """Rows have passed a local instance of a run since the last such event."""

    run: RunId


class FragmentDamaged(Event, frozen=True, gc=False):
    """A fragment that this node stores for another is damaged, and was deleted."""

    key: FragmentKey


class AttemptBroken(Event, frozen=True, gc=False):
    """The attempt cannot continue here: an instance died, two barriers of one number differ, or a channel lost rows.

    `is_crash`: the process of an instance died.
    """

    run: RunId
    attempt: int
    reason: str
    is_crash: bool = False


class ChangeRequested(Event, frozen=True, gc=False):
    """Change stages to new generations: another plan, see `GenerationChange.want`."""

    run: RunId
    plan: Plan
