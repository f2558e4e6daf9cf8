"""Messages between agents about secrets: encrypted ones on their way to their node, and lists of stored ones."""

from typing import Annotated

import msgspec

from agiledart_kernel.machine import Effect, Message
from agiledart_kernel.name_patterns import ApplicationName
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.commands import SetSecret

MAX_SECRETS_LISTED = 2_048
"""Secrets of one node in one answer."""


class StoreSecret(Message, frozen=True, gc=False, tag=442):
    """Request to store or delete a secret, as the signed command says. Answered by `SecretStored`."""

    request: int
    command: SetSecret
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""


class SecretStored(Message, frozen=True, gc=False, tag=443):
    """Reason of a refusal; empty: the request succeeded."""

    request: int
    refusal: str = ""


class SecretInfo(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A secret that a node stores, without its text.

    Args:
        owner: key of the user who set it; only runs submitted with the same key receive it.
        set_ms: wall time of the signed command.
    """

    name: str
    application: ApplicationName
    owner: bytes
    set_ms: int


class QuerySecrets(Message, frozen=True, gc=False, tag=444):
    """Request for the secrets that the receiver stores."""

    request: int


class SecretList(Message, frozen=True, gc=False, tag=445):
    """All secrets that the sender stores; `known`: other nodes that it knows."""

    request: int
    secrets: Annotated[tuple[SecretInfo, ...], msgspec.Meta(max_length=MAX_SECRETS_LISTED)] = ()
    known: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=1_024)] = ()


class KeepSecret(Effect, frozen=True, gc=False):
    """Store a secret encrypted to this node's key, or delete it when `sealed` is empty. `Completed`, or `Failed` with a reason."""

    request: int
    known: SecretInfo
    sealed: bytes


class ReadSecrets(Effect, frozen=True, gc=False):
    """Read the stored secrets. `Completed.result`: tuple of `SecretInfo`."""

    request: int


SecretMessage = StoreSecret | SecretStored | QuerySecrets | SecretList
