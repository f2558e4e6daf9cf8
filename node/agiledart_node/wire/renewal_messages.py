"""Messages between nodes about memberships that end soon. Tags 450 to 459."""

from typing import Annotated

import msgspec

from agiledart_kernel.grants import SIGNATURE_BYTES
from agiledart_kernel.limits import MAX_CHAIN_LINKS, MAX_LINK_BYTES, MAX_TOKEN_RECORD_BYTES
from agiledart_kernel.machine import Message

Chain = Annotated[
    tuple[Annotated[bytes, msgspec.Meta(max_length=SIGNATURE_BYTES + MAX_LINK_BYTES)], ...],
    msgspec.Meta(max_length=MAX_CHAIN_LINKS),
]

TokenRecordBytes = Annotated[bytes, msgspec.Meta(max_length=MAX_TOKEN_RECORD_BYTES)]


class RequestRenewal(Message, frozen=True, gc=False, tag=450):
    """Request to sign a membership again: the sender's, that of its operator, or that of a user of the sender.

    Args:
        token: the record of the token with which its key joined, or the key of `host`; empty: it joined with none.
        host: the sender's own chain, which vouches for its operator's; empty: the request is for another membership.
    """

    request: int
    chain: Chain
    token: TokenRecordBytes = b""
    host: Chain = ()


class RenewalReply(Message, frozen=True, gc=False, tag=451):
    """The new chain, or the reason why there is none."""

    request: int
    chain: Chain = ()
    reason: Annotated[str, msgspec.Meta(max_length=256)] = ""


RenewalMessage = RequestRenewal | RenewalReply
"""All messages about renewals."""
