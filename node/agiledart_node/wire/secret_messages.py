"""What agents tell each other about secrets: sealed ones on their way to the node that may open them, and who keeps which."""

from typing import Annotated

import msgspec

from agiledart_kernel.machine import Effect, Message
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.commands import SetSecret

MAX_SECRETS_LISTED = 2_048
"""Secrets of one node that are told in one answer."""


class StoreSecret(Message, frozen=True, gc=False, tag=442):
    """Keep this, or let it go, as the signed order says. Answered by `SecretStored`."""

    request: int
    command: SetSecret
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""


class SecretStored(Message, frozen=True, gc=False, tag=443):
    """Why not; empty: it is done."""

    request: int
    refusal: str = ""


class SecretInfo(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A secret that a node keeps, without its text.

    Args:
        owner: key of who set it; only runs that the same key submits get it.
        set_ms: wall time of the order.
    """

    name: str
    application: str
    owner: bytes
    set_ms: int


class QuerySecrets(Message, frozen=True, gc=False, tag=444):
    """Which secrets do you keep?"""

    request: int


class SecretList(Message, frozen=True, gc=False, tag=445):
    """All that are kept here; `known`: other nodes that this one knows."""

    request: int
    secrets: Annotated[tuple[SecretInfo, ...], msgspec.Meta(max_length=MAX_SECRETS_LISTED)] = ()
    known: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=1_024)] = ()


class KeepSecret(Effect, frozen=True, gc=False):
    """Keep what is sealed to this node's key, or (nothing is sealed) let it go. `Completed`, or `Failed` with the user's reason."""

    request: int
    known: SecretInfo
    sealed: bytes


class ReadSecrets(Effect, frozen=True, gc=False):
    """`Completed.result`: tuple of `SecretInfo`."""

    request: int


SecretMessage = StoreSecret | SecretStored | QuerySecrets | SecretList
