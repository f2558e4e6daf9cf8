"""`AppendedFile`: the end of an output file as its writer left it, which notices when what was written since the last epoch is gone.

Rows of the open epoch are in the file already, and no seal covers them. Somebody who edits the file, or puts a copy back that was
made at the last epoch, takes them away: the next row, at the old place, would stand behind a hole.
"""

import io
import os

from agiledart_connectors.files.seals import TAIL_BYTES, Seal, check_seal
from agiledart_kernel.errors import RollBackNeeded


class AppendedFile:
    """Where a file ends, and its last bytes.

    Args:
        file: it stands at its end.
    """

    def __init__(self, file: io.FileIO, name: str) -> None:
        self._file, self._name = file, name
        self._end = file.tell()
        length = min(self._end, TAIL_BYTES)
        self._tail = os.pread(file.fileno(), length, self._end - length)

    def add_written(self, data: bytes) -> None:
        """It has grown by so much."""
        self._end += len(data)
        self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]

    def check(self, seal: Seal | None) -> None:
        """See whether it still ends so, whatever lies behind.

        Args:
            seal: of the file at the last epoch; None: there was nothing in it.

        Raises:
            SpoiltFile: it is not even what it was at the last epoch; it may be, again, when somebody puts it back.
            RollBackNeeded: it is, and what came since is gone.
            OSError: it cannot be read.
        """
        descriptor, length = self._file.fileno(), len(self._tail)
        if os.pread(descriptor, length, self._end - length) == self._tail:
            return
        if seal is not None:
            check_seal(descriptor, self._name, seal)
        raise RollBackNeeded(
            f"{self._name} has lost rows that came since the last epoch: somebody has changed it. They are written again"
        )
