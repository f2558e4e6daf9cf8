"""`AppendedFile`: the end of an output file as its writer left it; detects the loss of rows written since the last epoch.

Rows of the open epoch are in the file already, and no seal covers them. A user may edit the file, or put back a copy made at the
last epoch; that removes these rows. The next row, written at the old place, would then stand after a hole.
"""

import io
import os

from agiledart_connectors.files.seals import TAIL_BYTES, Seal, check_seal
from agiledart_kernel.errors import RollBackNeeded


class AppendedFile:
    """Position of a file's end, and the last bytes before it.

    Args:
        file: open, and positioned at its end.
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
        """Check that the file still has the expected bytes before its expected end, whatever follows.

        Args:
            seal: of the file at the last epoch; None: the file was empty then.

        Raises:
            OutputFileChangedError: the file differs from its state at the last epoch; it may match again when a user puts it back.
            RollBackNeeded: only rows written since the last epoch are lost.
            OSError: the file cannot be read.
        """
        descriptor, length = self._file.fileno(), len(self._tail)
        if os.pread(descriptor, length, self._end - length) == self._tail:
            return
        if seal is not None:
            check_seal(descriptor, self._name, seal)
        raise RollBackNeeded(
            f"{self._name} has lost rows that came since the last epoch: somebody has changed it. They are written again"
        )
