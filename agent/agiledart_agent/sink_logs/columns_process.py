"""Supervisor of the process that rewrites full segments as columns, and makes rows of columns for readers that do not know them.

The agent starts the process when there is work and pyarrow is installed. The process ends by itself when it is idle. It gets no key
and no socket but its own; whatever users' bytes do to it ends it alone, and the next request starts another.
"""

import asyncio
import contextlib
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from agiledart_kernel.errors import OperationFailed
from agiledart_sink_log.column_form import has_pyarrow
from agiledart_sink_log.columns_messages import (
    ANSWERS,
    LENGTH_BYTES,
    ColumnsAnswer,
    ColumnsRequest,
    RewriteSegments,
    Rewritten,
    RowsMade,
    RowsWanted,
    length_of,
    message,
)
from agiledart_sink_log.segment_rewriter import FullSegment, full_segments

LOOK_SECONDS: Final = 5.0
"""Time between two searches for full segments."""

ANSWER_SECONDS: Final = 120.0
FAILURE_PAUSE_SECONDS: Final = 60.0
PROGRAM: Final = "agiledart_sink_log.columns_program"
_ENVIRONMENT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH")
_SMALL: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1"}


class ColumnsProcess:
    """The process of one agent; it serves one request at a time.

    Args:
        root: the state directory.
        warn: takes a sentence about work that failed.
        program: module that the process runs.

    Attributes:
        rewritten: segments that were rewritten.
    """

    def __init__(self, root: Path, warn: Callable[[str], None], program: str = PROGRAM) -> None:
        self._root, self._warn, self._program = root, warn, program
        self._process: asyncio.subprocess.Process | None = None
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()
        self._left: set[tuple[str, int, int]] = set()
        self.rewritten = 0

    async def rewrite_forever(self) -> None:
        """Rewrite full segments as they appear. Returns when pyarrow is not installed."""
        if not has_pyarrow():
            return
        pause = LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = LOOK_SECONDS
            try:
                while await asyncio.to_thread(self._has_work):
                    await self._rewrite_some()
            except OperationFailed as error:
                self._warn(f"full segments of logs are not rewritten as columns: {error}")
                pause = FAILURE_PAUSE_SECONDS

    def _has_work(self) -> bool:
        there = {_key(full) for full in full_segments(self._root)}
        self._left &= there
        return bool(there - self._left)

    async def _rewrite_some(self) -> None:
        answer = await self._ask(RewriteSegments(str(self._root), left=tuple(sorted(self._left))))
        if not isinstance(answer, Rewritten):
            raise OperationFailed("their process gave another answer")
        self.rewritten += answer.segments
        self._left.update(answer.left)
        if answer.failure:
            raise OperationFailed(answer.failure)

    async def rows_of(self, log: str, rows: int, columns: Sequence[bytes]) -> bytes:
        """Return the MessagePack array of the rows of a batch by columns. Raises OperationFailed."""
        if not has_pyarrow():
            raise OperationFailed(
                f"The log {log} is stored by columns, which this reader does not know. Read it with a newer AgileDART, or "
                f"install pyarrow on its node: pip install 'agiledart[columns]'."
            )
        answer = await self._ask(RowsWanted(str(self._root), log, rows, tuple(columns)))
        if not isinstance(answer, RowsMade) or answer.fault:
            raise OperationFailed(
                f"Columns of the log {log} cannot be read: {answer.fault if isinstance(answer, RowsMade) else 'no rows came'}"
            )
        return answer.body

    async def close(self) -> None:
        """End the process."""
        await self._end()

    async def _ask(self, request: ColumnsRequest) -> ColumnsAnswer:
        """Return the answer of the process. Raises OperationFailed when it does not start, dies or takes too long."""
        async with self._turn:
            for is_last in (False, True):
                try:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        return await self._ask_once(request)
                except (OSError, EOFError, TimeoutError, ValueError, msgspec.MsgspecError) as error:
                    await self._end()  # it may just have ended because it was idle
                    if is_last or isinstance(error, TimeoutError):
                        raise OperationFailed(f"their process failed: {error or type(error).__name__}") from None
        raise AssertionError

    async def _ask_once(self, request: ColumnsRequest) -> ColumnsAnswer:
        reader, writer = self._stream or await self._start()
        writer.write(message(request))
        await writer.drain()
        head = await reader.readexactly(LENGTH_BYTES)
        try:
            answer: ColumnsAnswer = ANSWERS.decode(await reader.readexactly(length_of(head)))
            return answer
        except struct.error as error:
            raise ValueError(str(error)) from None

    async def _start(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", self._program, str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),), start_new_session=True,
                env={**_SMALL, **{key: os.environ[key] for key in _ENVIRONMENT if key in os.environ}},
            )  # fmt: skip
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._stream = await asyncio.open_connection(sock=ours)
        return self._stream

    async def _end(self) -> None:
        stream, self._stream = self._stream, None
        process, self._process = self._process, None
        if stream is not None:
            stream[1].close()
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def _key(full: FullSegment) -> tuple[str, int, int]:
    return full.log.name, full.partition, full.base
