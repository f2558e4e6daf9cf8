"""Addresses of nodes that this agent has met, so that a restart finds the ring again without a token."""

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from agiledart_agent.state_files.backed_up_file import read_backed_up, write_backed_up
from agiledart_kernel.errors import OperationFailed

MAX_REMEMBERED = 64
"""Number of stored addresses: any one that answers is enough."""


class PeerAddressFile:
    """Reader and writer of `peers.json` in the state directory.

    Attributes:
        notice: why the last good copy was read, or why nothing could be.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "peers.json"
        self._saved: tuple[str, ...] = ()
        self.notice = ""

    def addresses(self) -> list[str]:
        """Return the stored addresses; none when file and copy are missing or damaged (a token or other nodes help then)."""
        self.notice = ""
        try:
            stored = read_backed_up(self._path)
            self.notice = stored.notice
            document = json.loads(stored.content)
        except FileNotFoundError:
            return []
        except (OSError, ValueError, OperationFailed) as error:
            self.notice = (
                f"{self._path} is damaged ({error}), and so is its copy: the addresses of other nodes are lost."
            )
            return []
        if not isinstance(document, list):
            return []
        return [text for text in document if isinstance(text, str) and len(text) < 300][:MAX_REMEMBERED]

    def save(self, addresses: Iterable[str]) -> None:
        """Replace the stored addresses, atomically. With a full disk the agent continues."""
        wanted = tuple(sorted(filter(None, addresses)))[:MAX_REMEMBERED]
        if not wanted or wanted == self._saved:
            return
        with contextlib.suppress(OSError):
            write_backed_up(self._path, json.dumps(wanted).encode(), 0o644)
            self._saved = wanted
