"""Where user code is at this moment: its step, file, line and record, read from the frames of a running thread."""

import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any

from agiledart_dataflow.operators.loop_text import LoopLine
from agiledart_dataflow.user_code.user_errors import bounded_repr
from agiledart_executor.user_code.crash_report import StackFrame, parse_pending_place

MAX_DEPTH = 2_000
"""Frames that are looked at; user code may recurse."""

_CALLING_USER_CODE = (
    "/agiledart_dataflow/operators/",
    "/agiledart_dataflow/aggregation/",
    "/agiledart_dataflow/runtime/source_",
)
"""Files of the engine whose objects call functions of users for one step, which they name."""


@dataclass(frozen=True)
class CodeLocation:
    """What a thread does.

    Attributes:
        place: `taxi.py:42 in parse`; empty outside user code.
        step: the step's name, as far as the frames tell; empty when they do not.
        record: the record in hand, shortened; empty when there is none.
        mark: changes whenever the engine's own loop has gone on to another record; what a `flat_map` makes of one record,
            and what the steps behind it do with that, is work on this one.
    """

    place: str
    step: str
    record: str
    progress_key: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.place or 'outside user code'}{f', for record {self.record}' if self.record else ''}"


def locate_thread(thread: int) -> CodeLocation | None:
    """Of a thread of this process by its identity; None when it has ended."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001  the documented way, its name notwithstanding
    return None if frame is None else locate_frame(frame)


def locate_frame(frame: FrameType) -> CodeLocation:
    """Of a stack by its innermost frame."""
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
    """(step, record, mark) of a frame in which the engine calls user code; None for any other."""
    file = frame.f_code.co_filename
    if file.startswith("<stage "):
        names = dict(frame.f_locals)
        return _at_line(frame.f_globals, frame.f_lineno, names) or (
            file[7:-1],
            bounded_repr(names.get("x")),
            _progress_key(names),
        )
    if any(room in file for room in _CALLING_USER_CODE):
        names = dict(frame.f_locals)
        owner = names.get("self")
        name = getattr(owner, "name", None) or getattr(owner, "_name", None)
        if isinstance(name, str):
            row = names.get("row")
            return name, "" if row is None else bounded_repr(row), _progress_key(names)
    return None


def _at_line(told: dict[str, Any], number: int, names: dict[str, Any]) -> tuple[str, str, tuple[int, ...]] | None:
    """The same of a line of a generated loop with these variables, when its globals tell what the line is."""
    lines, steps = told.get("lines"), told.get("steps")
    if not (isinstance(lines, dict) and isinstance(steps, tuple) and isinstance(line := lines.get(number), LoopLine)):
        return None
    record = bounded_repr(names.get(line.record))
    if line.many is None:
        return steps[line.step], record, _progress_key(names)
    if line.record != line.origin:
        record += f" made by {steps[line.many]} of {bounded_repr(names.get(line.origin))}"
    return steps[line.step], record, tuple(names.get(name, 0) for name in line.progress)


def _progress_key(names: dict[str, Any]) -> tuple[int, ...]:
    """Identities of what the loop has in its variables: another record changes them."""
    return tuple(id(value) for value in names.values())
