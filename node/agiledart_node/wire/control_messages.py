"""Messages of the control API around the commands: request, progress, answer and refusal."""

from typing import Annotated

import msgspec

from agiledart_kernel.machine import Message
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.commands import Command


class ControlProgress(Message, frozen=True, gc=False, tag=220):
    """A line of progress for a waiting user."""

    request: int
    text: str


class ControlAnswer(Message, frozen=True, gc=False, tag=221):
    """The result of a request: a JSON document."""

    request: int
    body: bytes


class ControlRefusal(Message, frozen=True, gc=False, tag=222):
    """The reason why a request failed, the advice, and the exit code for a command line (1 failed, 2 usage).

    Args:
        reason: one of `permissions.REFUSALS` when the requester lacks a permission; else empty.
    """

    request: int
    text: str
    exit_code: int = 1
    reason: str = ""


class ControlRequest(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=199):
    """One numbered command of a control connection; the client chooses the numbers.

    Args:
        signed_command: the command signed by the requester's key (`kernel/signed_commands.py`), required for every change. At the
            Unix socket the agent signs for its user.
    """

    request: int
    command: "Command"
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""


ControlMessage = ControlRequest | ControlProgress | ControlAnswer | ControlRefusal
