"""What nodes say to each other to found a run's register and to enter its lives. Tags 410 to 419.

What the register and the epochs need is said by `agiledart_recovery.wire.messages`.
"""

from typing import Annotated

import msgspec

from agiledart_dataflow.plan.deployment import InstanceAddress
from agiledart_kernel.count import Count
from agiledart_kernel.limits import MAX_APPLICATION_NAME, MAX_RECORD_BYTES
from agiledart_kernel.machine import Message

_Name = Annotated[str, msgspec.Meta(max_length=MAX_APPLICATION_NAME)]


class MakeVoter(Message, frozen=True, gc=False, tag=410):
    """Make a seat in the register of this run. Answered by `VoterMade`."""

    request: int
    application: _Name
    version: Count


class VoterMade(Message, frozen=True, gc=False, tag=411):
    """The seat's number."""

    request: int
    seat: Count


class FoundRegister(Message, frozen=True, gc=False, tag=412):
    """Write this value as the first one. Answered by `Acknowledged`; the run then enters its first life."""

    request: int
    value: Annotated[bytes, msgspec.Meta(max_length=MAX_RECORD_BYTES)]


class Listening(Message, frozen=True, gc=False, tag=413):
    """Where instances of the sender take data links in a life. Answered by `Acknowledged`."""

    request: int
    application: _Name
    version: Count
    life: Count
    addresses: Annotated[tuple[InstanceAddress, ...], msgspec.Meta(max_length=4_096)]


class RunClosed(Message, frozen=True, gc=False, tag=414):
    """Register → node that notes the end: all hosts know that the run has ended. Answered by `Acknowledged`."""

    request: int
    application: _Name
    version: Count
    state: Annotated[str, msgspec.Meta(max_length=16)]
    reason: Annotated[str, msgspec.Meta(max_length=4_096)] = ""


RecoveringMessage = MakeVoter | VoterMade | FoundRegister | Listening | RunClosed
