"""Messages between nodes to bootstrap a run's register and to enter its attempts. Tags 410 to 419.

`agiledart_recovery.wire.messages` holds the messages of the register and of epochs.
"""

from typing import Annotated, Any

import msgspec

from agiledart_dataflow.plan.deployment import InstanceAddress
from agiledart_kernel.counts import Count
from agiledart_kernel.limits import MAX_BUNDLE_BYTES, MAX_RECORD_BYTES, MAX_STAGES
from agiledart_kernel.machine import Message
from agiledart_kernel.name_patterns import ApplicationName
from agiledart_node.wire.shared_model import MAX_SHARED_MODELS, SharedModel
from agiledart_recovery.limits import MAX_CHANGES
from agiledart_recovery.wire.key_share import KeyShare


class CreateVoter(Message, frozen=True, gc=False, tag=410):
    """Request to create a voter slot in the register of this run. Answered by `VoterCreated`.

    `share`: the voter's share of the run's key.
    """

    request: int
    application: ApplicationName
    version: Count
    share: KeyShare | None = None


class VoterCreated(Message, frozen=True, gc=False, tag=411):
    """The number of a new voter slot."""

    request: int
    voter_slot: Count


class BootstrapRegister(Message, frozen=True, gc=False, tag=412):
    """Request to write this value as the first one. Answered by `Acknowledged`; the run then enters its first attempt."""

    request: int
    value: Annotated[bytes, msgspec.Meta(max_length=MAX_RECORD_BYTES)]


class AttemptListening(Message, frozen=True, gc=False, tag=413):
    """Data addresses of the sender's instances in an attempt. Answered by `Acknowledged`."""

    request: int
    application: ApplicationName
    version: Count
    attempt: Count
    addresses: Annotated[tuple[InstanceAddress, ...], msgspec.Meta(max_length=4_096)]


class RunClosed(Message, frozen=True, gc=False, tag=414):
    """Register → node that records the end: all hosts know that the run has ended. Answered by `Acknowledged`.

    Args:
        is_substitute: the responsible node does not answer any more, so the receiver records the end.
    """

    request: int
    application: ApplicationName
    version: Count
    state: Annotated[str, msgspec.Meta(max_length=16)]
    reason: Annotated[str, msgspec.Meta(max_length=4_096)] = ""
    is_substitute: bool = False


class RequestPart(Message, frozen=True, gc=False, tag=415):
    """Request for a run's deployment part, with its code: the sender is to host a part in this attempt. Answered by `PartReply`."""

    request: int
    application: ApplicationName
    version: Count
    attempt: Count


class PartReply(Message, frozen=True, gc=False, tag=416):
    """An encoded `DeploymentPart`. `models`: of the application, which the sender has and the receiver fetches."""

    request: int
    part: Annotated[bytes, msgspec.Meta(max_length=MAX_BUNDLE_BYTES + 2 * MAX_RECORD_BYTES)]
    models: Annotated[tuple[SharedModel, ...], msgspec.Meta(max_length=MAX_SHARED_MODELS)] = ()


class QueryRecovery(Message, frozen=True, gc=False, tag=417):
    """Request for the state of a run's epochs and attempts. Answered by `RecoveryStatus`.

    Args:
        snapshots: also list the snapshot of each instance.
        begin: begin an epoch now; one at a time, and at most one a second.
    """

    request: int
    application: ApplicationName
    version: Count
    snapshots: bool = False
    begin: bool = False


class RecoveryStatus(Message, frozen=True, gc=False, tag=418):
    """State of a run as its coordinator sees it; all fields are empty from a node that does not coordinate it.

    Form: `RecoveryRow`, `EpochRow`, `ChangeRow`, `InstanceSnapshotRow`; `scaling`: `Autoscaler.statuses`; `placement`:
    `ReplacementService.statuses`.
    """

    request: int
    recovery: dict[str, Any]
    epoch: dict[str, Any]
    changes: Annotated[tuple[dict[str, Any], ...], msgspec.Meta(max_length=MAX_CHANGES)] = ()
    snapshots: tuple[dict[str, Any], ...] = ()
    scaling: Annotated[tuple[dict[str, Any], ...], msgspec.Meta(max_length=MAX_STAGES)] = ()
    placement: Annotated[tuple[dict[str, Any], ...], msgspec.Meta(max_length=16)] = ()


class GenerationListening(Message, frozen=True, gc=False, tag=419):
    """Data addresses of the sender's new instances, of the plan with this digest. Answered by `Acknowledged`."""

    request: int
    application: ApplicationName
    version: Count
    attempt: Count
    digest: Annotated[bytes, msgspec.Meta(max_length=32)]
    addresses: Annotated[tuple[InstanceAddress, ...], msgspec.Meta(max_length=4_096)]


RecoveringMessage = (
    CreateVoter
    | VoterCreated
    | BootstrapRegister
    | AttemptListening
    | RunClosed
    | RequestPart
    | PartReply
    | QueryRecovery
    | RecoveryStatus
    | GenerationListening
)
