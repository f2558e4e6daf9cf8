"""Owners of the folders in which applications work on this node: the next owner of a name finds an empty one.

    work-owners/APP    key of the owner for whom `work/APP` was last used, in hex

The file is the agent's: users' code can write in `work/APP` and could write any owner there.
"""

import contextlib
from pathlib import Path
from typing import Final

from agiledart_agent.state_files.durable_file import durable_files, write_durably
from agiledart_agent.state_files.private_files import read_private
from agiledart_executor.user_code.application_folders import models_folder, work_folder
from agiledart_kernel.errors import OperationFailed
from agiledart_sink_log.plain_files import path_below, remove_tree

FOLDER: Final = "work-owners"
CLEARING_SECONDS: Final = 30.0
"""Longest time that the start of an application waits for what its name's former owner left."""


class WorkOwners:
    """Owners of work folders below a state directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names_of(self, owner: bytes) -> frozenset[str]:
        """Return the names of applications whose work folders are an owner's. It reads the disk."""
        wanted, names = owner.hex().encode(), []
        folder = self._root / FOLDER
        for path in durable_files(folder) if folder.is_dir() else ():
            with contextlib.suppress(OSError, OperationFailed):
                if read_private(path) == wanted:
                    names.append(path.name)
        return frozenset(names)

    def claim(self, application: str, owner: bytes, *, is_used: bool) -> str:
        """Give the work folder of an application to an owner, emptied if it was another's. It may take long.

        Args:
            is_used: executors of this application run here.

        Returns:
            Why it cannot be given; empty: it is the owner's.
        """
        path, wanted = path_below(self._root / FOLDER, application), owner.hex().encode()
        try:
            known = read_private(path)
        except FileNotFoundError:
            known = None  # never used, or by a release without owners
        except (OSError, OperationFailed) as error:
            return f"the owner of {application}'s folder on this node cannot be read: {error}"
        if known == wanted:
            return ""
        if known is not None:
            if is_used:
                return f"another owner's {application} still runs on this node"
            folders = work_folder(self._root, application), models_folder(self._root, application)
            if not all(remove_tree(folder, CLEARING_SECONDS) for folder in folders):
                return f"files of the former owner of {application} could not be deleted on this node; the next start tries again"
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_durably(path, wanted)
        except OSError as error:
            return f"{path} cannot be written: {(error.strerror or str(error)).lower()}"
        return ""
