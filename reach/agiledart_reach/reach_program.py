"""Reach process: `python -m agiledart_reach.reach_program FD`. FD is its end of a socket pair; the agent's end closing ends it."""

import contextlib
import logging
import socket
import sys
from functools import partial

import trio

from agiledart_reach.lan_neighbours import LanNeighbours
from agiledart_reach.messages import (
    AnnouncementSent,
    LanPeerFound,
    MessageReader,
    ReachFailed,
    ReachMessage,
    ReachStart,
    encode_message,
)
from agiledart_reach.router_port import keep_port

MAX_WAITING = 256
"""Messages that wait for the agent; later ones are dropped, as announcements are repeated."""


class ReachProgram:
    """The program: it reads `ReachStart`, runs what it asks for, and writes events until the agent goes."""

    def __init__(self, pair: socket.socket) -> None:
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(pair))
        self._send, self._receive = trio.open_memory_channel[ReachMessage](MAX_WAITING)

    async def run(self) -> None:
        """Run until the agent closes its end."""
        start = await self._first()
        if start is None:
            return
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write)
            if start.announce:
                nursery.start_soon(self._announce, start)
            if start.map_port:
                nursery.start_soon(keep_port, start.port, self._queue)
            while await self._stream.receive_some(4_096):
                pass  # the agent says no more; the end of the stream is its end
            nursery.cancel_scope.cancel()

    async def _first(self) -> ReachStart | None:
        reader = MessageReader()
        while data := await self._stream.receive_some(4_096):
            for message in reader.feed(bytes(data)):
                return message if isinstance(message, ReachStart) else None
        return None

    def _queue(self, message: ReachMessage) -> None:
        """Queue a message; drop it when the agent is slow."""
        with contextlib.suppress(trio.WouldBlock):
            self._send.send_nowait(message)

    async def _write(self) -> None:
        async for message in self._receive:
            await self._stream.send_all(encode_message(message))

    async def _announce(self, start: ReachStart) -> None:
        """Announce this node. zeroconf blocks for seconds, so it runs in a thread."""
        queue = partial(self._token.run_sync_soon, self._queue)
        try:
            neighbours = await trio.to_thread.run_sync(
                LanNeighbours, start, lambda address: queue(LanPeerFound(address))
            )
        except OSError as error:
            self._queue(ReachFailed("mdns", f"this machine's network takes no multicast: {error.strerror or error}"))
            return
        self._queue(AnnouncementSent())
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(neighbours.close)


def main() -> None:
    """Run the program on the descriptor of its first argument."""
    logging.disable(logging.CRITICAL)  # libp2p logs ordinary disconnects as errors; the agent logs the events
    pair = socket.socket(fileno=int(sys.argv[1]))
    program: ReachProgram

    async def run() -> None:
        nonlocal program
        program = ReachProgram(pair)
        await program.run()

    trio.run(run)


if __name__ == "__main__":
    main()
