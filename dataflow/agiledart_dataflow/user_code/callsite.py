"""Where in the user's file a step was written, and what the user's builder function says about its parameters."""

import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any, get_args, get_type_hints

from agiledart_dataflow.plan.connectors import Source
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
        """The error that says what is wrong at this line."""
        return TopologyError(f"{self}  {message}")


def _user_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  the documented way to a caller's line
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _OURS:
            return frame
        frame = frame.f_back
    return None


def call_site() -> CallSite:
    """The innermost line outside AgileDart."""
    frame = _user_frame()
    return CallSite("<unknown>", 0) if frame is None else CallSite(frame.f_code.co_filename, frame.f_lineno)


def annotated_row_type(connector: object) -> Any:
    """T when the calling builder function has a parameter `x: Source[T]` and x is this very connector; else None.

    So `def build(trips: Source[Trip] = csv("trips.csv"))` needs to name `Trip` only once.
    """
    frame = _user_frame()
    if frame is None:
        return None
    function = frame.f_globals.get(frame.f_code.co_name)
    if getattr(function, "__code__", None) is not frame.f_code:
        return None
    names = [name for name, value in frame.f_locals.items() if value is connector]
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        return None
    for name in names:
        hint = hints.get(name)
        if getattr(hint, "__origin__", None) is Source:
            return get_args(hint)[0]
    return None
