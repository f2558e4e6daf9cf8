"""Rest of sources: time between two reads in which rows gather, while receivers do not take them one by one.

A frame with one row costs nearly as much as one with ten, and a lone row goes at once. Where a receiver reads frames of one
channel together, its executor was busy when the later ones came: rows come faster than it takes them one by one. It then asks
the sources to rest, with its acknowledgements. An executor passes the request on to its own senders. Rows are late by one rest
at most, however many steps they pass, because no channel holds any back. A request ends by itself. Then the sources send single
rows again; where that is still too much, the next request lasts twice as long.
"""

from typing import Final

from agiledart_kernel.instants import MILLISECOND, SECOND

REST_NS: Final = 5 * MILLISECOND
"""Longest time for which a row waits at its source for others."""

LOOK_FRAMES: Final = 64
"""Frames after which their share of unread ones is looked at."""

DENSE_NS: Final = LOOK_FRAMES * REST_NS // 2
"""Frames that take longer to come are too rare: a rest would not gather them."""

FEW_ROWS: Final = 16
"""Frames with more rows are not counted as unread: rows have gathered already."""

UNREAD_SHARE: Final = 4
"""One in so many frames came before the one ahead of it was read: then the receiver is behind."""

FIRST_NS: Final = SECOND
"""Duration of the first request, and the shortest."""

LONGEST_NS: Final = 60 * SECOND

UNIT_NS: Final = SECOND // 4
"""Unit of the time left, as acknowledgements carry it.

Less than what is left is passed on: a request ends that two executors pass to each other, while a frame needs less than a unit.
"""

MOST_UNITS: Final = 255


class SourceRest:
    """Rest that the sources of one executor take, and that this executor asks of others.

    Attributes:
        reads: number of reads of sockets so far; frames that came in the same one were there together.
        frames, unread: frames with rows since the last look, and those that came together with the one before on their channel.
    """

    __slots__ = ("_asked_until_ns", "_duration_ns", "_looked_ns", "_until_ns", "frames", "reads", "unread")

    def __init__(self) -> None:
        self.reads = self.frames = self.unread = 0
        self._looked_ns = self._asked_until_ns = self._until_ns = 0
        self._duration_ns: int = FIRST_NS

    def look(self, now_ns: int) -> None:
        """Ask for a rest when many of the last frames were unread; do nothing before enough have come."""
        if self.frames < LOOK_FRAMES:
            return
        is_behind = self.unread * UNREAD_SHARE >= self.frames
        began, self._looked_ns = self._looked_ns, now_ns
        self.frames = self.unread = 0
        if began < self._asked_until_ns:
            return  # frames of sources that rest do not tell how single rows would be taken
        if is_behind and now_ns - began > DENSE_NS:
            return
        if is_behind:
            self._asked_until_ns = now_ns + self._duration_ns
            self._until_ns = max(self._until_ns, self._asked_until_ns)
            self._duration_ns = min(2 * self._duration_ns, LONGEST_NS)
        else:
            self._duration_ns = max(FIRST_NS, self._duration_ns // 2)

    def units_left(self, now_ns: int) -> int:
        """Return for how long its senders are to let their sources rest, in units of `UNIT_NS`."""
        return min(MOST_UNITS, max(0, self._until_ns - now_ns - 1) // UNIT_NS)

    def receive_request(self, units: int, now_ns: int) -> None:
        """Let the sources rest for so many units of `UNIT_NS`, because a receiver asks for it."""
        self._until_ns = max(self._until_ns, now_ns + units * UNIT_NS)

    def next_read(self, now_ns: int, rows: int, before_ns: int) -> int:
        """Return the instant before which a source that has read rows now should not read again; 0: at once.

        Args:
            rows: that it has read; a single one that is rare comes alone again, and does not wait.
            before_ns: when it read rows before.
        """
        is_dense = rows > 1 or now_ns - before_ns <= REST_NS // 2
        return now_ns + REST_NS if is_dense and now_ns < self._until_ns else 0
