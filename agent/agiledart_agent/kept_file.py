"""Small files of the state directory without which a node is lost: each has a copy with a checksum beside it.

`NAME.good` holds the SHA-256 of what follows, a line end, and what was written to NAME. It is written first, so it is never older
than NAME. Where they differ, NAME was damaged, cut short, taken away, or comes from another node, and the copy is right. A release
that knows no copies reads NAME alone; what it wrote there since is lost to this one, and no more than that: keys and grants are the
same for years, and of the addresses of others any one will do.
"""

import contextlib
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from agiledart_agent.durable_file import write_durably
from agiledart_agent.own_files import read_ours

_DIGEST_CHARS = 64


class Kept(NamedTuple):
    """What a kept file holds.

    Args:
        notice: why the copy was taken, for the user; empty when the file itself is whole.
        has_copy: whether there is a good copy.
    """

    content: bytes
    notice: str
    has_copy: bool


def copy_path(path: Path) -> Path:
    """Where the copy of a kept file lies."""
    return path.with_name(f"{path.name}.good")


def is_kept(path: Path) -> bool:
    """Whether there is such a file, or at least its copy."""
    return path.exists() or copy_path(path).exists()


def write_kept(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file and its copy; raises OSError."""
    write_durably(copy_path(path), sha256(content).hexdigest().encode() + b"\n" + content, mode)
    write_durably(path, content, mode)


def read_kept(path: Path, *, secret: bool = False) -> Kept:
    """What was written last, from the file or its copy; without a copy what the file holds, whole or not.

    Raises:
        FileNotFoundError: there is neither. Other OSErrors: they cannot be read.
        OperationFailed: the file is not ours, or no plain file.
    """
    return read_both(path, secret=secret)[0]


def read_both(path: Path, *, secret: bool = False) -> list[Kept]:
    """The same, and behind it what the file holds where that is something else: the copy may be another node's.

    Raises:
        As `read_kept`.
    """
    content: bytes | None = None
    with contextlib.suppress(FileNotFoundError):
        content = read_ours(path, secret=secret)
    copy = _read_copy(path, secret=secret)
    if copy is None:
        if content is None:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return [Kept(content, "", has_copy=False)]
    if content == copy:
        return [Kept(copy, "", has_copy=True)]
    what = "is missing" if content is None else "is damaged" if content else "is empty"
    found = [Kept(copy, f"{path} {what}: its last good copy was put in its place.", has_copy=True)]
    if content:
        found.append(Kept(content, f"{copy_path(path)} is another node's: it was made anew.", has_copy=True))
    return found


def _read_copy(path: Path, *, secret: bool) -> bytes | None:
    """None: there is none, or it is damaged itself."""
    try:
        head, line_end, content = read_ours(copy_path(path), secret=secret).partition(b"\n")
    except FileNotFoundError:
        return None
    is_whole = line_end and len(head) == _DIGEST_CHARS and head == sha256(content).hexdigest().encode()
    return content if is_whole else None
