"""Messages and effects about models' files: nodes of an application fetch them from each other, by their hash.

The bytes travel over links of the service `fragments`, as those of checkpoints do.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Effect, Message
from agiledart_kernel.name_patterns import ApplicationName
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.commands import ShareModel

MAX_COPY_NODES = 16
"""Nodes with the file in one message."""


class PlaceModel(Message, frozen=True, gc=False, tag=520):
    """Request to fetch a model's file from one of these nodes, as the signed command says. Answered by `ModelPlaced`.

    Args:
        copy_nodes: nodes that have the file, in the order in which the receiver asks them.
        signed_command: signed by the user; the receiver verifies it.
    """

    request: int
    command: ShareModel
    copy_nodes: Annotated[tuple[Peer, ...], msgspec.Meta(min_length=1, max_length=MAX_COPY_NODES)]
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""


class ModelPlaced(Message, frozen=True, gc=False, tag=521):
    """The file is on the sender's disk; or the reason why not."""

    request: int
    refusal: Annotated[str, msgspec.Meta(max_length=4_096)] = ""


class FetchModel(Effect, frozen=True, gc=False):
    """Place the file of a model for an application's executors: from this node, or from the first of these nodes that gives it.

    Answered by `Completed` or `Failed`.
    """

    request: int
    application: ApplicationName
    digest: bytes
    size: Count
    copy_nodes: tuple[Peer, ...]


class ModelResponse(msgspec.Struct, frozen=True):
    """Response to `ShareModel`.

    Args:
        name: of the application.
        reference: row of the control stream that stands for the model.
        version: of the model, which scored rows name.
        nodes: nodes of the application that have the file now.
    """

    name: str
    reference: str
    version: str
    size: int
    nodes: list[str]


ModelMessage = PlaceModel | ModelPlaced
