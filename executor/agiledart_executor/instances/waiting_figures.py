"""Figures of one instance's waiting: for how long it has waited, and for what. Explanations are made of them elsewhere."""

from collections.abc import Sequence
from typing import Final

from agiledart_kernel.instants import MILLISECOND

MAX_TARGETS: Final = 8
"""Most blocked receivers that a report names."""


class WaitingFigures:
    """Durations of the states in which an instance waits, as seen by its reports.

    A state counts from the first report that saw it until a report does not see it. It reads no clock.
    """

    def __init__(self) -> None:
        self._blocked_since: int | None = None
        self._full_since: int | None = None
        self._silent_since: int | None = None
        self._progress: tuple[int, int | None] | None = None

    def look(
        self,
        now_ns: int,
        receivers: Sequence[tuple[int, int]],
        *,
        is_sink_full: bool,
        progress: tuple[int, int | None] | None,
    ) -> dict[str, object]:
        """Return the present figures for a report; durations in milliseconds, only of states that hold.

        Args:
            now_ns: monotonic.
            receivers: (stage, index) of the receivers that give no credit for rows that wait here.
            is_sink_full: the sink takes no rows.
            progress: lines that a source has read, and its event time; None for other instances, and for a source that does not
                read because it waits itself.
        """
        figures: dict[str, object] = {}
        self._blocked_since = _since(self._blocked_since, now_ns, holds=bool(receivers))
        self._full_since = _since(self._full_since, now_ns, holds=is_sink_full)
        is_silent = progress is not None and progress == self._progress
        self._silent_since = _since(self._silent_since, now_ns, holds=is_silent)
        self._progress = progress
        if self._blocked_since is not None:
            figures["blocked_ms"] = (now_ns - self._blocked_since) // MILLISECOND
            figures["blocked_by"] = [list(receiver) for receiver in receivers[:MAX_TARGETS]]
        if self._full_since is not None:
            figures["sink_full_ms"] = (now_ns - self._full_since) // MILLISECOND
        if self._silent_since is not None:
            figures["silent_ms"] = (now_ns - self._silent_since) // MILLISECOND
        return figures


def _since(since: int | None, now_ns: int, *, holds: bool) -> int | None:
    """Return since when a state holds: as before, from now on, or None."""
    if not holds:
        return None
    return now_ns if since is None else since
