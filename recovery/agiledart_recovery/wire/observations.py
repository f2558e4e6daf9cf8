"""What recovery reports to its observer."""

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observation
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.names import Ballot, CheckpointId, InstanceId, RunId, Stamp
from agiledart_recovery.wire.register_value import RegisterValue, StageChange


class ValueAcknowledged(Observation, frozen=True, gc=False):
    """A majority has this value: from now on it cannot be lost."""

    stamp: Stamp
    value: RegisterValue


class CoordinationBegan(Observation, frozen=True, gc=False):
    """This node coordinates the run."""

    run: RunId
    ballot: Ballot


class CoordinationLost(Observation, frozen=True, gc=False):
    """Another voter has a higher ballot."""

    run: RunId
    ballot: Ballot


class AttemptBegan(Observation, frozen=True, gc=False):
    """A roll-back to the committed epoch. `reason`: first, lost, restarted, late, broken, drained or quorum_recovered; `text`: in words."""

    run: RunId
    attempt: int
    reason: str
    text: str


class RunWaits(Observation, frozen=True, gc=False):
    """No new life, since it could not run: these hosts are missing. `reason`: what they are waited for, in words."""

    run: RunId
    attempt: int
    missing: tuple[Peer, ...]
    reason: str = ""


class RunRecovered(Observation, frozen=True, gc=False):
    """The first epoch after a loss is committed. `took`: nanoseconds by phase (`lives/progress.py`)."""

    run: RunId
    attempt: int
    cause: str
    took: dict[str, int]


class EpochCommitted(Observation, frozen=True, gc=False):
    """The register has it."""

    run: RunId
    committed: CheckpointId


class EpochPassedOver(Observation, frozen=True, gc=False):
    """It was not complete in time; its rows belong to the next one."""

    run: RunId
    epoch: int
    missing: tuple[InstanceId, ...]


class QuorumRecovered(Observation, frozen=True, gc=False):
    """An admin had a run go on without the majority of its voters: these are its voters now, in this generation."""

    run: RunId
    quorum_generation: int
    epoch: int
    voters: tuple[NodeId, ...]
    without: tuple[NodeId, ...]


class VoterExcluded(Observation, frozen=True, gc=False):
    """An admin had the run go on without this voter, which was away: it lets go of it."""

    run: RunId
    reported_by: NodeId


class VoterReplaced(Observation, frozen=True, gc=False):
    """A voter that answered nothing for long has given its seat to another node."""

    run: RunId
    gone: NodeId
    new: NodeId


class AttemptEntered(Observation, frozen=True, gc=False):
    """This host has stored the life and restored its parties."""

    run: RunId
    attempt: int


class ChangeFinalised(Observation, frozen=True, gc=False):
    """A change is done, let go or rolled back, and the register says so."""

    run: RunId
    change: StageChange


class ChangeMeasured(Observation, frozen=True, gc=False):
    """The register says for how long rows stood still at a change that is done."""

    run: RunId
    change: StageChange


class SnapshotDegraded(Observation, frozen=True, gc=False):
    """Fewer than m + k fragments were acknowledged; so many losses it survives."""

    run: RunId
    instance: InstanceId
    survives: int


class FragmentReplaced(Observation, frozen=True, gc=False):
    """A fragment that nobody had any more lies at another holder now."""

    run: RunId
    instance: InstanceId


class MessageIgnored(Observation, frozen=True, gc=False):
    """A message from a peer that does not fit: counted by its reason."""

    sender: NodeId
    reason: str
