"""Backed-up files: small files without which a node is lost. Each has a copy with a checksum beside it.

`NAME.good` holds the SHA-256 of the content, a line end, and the content written to NAME. It is written first, so it is
never older than NAME. Where they differ, NAME was damaged, cut short or removed, or comes from another node, and the
copy is right. A release without copies reads NAME alone. Its later changes are lost to this release, and no more
than that: keys and grants stay the same for years, and of the addresses of other nodes any one is enough.
"""

import contextlib
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from agiledart_agent.state_files.durable_file import write_durably
from agiledart_agent.state_files.private_files import read_private

_DIGEST_CHARS = 64


class BackedUpFile(NamedTuple):
    """Content of a backed-up file.

    Args:
        notice: why the copy was taken, for the user; empty when the file itself is intact.
        has_backup: whether there is a good copy.
    """

    content: bytes
    notice: str
    has_backup: bool


def backup_path(path: Path) -> Path:
    """Return the path of the copy of a file."""
    return path.with_name(f"{path.name}.good")


def is_stored(path: Path) -> bool:
    """Return whether there is such a file, or at least its copy."""
    return path.exists() or backup_path(path).exists()


def write_backed_up(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file and its copy. Raises OSError."""
    write_durably(backup_path(path), sha256(content).hexdigest().encode() + b"\n" + content, mode)
    write_durably(path, content, mode)


def read_backed_up(path: Path, *, secret: bool = False) -> BackedUpFile:
    """Return the last written content, from the file or its copy; without a copy the file's content as it is.

    Raises:
        FileNotFoundError: neither exists. Other OSErrors: they cannot be read.
        OperationFailed: the file is not ours, or not a plain file.
    """
    return read_file_and_copy(path, secret=secret)[0]


def read_file_and_copy(path: Path, *, secret: bool = False) -> list[BackedUpFile]:
    """Return the content as `read_backed_up` does, and behind it the file's own when it differs: the copy may be another node's.

    Raises:
        As `read_backed_up`.
    """
    content: bytes | None = None
    with contextlib.suppress(FileNotFoundError):
        content = read_private(path, secret=secret)
    copy = _read_copy(path, secret=secret)
    if copy is None:
        if content is None:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return [BackedUpFile(content, "", has_backup=False)]
    if content == copy:
        return [BackedUpFile(copy, "", has_backup=True)]
    state = "is missing" if content is None else "is damaged" if content else "is empty"
    contents = [BackedUpFile(copy, f"{path} {state}: it was restored from its last good copy.", has_backup=True)]
    if content:
        contents.append(
            BackedUpFile(content, f"{backup_path(path)} is another node's: it was written anew.", has_backup=True)
        )
    return contents


def _read_copy(path: Path, *, secret: bool) -> bytes | None:
    """Return the content of the copy; None: there is none, or it is damaged itself."""
    try:
        head, line_end, content = read_private(backup_path(path), secret=secret).partition(b"\n")
    except FileNotFoundError:
        return None
    is_whole = line_end and len(head) == _DIGEST_CHARS and head == sha256(content).hexdigest().encode()
    return content if is_whole else None
