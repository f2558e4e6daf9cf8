"""Trust in the direct circuit: for how long it must answer well, at no more cost, before rows return to it. No I/O.

4 s ── rows leave soon after a return ──> 30 s ── again ──> 60 s, up to 5 minutes ── rows stay ──> 4 s
"""

from typing import Final

from agiledart_executor.routes.circuit_costs import Circuit
from agiledart_executor.routes.faster_path import HOLD_NS, STAY
from agiledart_kernel.instants import SECOND

TRUST_NS: Final = SECOND
"""Time for which another relay must cost less before rows move to it."""

RETURN_NS: Final = 4 * SECOND
DOUBTED_TRUST_NS: Final = 30 * SECOND
LONG_TRUST_NS: Final = 300 * SECOND
"""Time for a return at first, after rows had to leave soon after a return, and at most. Each return to an unstable link costs a
pause, and the first must not be to one that works for some seconds only."""

PROVEN_NS: Final = 30 * SECOND
"""Time after a return in which relayed circuits stay open. Rows that leave within it and the hold before it left soon."""


class DirectTrust:
    """Trust of one route in its direct circuit.

    Attributes:
        needs_ns: time for which another circuit must be better; to return to the direct one at least `RETURN_NS`.
    """

    def __init__(self) -> None:
        self.needs_ns: int = TRUST_NS
        self._returned: int | None = None
        self._cheap_since: int | None = None

    def returned(self, now: int) -> None:
        """Note that rows have moved to the direct circuit."""
        self._returned = now

    def left(self, now: int) -> None:
        """Note that rows leave the direct circuit."""
        if self._returned is not None:
            is_soon = now - self._returned < HOLD_NS + PROVEN_NS
            self.needs_ns = min(LONG_TRUST_NS, max(DOUBTED_TRUST_NS, 2 * self.needs_ns)) if is_soon else TRUST_NS
            self._returned = None

    def is_unproven(self, now: int) -> bool:
        """Return whether rows have returned so lately that they may have to leave again."""
        return self._returned is not None and now - self._returned < PROVEN_NS

    def is_earned(self, direct: Circuit, cost: float, present: float, now: int) -> bool:
        """Return whether rows may return now.

        An answer is late beside earlier ones only. So a circuit that stays slow for a while answers well, but it costs more.

        Args:
            direct: the open direct circuit.
            cost: of it; `present`: of the relayed circuit in use.
        """
        if self._cheap_since is not None and (STAY * cost > present or self._cheap_since < direct.since):
            self._cheap_since = None
        if cost <= present and self._cheap_since is None:
            self._cheap_since = now
        if self._cheap_since is None:
            return False
        return now - max(self._cheap_since, direct.well_since) >= max(RETURN_NS, self.needs_ns)
