"""Record of each link: attempts and successes, and how both lose weight when links change.

An update costs the same whatever the number of links. Forgetting does not touch the counts of idle links: one common scale
shrinks, and the counts of links that keep their weight are multiplied by the inverse.
"""

from dataclasses import dataclass
from math import inf, log, log1p

from agiledart_kernel.errors import ConfigurationError

_FOLD_BELOW = 1e-100
_DROP = 2.0
"""Factor by which a rate must fall to be worth detecting."""

_ATTEMPTS_LEAST = 20.0
"""Discounted attempts from which a record can be contradicted."""

_RATE_MOST = 0.99
"""Highest rate assumed of a link that hardly ever failed: one failure is no proof of a change."""


@dataclass(frozen=True, slots=True)
class EstimateMemory:
    """Rule for how long outcomes count.

    Attributes:
        keep: share of a link's evidence that remains after a packet, in (0, 1]; 1 forgets nothing.
        forgets_used: whether the links that the packet used lose evidence, too.
        detection: log likelihood ratio in nats at which the latest outcomes, taken as half the recorded rate, replace the record;
            infinite: never.

    Detection finds a link that became worse three times faster than forgetting does, and costs little while nothing changes. Only
    forgetting makes a planner look again at links that it left long ago.

    Source: [Page 1954] for the detection: a sum of log likelihood ratios that is never below 0.
    """

    keep: float = 1.0
    forgets_used: bool = False
    detection: float = inf

    def __post_init__(self) -> None:
        """Check the ranges. Raises ConfigurationError."""
        if not 0.0 < self.keep <= 1.0:
            raise ConfigurationError(f"keep = {self.keep}: set a number above 0 and at most 1")
        if not self.detection > 0.0:
            raise ConfigurationError(f"detection = {self.detection}: set a number above 0")

    @property
    def horizon(self) -> float:
        """The slot at which exploration stops growing: earlier outcomes are forgotten."""
        return inf if self.keep == 1.0 else 1.0 + 20.0 / (1.0 - self.keep)


STATIONARY = EstimateMemory()
"""Memory for links that never change, as the paper assumes."""

FORGETTING = EstimateMemory(keep=0.995, forgets_used=True)
"""Memory with which all links forget alike."""

CHANGING = EstimateMemory(keep=0.995, detection=8.0)
"""Memory that watches the links in use for changes and forgets the idle ones."""


class Estimates:
    """Counts of every link, as a planner's policies read them.

    Attributes:
        successes, attempts: of each link, to be multiplied by `scale`; their ratio needs no scale.
        scale: weight that all counts have lost.
        changes: number of detected changes of links.
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
        """Return successes and attempts of a link with their present weight."""
        return self.successes[link] * self.scale, self.attempts[link] * self.scale

    def record(self, link: int, attempts: int, *, arrived: bool) -> None:
        """Count attempts on a link; all failed, except the last one if `arrived`."""
        self.attempts[link] += attempts / self.scale
        if arrived:
            self.successes[link] += 1.0 / self.scale
        if self.memory.keep < 1.0 and not self.memory.forgets_used:
            self._used[link] = None
        if self.memory.detection < inf:
            self._detect(link, attempts, arrived)

    def begin_anew(self, link: int) -> None:
        """Clear the record of a link whose number another link takes."""
        self.successes[link] = self.attempts[link] = self._contradiction[link] = 0.0
        self._since_successes[link] = self._since_attempts[link] = 0

    def end_packet(self, packets: int = 1) -> None:
        """Discount the evidence after packets have ended."""
        keep = self.memory.keep**packets
        if keep == 1.0:
            return
        self.scale *= keep
        # Links in use keep their weight: their counts grow by what the common scale has lost.
        for link in self._used:
            self.successes[link] /= keep
            self.attempts[link] /= keep
        self._used.clear()
        # Before the scale underflows, it is multiplied into the counts.
        if self.scale < _FOLD_BELOW:
            self.successes = [count * self.scale for count in self.successes]
            self.attempts = [count * self.scale for count in self.attempts]
            self.scale = 1.0

    def _detect(self, link: int, attempts: int, arrived: bool) -> None:
        """Add the log likelihood ratio of half the rate; past the threshold the outcomes since the sum left 0 become the record.

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
