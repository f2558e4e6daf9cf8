"""The addresses of nodes that this agent has met, so that a restart finds the ring again without a token."""

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from agiledart_agent.durable_file import write_durably
from agiledart_agent.own_files import read_ours
from agiledart_kernel.errors import OperationFailed

MAX_REMEMBERED = 64
"""Addresses kept: any one that answers is enough."""


class RingMemory:
    """Reads and writes `peers.json` in the state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "peers.json"
        self._saved: tuple[str, ...] = ()

    def addresses(self) -> list[str]:
        """What is remembered; nothing when the file is missing or damaged (a token or other nodes help then)."""
        try:
            found = json.loads(read_ours(self._path))
        except (OSError, ValueError, OperationFailed):
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
            write_durably(self._path, json.dumps(wanted).encode(), 0o644)
            self._saved = wanted
