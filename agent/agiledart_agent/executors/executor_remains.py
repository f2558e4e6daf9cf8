"""Remains of executors that have ended: their process groups, processes that they detached, and children to reap."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable

from agiledart_agent.executors.descendants import children_of, end_all, identity_of, mark_of, reap
from agiledart_agent.executors.executor_watch import ExecutorWatch


class ExecutorRemains:
    """Clears up behind processes.

    Args:
        known: returns the processes that have not ended.
    """

    def __init__(self, known: Callable[[], Iterable[int]]) -> None:
        self._known = known
        self._to_reap: list[int] = []

    def reap(self) -> None:
        """Reap ended processes."""
        self._to_reap = reap(self._to_reap)

    def clear_up(self, pid: int, watch: ExecutorWatch) -> None:
        """End what a process that has ended left behind."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        self._to_reap += [pid, *end_all(watch.descendants)]  # its nursery may have died before it
        # The parents of orphans have ended, so they are this agent's children.
        orphans = [identity_of(child) for child in children_of(os.getpid()) if mark_of(child) == watch.mark]
        known = set(self._known())
        self._to_reap += end_all(orphan for orphan in orphans if orphan is not None and orphan.pid not in known)
        self.reap()
