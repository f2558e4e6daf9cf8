"""Checkpoints on this node's disk: named ones, kept until a user removes them, and temporary ones.

    checkpoints/NAME.checkpoint     kept under a name
                DIGEST.passing      in transfer from or to a user: deleted after `TEMPORARY_SECONDS`, or for a newer one

Bounds: `MAX_KEPT` named ones, `MAX_TEMPORARY` others, and none that would take more than half of the free space. A
named one is never deleted for a newer one: the request to keep one more is refused.
"""

import contextlib
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agiledart_agent.checkpoints.checkpoint_file import (
    MAX_FILE_BYTES,
    CheckpointFileWriter,
    CheckpointManifest,
    InvalidCheckpointFile,
    digest_of,
    read_manifest,
    verify,
)
from agiledart_agent.state_files.durable_file import sync_folder
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.node_id import NodeId
from agiledart_node.wire.checkpoint_messages import CheckpointInfo
from agiledart_recovery.wire.names import RunId

FOLDER: Final = "checkpoints"
MAX_KEPT: Final = 16
MAX_TEMPORARY: Final = 4
TEMPORARY_SECONDS: Final = 3_600.0
FREE_SHARE: Final = 0.5
MAX_TRANSFERS: Final = 256

_KEPT, _TEMPORARY = ".checkpoint", ".passing"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class CheckpointStore:
    """Store of checkpoint files. It blocks and is for one thread at a time; `look_up` and `kept` may be called from any.

    Args:
        warn: takes a sentence about a file that cannot be used.
    """

    def __init__(self, state_dir: Path, warn: Callable[[str], None], now: Callable[[], float] = time.time) -> None:
        self._folder, self._warn, self._now = state_dir / FOLDER, warn, now
        self._known: dict[str, CheckpointInfo] = {}  # by file
        self._transfers: dict[tuple[bytes, NodeId], float] = {}  # until when
        self._snapshot_places: dict[str, dict[bytes, tuple[int, int]]] = {}  # by file: offset and length

    @property
    def max_upload_bytes(self) -> int:
        """Size of the largest file."""
        return MAX_FILE_BYTES

    def reserve(self, size: int, others: int) -> None:
        """Raise `OperationFailed` when an uploaded file of this size does not fit."""
        self.check_capacity("", size, others)

    def finish_upload(self, path: Path) -> bytes:
        """Take an uploaded file and return its hash. Raises `OperationFailed`, OSError."""
        return self.finish(path, "", checks=True).digest

    @property
    def named(self) -> tuple[CheckpointInfo, ...]:
        """Named checkpoints, in the order of their names."""
        return tuple(info for file, info in sorted(self._known.items()) if file.endswith(_KEPT))

    def grant_transfer(self, digest: bytes, node: NodeId) -> None:
        """Allow a node to fetch a kept file, for a limited time."""
        self._transfers.pop((digest, node), None)
        while len(self._transfers) >= MAX_TRANSFERS:
            del self._transfers[next(iter(self._transfers))]
        self._transfers[digest, node] = self._now() + TEMPORARY_SECONDS

    def look_up(self, digest: bytes, node: NodeId | None = None) -> tuple[Path, int, int] | None:
        """Return path, offset and length of a file, or of a snapshot within one, by its hash.

        `node`: the requesting node, when it is another one. It gets a kept file only with a transfer grant.
        """
        for file, info in tuple(self._known.items()):
            if info.digest == digest:
                if node is not None and file.endswith(_KEPT) and self._transfers.get((digest, node), 0.0) < self._now():
                    continue
                return self._folder / file, 0, info.size
            if (place := self._snapshot_places.get(file, {}).get(digest)) is not None:
                return self._folder / file, *place
        return None

    def file_of(self, digest: bytes) -> tuple[Path, CheckpointInfo] | None:
        """Return the file with this hash."""
        for file, info in tuple(self._known.items()):
            if info.digest == digest:
                return self._folder / file, info
        return None

    def read_stored(self) -> None:
        """Read the files that are here after a start. Delete incomplete ones."""
        for path in sorted(self._folder.glob("*")) if self._folder.is_dir() else []:
            if path.suffix not in (_KEPT, _TEMPORARY):
                with contextlib.suppress(OSError):
                    path.unlink()
                continue
            try:
                self._note(path, read_manifest(path), digest_of(path))
            except (OSError, InvalidCheckpointFile) as error:
                self._warn(f"a checkpoint cannot be used: {error}")
        self.sweep()

    def check_capacity(self, name: str, size: int, others: int = 0) -> None:
        """Raise `OperationFailed` when another checkpoint does not fit.

        Args:
            name: name under which to keep it; empty: a temporary one, for which older ones are deleted.
            others: bytes that are reserved for uploads and have not all arrived.
        """
        self.sweep()
        if size > MAX_FILE_BYTES:
            raise OperationFailed(f"the checkpoint has {size:,} bytes; the limit is {MAX_FILE_BYTES:,}")
        if name and _NAME.fullmatch(name) is None:
            raise OperationFailed(f"{name!r} is an invalid checkpoint name: use letters, digits, _ . or -")
        if name and name + _KEPT in self._known:
            raise OperationFailed(f"this node already keeps a checkpoint {name}")
        if name and len(self.named) >= MAX_KEPT:
            raise OperationFailed(f"this node already keeps {MAX_KEPT} checkpoints: remove one")
        passing = [file for file in self._known if file.endswith(_TEMPORARY)]
        for file in passing[: max(0, len(passing) - MAX_TEMPORARY + 1)] if not name else ():
            self._discard(file)
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            free = shutil.disk_usage(self._folder).free
        except OSError as error:
            raise OperationFailed(f"{self._folder}: {(error.strerror or str(error)).lower()}") from None
        if size + others > FREE_SHARE * free:
            raise OperationFailed(f"the disk has {free:,} free bytes, and the checkpoint has {size:,}")

    def begin(self) -> tuple[Path, CheckpointFileWriter]:
        """Return a file to write. The caller then calls `finish`, or `drop` of the writer. Raises OSError."""
        path = self.temporary_path()
        return path, CheckpointFileWriter(path)

    def temporary_path(self) -> Path:
        """Return a name for an incomplete file."""
        return self._folder / f".{time.monotonic_ns()}.part"

    def finish(self, path: Path, name: str, *, checks: bool) -> CheckpointInfo:
        """Take a complete file. Raises `OperationFailed` when it is not complete or the name was taken meanwhile; or OSError.

        Args:
            checks: read the whole file and check its hashes: another node or a user made it.
        """
        try:
            manifest, digest = verify(path) if checks else (read_manifest(path), digest_of(path))
        except InvalidCheckpointFile as error:
            raise OperationFailed(str(error).replace(str(path), "the file")) from None
        place = self._folder / (f"{name}{_KEPT}" if name else f"{digest.hex()}{_TEMPORARY}")
        known = self._known.get(place.name)
        if known is not None and known.digest != digest:
            raise OperationFailed(f"this node already keeps a checkpoint {name}")
        path.replace(place)
        sync_folder(self._folder)
        return self._note(place, manifest, digest, name)

    def drop(self, name: str, digest: bytes, run: RunId) -> None:
        """Delete the checkpoint of this name, if it is that file of that run."""
        known = self._known.get(name + _KEPT)
        if known is not None and (known.digest, known.run) == (digest, run):
            self._discard(name + _KEPT)

    def sweep(self) -> None:
        """Delete temporary files whose time is over."""
        for file in [file for file in self._known if file.endswith(_TEMPORARY)]:
            try:
                age = self._now() - (self._folder / file).stat().st_mtime
            except OSError:
                age = TEMPORARY_SECONDS
            if age >= TEMPORARY_SECONDS:
                self._discard(file)

    def _discard(self, file: str) -> None:
        del self._known[file]
        self._snapshot_places.pop(file, None)
        with contextlib.suppress(OSError):
            (self._folder / file).unlink()

    def _note(self, path: Path, manifest: CheckpointManifest, digest: bytes, name: str = "") -> CheckpointInfo:
        name = name or (path.name.removesuffix(_KEPT) if path.name.endswith(_KEPT) else "")
        known = self._known[path.name] = CheckpointInfo(
            name,
            RunId(manifest.application, manifest.version),
            manifest.attempt,
            manifest.epoch,
            manifest.taken_ms,
            manifest.owner,
            tuple(manifest.shared),
            digest,
            path.stat().st_size,
        )
        self._snapshot_places[path.name] = {
            snapshot.digest: (snapshot.offset, snapshot.length) for snapshot in manifest.snapshots
        }
        return known
