"""Writing of a snapshot to the disk while its state is still being encoded, slice by slice."""

import time
from collections.abc import Callable
from typing import Final

from agiledart_dataflow.state.async_instance_snapshot import AsyncInstanceSnapshot
from agiledart_executor.snapshots.snapshot_file import SnapshotWriter

AT_ONCE_NS: Final = 500_000
"""Time for encoding at the barrier itself; most states are small enough for that."""

AHEAD_BYTES: Final = 16 << 20
"""Most bytes that may be encoded but not written, so that a slow disk does not double the state in memory."""


def encode_within_limit(snapshot: AsyncInstanceSnapshot) -> bytes | list[bytes]:
    """Encode a snapshot for a short time.

    Returns:
        All of it as bytes when it is small, else the list of pieces that were encoded.

    Raises as `AsyncInstanceSnapshot.step`.
    """
    until = time.monotonic_ns() + AT_ONCE_NS
    while snapshot.step():
        if time.monotonic_ns() > until:
            return snapshot.taken()
    return b"".join(snapshot.taken())


class SlicedSnapshotWrite:
    """Write of one snapshot; implements `SlicedWork`.

    Args:
        snapshot: of which more must be encoded.
        pieces: encoded so far.
        writer: of its file.
        submit: runs a function in the snapshot thread.
        work: runs encoding steps like work of the instance, (step, until when) → more is left. An error fails the instance.
        written: called in that thread with digest, size, and the total and longest time (ns) that rows waited for slices.
        failed: called in that thread with the error of the disk.
        over: called on the loop when nothing more is encoded, after success or failure.
    """

    def __init__(
        self,
        snapshot: AsyncInstanceSnapshot,
        pieces: list[bytes],
        writer: SnapshotWriter,
        submit: Callable[[Callable[[], None]], None],
        work: Callable[[Callable[[], bool], int], bool],
        written: Callable[[bytes, int, int, int], None],
        failed: Callable[[OSError], None],
        over: Callable[[], None],
    ) -> None:
        self._snapshot, self._writer, self._submit, self._work = snapshot, writer, submit, work
        self._written, self._failed, self._over = written, failed, over
        self._has_failed = False  # set by the thread
        self._is_over = self.waits = False
        self._given = self._taken = 0  # bytes; the second one is the thread's
        self._waited_ns = self._longest_ns = 0
        self._known = (
            snapshot.keys[0],
            AT_ONCE_NS,
        )  # (keys, nanoseconds they took), for the estimate; at first those encoded at the barrier
        self._do(writer.begin)
        self._add(pieces)

    @property
    def left_ns(self) -> int:
        """Estimate of the remaining time; see `SlicedWork`."""
        keys, took_ns = self._known
        return 0 if self._is_over or not keys else self._snapshot.keys[1] * took_ns // keys

    def slice(self, until_ns: int) -> bool:
        """Encode until an instant; see `SlicedWork`."""
        if self._is_over:
            return False
        self.waits = self._given - self._taken > AHEAD_BYTES and not self._has_failed
        if self.waits:
            return True
        began = time.monotonic_ns()
        snapshot, before = self._snapshot, self._snapshot.keys[0]
        more = not self._has_failed and self._work(snapshot.step, until_ns)
        took = time.monotonic_ns() - began
        self._waited_ns, self._longest_ns = self._waited_ns + took, max(self._longest_ns, took)
        if done := snapshot.keys[0] - before:
            self._known = self._known[0] + done, self._known[1] + took
        if snapshot.is_dropped or self._has_failed or not (more or snapshot.is_over):
            self.drop()
            return False
        if pieces := snapshot.taken():
            self._add(pieces)
        if not more:
            self._is_over = True
            self._do(self._end)
            self._over()
        return more

    def drop(self) -> None:
        """Drop the snapshot and its file."""
        if not self._is_over:
            self._is_over = True
            self._snapshot.drop()
            self._do(self._writer.drop)
            self._over()

    def _add(self, pieces: list[bytes]) -> None:
        size = sum(map(len, pieces))
        self._given += size

        def work() -> None:
            self._writer.add(pieces)
            self._taken += size

        self._do(work)

    def _end(self) -> None:
        self._writer.end_block()
        self._written(*self._writer.end(), self._waited_ns, self._longest_ns)

    def _do(self, call: Callable[[], object]) -> None:
        def work() -> None:
            if self._has_failed:
                return
            try:
                call()
            except OSError as error:
                self._has_failed = True
                self._failed(error)

        self._submit(work)
