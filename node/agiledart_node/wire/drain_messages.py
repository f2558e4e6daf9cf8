"""What nodes say to each other so that a node is emptied. Tags 460 to 469.

Who was asked by a user brings the order to the node (`RequestDrain`) and looks on (`QueryDrain`); the node itself has its instances
taken by others (`RequestEvacuation`): it asks for no more than what it would get by dying, so nobody's order is needed for that.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.limits import MAX_APPLICATION_NAME
from agiledart_kernel.machine import Message
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.commands import DrainNode

MAX_EVACUATED = 256
"""Applications of which a node tells that they have left it."""

MAX_LINES = 512
"""Lines of progress of one drain."""

_Name = Annotated[str, msgspec.Meta(max_length=MAX_APPLICATION_NAME)]
_Text = Annotated[str, msgspec.Meta(max_length=4_096)]

SERVING, EMPTYING, EMPTIED, LEAVING = "serving", "emptying", "drained", "leaving"
"""How it stands with a node: it takes work, gives it away, has none and takes none, is about to end."""


class EvacuatedRun(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An application that has left a node: so many instances, within this time."""

    name: _Name
    version: Count
    instances: Count
    duration_ms: Count


class RequestDrain(Message, frozen=True, gc=False, tag=460):
    """Any agent → the node: be emptied, or take work again. Answered by `DrainStatus`.

    Args:
        order: the command signed by its user, which the node checks; `submitter`: who it was, where nothing is signed.
    """

    request: int
    command: DrainNode
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""
    submitter: Annotated[str, msgspec.Meta(max_length=256)] = ""


class QueryDrain(Message, frozen=True, gc=False, tag=461):
    """How far is it? `after`: lines that the asker has."""

    request: int
    after: Count = 0


class DrainStatus(Message, frozen=True, gc=False, tag=462):
    """Answer to both.

    Args:
        state: one of the four.
        refusal: why it is not begun, or was given up; in words.
        reason: why the asker may not, one of `permissions.REFUSALS`; empty: it may.
        already: it was so before it was asked.
        lines: of progress, behind those that the asker has.
        left: applications that have left.
    """

    request: int
    state: Annotated[str, msgspec.Meta(max_length=16)]
    refusal: _Text = ""
    reason: Annotated[str, msgspec.Meta(max_length=16)] = ""
    is_unchanged: bool = False
    lines: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=MAX_LINES)] = ()
    evacuated: Annotated[tuple[EvacuatedRun, ...], msgspec.Meta(max_length=MAX_EVACUATED)] = ()


class RequestEvacuation(Message, frozen=True, gc=False, tag=463):
    """A host of a run → who coordinates it: let others run what runs here. Answered by `EvacuationStatus`.

    Args:
        seat: let another node vote in its register, too, for this one leaves; it runs nothing of it any more.
    """

    request: int
    application: _Name
    version: Count
    voter_slot: bool = False


class EvacuationStatus(Message, frozen=True, gc=False, tag=464):
    """It is under way.

    Args:
        is_begun: stages take other terms, or the next life is without the host. Else, without a refusal: there is nothing to do.
        refusal: why not, in words; `last`: what became of the last try, when it came to nothing.
        passes: it may be otherwise in a while; `is_safe`: the host has nothing of it, and an epoch was committed without it.
        is_elsewhere: this node does not coordinate the run.
    """

    request: int
    is_begun: bool = False
    refusal: _Text = ""
    last: _Text = ""
    is_transient: bool = False
    is_safe: bool = False
    is_not_coordinator: bool = False


DrainMessage = RequestDrain | QueryDrain | DrainStatus | RequestEvacuation | EvacuationStatus
