"""Links over a socket pair between two processes of one machine, without TLS.

The process that has made the pair hands one end to each, with the certificate of the other one. So no handshake has to prove it.
HELLO and the verification of the peer are those of every link.
"""

import asyncio
import socket
from typing import NamedTuple

from agiledart_transport.link import Link


class PairEnd(NamedTuple):
    """This process's end of a socket pair.

    Args:
        connection: the end.
        certificate: TLS leaf of the process at the other end, DER; never empty.
    """

    connection: socket.socket
    certificate: bytes


async def begin_on_pair(link: Link, end: PairEnd) -> None:
    """Let a link begin on a socket pair, up to its HELLO. Raises OSError."""
    link.is_local = True
    await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=end.connection)
    link.certificate = end.certificate
