"""Uploads of files from users to this agent, piece by piece: checkpoints and models.

The size that a user announced with the first piece holds until the last: that space is reserved. The awkward case: two
clients send the same file, or one sends a piece twice. Each piece is written at its own offset, so no file grows above
its announced size.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol, TypeVar

from agiledart_kernel.errors import OperationFailed
from agiledart_node.wire.transfer_commands import UploadCheckpoint, UploadModel

MAX_UPLOADS: Final = 4
"""Uploads at one time; a new one takes the place of the oldest."""

IDLE_SECONDS: Final = 3_600.0
"""Time without a new piece after which an upload is deleted."""


R = TypeVar("R")

Piece = UploadCheckpoint | UploadModel


class UploadTarget(Protocol):
    """Store that takes complete files.

    Attributes:
        max_upload_bytes: size of the largest file.
    """

    @property
    def max_upload_bytes(self) -> int: ...

    def temporary_path(self) -> Path:
        """Return a name for an incomplete file."""
        ...

    def reserve(self, size: int, others: int) -> None:
        """Raise `OperationFailed` when a file of this size does not fit, beside others that are on their way."""
        ...

    def finish_upload(self, path: Path) -> bytes:
        """Take a complete file and return its hash. Raises `OperationFailed`, OSError."""
        ...


@dataclass(eq=False)
class _Upload:
    path: Path
    size: int
    have: int = 0
    idle: asyncio.TimerHandle | None = None


class Uploads:
    """Files that are not complete yet.

    Args:
        store: takes complete files.
        disk: does blocking work.
    """

    def __init__(self, store: UploadTarget, disk: ThreadPoolExecutor) -> None:
        self._store, self._disk = store, disk
        self._files: dict[str, _Upload] = {}

    async def take(self, command: Piece) -> tuple[int, bytes]:
        """Take a piece. Return how much is here, and the hash of the file if it is complete. Raises `OperationFailed`, OSError."""
        file = self._files.get(command.digest)
        if file is None or (command.offset == 0 and file.size == command.size):
            file = await self._begun(command)
        if command.size != file.size:
            raise OperationFailed(
                f"The file was announced with {file.size:,} bytes, and now has {command.size:,}."
                " Send it again when the other upload is complete, or in an hour."
            )
        if command.offset != file.have:
            return file.have, b""
        if command.offset + len(command.data) > file.size:
            raise OperationFailed(f"The client sent more than the announced {file.size:,} bytes. Try again.")
        await self._on_disk(lambda: _put(file.path, command.offset, command.data))
        if self._files.get(command.digest) is not file:
            await self._on_disk(lambda: file.path.unlink(missing_ok=True))
            raise OperationFailed("Other users upload files to this agent, and this upload was dropped. Try again.")
        file.have = command.offset + len(command.data)
        if file.have < file.size:
            self._watch(command.digest, file)
            return file.have, b""
        self._forget(command.digest, file)
        try:
            digest = await self._on_disk(lambda: self._store.finish_upload(file.path))
        finally:
            await self._on_disk(lambda: file.path.unlink(missing_ok=True))
        return file.have, digest

    def close(self) -> None:
        """Stop all uploads. The next start deletes the incomplete files."""
        for digest, file in list(self._files.items()):
            self._forget(digest, file)

    async def _on_disk(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)

    async def _begun(self, command: Piece) -> _Upload:
        if command.size > (limit := self._store.max_upload_bytes):
            raise OperationFailed(f"The file has {command.size:,} bytes; the limit is {limit:,}.")
        self._discard(command.digest)
        while len(self._files) >= MAX_UPLOADS:
            self._discard(next(iter(self._files)))
        others = sum(file.size for file in self._files.values())
        file = self._files[command.digest] = _Upload(self._store.temporary_path(), command.size)
        try:
            await self._on_disk(lambda: self._store.reserve(command.size, others))
        except OperationFailed:
            self._forget(command.digest, file)
            raise
        self._watch(command.digest, file)
        return file

    def _watch(self, digest: str, file: _Upload) -> None:
        """Restart the idle timer of an upload; an upload that was dropped gets none."""
        if file.idle is not None:
            file.idle.cancel()
        if self._files.get(digest) is file:
            file.idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._discard, digest)

    def _forget(self, digest: str, file: _Upload) -> None:
        if self._files.get(digest) is file:
            del self._files[digest]
        if file.idle is not None:
            file.idle.cancel()

    def _discard(self, digest: str) -> None:
        if (file := self._files.get(digest)) is not None:
            self._forget(digest, file)
            with contextlib.suppress(OSError):
                file.path.unlink()


def opened(path: Path) -> BinaryIO:
    """Open a new file that only its owner can read. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    return open(os.open(path, flags, 0o600), "wb")


def _put(path: Path, at: int, data: bytes) -> None:
    with opened(path) if not at else path.open("r+b") as file:
        file.seek(at)
        file.write(data)
