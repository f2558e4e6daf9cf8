"""What nodes say to each other to found a run's register and to enter its lives. Tags 410 to 419.

What the register and the epochs need is said by `agiledart_recovery.wire.messages`.
"""

from typing import Annotated, Any

import msgspec

from agiledart_dataflow.plan.deployment import InstanceAddress
from agiledart_kernel.counts import Count
from agiledart_kernel.limits import MAX_APPLICATION_NAME, MAX_BUNDLE_BYTES, MAX_RECORD_BYTES, MAX_STAGES
from agiledart_kernel.machine import Message
from agiledart_recovery.limits import MAX_CHANGES

_Name = Annotated[str, msgspec.Meta(max_length=MAX_APPLICATION_NAME)]


class CreateVoter(Message, frozen=True, gc=False, tag=410):
    """Make a seat in the register of this run. Answered by `VoterCreated`."""

    request: int
    application: _Name
    version: Count


class VoterCreated(Message, frozen=True, gc=False, tag=411):
    """The seat's number."""

    request: int
    voter_slot: Count


class BootstrapRegister(Message, frozen=True, gc=False, tag=412):
    """Write this value as the first one. Answered by `Acknowledged`; the run then enters its first life."""

    request: int
    value: Annotated[bytes, msgspec.Meta(max_length=MAX_RECORD_BYTES)]


class AttemptListening(Message, frozen=True, gc=False, tag=413):
    """Where instances of the sender take data links in a life. Answered by `Acknowledged`."""

    request: int
    application: _Name
    version: Count
    attempt: Count
    addresses: Annotated[tuple[InstanceAddress, ...], msgspec.Meta(max_length=4_096)]


class RunClosed(Message, frozen=True, gc=False, tag=414):
    """Register → node that notes the end: all hosts know that the run has ended. Answered by `Acknowledged`.

    Args:
        instead: who should note it does not answer any more, so this host is to.
    """

    request: int
    application: _Name
    version: Count
    state: Annotated[str, msgspec.Meta(max_length=16)]
    reason: Annotated[str, msgspec.Meta(max_length=4_096)] = ""
    is_substitute: bool = False


class RequestPart(Message, frozen=True, gc=False, tag=415):
    """Give me what you know of this run, with its code: I am to host a part of it in this life. Answered by `PartReply`."""

    request: int
    application: _Name
    version: Count
    attempt: Count


class PartReply(Message, frozen=True, gc=False, tag=416):
    """A `DeploymentPart`."""

    request: int
    part: Annotated[bytes, msgspec.Meta(max_length=MAX_BUNDLE_BYTES + 2 * MAX_RECORD_BYTES)]


class QueryRecovery(Message, frozen=True, gc=False, tag=417):
    """How does it stand with the epochs and lives of this run? Answered by `RecoveryStatus`.

    Args:
        elements: what each instance saved is wanted, too.
        begin: an epoch is to begin now; one at a time, and at most one a second.
    """

    request: int
    application: _Name
    version: Count
    snapshots: bool = False
    begin: bool = False


class RecoveryStatus(Message, frozen=True, gc=False, tag=418):
    """As the run's coordinator sees it; all empty from a node that does not coordinate it.

    Form: `RecoveryRow`, `EpochRow`, `ChangeRow`, `InstanceSnapshotRow`; `scaling`: `Autoscaler.standings`.
    """

    request: int
    recovery: dict[str, Any]
    epoch: dict[str, Any]
    changes: Annotated[tuple[dict[str, Any], ...], msgspec.Meta(max_length=MAX_CHANGES)] = ()
    snapshots: tuple[dict[str, Any], ...] = ()
    scaling: Annotated[tuple[dict[str, Any], ...], msgspec.Meta(max_length=MAX_STAGES)] = ()


class GenerationListening(Message, frozen=True, gc=False, tag=419):
    """Where new instances of the sender listen, of the plan of this digest. Answered by `Acknowledged`."""

    request: int
    application: _Name
    version: Count
    attempt: Count
    digest: Annotated[bytes, msgspec.Meta(max_length=32)]
    addresses: Annotated[tuple[InstanceAddress, ...], msgspec.Meta(max_length=4_096)]


RecoveringMessage = (
    CreateVoter | VoterCreated | BootstrapRegister | AttemptListening | RunClosed | RequestPart | PartReply | QueryRecovery | RecoveryStatus
    | GenerationListening
)  # fmt: skip
