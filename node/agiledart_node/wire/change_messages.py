"""Messages between nodes to change stages of a running application. Tags 420 to 429.

`agiledart_recovery.wire.messages` holds the messages that carry a change out.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Message
from agiledart_kernel.name_patterns import ApplicationName
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.commands import MoveStage, ScaleStage

SCALE, MOVE, DRAIN = "scale", "move", "drain"

MAX_CHANGE_REQUESTS = 64
"""Change requests in one barrier."""

_Text = Annotated[str, msgspec.Meta(max_length=4_096)]


class ChangeRequest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A change requested for one stage or one node.

    Args:
        kind: `scale` a stage to a number of instances, `move` a stage or `STAGE.N` to a node, or `drain` a node of everything
            that may leave it.
        stage: name of the stage, or of one of its steps.
        node: target of a move, or the node that is drained; of `scale`: a node that gets no further instance, 0: none.
    """

    kind: Annotated[str, msgspec.Meta(max_length=16)]
    stage: _Text = ""
    number: Count = 0
    node: NodeId = NodeId(0)


class RequestChange(Message, frozen=True, gc=False, tag=420):
    """Request to the coordinator of a run to apply a signed command. Answered by `ChangeAccepted`.

    Args:
        signed_command: the command signed by its user; the coordinator verifies it.
        submitter: requester, for people, where nothing is signed.
    """

    request: int
    application: ApplicationName
    version: Count
    command: ScaleStage | MoveStage
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""
    submitter: Annotated[str, msgspec.Meta(max_length=256)] = ""


class ChangeAccepted(Message, frozen=True, gc=False, tag=421):
    """The change has started: these stages take these assignment generations. None, without a refusal: no change is needed.

    Args:
        refusal: reason in words; `exit_code` for a command line.
        is_not_coordinator: this node does not coordinate the run.
    """

    request: int
    generations: Annotated[tuple[tuple[_Text, Count], ...], msgspec.Meta(max_length=MAX_CHANGE_REQUESTS)] = ()
    refusal: _Text = ""
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)] = 1
    is_not_coordinator: bool = False


ChangeMessage = RequestChange | ChangeAccepted
