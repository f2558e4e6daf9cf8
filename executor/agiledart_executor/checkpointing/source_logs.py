"""Logs of the sources of one executor: a thread of its own fsyncs them soon after rows were written, or at once on request."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from agiledart_executor.checkpointing.opening_records import OpeningRecords
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.spool.logged_reader import SYNC_SECONDS, LoggedReader


class SourceLogs:
    """Logs of the sources in this process.

    Args:
        folder: of the run, for error texts.
        records: hold the first positions of sources.
        loop: event loop of this process.
        call_soon: calls a function in the loop, from any thread.
    """

    def __init__(
        self,
        folder: Path,
        records: OpeningRecords,
        loop: asyncio.AbstractEventLoop,
        call_soon: Callable[..., None],
    ) -> None:
        self._folder, self._records = folder, records
        self._loop, self._call_soon = loop, call_soon
        self._logs: list[LoggedReader] = []
        self._log_thread = ThreadPoolExecutor(1, "source logs")  # begins with the first log

    def keep_log(self, running: RunningInstance) -> None:
        """Start periodic fsyncs of a source's log, if it has one.

        A source whose start may differ each time, as behind the newest message, starts where an earlier attempt of the run began.
        """
        log = running.source.reader if running.source is not None else None
        if (resumes := running.reader_abilities.by_epoch) is not None:
            resumes.saved_by_epochs(self._records.beginning(running), partial(self._records.keep_beginning, running))
        if isinstance(log, LoggedReader):
            self._logs.append(log)
            log.written = lambda: self._sync_soon(log)

    def _sync_soon(self, log: LoggedReader) -> None:
        self._loop.call_later(SYNC_SECONDS, self._begin_sync, log)

    def _begin_sync(self, log: LoggedReader) -> None:
        with contextlib.suppress(RuntimeError):  # the process ends
            self._log_thread.submit(self._sync, log)

    def _sync(self, log: LoggedReader) -> None:
        try:
            receipt = log.sync()
        except OSError:  # the sender gets no receipt; the next try follows, and the next epoch names the disk
            self._call_soon(self._sync_soon, log)
        else:
            self._call_soon(log.synced, receipt)

    def sync_logs(self, report: Callable[[str], None]) -> None:
        """Fsync all logs of this process, then call `report` with an empty text or the reason of the failure."""

        def work() -> None:
            try:
                for log in self._logs:
                    log.sync()
            except OSError as error:
                self._call_soon(report, f"{self._folder} cannot be written: {(error.strerror or str(error)).lower()}")
            else:
                self._call_soon(report, "")

        self._log_thread.submit(work)

    def close(self) -> None:
        """Stop the thread; rows that were not fsynced are not confirmed to their sender."""
        self._log_thread.shutdown(wait=False, cancel_futures=True)
