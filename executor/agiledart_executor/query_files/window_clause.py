"""Windows in FROM: `TUMBLE(readings, at, INTERVAL '1' MINUTE)`, `HOP(readings, at, every, size)`, `SESSION(readings, at, gap)`."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from agiledart_executor.query_files import python_code as py
from agiledart_executor.query_files.text_place import TextPlace

WINDOWS: Final = {"TUMBLE": 1, "HOP": 2, "SESSION": 1}
"""Window → lengths of time that it takes."""

WINDOW_COLUMNS: Final = ("window_start", "window_end")
"""Columns that a window adds, in milliseconds since 1970."""


@dataclass(frozen=True)
class WindowClause:
    """Window of a query.

    Attributes:
        kind: TUMBLE, HOP or SESSION.
        spans: lengths in the order of the text; of HOP: every, size.
    """

    kind: str
    spans: Sequence[timedelta]

    @property
    def length(self) -> timedelta:
        """Return the length of TUMBLE or HOP."""
        return self.spans[-1]

    def code(self, place: TextPlace) -> ast.expr:
        """Return the window as code of the stream language."""
        if any(span <= timedelta(0) for span in self.spans):
            place.refuse(f"the lengths of {self.kind} are above zero")
        if any(span % timedelta(milliseconds=1) for span in self.spans):
            place.refuse(f"the lengths of {self.kind} are whole milliseconds")
        if self.kind == "HOP":
            every, size = self.spans
            if every > size:
                place.refuse("HOP(stream, at, every, size): every is at most size, or rows would be in no window")
            return py.call(py.name("hopping"), py.value(size), py.value(every))
        function = "tumbling" if self.kind == "TUMBLE" else "session"
        return py.call(py.name(function), py.value(self.spans[0]))
