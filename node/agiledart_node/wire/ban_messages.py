"""Messages between nodes about bans. Tags 430 to 439."""

from typing import Annotated

import msgspec

from agiledart_kernel.bans import RANGES
from agiledart_kernel.machine import Message
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES

MAX_BANS_PER_MESSAGE = 64
"""Bans in one message: typically 40 kB, half a megabyte at most."""


class BanNews(Message, frozen=True, gc=False, tag=430):
    """Signed bans that the receiver may lack."""

    signed_commands: Annotated[
        tuple[Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)], ...],
        msgspec.Meta(max_length=MAX_BANS_PER_MESSAGE),
    ]


class BanDigest(Message, frozen=True, gc=False, tag=431):
    """Hashes of ranges of the sender's bans. The receiver sends the bans that differ; with `asks` it also sends its own digest."""

    ranges: Annotated[bytes, msgspec.Meta(max_length=4 * RANGES)] = b""
    asks: bool = True


BanMessage = BanNews | BanDigest
