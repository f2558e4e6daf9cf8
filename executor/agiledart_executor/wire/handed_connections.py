"""Packets that come with a descriptor when an agent hands a connection over to an executor."""

from typing import Final

import msgspec

CONNECTION: Final = b"c"
"""Packet of a connection that another executor has opened at the agent's port."""

MAX_PACKET: Final = 8_192


class HandedPair(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Packet of one end of a socket pair to another executor of the same run on this node.

    Args:
        request: of the `OpenPair` that this answers; 0: the other executor has asked for the pair.
        certificate: TLS leaf of the other executor, DER, as the agent has made it.
    """

    request: int
    certificate: bytes
