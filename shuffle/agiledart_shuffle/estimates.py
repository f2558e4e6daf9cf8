"""What is known of each link: attempts, successes, and how both lose weight when links change.

A record costs the same whatever the number of links. Forgetting does not touch the counts of idle links: one common scale
shrinks, and the links that keep their weight are stretched by as much.
"""

from dataclasses import dataclass
from math import inf, log, log1p

from agiledart_kernel.errors import ConfigurationError

_FOLD_BELOW = 1e-100
_DROP = 2.0
"""By how much a rate must fall to be worth finding."""

_ATTEMPTS_LEAST = 20.0
"""Discounted attempts from which a record says enough to be contradicted."""

_RATE_MOST = 0.99
"""What is taken for the rate of a link that hardly ever failed: one failure is no proof of a change."""


@dataclass(frozen=True, slots=True)
class EstimateMemory:
    """How long outcomes count.

    Attributes:
        keep: share of a link's evidence that a packet leaves of it, in (0, 1]; 1 forgets nothing.
        forgets_used: whether the links that the packet used forget, too.
        detection: nats by which the latest outcomes must speak for half the rate of the record before they replace it;
            infinite: never.

    Detection finds out what became worse three times faster than forgetting does, and costs little while nothing changes. Only
    forgetting makes a planner look again at links that it left long ago.

    Source: [Page 1954] for the detection: a sum of log likelihood ratios that is never below 0.
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


STATIONARY = EstimateMemory()
"""Links stay as they are: what the paper assumes."""

FORGETTING = EstimateMemory(keep=0.995, forgets_used=True)
"""All links forget alike."""

CHANGING = EstimateMemory(keep=0.995, detection=8.0)
"""Links in use are watched, idle ones forgotten."""


class Estimates:
    """Counts of every link, as a planner's policies read them.

    Attributes:
        successes, attempts: of each link, to be multiplied by `scale`; their ratio needs no scale.
        scale: weight that all counts have lost.
        changes: how many times a link was found changed.
    """

    __slots__ = (
        "_contradiction",
        "_since_attempts",
        "_since_successes",
        "_used",
        "attempts",
        "changes",
        "memory",
        "scale",
        "successes",
    )

    def __init__(self, links: int, memory: EstimateMemory = STATIONARY) -> None:
        self.memory = memory
        self.successes = [0.0] * links
        self.attempts = [0.0] * links
        self.scale = 1.0
        self.changes = 0
        self._contradiction = [0.0] * links
        self._since_successes = [0] * links
        self._since_attempts = [0] * links
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

    def begin_anew(self, link: int) -> None:
        """Another link takes this one's number: nothing is known of it."""
        self.successes[link] = self.attempts[link] = self._contradiction[link] = 0.0
        self._since_successes[link] = self._since_attempts[link] = 0

    def end_packet(self, packets: int = 1) -> None:
        """Packets are through: evidence loses weight."""
        keep = self.memory.keep**packets
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
        """Add up how much likelier half the rate makes what comes; what came since the sum left 0 becomes the record.

        Source: [Page 1954].
        """
        tried = self.attempts[link]
        if tried * self.scale <= _ATTEMPTS_LEAST:
            return
        rate = min(_RATE_MOST, self.successes[link] / tried)
        less = rate / _DROP
        gain = (attempts - arrived) * (log1p(-less) - log1p(-rate)) - arrived * log(_DROP)
        total = self._contradiction[link] + gain
        if total > 0.0:
            self._contradiction[link] = total
            self._since_successes[link] += arrived
            self._since_attempts[link] += attempts
            if total <= self.memory.detection:
                return
            self.successes[link] = self._since_successes[link] / self.scale
            self.attempts[link] = self._since_attempts[link] / self.scale
            self.changes += 1
        self._contradiction[link] = 0.0
        self._since_successes[link] = self._since_attempts[link] = 0
