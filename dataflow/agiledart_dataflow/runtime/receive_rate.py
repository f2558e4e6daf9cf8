"""Credit by time: how much a channel may let wait follows from how fast the receiver takes it.

Sixteen frames are little for who takes a frame in a millisecond, and minutes for who needs ten milliseconds a row. So a
receiver tells with each acknowledgement how many rows a frame may have: the frames of the window are then a quarter of a second
of its own pace. That is what a barrier has before it, and once more in a merge, which takes out at once all that may go.

The pace is that of the clock while there is something to take: what is idle is not slow, what waits for a slow output is.
And nobody is let more than a second of what has lately been seen to go through: who takes ten rows a second with ease may
have somebody behind that can take no more, and finds out by doubling: what goes through grows with what is let, as long as the way
there and back is shorter than that.
"""

from collections.abc import Sequence

from agiledart_kernel.instants import MILLISECOND, SECOND

WAIT_NS = SECOND // 4
"""So much of a receiver's pace may wait before it."""

SEEN_NS = SECOND
"""So much of what was seen to go through may wait at most."""

LEAST_FRAMES = 2
"""One that is taken, and the next one on its way."""

FIRST_ROWS = 1
"""In a frame, before the receiver has told."""

UNSEEN_ROWS = 16
"""So many may wait, however few were seen to go through: what comes seldom comes in handfuls."""

MOST_FRAME_ROWS = (1 << 16) - 1
"""The most that an acknowledgement can tell: more than any frame has."""

LEARN_NS = 10 * MILLISECOND
"""What is less time says little of a pace."""

MOST_GROWTH = 2
"""From one look to the next: what has gone through at once may have filled what is behind, and not more."""

FORGET_NS = 10 * SECOND
"""In so much time what has been seen to go through counts for half."""

ACTIVE_NS = SECOND // 2
"""Channels over which rows came within it share what may wait."""


class ReceiveRate:
    """What an instance takes, and so how much may wait before it.

    Attributes:
        rows, ns: taken since the last look, and the time that it took; whoever takes adds to them.
        since_ns: when it was seen last that something waits which may be taken; 0: nothing does.
    """

    __slots__ = ("_active", "_each_ns", "_looked_ns", "_per_ns", "_seen", "_seen_ns", "ns", "rows", "since_ns")

    def __init__(self) -> None:
        self.rows = self.ns = self.since_ns = 0
        self._each_ns = 0.0  # for a row, while there was one
        self._per_ns = 0.0  # rows that were seen to go through
        self._looked_ns = 0
        self._active, self._seen_ns = 1, 0
        self._seen: tuple[int, ...] = ()

    def record_taken(self, rows: int, began_ns: int, now_ns: int, *, more_waits: bool) -> None:
        """It has taken so many rows, or none because an output has no room; the time counts since more waits."""
        self.rows += rows
        self.ns += now_ns - (self.since_ns or began_ns)
        self.since_ns = now_ns if more_waits else 0

    def look(self, now_ns: int) -> int:
        """How many rows may wait before it, over all channels."""
        passed = now_ns - self._looked_ns
        if self.rows and passed >= LEARN_NS:
            each = self.ns / self.rows
            self._each_ns = (self._each_ns + each) / 2 if self._each_ns else each
            known = max(self._per_ns * 0.5 ** (passed / FORGET_NS), UNSEEN_ROWS / SEEN_NS)
            self._per_ns = max(known, min(self.rows / passed, MOST_GROWTH * known))
            self.rows = self.ns = 0
            self._looked_ns = now_ns
        if not self._each_ns:
            return UNSEEN_ROWS
        return int(min(WAIT_NS / self._each_ns, SEEN_NS * self._per_ns))

    def shared(self, now_ns: int, came: Sequence[int]) -> int:
        """How many of them over one channel.

        Args:
            came: rows that have come, by channel.
        """
        if len(came) > 1 and now_ns - self._seen_ns >= ACTIVE_NS:
            changed = sum(map(int.__ne__, came, self._seen)) if len(came) == len(self._seen) else len(came)
            self._active, self._seen, self._seen_ns = max(1, changed), tuple(came), now_ns
        return self.look(now_ns) // (self._active if len(came) > 1 else 1)
