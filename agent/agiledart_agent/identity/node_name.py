"""What people call a node that nobody named: as its machine, and `vm-2` when another agent of the machine is called so already.

A name is held by a Unix socket in Linux's abstract space: it is taken or not in one step, for all users of a machine, and the
kernel lets go of it when the process ends, however. Elsewhere names may be equal; ids tell nodes apart.
"""

import contextlib
import socket
import sys
from pathlib import Path

from agiledart_agent.state_files.durable_file import write_durably
from agiledart_agent.state_files.private_files import read_private
from agiledart_kernel.errors import OperationFailed

MOST = 64
"""Names tried; beyond, a name is used twice."""

FILE = "name"


class NodeName:
    """A node's name, held while this object lives.

    Args:
        wanted: what the settings say.
        is_given: somebody chose it: it is held as far as it can be, and never changed.
        state_dir: where a name that was found is kept, so that two agents do not change names when they start again.
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
        """Let others have the name."""
        if self._held is not None:
            self._held.close()
            self._held = None


def _remembered(path: Path) -> str:
    try:
        return read_private(path).decode("utf-8", "replace").strip()
    except (OSError, OperationFailed):
        return ""
