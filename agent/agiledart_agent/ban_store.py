"""The bans that this node knows, in one file of its state directory: a node that was off still refuses who was banned before."""

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from agiledart_agent.durable_file import write_durably
from agiledart_agent.own_files import read_ours
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.limits import MAX_BANS
from agiledart_kernel.orders import MAX_ORDER_BYTES

FILE: Final = "bans"

_DECODER: Final = msgspec.msgpack.Decoder(tuple[bytes, ...])


class BanStore:
    """The file `bans` of a state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE
        self._wanted: tuple[bytes, ...] = ()
        self._writing = asyncio.Lock()

    def found(self) -> tuple[bytes, ...]:
        """What lies there; nothing when it cannot be read: neighbours know it, too."""
        try:
            return _DECODER.decode(read_ours(self._path, max_bytes=MAX_BANS * MAX_ORDER_BYTES))
        except (OSError, OperationFailed, msgspec.MsgspecError):
            return ()

    async def keep(self, orders: tuple[bytes, ...]) -> None:
        """Write what was asked for last; a full disk leaves the old file."""
        self._wanted = orders
        async with self._writing:
            content = msgspec.msgpack.encode(self._wanted)
            try:
                await asyncio.to_thread(write_durably, self._path, content)
            except OSError:
                return
