"""Location of running user code: its step, file, line and record, read from the stack frames of a thread."""

import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any

from agiledart_dataflow.operators.loop_text import LoopLine
from agiledart_dataflow.user_code.user_errors import bounded_repr
from agiledart_executor.user_code.crash_report import StackFrame, parse_pending_place

MAX_DEPTH = 2_000
"""Most frames that are read, because user code may recurse."""

_CALLING_USER_CODE = (
    "/agiledart_dataflow/operators/",
    "/agiledart_dataflow/aggregation/",
    "/agiledart_dataflow/runtime/source_",
)
"""Files of the engine whose objects call user functions for one step and hold its name."""


@dataclass(frozen=True)
class CodeLocation:
    """Location of a thread in user code.

    Attributes:
        place: `taxi.py:42 in parse`; empty outside user code.
        step: name of the step; empty when the frames do not show it.
        record: the present record, shortened; empty when there is none.
        progress_key: changes whenever the engine's own loop goes on to another record. Rows that a `flat_map` makes of one
            record, and the work of later steps on them, belong to that record.
    """

    place: str
    step: str
    record: str
    progress_key: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.place or 'outside user code'}{f', for record {self.record}' if self.record else ''}"


def locate_thread(thread: int) -> CodeLocation | None:
    """Locate a thread of this process by its identity; None when it has ended."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001  the documented function, despite its name
    return None if frame is None else locate_frame(frame)


def locate_frame(frame: FrameType) -> CodeLocation:
    """Locate a stack by its innermost frame."""
    frames: list[StackFrame] = []
    step, record = "", ""
    progress_key: tuple[int, ...] = ()
    at: FrameType | None = frame
    while at is not None and len(frames) < MAX_DEPTH:
        code = at.f_code
        frames.append(StackFrame(code.co_filename, at.f_lineno, code.co_name))
        if not step and (engine := _engine_frame(at)) is not None:
            step, record, progress_key = engine
        at = at.f_back
    return CodeLocation(parse_pending_place(frames), step, record, progress_key)


def _engine_frame(frame: FrameType) -> tuple[str, str, tuple[int, ...]] | None:
    """Return (step, record, progress key) of a frame in which the engine calls user code; None for other frames."""
    file = frame.f_code.co_filename
    if file.startswith("<stage "):
        names = dict(frame.f_locals)
        return _at_line(frame.f_globals, frame.f_lineno, names) or (
            file[7:-1],
            bounded_repr(names.get("x")),
            _progress_key(names),
        )
    if any(part in file for part in _CALLING_USER_CODE):
        names = dict(frame.f_locals)
        owner = names.get("self")
        name = getattr(owner, "name", None) or getattr(owner, "_name", None)
        if isinstance(name, str):
            row = names.get("row")
            return name, "" if row is None else bounded_repr(row), _progress_key(names)
    return None


def _at_line(
    loop_globals: dict[str, Any], number: int, names: dict[str, Any]
) -> tuple[str, str, tuple[int, ...]] | None:
    """Return the same for a line of a generated loop with these variables, when its globals describe the line."""
    lines, steps = loop_globals.get("lines"), loop_globals.get("steps")
    if not (isinstance(lines, dict) and isinstance(steps, tuple) and isinstance(line := lines.get(number), LoopLine)):
        return None
    record = bounded_repr(names.get(line.record))
    if line.many is None:
        return steps[line.step], record, _progress_key(names)
    if line.record != line.origin:
        record += f" made by {steps[line.many]} of {bounded_repr(names.get(line.origin))}"
    return steps[line.step], record, tuple(names.get(name, 0) for name in line.progress)


def _progress_key(names: dict[str, Any]) -> tuple[int, ...]:
    """Return the identities of the loop's variables, which change with the record."""
    return tuple(id(value) for value in names.values())
