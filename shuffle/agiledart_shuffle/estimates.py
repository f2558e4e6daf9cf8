"""What is known of each link: attempts, successes, and how both lose weight when links change.

A record costs the same whatever the number of links. Forgetting does not touch the counts of idle links: one common scale
shrinks, and the links that keep their weight are stretched by as much.
"""

from dataclasses import dataclass
from math import inf

from agiledart_kernel.errors import ConfigurationError
from agiledart_shuffle.divergence import divergence

_FOLD_BELOW = 1e-100
_RECENT = 0.95
"""Weight of an attempt against the next one, in the record of the last 20 or so."""

_RECENT_LEAST, _ALL_LEAST = 4.0, 20.0
"""Attempts, discounted, from which both records say something."""


@dataclass(frozen=True, slots=True)
class Memory:
    """How long outcomes count.

    Attributes:
        keep: share of a link's evidence that a packet leaves of it, in (0, 1]; 1 forgets nothing.
        forgets_used: whether the links that the packet used forget, too.
        detection: nats by which the last attempts must contradict the record before they replace it; infinite: never.

    Links in use find out by themselves that they became worse, and detection does so three times faster than forgetting. Only
    forgetting makes a planner look again at links that it left long ago.
    """

    keep: float = 1.0
    forgets_used: bool = False
    detection: float = inf

    def __post_init__(self) -> None:
        """Raises ConfigurationError for figures outside of their ranges."""
        if not 0.0 < self.keep <= 1.0:
            raise ConfigurationError(f"keep = {self.keep}: it must lie above 0 and be at most 1")
        if not self.detection > 0.0:
            raise ConfigurationError(f"detection = {self.detection}: it must lie above 0")

    @property
    def horizon(self) -> float:
        """The slot at which exploration stops to grow: what lies further back is forgotten."""
        return inf if self.keep == 1.0 else 1.0 + 20.0 / (1.0 - self.keep)


STATIONARY = Memory()
"""Links stay as they are: what the paper assumes."""

FORGETTING = Memory(keep=0.995, forgets_used=True)
"""All links forget alike."""

CHANGING = Memory(keep=0.995, detection=6.0)
"""Links in use are watched, idle ones forgotten."""


class Estimates:
    """Counts of every link, as a planner's policies read them.

    Attributes:
        successes, attempts: of each link, to be multiplied by `scale`; their ratio needs no scale.
        scale: weight that all counts have lost.
        changes: how many times a link was found changed.
    """

    __slots__ = (
        "_recent_attempts",
        "_recent_successes",
        "_used",
        "attempts",
        "changes",
        "memory",
        "scale",
        "successes",
    )

    def __init__(self, links: int, memory: Memory = STATIONARY) -> None:
        self.memory = memory
        self.successes = [0.0] * links
        self.attempts = [0.0] * links
        self.scale = 1.0
        self.changes = 0
        self._recent_successes = [0.0] * links
        self._recent_attempts = [0.0] * links
        self._used: dict[int, None] = {}

    def counts(self, link: int) -> tuple[float, float]:
        """Successes and attempts of a link, by the weight that they have now."""
        return self.successes[link] * self.scale, self.attempts[link] * self.scale

    def record(self, link: int, attempts: int, *, arrived: bool) -> None:
        """Some attempts on a link, all of them failed but the last one if something arrived."""
        self.attempts[link] += attempts / self.scale
        if arrived:
            self.successes[link] += 1.0 / self.scale
        if self.memory.keep < 1.0 and not self.memory.forgets_used:
            self._used[link] = None
        if self.memory.detection < inf:
            self._detect(link, attempts, arrived)

    def end_packet(self) -> None:
        """A packet is through: evidence loses weight."""
        keep = self.memory.keep
        if keep == 1.0:
            return
        self.scale *= keep
        for link in self._used:
            self.successes[link] /= keep
            self.attempts[link] /= keep
        self._used.clear()
        if self.scale < _FOLD_BELOW:
            self.successes = [count * self.scale for count in self.successes]
            self.attempts = [count * self.scale for count in self.attempts]
            self.scale = 1.0

    def _detect(self, link: int, attempts: int, arrived: bool) -> None:
        kept = _RECENT**attempts
        successes = self._recent_successes[link] * kept + arrived
        count = self._recent_attempts[link] * kept + (1.0 - kept) / (1.0 - _RECENT)
        self._recent_successes[link], self._recent_attempts[link] = successes, count
        all_attempts = self.attempts[link]
        if count > _RECENT_LEAST and all_attempts * self.scale > _ALL_LEAST:
            rate = self.successes[link] / all_attempts
            if count * divergence(successes / count, rate) > self.memory.detection:
                self.successes[link], self.attempts[link] = successes / self.scale, count / self.scale
                self.changes += 1
