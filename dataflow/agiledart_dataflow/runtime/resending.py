"""Channels that survive their link: frames that the sender keeps to send again, and frames that the receiver keeps until their
turn.

A channel's frames are numbered from 0, watermarks and barriers like rows. The sending end keeps each frame until the receiving
end has acknowledged it, and gives all kept frames to the next link when a link is lost. So the receiving end may get a frame
twice, and over two links also before its turn. It drops and counts duplicates, and keeps early frames within a window. Both ends
are bounded in frames and bytes. No I/O; a link is any object that takes frames.
"""

from collections import deque

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.limits import KEPT_BYTES, MAX_DATA_FRAME_BYTES, REORDER_FRAMES

_SPACE_BYTES = KEPT_BYTES - MAX_DATA_FRAME_BYTES
"""Above this no further batch is taken: the next frame, however large, still stays within `KEPT_BYTES`."""

Numbered = tuple[int, bytes]
"""Number of a frame on its channel, the body of its DATA frame."""


class Unacknowledged:
    """Sending end: frames that were made and are not acknowledged.

    Rows and barriers are acknowledged when the operator has taken them, watermarks on receipt, so both are kept apart: a received
    watermark must not be kept for as long as earlier rows wait for the operator.

    Attributes:
        line: frames that the present link has not been given, in order; read only.
        has_space: another batch may be made.
        resent: frames that were given to more than one link.
    """

    __slots__ = (
        "_bytes",
        "_frames",
        "_frames_gone",
        "_line_bytes",
        "_next",
        "_released_watermarks",
        "_seen",
        "_watermarks",
        "has_space",
        "line",
        "resent",
    )

    def __init__(self) -> None:
        self._frames: deque[Numbered] = deque()
        self._watermarks: deque[Numbered] = deque()
        self._frames_gone = self._released_watermarks = 0  # acknowledged
        self.line: deque[Numbered] = deque()
        self._bytes = self._line_bytes = self._next = self._seen = self.resent = 0
        self.has_space = True

    @property
    def kept_bytes(self) -> int:
        """Return the bytes of all kept frames."""
        return self._bytes

    def sends(self, number: int, body: bytes) -> None:
        """Keep a frame with rows that is given to the link now; no frame may be queued."""
        self._frames.append((number, body))
        self._next = number + 1
        self._bytes = total_bytes = self._bytes + len(body)
        if total_bytes > _SPACE_BYTES:
            self.has_space = False

    def line_up(self, number: int, body: bytes, *, is_watermark: bool = False) -> None:
        """Keep a frame that the link gets later, by `take`."""
        self.line.append((number, body))
        self._line_bytes += len(body)
        (self._watermarks if is_watermark else self._frames).append((number, body))
        self._bytes += len(body)
        if self._bytes > _SPACE_BYTES:
            self.has_space = False

    def take(self) -> bytes | None:
        """Return the next frame for the link; None when there is none, or when the receiving end could not keep it before its
        turn.
        """
        if not self.line:
            return None
        number, body = self.line[0]
        given = self._bytes - self._line_bytes
        if number >= self._seen + REORDER_FRAMES or (given and given + len(body) > KEPT_BYTES):
            return None
        self.line.popleft()
        self._line_bytes -= len(body)
        if number < self._next:
            self.resent += 1
        else:
            self._next = number + 1
        return body

    def begin_again(self) -> None:
        """Give every kept frame to a new link, in order."""
        again = [*self._frames, *self._watermarks]
        again.sort(key=_number)
        self.line = deque(again)
        self._line_bytes = self._bytes

    def acknowledge(self, frames: int, watermarks: int) -> None:
        """Release frames that are acknowledged: frames with rows and barriers, and watermarks, counted from the first.

        Raises:
            RemoteProtocolError: one of them was never given to a link.
        """
        before = self._bytes
        while self._frames_gone < frames and self._frames:
            self._release(self._frames)
            self._frames_gone += 1
        while self._released_watermarks < watermarks and self._watermarks:
            self._release(self._watermarks)
            self._released_watermarks += 1
        if self._bytes != before:
            self.has_space = self._bytes <= _SPACE_BYTES
            if self.line:
                unacknowledged = dict((*self._frames, *self._watermarks))
                self.line = deque(numbered for numbered in self.line if numbered[0] in unacknowledged)
                self._line_bytes = sum(len(body) for _, body in self.line)

    def _release(self, frames: deque[Numbered]) -> None:
        number, body = frames[0]
        if number >= self._next:
            raise RemoteProtocolError("acknowledgement", f"frame {number} is acknowledged and was never sent")
        frames.popleft()
        self._bytes -= len(body)
        self._seen = max(self._seen, number + 1)


def _number(numbered: Numbered) -> int:
    return numbered[0]


class EarlyFrames:
    """Receiving end: frames that came before their turn, until it comes.

    Attributes:
        frames: by number.
        duplicate_frames: number of frames that had come before.
    """

    __slots__ = ("_bytes", "duplicate_frames", "frames")

    def __init__(self) -> None:
        self.frames: dict[int, bytes] = {}
        self._bytes = self.duplicate_frames = 0

    def take_early(self, number: int, expected: int, body: bytes) -> bool:
        """Take a frame out of sequence; return True for a duplicate, which is dropped.

        Raises:
            RemoteProtocolError: it is beyond the window (reason `window`).
        """
        if number < expected or number in self.frames:
            self.duplicate_frames += 1
            return True
        if number >= expected + REORDER_FRAMES or self._bytes + len(body) > KEPT_BYTES:
            raise RemoteProtocolError("window", f"frame {number} came where {expected} was expected")
        self.frames[number] = body
        self._bytes += len(body)
        return False

    def forget(self, number: int) -> None:
        """Drop a frame that was taken."""
        self._bytes -= len(self.frames.pop(number))
