"""Trimming of logs that have no writer; a writer keeps the bounds of its own log."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Final

from agiledart_kernel.errors import OperationFailed
from agiledart_sink_log.layout import logs_in
from agiledart_sink_log.retention import trim_idle

TRIM_SECONDS: Final = 60.0
"""Time between two checks for logs without a writer that exceed their bounds."""


async def trim_forever(root: Path, threads: Executor, warn: Callable[[str], None]) -> None:
    """Keep the bounds of logs without a writer; warn once of a log for as long as it cannot be trimmed.

    Args:
        root: the state directory, above `sink-logs`.
        threads: do the work on files.
        warn: takes a sentence about a log.
    """
    warned: set[str] = set()
    while True:
        failures = await asyncio.get_running_loop().run_in_executor(threads, trim_all, root, time.time_ns())
        for text in failures:
            if text not in warned:
                warn(text)
        warned = set(failures)
        await asyncio.sleep(TRIM_SECONDS)


def trim_all(root: Path, now_ns: int) -> list[str]:
    """Trim every log without a writer below a state directory. Return a sentence for each that could not be trimmed."""
    failures = []
    for directory, log in logs_in(root):
        try:
            trim_idle(directory, now_ns // 1_000_000)
        except (OSError, OperationFailed) as error:
            failures.append(f"the log {log.name} cannot be trimmed: {error}")
    return failures
