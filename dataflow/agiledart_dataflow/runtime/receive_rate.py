"""Credit by time: the rows that may wait in a channel follow from the rate at which the receiver takes them.

Sixteen frames are little for a receiver that takes a frame in a millisecond, and minutes for one that needs ten milliseconds a
row. So a receiver reports with each acknowledgement how many rows a frame may have: the frames of the window then hold a quarter
of a second at its own rate. That much waits before a barrier, and once more in a merge, which takes out at once all rows that may
go.

The rate is measured by the clock while there is something to take: an idle receiver is not slow, one that waits for a slow output
is. Credit is also at most one second of the throughput seen lately. A receiver that takes ten rows a second with ease may have a
slower step downstream, and finds out by doubling: throughput grows with the credit, as long as the round trip is shorter than
that.
"""

from collections.abc import Sequence

from agiledart_kernel.instants import MILLISECOND, SECOND

WAIT_NS = SECOND // 4
"""Time at the receiver's rate for which rows may wait before it."""

SEEN_NS = SECOND
"""Time at the seen throughput for which rows may wait at most."""

LEAST_FRAMES = 2
"""One frame that is being taken, and the next one in flight."""

FIRST_ROWS = 1
"""Rows in a frame before the receiver's first report."""

UNSEEN_ROWS = 16
"""Rows that may wait, however low the throughput seen: rare rows come in bursts."""

MOST_FRAME_ROWS = (1 << 16) - 1
"""Greatest number that an acknowledgement can report: more than any frame has."""

LEARN_NS = 10 * MILLISECOND
"""Shorter measurements are too noisy for a rate."""

MOST_GROWTH = 2
"""Growth of the credit from one look to the next: a burst may only have filled the queues downstream."""

FORGET_NS = 10 * SECOND
"""Half-life of the seen throughput."""

ACTIVE_NS = SECOND // 2
"""Channels over which rows came within this time share the credit."""


class ReceiveRate:
    """Rate at which an instance takes rows, and the credit that follows from it.

    Attributes:
        rows, ns: rows taken since the last look, and the time for them; the taker adds to them.
        since_ns: time at which rows were last seen waiting that may be taken; 0: none wait.
    """

    __slots__ = ("_active", "_each_ns", "_looked_ns", "_per_ns", "_seen", "_seen_ns", "ns", "rows", "since_ns")

    def __init__(self) -> None:
        self.rows = self.ns = self.since_ns = 0
        self._each_ns = 0.0  # time for a row, the last one known
        self._per_ns = 0.0  # rows/ns seen to go through
        self._looked_ns = 0
        self._active, self._seen_ns = 1, 0
        self._seen: tuple[int, ...] = ()

    def record_taken(self, rows: int, began_ns: int, now_ns: int, *, more_waits: bool) -> None:
        """Record rows taken, or none because an output is full; the time counts since more rows waited."""
        self.rows += rows
        self.ns += now_ns - (self.since_ns or began_ns)
        self.since_ns = now_ns if more_waits else 0

    def look(self, now_ns: int) -> int:
        """Return the number of rows that may wait before the instance, over all channels."""
        passed = now_ns - self._looked_ns
        if self.rows and passed >= LEARN_NS:
            row_ns = self.ns / self.rows
            self._each_ns = (self._each_ns + row_ns) / 2 if self._each_ns else row_ns
            known = max(self._per_ns * 0.5 ** (passed / FORGET_NS), UNSEEN_ROWS / SEEN_NS)
            self._per_ns = max(known, min(self.rows / passed, MOST_GROWTH * known))
            self.rows = self.ns = 0
            self._looked_ns = now_ns
        if not self._each_ns:
            return UNSEEN_ROWS
        return int(min(WAIT_NS / self._each_ns, SEEN_NS * self._per_ns))

    def shared(self, now_ns: int, came: Sequence[int]) -> int:
        """Return the number of rows that may wait in one channel.

        Args:
            came: rows that have come, by channel.
        """
        if len(came) > 1 and now_ns - self._seen_ns >= ACTIVE_NS:
            changed = sum(map(int.__ne__, came, self._seen)) if len(came) == len(self._seen) else len(came)
            self._active, self._seen, self._seen_ns = max(1, changed), tuple(came), now_ns
        return self.look(now_ns) // (self._active if len(came) > 1 else 1)
