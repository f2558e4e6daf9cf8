"""The addresses of nodes that this agent has met, so that a restart finds the ring again without a token."""

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from agiledart_agent.state_files.backed_up_file import read_backed_up, write_backed_up
from agiledart_kernel.errors import OperationFailed

MAX_REMEMBERED = 64
"""Addresses kept: any one that answers is enough."""


class PeerAddressFile:
    """Reads and writes `peers.json` in the state directory.

    Attributes:
        notice: why the last good copy was read, or why nothing could be.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "peers.json"
        self._saved: tuple[str, ...] = ()
        self.notice = ""

    def addresses(self) -> list[str]:
        """What is remembered; nothing when file and copy are missing or damaged (a token or other nodes help then)."""
        self.notice = ""
        try:
            kept = read_backed_up(self._path)
            self.notice = kept.notice
            found = json.loads(kept.content)
        except FileNotFoundError:
            return []
        except (OSError, ValueError, OperationFailed) as error:
            self.notice = (
                f"{self._path} is damaged ({error}), and so is its copy: the addresses of other nodes are lost."
            )
            return []
        if not isinstance(found, list):
            return []
        return [text for text in found if isinstance(text, str) and len(text) < 300][:MAX_REMEMBERED]

    def save(self, addresses: Iterable[str]) -> None:
        """Replace what is remembered, atomically; an agent goes on with a full disk."""
        wanted = tuple(sorted(filter(None, addresses)))[:MAX_REMEMBERED]
        if not wanted or wanted == self._saved:
            return
        with contextlib.suppress(OSError):
            write_backed_up(self._path, json.dumps(wanted).encode(), 0o644)
            self._saved = wanted
