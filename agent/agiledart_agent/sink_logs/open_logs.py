"""Reading of this node's logs for requests of readers.

Threads read files, never the event loop. A long poll reads the 20 bytes of the partition's `committed` file: 50 times a
second just after new rows came, 5 times a second when none come, and not at all without a waiting reader.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from agiledart_agent.host.freed_memory import keep_freed_memory
from agiledart_agent.sink_logs.columns_process import ColumnsProcess
from agiledart_kernel.errors import OperationFailed
from agiledart_sink_log.layout import holds_rows, log_directory
from agiledart_sink_log.log_reader import ALL, DamagedError, LogReader, ReadBatch, ReadSelection, TrimmedError
from agiledart_sink_log.protocol import (
    BY_COLUMNS,
    DAMAGED,
    MAX_FETCH_BYTES,
    TRIMMED,
    UNKNOWN_SINK,
    Ends,
    EndsReply,
    Fetch,
    Fetched,
    FetchedParts,
    LogAnswer,
    LogRefused,
    PartitionEnds,
    StoredBatch,
    StoredPart,
)

MAX_OPEN_LOGS: Final = 256
"""Logs whose index is kept in memory."""

THREADS: Final = 2
FIRST_LOOK_SECONDS: Final = 0.02
LAST_LOOK_SECONDS: Final = 0.2

R = TypeVar("R")


@dataclass(eq=False)
class OpenLog:
    """A log that was requested; its reader belongs to one thread at a time."""

    reader: LogReader
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class OpenLogs:
    """Opens logs of this node when they are requested, and reads them in threads.

    Args:
        root: the state directory, above `sink-logs`.
        columns: process that turns columns into rows, for readers that know rows only.

    Attributes:
        threads: read the files.
    """

    def __init__(self, root: Path, columns: ColumnsProcess) -> None:
        self._root, self._columns = root, columns
        self._logs: dict[str, OpenLog] = {}
        self._serves_columns = False
        self.threads = ThreadPoolExecutor(THREADS, "sink-log")

    def close(self) -> None:
        """End the threads; reads that have not begun are dropped."""
        self.threads.shutdown(wait=False, cancel_futures=True)

    def open(self, name: str) -> OpenLog | None:
        """Return a log of this node; None where it is not here. Raises OperationFailed for a damaged one."""
        log = self._logs.get(name)
        try:
            if log is None or not log.reader.refresh():
                if name not in self._logs and len(self._logs) >= MAX_OPEN_LOGS:
                    del self._logs[next(iter(self._logs))]
                log = self._logs[name] = OpenLog(LogReader(log_directory(self._root, name)))
        except OperationFailed:
            self._logs.pop(name, None)
            if holds_rows(log_directory(self._root, name)):
                raise
            return None
        return log

    async def _in_thread(self, log: OpenLog, work: Callable[[], R]) -> R:
        async with log.lock:
            return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    async def ends(self, log: OpenLog, request: Ends) -> LogAnswer:
        """Answer where the partitions of a log end; a long poll waits for a later end."""
        reader, uncommitted = log.reader, request.uncommitted

        def look() -> tuple[PartitionEnds, ...]:
            return tuple(reader.ends(n, uncommitted=uncommitted) for n in range(reader.description.partitions))

        async def news() -> tuple[PartitionEnds, ...] | None:
            ends = await self._in_thread(log, look) if uncommitted else look()
            for end in ends:
                if (end.latest if uncommitted else end.committed) > request.after.get(end.partition, -1):
                    return ends
            return None

        ends = await _until(news, request.wait_ms)
        if ends is None:
            ends = await self._in_thread(log, look)
        about = reader.description
        return EndsReply(request.request, about.log_id, ends, reader.is_open, about.ended)

    async def fetch(self, log: OpenLog, request: Fetch, read: list[ReadBatch]) -> LogAnswer:
        """Answer with rows of a partition; `read` takes the batches of a `FetchedParts`."""
        reader, number = log.reader, request.request
        if request.partition >= reader.description.partitions:
            text = f"The log {request.sink} has {reader.description.partitions} partitions; there is no {request.partition}."
            return LogRefused(number, UNKNOWN_SINK, text)

        async def news() -> bool | None:
            # The committed end is 20 bytes, which the event loop may read itself; everything else goes to a thread.
            if request.uncommitted:
                ends = await self._in_thread(log, lambda: reader.ends(request.partition, uncommitted=True))
                return ends.latest > request.offset or None
            return reader.ends(request.partition).committed > request.offset or None

        if request.wait_ms:
            await _until(news, request.wait_ms)
        is_new = request.columns is not None
        if is_new and not self._serves_columns:
            self._serves_columns = True
            keep_freed_memory(MAX_FETCH_BYTES)
        selection = ReadSelection(request.columns, request.where) if is_new else ALL
        try:
            batches, following, end = await self._in_thread(
                log,
                lambda: reader.fetch(
                    request.partition,
                    request.offset,
                    request.max_rows,
                    min(request.max_bytes, MAX_FETCH_BYTES),
                    uncommitted=request.uncommitted,
                    selection=selection,
                ),
            )
        except TrimmedError as error:
            return LogRefused(number, TRIMMED, str(error), error.first)
        except DamagedError as error:
            return LogRefused(number, DAMAGED, str(error), error.next_good)
        log_id = reader.description.log_id
        if is_new:
            read += batches
            parts = tuple(
                StoredPart(
                    batch.offset,
                    batch.rows,
                    batch.form,
                    tuple(map(len, batch.parts)),
                    batch.at_ms,
                    batch.size + batch.left_out,
                )
                for batch in batches
            )
            return FetchedParts(number, request.partition, parts, following, end, log_id)
        stored = await self._as_rows(request, batches)
        following = stored[-1].offset + stored[-1].rows if stored else following
        return Fetched(number, request.partition, stored, following, end, log_id)

    async def _as_rows(self, request: Fetch, batches: Sequence[ReadBatch]) -> tuple[StoredBatch, ...]:
        """Return batches for a reader that knows rows only, at most as many bytes as it wants. Raises OperationFailed."""
        stored: list[StoredBatch] = []
        size = 0
        for batch in batches:
            if batch.form == BY_COLUMNS:
                body = await self._columns.rows_of(request.sink, batch.rows, [bytes(part) for part in batch.parts])
            else:
                body = batch.body
            size += len(body)
            if stored and size > min(request.max_bytes, MAX_FETCH_BYTES):
                break
            stored.append(StoredBatch(batch.offset, batch.rows, body, batch.at_ms))
        return tuple(stored)


async def _until(look: Callable[[], Coroutine[Any, Any, R | None]], wait_ms: int) -> R | None:
    """Return the result of `look`, or None when it has none in time. It looks less and less often."""
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + wait_ms / 1000, FIRST_LOOK_SECONDS
    while True:
        if (result := await look()) is not None:
            return result
        left = deadline - loop.time()
        if left <= 0:
            return None
        await asyncio.sleep(min(pause, left))
        pause = min(1.3 * pause, LAST_LOOK_SECONDS)
