"""Name of a node without a configured one: its machine's, and `vm-2` when another agent of the machine already has that name.

A Unix socket in Linux's abstract space holds the name: it is taken or not in one step, for all users of a machine, and
the kernel releases it when the process ends in any way. Elsewhere names may be equal; ids tell nodes apart.
"""

import contextlib
import socket
import sys
from pathlib import Path

from agiledart_agent.state_files.durable_file import write_durably
from agiledart_agent.state_files.private_files import read_private
from agiledart_kernel.errors import OperationFailed

MOST = 64
"""Names that are tried; beyond these, a name is used twice."""

FILE = "name"


class NodeName:
    """A node's name, held while this object exists.

    Args:
        wanted: name in the settings.
        is_given: a user chose the name: it is held if possible, and never changed.
        state_dir: where a chosen name is stored, so that two agents do not swap names when they restart.
    """

    def __init__(self, wanted: str, state_dir: Path, *, is_given: bool) -> None:
        self._held: socket.socket | None = None
        self.text = wanted
        if is_given:
            self._hold(wanted)
            return
        remembered = _remembered(state_dir / FILE)
        numbered = [wanted, *(f"{wanted}-{number}" for number in range(2, MOST + 1))]
        candidates = dict.fromkeys([remembered, *numbered] if remembered in numbered else numbered)
        self.text = next(filter(self._hold, candidates), wanted)
        if self.text != (remembered or wanted):
            with contextlib.suppress(OSError):
                write_durably(state_dir / FILE, f"{self.text}\n".encode(), 0o644)

    def _hold(self, name: str) -> bool:
        if sys.platform != "linux":
            return True
        held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            held.bind(f"\0agiledart-name-{name}")
        except OSError:
            held.close()
            return False
        self._held = held
        return True

    def close(self) -> None:
        """Release the name for others."""
        if self._held is not None:
            self._held.close()
            self._held = None


def _remembered(path: Path) -> str:
    try:
        return read_private(path).decode("utf-8", "replace").strip()
    except (OSError, OperationFailed):
        return ""
