"""Observations that recovery reports to its observer."""

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
    """A roll-back to the committed epoch begins. `text` is for people.

    `reason`: first, lost, restarted, late, broken, drained or quorum_recovered.
    """

    run: RunId
    attempt: int
    reason: str
    text: str


class RunWaits(Observation, frozen=True, gc=False):
    """No new attempt can run: these hosts are missing. `reason`: why the run needs them, in words."""

    run: RunId
    attempt: int
    missing: tuple[Peer, ...]
    reason: str = ""


class RunRecovered(Observation, frozen=True, gc=False):
    """The first epoch after a loss is committed. `took`: nanoseconds by phase (`attempts/recovery_progress.py`)."""

    run: RunId
    attempt: int
    cause: str
    took: dict[str, int]


class EpochCommitted(Observation, frozen=True, gc=False):
    """The register has committed an epoch."""

    run: RunId
    committed: CheckpointId


class EpochPassedOver(Observation, frozen=True, gc=False):
    """An epoch was aborted because it was not complete in time; its rows belong to the next one."""

    run: RunId
    epoch: int
    missing: tuple[InstanceId, ...]


class QuorumRecovered(Observation, frozen=True, gc=False):
    """An admin had a run continue without the majority of its voters. The new voters of this generation are named."""

    run: RunId
    quorum_generation: int
    epoch: int
    voters: tuple[NodeId, ...]
    without: tuple[NodeId, ...]


class VoterExcluded(Observation, frozen=True, gc=False):
    """An admin had the run continue without this voter while it was away; the voter leaves the run."""

    run: RunId
    reported_by: NodeId


class VoterReplaced(Observation, frozen=True, gc=False):
    """A voter that was silent for long has been replaced by another node."""

    run: RunId
    gone: NodeId
    new: NodeId


class AttemptEntered(Observation, frozen=True, gc=False):
    """This host has stored the attempt and restored its instances."""

    run: RunId
    attempt: int


class ChangeFinalised(Observation, frozen=True, gc=False):
    """The register names a change as done, dropped or rolled back."""

    run: RunId
    change: StageChange


class ChangeMeasured(Observation, frozen=True, gc=False):
    """The register names the pause of rows at a change that is done."""

    run: RunId
    change: StageChange


class SnapshotDegraded(Observation, frozen=True, gc=False):
    """A snapshot has fewer than m + k acknowledged fragments; `survives` is the number of losses that it survives."""

    run: RunId
    instance: InstanceId
    survives: int


class FragmentReplaced(Observation, frozen=True, gc=False):
    """A lost fragment has been replaced at another replica node."""

    run: RunId
    instance: InstanceId


class MessageIgnored(Observation, frozen=True, gc=False):
    """A message from a peer was invalid and ignored; counted by its reason."""

    sender: NodeId
    reason: str
