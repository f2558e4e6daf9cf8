"""Failover of a data link: when to probe it, when to dial another, and which of them carries on.

    working ── probe unanswered for `stall_ns` ──> silent ── echo ──> working
    silent ── another dial succeeds ──> working, over the new link
    working, silent ── lost ──> down ── a dial succeeds ──> working, over the new link
    silent, down ── `timeout_ns` without an answer ──> abandoned
    working through a relay ── the direct path opens ──> working, directly

Silence alone moves nothing. A receiver that is stopped, or whose user code blocks its process, answers no new link
either, so the old link continues when it is back. A thin link is not silent while the bytes before the probe still
move. TCP in back-off looks dead for long after the path has healed. So dialling begins beside the old link, and
continues at a steady rate.

No I/O, no clock. Source: the shuffle spec, section 12.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.randomness import RandomStream

STALL_NS: Final = 700 * MILLISECOND
"""Least time for which a probe may be unanswered. It is ten round trips where that is more, at most `MAX_STALL_NS`."""

MAX_STALL_NS: Final = 3 * SECOND

REDIAL_NS: Final = 500 * MILLISECOND
"""Time from one dial to the next, 20 % more or less: after healing no link waits for a timer that has doubled."""

DIAL_TIMEOUT_NS: Final = SECOND
"""Time for a dial to succeed. Every fourth one has `LONG_DIAL_TIMEOUT_NS`: a busy small board needs more for TLS."""

LONG_DIAL_TIMEOUT_NS: Final = 5 * SECOND
_LONG_EVERY: Final = 4

DIRECT_RETRY_NS: Final = 3 * SECOND
"""Time from one try of the direct path to the next while a link is relayed.

It is doubled, up to `MAX_DIRECT_RETRY_NS`, when the direct link falls silent within `PROVEN_NS`: a bad link opens now
and then, and each return to it costs a silence.
"""

MAX_DIRECT_RETRY_NS: Final = 300 * SECOND
PROVEN_NS: Final = 30 * SECOND

MAX_REDIAL_NS: Final = 8 * SECOND
"""Longest pause before a new dial where links open and none of them works: the peer refuses what it is sent."""


class CheckLink(NamedTuple):
    """It is time to check the link; also sent now and then without a request.

    Args:
        sent: frames that the link was given; came: frames that it has brought.
        acknowledged, queued: bytes that the next host has acknowledged, and bytes that still wait here for that.
    """

    sent: int
    came: int
    acknowledged: int = 0
    queued: int = 0


class ProbeAnswered(NamedTuple):
    """The other end of the link has answered a probe."""

    probe: int


class LinkClosed(NamedTuple):
    """The link is closed."""

    why: str


class DialSucceeded(NamedTuple):
    """A dial has succeeded. `is_relayed`: through a relay."""

    dial: int
    is_relayed: bool = False


class DialFailed(NamedTuple):
    """A dial has failed."""

    dial: int
    why: str


class ProbeLink(NamedTuple):
    """Request an echo from the link."""

    probe: int


class DialLink(NamedTuple):
    """Dial, and give up after this time. `is_direct`: not through a relay."""

    dial: int
    timeout_ns: int
    is_direct: bool = False


class SwitchLink(NamedTuple):
    """Continue over the link of this dial, and end all other dials and the old link."""

    dial: int


class CancelDial(NamedTuple):
    """End this dial, or the link that it made: it is not needed. -1: all dials."""

    dial: int


class CheckLinkAt(NamedTuple):
    """Check the link again at this instant, whatever was requested before."""

    at: int


class AbandonLink(NamedTuple):
    """Abandon the link: no answer has come for the whole timeout."""

    why: str


Event = CheckLink | ProbeAnswered | LinkClosed | DialSucceeded | DialFailed
Effect = ProbeLink | DialLink | SwitchLink | CancelDial | CheckLinkAt | AbandonLink


class LinkState(Enum):
    """Knowledge about the link."""

    WORKING = auto()
    SILENT = auto()
    DOWN = auto()


class LinkFailover:
    """Keeps one link to one executor working.

    Args:
        timeout_ns: longest time without any answer.
        random: spreads the dials of many links.
        is_relayed: does the first link go through a relay?

    Attributes:
        state: of the present link.
        since: when the trouble began; None while there is none.
        tried: dials since then.
        why: result of the last of these dials.
        changes: times at which another link has taken over.
    """

    def __init__(self, timeout_ns: int, random: RandomStream, *, is_relayed: bool = False) -> None:
        self._timeout_ns, self._random, self._is_relayed = timeout_ns, random, is_relayed
        self._direct_retry_ns = DIRECT_RETRY_NS
        self._direct_retry_at: int | None = None
        self._direct_since: int | None = None  # of a direct link that followed a relayed one
        self.state = LinkState.WORKING
        self.since: int | None = None
        self.tried = self.changes = 0
        self.why = ""
        self._rtt_ns = 0
        self._probe = self._dials = 0
        self._asked_at: int | None = None  # when the pending probe was sent
        self._moved_at = 0  # since when nothing before the probe has moved
        self._asked_sent = self._asked_came = self._asked_until = self._acknowledged = 0
        self._has_answered = True  # the present link, once: the first one was opened with a message from the peer
        self._dial_at = 0
        self._pause_ns = REDIAL_NS
        self._given_up = False

    @property
    def stall_ns(self) -> int:
        """Longest time for which a probe may be unanswered."""
        return max(STALL_NS, min(10 * self._rtt_ns, MAX_STALL_NS))

    def step(self, event: Event, now: int) -> list[Effect]:
        """Handle one event. Return the effects to carry out."""
        match event:
            case CheckLink():
                return self._look(event, now)
            case ProbeAnswered(probe):
                return self._echoed(probe, now)
            case LinkClosed(why):
                return self._lost(why, now)
            case DialSucceeded(dial, is_relayed):
                return self._opened(dial, now, is_relayed=is_relayed)
            case DialFailed(_, why):
                if self.state is not LinkState.WORKING:
                    self.why = why
                return []

    def _look(self, seen: CheckLink, now: int) -> list[Effect]:
        if self.state is not LinkState.WORKING:
            return self._try(now)
        back = self._try_direct_path(now) if self._is_relayed else []
        if self._asked_at is None:
            if seen.sent == self._asked_sent:
                return back  # no frame was sent since the last answer, so no sender waits for this link
            return back + self._ask(seen, now)
        if seen.came != self._asked_came:
            self._asked_came, self._moved_at = seen.came, now
        if self._acknowledged < min(seen.acknowledged, self._asked_until):
            self._acknowledged, self._moved_at = seen.acknowledged, now
        due = self._moved_at + self.stall_ns
        if now < due:
            return [*back, CheckLinkAt(due)]
        self.state = LinkState.SILENT
        self._note_direct_path_failure(now)
        self.since = self._asked_at if self.since is None else self.since
        self.why = self.why or "no answer"
        self._dial_at = now
        return self._try(now)

    def _try_direct_path(self, now: int) -> list[Effect]:
        """Return a dial of the direct path of a relayed link, when it is time for one."""
        if self._direct_retry_at is None:
            self._direct_retry_at = now + self._spread(self._direct_retry_ns)
        if now < self._direct_retry_at:
            return []
        self._direct_retry_at = now + self._spread(self._direct_retry_ns)
        self._dials += 1
        return [DialLink(self._dials, DIAL_TIMEOUT_NS, is_direct=True)]

    def _note_direct_path_failure(self, now: int) -> None:
        """Note that a link fell silent or was lost.

        If it was a direct link for a short time, rows return to the direct path later.
        """
        if self._direct_since is not None:
            proven = now - self._direct_since >= PROVEN_NS
            self._direct_retry_ns = DIRECT_RETRY_NS if proven else min(MAX_DIRECT_RETRY_NS, 2 * self._direct_retry_ns)
            self._direct_since = None

    def _ask(self, seen: CheckLink, now: int) -> list[Effect]:
        self._probe += 1
        self._asked_at = self._moved_at = now
        self._asked_sent, self._asked_came = seen.sent + 1, seen.came
        self._acknowledged = seen.acknowledged
        self._asked_until = seen.acknowledged + seen.queued
        return [ProbeLink(self._probe), CheckLinkAt(now + self.stall_ns)]

    def _echoed(self, probe: int, now: int) -> list[Effect]:
        if probe != self._probe or self._asked_at is None:
            return []  # of the link before, or forged
        round_trip_ns = now - self._asked_at
        self._rtt_ns = (
            round_trip_ns if not self._rtt_ns else (7 * self._rtt_ns + min(round_trip_ns, 8 * self._rtt_ns)) // 8
        )
        state_before, self.state = self.state, LinkState.WORKING
        self._asked_at, self.since, self._has_answered = None, None, True
        self.tried, self.why, self._pause_ns = 0, "", REDIAL_NS
        return [CancelDial(-1)] if state_before is LinkState.SILENT else []

    def _lost(self, why: str, now: int) -> list[Effect]:
        if self.state is LinkState.DOWN:
            return []
        state_before, self.state = self.state, LinkState.DOWN
        self._note_direct_path_failure(now)
        self._asked_at, self.why = None, why
        self.since = now if self.since is None else self.since
        if state_before is LinkState.SILENT:
            return self._try(now)
        if self._has_answered:
            self._dial_at = now
        else:
            self._pause_ns = min(MAX_REDIAL_NS, 2 * self._pause_ns)
            self._dial_at = now + self._spread(self._pause_ns)
        return self._try(now)

    def _opened(self, dial: int, now: int, *, is_relayed: bool) -> list[Effect]:
        comes_back = self._is_relayed and not is_relayed
        if (self.state is LinkState.WORKING and not comes_back) or self._given_up:
            return [CancelDial(dial)]
        self._is_relayed, self._direct_retry_at = is_relayed, None
        if comes_back:
            self._direct_since = now
        self.state, self._has_answered = LinkState.WORKING, False
        self._asked_at, self._asked_sent = None, -1
        self.changes += 1
        return [SwitchLink(dial), CheckLinkAt(now)]

    def _try(self, now: int) -> list[Effect]:
        """Dial when it is time, unless the timeout is over."""
        if self._given_up:
            return []
        assert self.since is not None
        if now - self.since >= self._timeout_ns:
            self._given_up = True
            return [CancelDial(-1), AbandonLink(self.why)]
        effects: list[Effect] = []
        if now >= self._dial_at:
            self._dials += 1
            self.tried += 1
            self._dial_at = now + self._spread(self._pause_ns)
            effects.append(
                DialLink(self._dials, LONG_DIAL_TIMEOUT_NS if self.tried % _LONG_EVERY == 0 else DIAL_TIMEOUT_NS)
            )
        effects.append(CheckLinkAt(min(self._dial_at, self.since + self._timeout_ns)))
        return effects

    def _spread(self, pause_ns: int) -> int:
        return int(pause_ns * self._random.between(0.8, 1.2))
