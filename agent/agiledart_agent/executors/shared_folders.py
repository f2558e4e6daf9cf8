"""Folders that a process of several applications may use, also those that do not exist when it confines itself.

Landlock only takes rights away, so later applications cannot bring their folders along. But a rule belongs to a folder, not to its
name: one that was set aside, and is moved to the name of an application's folder later, stays usable for the process.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from agiledart_sink_log.plain_files import remove_tree

FOLDER: Final = "shared"
"""Below the state directory: for each process a folder with its working directory and the folders that are set aside."""

_WORKING: Final = "files"
_REMOVAL_SECONDS: Final = 5.0


class SharedFolders:
    """Folders of one process.

    Args:
        root: the agent's state directory.
        name: of the process.
    """

    def __init__(self, root: Path, name: str) -> None:
        self._folder = root / FOLDER / name
        self._identities: set[tuple[int, int]] = set()
        self._spare: list[Path] = []

    @property
    def working(self) -> Path:
        """Working directory of the process."""
        return self._folder / _WORKING

    def set_aside(self, existing: Iterable[Path], count: int) -> tuple[Path, ...]:
        """Set folders aside. Return all that the process may use. Raises OSError.

        Args:
            existing: folders of applications that may come; those that are not there are left out.
            count: of the folders to set aside.
        """
        self.working.mkdir(mode=0o700, parents=True)
        self._spare = [self._folder / str(number) for number in range(count)]
        for spare in self._spare:
            spare.mkdir(mode=0o700)
        known = [path for path in existing if path.is_dir() and not path.is_symlink()]
        usable = (self.working, *known, *self._spare)
        self._identities = {_identity(path) for path in usable}
        return usable

    def claim(self, wanted: Iterable[Path]) -> bool:
        """Give an application's folders to the process. Return False, and change nothing, when one cannot be given.

        A folder inside another wanted one comes with that.
        """
        paths = tuple(wanted)
        outer = [path for path in paths if not any(other in path.parents for other in paths)]
        missing = [path for path in outer if not path.is_dir()]
        if len(missing) > len(self._spare):
            return False
        if any(path.is_symlink() or _identity(path) not in self._identities for path in outer if path not in missing):
            return False
        for path in missing:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.rename(self._spare.pop(), path)
        for path in paths:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return True

    def remove(self) -> None:
        """Remove what no application has been given."""
        with contextlib.suppress(OSError):
            remove_tree(self._folder, _REMOVAL_SECONDS)


def remove_leftovers(root: Path) -> None:
    """Remove the folders of processes of an earlier agent."""
    with contextlib.suppress(OSError):
        remove_tree(root / FOLDER, _REMOVAL_SECONDS)


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino
