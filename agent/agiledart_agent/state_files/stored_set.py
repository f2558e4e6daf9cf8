"""Stored set: small byte strings in one file of the state directory, written whole.

Neighbours know them, too, and send them again.
"""

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from agiledart_agent.state_files.durable_file import write_durably
from agiledart_agent.state_files.private_files import read_private
from agiledart_kernel.errors import OperationFailed

_DECODER: Final = msgspec.msgpack.Decoder(tuple[bytes, ...])


class StoredSet:
    """One file with a set of byte strings.

    Args:
        max_bytes: a longer file is not read.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._wanted: tuple[bytes, ...] = ()
        self._written: tuple[bytes, ...] | None = None
        self._writing = asyncio.Lock()

    def entries(self) -> tuple[bytes, ...]:
        """Return the stored items; none when the file cannot be read: neighbours know them, too."""
        try:
            return _DECODER.decode(read_private(self._path, max_bytes=self._max_bytes))
        except (OSError, OperationFailed, msgspec.MsgspecError):
            return ()

    async def keep(self, items: tuple[bytes, ...]) -> None:
        """Write the last requested set, once for however many requests meanwhile. A full disk leaves the old file."""
        self._wanted = items
        async with self._writing:
            if self._wanted is self._written:
                return
            wanted = self._wanted
            try:
                await asyncio.to_thread(write_durably, self._path, msgspec.msgpack.encode(wanted))
            except OSError:
                return
            self._written = wanted
