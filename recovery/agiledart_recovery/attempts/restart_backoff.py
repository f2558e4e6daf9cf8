"""How often a run may begin a new life: pauses of 0, 1, 2, 4 … seconds, and an end after too many that came to nothing.

A life that commits an epoch is none of these: what ended it was something new. A record on which a process dies lies behind the
last epoch, so each life that reads it dies before the next one, and they are counted. Nodes that die one after the other are not.
"""

from agiledart_kernel.instants import SECOND, Instant
from agiledart_recovery.recovery_config import RecoveryConfig


class RestartBackoff:
    """Lives that were begun lately and came to no epoch, as one coordinator saw them."""

    def __init__(self, config: RecoveryConfig) -> None:
        self._config = config
        self._began: list[Instant] = []

    def began(self, now: Instant) -> None:
        """A life begins."""
        self._began = [*self._recent(now), now]

    def forgive(self) -> None:
        """The last one came to nothing through no fault of the run."""
        self._began = self._began[:-1]

    def on_epoch_committed(self) -> None:
        """The present life has committed an epoch."""
        self._began = []

    def due(self, now: Instant) -> int:
        """The instant from which on the next one may begin."""
        recent = self._recent(now)
        if not recent:
            return now
        pause = min(self._config.pause_max_ns, (1 << (len(recent) - 2)) * SECOND) if len(recent) > 1 else 0
        return recent[-1] + pause

    def is_exhausted(self, now: Instant) -> bool:
        """So many lives in so short a time: another one would not help."""
        return len(self._recent(now)) >= self._config.max_restarts

    def exhausted_text(self) -> str:
        """For people: why it is not brought back another time."""
        minutes = self._config.restart_window_ns // (60 * SECOND)
        often = f"{self._config.max_restarts} times within {minutes} min"
        return f"it had been brought back {often} and came to no epoch, so it is not tried again"

    def _recent(self, now: Instant) -> list[Instant]:
        return [at for at in self._began if now - at < self._config.restart_window_ns]
