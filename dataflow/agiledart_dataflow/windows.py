"""Windows in event time. Pure: which windows a time belongs to.

Source: spec of the dataflow, section 1. All lengths are whole milliseconds.
"""

from dataclasses import dataclass
from datetime import timedelta

from agiledart_kernel.errors import TopologyError
from agiledart_kernel.instants import milliseconds


@dataclass(frozen=True)
class Sliding:
    """At every time t the rows of (t − size, t]; a row entering and a row leaving are both changes."""

    size_ms: int

    def __str__(self) -> str:
        return f"sliding({self.size_ms} ms)"


@dataclass(frozen=True)
class Panes:
    """Windows [start, start + size) that begin every `every_ms`, counted from 1970; equal lengths: tumbling."""

    size_ms: int
    every_ms: int

    def __str__(self) -> str:
        return f"hopping({self.size_ms} ms, every {self.every_ms} ms)"

    def ends(self, time_ms: int) -> range:
        """The ends of all windows that hold a time, earliest first."""
        last_start = time_ms - time_ms % self.every_ms
        first_start = last_start - (self.size_ms - 1 - time_ms % self.every_ms) // self.every_ms * self.every_ms
        return range(first_start + self.size_ms, last_start + self.size_ms + 1, self.every_ms)


def _length(name: str, span: timedelta) -> int:
    length = milliseconds(span)
    if length <= 0 or timedelta(milliseconds=length) != span:
        raise TopologyError(f"{name} must be a whole number of milliseconds above zero, not {span}")
    return length


def sliding(size: timedelta) -> Sliding:
    """The last `size` before each event: (t − size, t]. Results change when a row enters or leaves."""
    return Sliding(_length("the size of a sliding window", size))


def hopping(size: timedelta, every: timedelta) -> Panes:
    """Windows of `size` that begin every `every`; results come when a window closes."""
    window = Panes(_length("the size of a hopping window", size), _length("the hop of a window", every))
    if window.every_ms > window.size_ms:
        raise TopologyError(f"windows of {size} that begin every {every} would lose rows between them")
    return window


def tumbling(size: timedelta) -> Panes:
    """Windows of `size`, one after the other; results come when a window closes."""
    length = _length("the size of a tumbling window", size)
    return Panes(length, length)
