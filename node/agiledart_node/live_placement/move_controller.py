"""Decisions about moves of a run's instances: a machine without I/O, one for each run, at its coordinator.

A move must end a broken constraint, or gain 5 % of the objective and more, within 600 s, than it costs. A run has at most one move
a minute, and two in ten minutes; further ones only end broken constraints. A move that was dropped or rolled back delays the next
one by 1, 2, 4 … 32 looks. A stage that a user has moved stays.

Source: spec of placement §10, "Moves".
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_node.context.config import MOVES

OFF, ADVISE, ON, MOPA = MOVES
"""Never look; look and report; look and move; move where the hosts of the run ask for it."""

LOOK_NS: Final = 30 * SECOND
"""Time from one look to the next."""

REST_NS: Final = 60 * SECOND
"""Least time from the start of one move to the start of the next."""

HORIZON_S: Final = 600.0
"""Time within which a move must gain more than it costs."""

MAX_MOVES: Final = 2
"""Moves of a run within `HORIZON_S`; further ones only to end a broken constraint. Each was to pay within this time, so more of
them show that the network changes faster than moves can pay."""

LEAST_GAIN: Final = 0.05
"""Least gain, as a share of the objective."""

CHANGED: Final = 0.1
"""Relative change of a figure that is a reason to look."""

MAX_DELAY_LOOKS: Final = 32

_WEIGHT: Final = 0.3
"""Weight of a new figure in its moving average."""

_EPSILON: Final = 1e-12


class SmoothedFigures:
    """Moving averages of figures by name. A figure that is missing is forgotten; it never counts as 0."""

    def __init__(self) -> None:
        self._averages: dict[str, float] = {}

    def update(self, figures: Mapping[str, float]) -> Mapping[str, float]:
        """Take new figures; return their averages."""
        self._averages = {
            name: value if (before := self._averages.get(name)) is None else before + _WEIGHT * (value - before)
            for name, value in figures.items()
        }
        return self._averages


@dataclass(frozen=True, slots=True)
class MoveProposal:
    """The best single move of instances that can only move together, or a whole plan of a planner's strategy.

    Attributes:
        instance: `STAGE` or `STAGE.N`: the wish; those that must run together follow it.
        stages: names of all stages that would move.
        node, node_name: where to.
        value: of the objective now, in minimised form; gain: by how much it falls.
        ends_violation: fewer constraints would be broken.
        gained: gain within `HORIZON_S`; cost: of the move, in the same unit; None: only the share counts.
        others: further moves of a plan in the same barrier: (instance, node, its name).
    """

    instance: str
    stages: tuple[str, ...]
    node: NodeId
    node_name: str
    value: float
    gain: float
    ends_violation: bool = False
    gained: float | None = None
    cost: float | None = None
    others: tuple[tuple[str, NodeId, str], ...] = ()

    @property
    def share(self) -> float:
        """Gain as a share of the objective now."""
        return self.gain / abs(self.value) if abs(self.value) > _EPSILON else 0.0

    @property
    def reason(self) -> str:
        """Kind of the move: `rule` ends a broken constraint, `plan` is a planner's with several moves, `gain` a single one."""
        return "rule" if self.ends_violation else "plan" if self.others else "gain"

    @property
    def text(self) -> str:
        """The move in words."""
        more = "".join(f", {instance} to {name}" for instance, _, name in self.others)
        return f"{self.instance} to {self.node_name}{more}"


@dataclass(frozen=True, slots=True)
class MoveDecision:
    """A decision: `nothing`, `advise` or `move`; the proposal that it is about, if any; and why."""

    action: str
    why: str
    proposal: MoveProposal | None = None


NOTHING: Final = "nothing"
MOVE: Final = "move"


class MoveController:
    """Decides about the moves of one run."""

    def __init__(self, mode: str = ADVISE) -> None:
        self.mode = mode
        self._seen: Mapping[str, float] = {}
        self._started_ns: int | None = None
        self._done_ns: deque[int] = deque(maxlen=MAX_MOVES)
        """Starts of the last moves that took place."""
        self._is_moving = False
        self._looks_to_wait = self._next_delay = 0
        self.moves = 0
        """Moves started so far."""

    def resume(self, now_ns: int, earlier: Sequence[bool]) -> None:
        """Take up the moves that earlier coordinators of the run started, as its register has them: without their times.

        Args:
            earlier: whether each took place, oldest first. The last one counts as started now.
        """
        if not earlier:
            return
        self._started_ns = now_ns
        failures = next((number for number, is_done in enumerate(reversed(earlier)) if is_done), len(earlier))
        if failures:
            self._next_delay = self._looks_to_wait = min(MAX_DELAY_LOOKS, 1 << (failures - 1))

    def is_due(self, figures: Mapping[str, float]) -> bool:
        """Return whether figures have changed enough since the last look that led to a decision, or a move is still owed."""
        if self._seen.keys() != figures.keys():
            return True
        return any(abs(value - self._seen[name]) > CHANGED * abs(self._seen[name]) for name, value in figures.items())

    def decide(
        self,
        now_ns: int,
        figures: Mapping[str, float],
        proposals: Sequence[MoveProposal],
        obstacle: str = "",
        held: Collection[str] = (),
    ) -> MoveDecision:
        """Return what to do at this look.

        Args:
            figures: on which the proposals rest.
            proposals: the best move of each unit.
            obstacle: why the run cannot change now, or ever; empty: it can.
            held: stages that a user has moved.
        """
        if self.mode == OFF:
            return MoveDecision(NOTHING, "moves = off")
        free = [proposal for proposal in proposals if not any(stage in held for stage in proposal.stages)]
        worthwhile = [proposal for proposal in free if not refusal(proposal)]
        if not worthwhile:
            self._seen = dict(figures)
            return MoveDecision(NOTHING, _why_none(proposals, free), max(free, key=_rank, default=None))
        best = max(worthwhile, key=_rank)
        # The figures are not marked as seen: a move that is owed is looked at again, however little changes.
        self._seen = {}
        if self.mode == ADVISE:
            self._seen = dict(figures)
            return MoveDecision(ADVISE, f"it would {_gain_text(best)}", best)
        if obstacle:
            return MoveDecision(ADVISE, f"it would {_gain_text(best)}, waits: {obstacle}", best)
        if self._is_moving:
            return MoveDecision(NOTHING, "its own move is under way", best)
        if rest := self._rest(now_ns, best):
            return MoveDecision(ADVISE, f"it would {_gain_text(best)}, waits: {rest}", best)
        if self._looks_to_wait:
            self._looks_to_wait -= 1
            more = self._looks_to_wait + 1
            return MoveDecision(
                ADVISE, f"it would {_gain_text(best)}, waits for {more} looks after a failed move", best
            )
        return MoveDecision(MOVE, f"it {_gain_text(best, 's')}", best)

    def _rest(self, now_ns: int, best: MoveProposal) -> str:
        """Return why a move must wait because of those before it; empty: it need not."""
        if self._started_ns is not None and now_ns - self._started_ns < REST_NS:
            return "one move a minute"
        is_full = len(self._done_ns) == MAX_MOVES and now_ns - self._done_ns[0] < HORIZON_S * SECOND
        return f"{MAX_MOVES} moves in {HORIZON_S / 60:.0f} minutes" if is_full and not best.ends_violation else ""

    def started(self, now_ns: int) -> None:
        """Note that a move was started."""
        self._started_ns, self._is_moving = now_ns, True
        self.moves += 1

    def finished(self, *, is_done: bool) -> None:
        """Note that the move was refused, dropped or rolled back, or is done."""
        self._is_moving = False
        self._seen = {}
        if is_done:
            if self._started_ns is not None:
                self._done_ns.append(self._started_ns)
            self._next_delay = self._looks_to_wait = 0
        else:
            self._next_delay = min(MAX_DELAY_LOOKS, max(1, 2 * self._next_delay))
            self._looks_to_wait = self._next_delay


def refusal(proposal: MoveProposal) -> str:
    """Return why a move is not worthwhile; empty: it is."""
    if proposal.ends_violation:
        return ""
    if proposal.share < LEAST_GAIN:
        return f"{proposal.text} gains {max(0.0, proposal.share):.1%}, less than {LEAST_GAIN:.0%}"
    if proposal.gained is not None and proposal.cost is not None and proposal.gained <= proposal.cost:
        return f"{proposal.text} gains {proposal.gained:.3g} in {HORIZON_S:.0f} s and costs {proposal.cost:.3g}"
    return ""


def _rank(proposal: MoveProposal) -> tuple[bool, float]:
    return proposal.ends_violation, proposal.gain


def _gain_text(proposal: MoveProposal, ending: str = "") -> str:
    if proposal.ends_violation:
        return f"end{ending} a broken constraint"
    return f"gain{ending} {proposal.share:.0%} of {proposal.value:.4g}"


def _why_none(proposals: Sequence[MoveProposal], free: Sequence[MoveProposal]) -> str:
    if not proposals:
        return "nothing may move"
    if not free:
        return "a user has moved all that may move"
    return refusal(max(free, key=_rank))
