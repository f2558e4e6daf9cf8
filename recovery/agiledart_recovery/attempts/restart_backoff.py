"""Back-off between restarts: pauses of 0, 1, 2, 4 … seconds, and an end after too many attempts without a committed epoch.

An attempt that commits an epoch does not count: a new failure ended it. A record that kills its process lies behind the last
epoch, so each attempt that reads it dies before the next one, and these attempts are counted. Nodes that die one after the
other are not.
"""

import re
from typing import Final

from agiledart_kernel.instants import SECOND, Instant
from agiledart_recovery.recovery_config import RecoveryConfig

MAX_SAME_CRASHES: Final = 3
"""Attempts in a row that ended with the same crash and no epoch between: the next one would end so, too."""


class RestartBackoff:
    """Recent attempts that committed no epoch, as one coordinator saw them."""

    def __init__(self, config: RecoveryConfig) -> None:
        self._config = config
        self._began: list[Instant] = []
        self._crashes: dict[int, str] = {}

    def began(self, now: Instant) -> None:
        """Note that an attempt begins."""
        self._began = [*self._recent(now), now]

    def crashed(self, attempt: int, reason: str) -> None:
        """Note that a process crashed, and ended an attempt so. Its times, sizes and process ids do not make it another crash."""
        kind = re.sub(r"[0-9][0-9.,]*", "#", reason)
        if any(kind != earlier for earlier in self._crashes.values()):
            self._crashes = {}
        self._crashes[attempt] = kind

    def forgive(self) -> None:
        """Forget the last attempt, which failed through no fault of the run."""
        self._began = self._began[:-1]

    def on_epoch_committed(self) -> None:
        """Note that the current attempt has committed an epoch."""
        self._began, self._crashes = [], {}

    def due(self, now: Instant) -> int:
        """Return the instant from which on the next attempt may begin."""
        recent = self._recent(now)
        if not recent:
            return now
        pause = min(self._config.pause_max_ns, (1 << (len(recent) - 2)) * SECOND) if len(recent) > 1 else 0
        return recent[-1] + pause

    def is_exhausted(self, now: Instant) -> bool:
        """Return whether there were so many attempts in so short a time that another one would not help."""
        return len(self._crashes) >= MAX_SAME_CRASHES or len(self._recent(now)) >= self._config.max_restarts

    def exhausted_text(self) -> str:
        """Return, for people, why the run is not restarted again."""
        if len(self._crashes) >= MAX_SAME_CRASHES:
            return f"it ended so {MAX_SAME_CRASHES} times in a row without completing a checkpoint; giving up"
        minutes = self._config.restart_window_ns // (60 * SECOND)
        often = f"{self._config.max_restarts} times in {minutes} min"
        return f"restarted {often} without completing a checkpoint; giving up"

    def _recent(self, now: Instant) -> list[Instant]:
        return [at for at in self._began if now - at < self._config.restart_window_ns]
