"""Relay of bytes between two connections, unread: the work of a relay for a circuit.

One buffer a direction: bytes that one end does not take are not read from the other, so back-pressure reaches the
sender.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

_BUFFER_BYTES: Final = 64 << 10


async def splice(
    first: socket.socket, second: socket.socket, passed: Callable[[int], None], bytes_per_second: int = 0
) -> None:
    """Pass bytes until either end is gone. Both connections are closed then.

    Args:
        passed: called with the number of bytes passed in either direction.
        bytes_per_second: of each direction; 0: unlimited.
    """
    pumps = [
        asyncio.ensure_future(_pump(first, second, passed, bytes_per_second)),
        asyncio.ensure_future(_pump(second, first, passed, bytes_per_second)),
    ]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        first.close()
        second.close()


async def _pump(source: socket.socket, sink: socket.socket, passed: Callable[[int], None], rate: int) -> None:
    loop = asyncio.get_running_loop()
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    with contextlib.suppress(OSError):
        while count := await loop.sock_recv_into(source, buffer):
            began = loop.time()
            await loop.sock_sendall(sink, buffer[:count])
            passed(count)
            if rate and (pause := count / rate - (loop.time() - began)) > 0:
                await asyncio.sleep(pause)
