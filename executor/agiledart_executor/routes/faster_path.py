"""Trial of a faster path: a promise of the agent's neighbours opens a circuit, and measurements alone move the rows. No I/O.

    promise < 0.85 of the cost in use, twice ── opens a circuit ──> tried ── measured < 0.85 for a second ──> rows move
    tried ── not cheaper after 4 s ──> the circuit is closed, and no other trial begins for 30 s, then 60 s, up to 5 minutes

Source: the shuffle spec, section 12; [AgileDART] §V for the costs that are compared.
"""

from typing import Final

from agiledart_kernel.instants import SECOND

STAY: Final = 0.85
"""Share of the present cost below which another circuit's cost must be (hysteresis)."""

STAY_SOON: Final = 0.65
"""The same within half a minute of the last move."""

REQUEST_NS: Final = SECOND
"""Time between two requests for the promise of the agent's neighbours while frames go out."""

TRIAL_NS: Final = 4 * SECOND
PAUSE_NS: Final = 30 * SECOND
LONG_PAUSE_NS: Final = 300 * SECOND
HOLD_NS: Final = 60 * SECOND
"""Time after a return to the direct circuit in which rows stay with it while it answers within `HELD_LATE_NS`, and no trial begins.

So rows move at most twice a minute over a link that is slow and fast by turns."""

HELD_LATE_NS: Final = SECOND // 2
"""Delay of an answer from which a held circuit is no longer only slow: it may be dead, or thin with a second of rows before it."""


class FasterPathTrial:
    """Trials of one route.

    Args:
        is_allowed: may this route try other paths?
        now: the present instant.

    Attributes:
        is_open: a trial goes on.
        needs_dial: no circuit was dialled for it yet.
    """

    def __init__(self, now: int, *, is_allowed: bool) -> None:
        self._is_allowed = is_allowed
        self.is_open = self.needs_dial = False
        self._request_at, self._requested_sent = now, -1
        self._promises = 0
        self._ends = self._next = now
        self._pause = PAUSE_NS
        self._cost_at_failure = 0.0
        self._held_until = now

    def is_held(self, now: int) -> bool:
        """Return whether rows have returned to the direct circuit so recently that they stay while it answers."""
        return now < self._held_until

    def is_request_due(self, sent: int, now: int) -> bool:
        """Return whether to request the promise now: frames went out since the last one, and it is long enough ago.

        Args:
            sent: frames that have gone out over the circuit in use.
        """
        if not self._is_allowed or now < self._request_at or sent == self._requested_sent:
            return False
        self._request_at, self._requested_sent = now + REQUEST_NS, sent
        return True

    def promised(self, promise: float, present: float, now: int) -> bool:
        """Take a promise and the cost of the circuit in use; return whether a trial begins by it."""
        if promise >= STAY * present or self.is_open:
            self._promises = 0
            return False
        self._promises += 1
        is_due = now >= self._next or (self._cost_at_failure and present > 2 * self._cost_at_failure)
        if self._promises < 2 or not is_due:
            return False
        self.is_open = self.needs_dial = True
        self._ends = now + TRIAL_NS
        return True

    def check(self, present: float, now: int) -> None:
        """End a trial that has found no cheaper circuit in time."""
        if self.is_open and now >= self._ends:
            self.is_open, self._promises = False, 0
            self._cost_at_failure = present
            self._next, self._pause = now + self._pause, min(LONG_PAUSE_NS, 2 * self._pause)

    def interrupt(self) -> None:
        """End a trial because the circuit in use is suspected or lost: other circuits are opened for that reason now."""
        self.is_open = self.needs_dial = False
        self._promises = 0

    def moved(self, now: int, *, is_return: bool) -> None:
        """Note that rows have moved; `is_return`: from a relay back to the direct circuit."""
        self.is_open, self._promises, self._requested_sent = False, 0, -1
        self._pause, self._cost_at_failure = PAUSE_NS, 0.0
        if is_return:
            self._held_until = now + HOLD_NS
        self._next = max(now, self._held_until)
