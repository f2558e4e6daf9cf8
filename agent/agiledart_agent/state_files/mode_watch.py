"""Watch over the modes of the state directory: users' code runs as the agent's user, and no rule of Landlock binds `chmod`."""

import os
import stat
from pathlib import Path
from typing import Final

OTHERS: Final = 0o077
SECRET_MARKS: Final = (".key", "cookie", "secret", "token")
"""Parts of the names of files that are for this user alone, whatever the mode of their folder."""

MAX_LOOKED_AT: Final = 1_000
"""Files of the state directory at one look; it has some twenty."""


def restore_modes(state_dir: Path) -> list[str]:
    """Close the state directory and its secret files to other users again. Return the paths that were open."""
    opened = []
    try:
        with os.scandir(state_dir) as entries:
            files = [entry.path for _, entry in zip(range(MAX_LOOKED_AT), entries, strict=False) if _is_secret(entry)]
    except OSError:
        files = []
    for path in (str(state_dir), *files):
        try:
            status = os.lstat(path)
            if status.st_mode & OTHERS and not stat.S_ISLNK(status.st_mode):
                os.chmod(path, stat.S_IMODE(status.st_mode) & ~OTHERS)
                opened.append(path)
        except OSError:
            continue
    return opened


def _is_secret(entry: "os.DirEntry[str]") -> bool:
    return any(mark in entry.name for mark in SECRET_MARKS) and entry.is_file(follow_symlinks=False)
