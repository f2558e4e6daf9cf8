"""What nodes say to each other so that stages of a running application change. Tags 420 to 429.

How a change is carried out is said by `agiledart_recovery.wire.messages`.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.limits import MAX_APPLICATION_NAME
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.commands import MoveStage, ScaleStage

SCALE, MOVE, DRAIN = "scale", "move", "drain"

MAX_CHANGE_REQUESTS = 64
"""In one barrier."""

_Name = Annotated[str, msgspec.Meta(max_length=MAX_APPLICATION_NAME)]
_Text = Annotated[str, msgspec.Meta(max_length=4_096)]


class ChangeRequest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What is wanted of one stage, or of one node.

    Args:
        kind: `scale` a stage to a number, `move` a stage or `STAGE.N` to a node, `drain` a node of all that may leave it.
        stage: its name, or that of a step of it.
    """

    kind: Annotated[str, msgspec.Meta(max_length=16)]
    stage: _Text = ""
    number: Count = 0
    node: NodeId = NodeId(0)


class RequestChange(Message, frozen=True, gc=False, tag=420):
    """To who coordinates a run: have it changed as this command says. Answered by `ChangeAccepted`.

    Args:
        order: the command signed by its user; whoever coordinates checks it.
        submitter: who asks, for people, where nothing is signed.
    """

    request: int
    application: _Name
    version: Count
    command: ScaleStage | MoveStage
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""
    submitter: Annotated[str, msgspec.Meta(max_length=256)] = ""


class ChangeAccepted(Message, frozen=True, gc=False, tag=421):
    """It is under way: these stages take these terms. None, without a refusal: all is so already.

    Args:
        refusal: in words; `exit_code` for a command line.
        is_elsewhere: this node does not coordinate the run.
    """

    request: int
    generations: Annotated[tuple[tuple[_Text, Count], ...], msgspec.Meta(max_length=MAX_CHANGE_REQUESTS)] = ()
    refusal: _Text = ""
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)] = 1
    is_not_coordinator: bool = False


ChangeMessage = RequestChange | ChangeAccepted
