"""Sizes of sink logs for a scrape. Users' code may fill its log's folder with files, and a scrape runs on the event loop."""

import asyncio
from pathlib import Path
from typing import Final

from agiledart_sink_log.layout import logs_in
from agiledart_sink_log.plain_files import MAX_WALKED, usage_below

INLINE_ENTRIES: Final = 1_000
"""Files that a scrape looks at itself, in a few milliseconds; with more, a thread counts them for the next scrape."""

Sizes = tuple[tuple[str, int], ...]


class SinkLogSizes:
    """Bytes on the disk by application that writes a log.

    Args:
        root: the state directory.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._counted: Sizes = ()
        self._task: asyncio.Task[None] | None = None

    def look(self) -> Sizes:
        """Return the sizes now; where there are many files, those that a thread has counted since the last look."""
        sizes, is_whole = self._measure(INLINE_ENTRIES)
        if is_whole:
            return sizes
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._count())
        return self._counted or sizes

    async def _count(self) -> None:
        self._counted = (await asyncio.to_thread(self._measure, MAX_WALKED))[0]

    def _measure(self, max_entries: int) -> tuple[Sizes, bool]:
        sizes = []
        is_whole = True
        for at, log in logs_in(self._root):
            usage = usage_below(str(at), max_entries)
            max_entries -= usage.entries
            is_whole = is_whole and usage.is_whole
            sizes.append((log.application, usage.size))
        return tuple(sizes), is_whole
