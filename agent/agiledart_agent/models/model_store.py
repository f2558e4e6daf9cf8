"""Files of models on this node, by their hash.

    models/.passing/DIGEST    uploaded by a user: deleted after `PASSING_SECONDS`, or for a newer one
    models/APP/DIGEST         of an application whose executors may read it; only the agent writes there

Bounds: `MAX_PASSING` files in passing, `MAX_OF_APPLICATION` for an application, whose oldest goes for a newer one, those of
`MAX_APPLICATIONS`, and none that would take more than half of the free space. An application needs a file until the row that names
it has come: from then on its state holds the model.
"""

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agiledart_agent.state_files.durable_file import sync_folder
from agiledart_executor.user_code.application_folders import MODELS, models_folder
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.limits import MAX_MODEL_BYTES
from agiledart_node.wire.shared_model import MAX_SHARED_MODELS
from agiledart_sink_log.plain_files import open_plain

MAX_PASSING: Final = 4
PASSING_SECONDS: Final = 3_600.0
MAX_OF_APPLICATION: Final = MAX_SHARED_MODELS
MAX_APPLICATIONS: Final = 64
"""Applications whose models are here; those without a new one for longest go."""

FREE_SHARE: Final = 0.5


class ModelStore:
    """Store of models' files. It blocks and is for one thread at a time; `path_of` may be called from any.

    Args:
        state_dir: the folder is below it.
        now: returns seconds since 1970.
    """

    def __init__(self, state_dir: Path, now: Callable[[], float] = time.time) -> None:
        self._root, self._now = state_dir, now
        self._passing = state_dir / MODELS / ".passing"

    @property
    def max_upload_bytes(self) -> int:
        """Size of the largest file."""
        return MAX_MODEL_BYTES

    def path_of(self, application: str, digest: bytes) -> tuple[Path, int] | None:
        """Return path and size of a file that an application may use, or that is in passing; None: it is not here."""
        for folder in (models_folder(self._root, application), self._passing):
            path = folder / digest.hex()
            with contextlib.suppress(OSError):
                if 0 < (size := path.lstat().st_size) <= MAX_MODEL_BYTES:
                    return path, size
        return None

    def has(self, application: str, digest: bytes) -> bool:
        """Return whether the application's executors can read this model here."""
        return (models_folder(self._root, application) / digest.hex()).is_file()

    def temporary_path(self) -> Path:
        """Return a name for an incomplete file."""
        return self._passing / f".{time.monotonic_ns()}.part"

    def reserve(self, size: int, others: int = 0) -> None:
        """Raise `OperationFailed` when a file of this size does not fit. Old files in passing are deleted."""
        if size > MAX_MODEL_BYTES:
            raise OperationFailed(f"the model has {size:,} bytes; the limit is {MAX_MODEL_BYTES:,}")
        try:
            self._passing.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._sweep()
            free = shutil.disk_usage(self._passing).free
        except OSError as error:
            raise OperationFailed(f"{self._passing}: {(error.strerror or str(error)).lower()}") from None
        if size + others > FREE_SHARE * free:
            raise OperationFailed(f"the disk has {free:,} free bytes, and the model has {size:,}")

    def finish_upload(self, path: Path) -> bytes:
        """Take an uploaded file and return its hash. Raises OSError."""
        digest = digest_of(path)
        path.replace(self._passing / digest.hex())
        sync_folder(self._passing)
        return digest

    def place(self, application: str, digest: bytes, path: Path) -> None:
        """Give an application a complete file. Raises `OperationFailed` when it is another file, or OSError."""
        if digest_of(path) != digest:
            raise OperationFailed("the received model is not the announced one")
        folder = models_folder(self._root, application)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.replace(folder / digest.hex())
        sync_folder(folder)
        for old in _by_age(folder)[:-MAX_OF_APPLICATION]:
            old.unlink(missing_ok=True)
        with_models = [place for place in _by_age(folder.parent) if _by_age(place)]
        for former in with_models[:-MAX_APPLICATIONS]:
            for old in _by_age(
                former
            ):  # the folder stays: a running executor may read this one, and no later one of its name
                old.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Delete files in passing that are old, or too many."""
        files = _by_age(self._passing)
        for path in files[: max(0, len(files) - MAX_PASSING + 1)]:
            path.unlink(missing_ok=True)
        for path in files:
            with contextlib.suppress(OSError):
                if self._now() - path.stat().st_mtime >= PASSING_SECONDS:
                    path.unlink()

    def drop_incomplete(self) -> None:
        """Delete what an earlier process of this agent left incomplete."""
        if self._passing.is_dir():
            for path in self._passing.glob(".*.part"):
                path.unlink(missing_ok=True)


def digest_of(path: Path) -> bytes:
    """Return the SHA-256 of a file. Raises OSError."""
    with open(open_plain(path, os.O_RDONLY), "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _by_age(folder: Path) -> list[Path]:
    """Return the complete files of a folder, or its folders, the one that changed first before the others."""
    files = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return sorted(files, key=lambda path: (path.lstat().st_mtime_ns, path.name))
