"""Messages between nodes to drain a node. Tags 460 to 469.

The agent asked by a user sends the command to the node (`RequestDrain`) and follows its progress (`QueryDrain`). The node
asks coordinators to move its instances to other nodes (`RequestEvacuation`). That needs no signed command: the node's death
would have the same effect.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Message
from agiledart_kernel.name_patterns import ApplicationName
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.commands import DrainNode

MAX_EVACUATED = 256
"""Evacuated applications that a node reports."""

MAX_LINES = 512
"""Lines of progress of one drain."""

_Text = Annotated[str, msgspec.Meta(max_length=4_096)]

SERVING, EMPTYING, EMPTIED, LEAVING = "serving", "emptying", "drained", "leaving"
"""States of a node: it takes work, moves its work away, has none and takes none, or is about to end."""


class EvacuatedRun(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An application that has left a node: number of instances, and duration."""

    name: ApplicationName
    version: Count
    instances: Count
    duration_ms: Count


class RequestDrain(Message, frozen=True, gc=False, tag=460):
    """Request of any agent to a node: move all work away, or take work again. Answered by `DrainStatus`.

    Args:
        signed_command: the command signed by its user, which the node verifies; `submitter`: the user, where nothing is signed.
    """

    request: int
    command: DrainNode
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""
    submitter: Annotated[str, msgspec.Meta(max_length=256)] = ""


class QueryDrain(Message, frozen=True, gc=False, tag=461):
    """Request for the progress of a drain. `after`: number of lines that the requester has. Answered by `DrainStatus`."""

    request: int
    after: Count = 0


class DrainStatus(Message, frozen=True, gc=False, tag=462):
    """Answer to `RequestDrain` and `QueryDrain`.

    Args:
        state: one of the four states.
        refusal: why the drain did not start or was given up, in words.
        reason: missing permission of the requester, one of `permissions.REFUSALS`; empty: it has the permission.
        is_unchanged: the node was in this state before the request.
        lines: of progress, after those that the requester has.
        evacuated: applications that have left the node.
    """

    request: int
    state: Annotated[str, msgspec.Meta(max_length=16)]
    refusal: _Text = ""
    reason: Annotated[str, msgspec.Meta(max_length=16)] = ""
    is_unchanged: bool = False
    lines: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=MAX_LINES)] = ()
    evacuated: Annotated[tuple[EvacuatedRun, ...], msgspec.Meta(max_length=MAX_EVACUATED)] = ()


class RequestEvacuation(Message, frozen=True, gc=False, tag=463):
    """Request of a host to the coordinator of a run: move the host's instances to other nodes. Answered by `EvacuationStatus`.

    Args:
        voter_slot: also replace the host as voter; it leaves the ring and runs nothing of the run any more.
    """

    request: int
    application: ApplicationName
    version: Count
    voter_slot: bool = False


class EvacuationStatus(Message, frozen=True, gc=False, tag=464):
    """State of an evacuation at the coordinator.

    Args:
        is_begun: stages take new generations, or the next attempt excludes the host. False, without a refusal: no work is left.
        refusal: reason in words; `last`: outcome of the last try, when that failed.
        is_transient: a later request may succeed; `is_safe`: the host runs nothing, and an epoch was committed without it.
        is_not_coordinator: this node does not coordinate the run.
    """

    request: int
    is_begun: bool = False
    refusal: _Text = ""
    last: _Text = ""
    is_transient: bool = False
    is_safe: bool = False
    is_not_coordinator: bool = False


DrainMessage = RequestDrain | QueryDrain | DrainStatus | RequestEvacuation | EvacuationStatus
