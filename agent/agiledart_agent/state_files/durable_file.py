"""Durable files: small files that survive a power cut whole, since they are written beside, synced and renamed."""

import contextlib
import os
import threading
from pathlib import Path


def write_durably(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file so that a reader, or a restart, finds the old content or the new, never a part. Raises OSError.

    Two threads may replace the same file at once: each writes beside it under a name of its own.
    """
    temporary_path = path.with_name(f".{path.name}.{threading.get_native_id()}")
    with contextlib.suppress(FileNotFoundError):
        temporary_path.unlink()
    descriptor = os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary_path.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary_path.unlink()
        raise
    sync_folder(path.parent)


def durable_files(folder: Path) -> list[Path]:
    """Return the files in a folder in order of name, without those that are being written. Raises OSError."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk. Raises OSError."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
