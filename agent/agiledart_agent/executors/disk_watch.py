"""Watch over the disk: applications end when their owner has filled more of it than the quota permits."""

import asyncio
from typing import Final

from agiledart_agent.executors.executor_pool import ExecutorPool
from agiledart_agent.executors.quotas import Quotas

DISK_SECONDS: Final = 5.0
"""Time between two looks."""


async def watch_disk(quotas: Quotas, pool: ExecutorPool) -> None:
    """End executors of such applications, again and again."""
    while True:
        await asyncio.sleep(DISK_SECONDS)
        running = [executor.application for executor in pool.processes]
        reasons = await asyncio.to_thread(quotas.over_disk, running) if running else {}
        for executor in pool.processes:
            if not executor.ending and (reason := reasons.get(executor.application)):
                pool.end_for(executor, reason)
