"""Location of a step in the user's source file."""

import sys
from dataclasses import dataclass
from types import FrameType

from agiledart_kernel.errors import TopologyError

_OURS = ("agiledart_dataflow", "agiledart_kernel", "agiledart")


@dataclass(frozen=True)
class CallSite:
    """File and line of the user's call."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}"

    def error(self, message: str) -> TopologyError:
        """Return an error whose message names this line."""
        return TopologyError(f"{self}  {message}")


def user_frame() -> FrameType | None:
    """Return the innermost frame outside AgileDart."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  the documented way to a caller's line
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _OURS:
            return frame
        frame = frame.f_back
    return None


def call_site() -> CallSite:
    """Return the innermost line outside AgileDart."""
    frame = user_frame()
    return CallSite("<unknown>", 0) if frame is None else CallSite(frame.f_code.co_filename, frame.f_lineno)
