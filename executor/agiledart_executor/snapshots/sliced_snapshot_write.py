"""`SlicedSnapshotWrite`: an element on its way to the disk while the state that it holds is still being encoded, slice by slice."""

import time
from collections.abc import Callable
from typing import Final

from agiledart_dataflow.state.async_instance_snapshot import AsyncInstanceSnapshot
from agiledart_executor.snapshots.snapshot_file import SnapshotWriter

AT_ONCE_NS: Final = 500_000
"""What is encoded within that is encoded at the barrier: most states are small."""

AHEAD_BYTES: Final = 16 << 20
"""What may be encoded and not written: else a slow disk would have the memory hold the state twice."""


def encode_within_limit(snapshot: AsyncInstanceSnapshot) -> bytes | list[bytes]:
    """All of an element when it is small, else what was encoded of it in a short time. Raises as `AsyncInstanceSnapshot.step`."""
    until = time.monotonic_ns() + AT_ONCE_NS
    while snapshot.step():
        if time.monotonic_ns() > until:
            return snapshot.taken()
    return b"".join(snapshot.taken())


class SlicedSnapshotWrite:
    """One element.

    Args:
        element: of which more is to be encoded, and what was so far.
        writer: its file.
        submit: has the thread of elements do something.
        work: runs steps of the element, as an instance runs: (step, until when) → more is left. What it raises ends the instance.
        written: told (in that thread) of digest and size, of how long rows waited for slices in all, and for the longest.
        failed: told (in that thread) why the disk does not take it.
        over: told (on the loop) that nothing more is encoded, whatever became of it.
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
        self._has_failed = False  # told by the thread
        self._is_over = self.waits = False
        self._given = self._taken = 0  # bytes; the second one is the thread's
        self._waited_ns = self._longest_ns = 0
        self._known = (
            snapshot.keys[0],
            AT_ONCE_NS,
        )  # so many keys took so long; at first what was encoded at the barrier
        self._do(writer.begin)
        self._add(pieces)

    @property
    def left_ns(self) -> int:
        """As `SlicedWork`."""
        keys, took_ns = self._known
        return 0 if self._is_over or not keys else self._snapshot.keys[1] * took_ns // keys

    def slice(self, until_ns: int) -> bool:
        """As `SlicedWork`."""
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
        """Nobody wants it any more."""
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
