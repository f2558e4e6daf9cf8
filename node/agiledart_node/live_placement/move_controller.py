"""Decisions about moves of a run's instances: a machine without I/O, one for each run, at its coordinator.

A move must end a broken constraint, or gain 5 % of the objective and more, within 600 s, than it costs. An instance does not return
within 600 s to a node that it left: a link that turns slow and fast again would draw it to and fro. A run rests a minute after each
of the first two moves, then two, four, eight while moves follow each other within 600 s. A move that ends a broken constraint only
waits the minute.
A move that was dropped or rolled back delays the next one by 1, 2, 4 … 32 looks. A stage that a user has moved stays.

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
"""Least time from the start of one move to the start of the next; it doubles with each move within `HORIZON_S` after the second.

Each was to pay within this time, so many of them show that the network changes faster than moves can pay."""

_JITTER_NS: Final = SECOND
"""Tolerance of a rest. Looks follow each other each 30 s, but their surveys take some milliseconds, more or less."""

HORIZON_S: Final = 600.0
"""Time within which a move must gain more than it costs, and an instance does not return to a node that it left."""

LEAST_GAIN: Final = 0.05
"""Least gain, as a share of the objective."""

CHANGED: Final = 0.1
"""Relative change of a figure that is a reason to look."""

MAX_DELAY_LOOKS: Final = 32

_WEIGHT: Final = 0.3
"""Weight of a new figure in its moving average."""

_EPSILON: Final = 1e-12

_MOVES_KEPT: Final = 10
"""More than rests leave time for within `HORIZON_S`; moves that end broken constraints come at most each minute."""


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
        origins: node of each moving instance now, in the order of `targets`.
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
    origins: tuple[NodeId, ...] = ()

    @property
    def targets(self) -> tuple[tuple[str, NodeId], ...]:
        """Each moving instance with its new node."""
        return ((self.instance, self.node), *((instance, node) for instance, node, _ in self.others))

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
        self._done_ns: deque[int] = deque(maxlen=_MOVES_KEPT)
        """Starts of the last moves that took place."""
        self._left_ns: dict[tuple[str, NodeId], int] = {}
        """Departures of instances from nodes within `HORIZON_S`, by time."""
        self._moving: MoveProposal | None = None
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
        worthwhile = [proposal for proposal in free if not refusal(proposal) and not self._returns(now_ns, proposal)]
        if not worthwhile:
            self._seen = dict(figures)
            return MoveDecision(NOTHING, self._why_none(now_ns, proposals, free), max(free, key=_rank, default=None))
        best = max(worthwhile, key=_rank)
        # The figures are not marked as seen: a move that is owed is looked at again, however little changes.
        self._seen = {}
        if self.mode == ADVISE:
            self._seen = dict(figures)
            return MoveDecision(ADVISE, f"it would {_gain_text(best)}", best)
        if obstacle:
            return MoveDecision(ADVISE, f"it would {_gain_text(best)}, waits: {obstacle}", best)
        if self._moving is not None:
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

    def left_nodes(self, now_ns: int, instance: str) -> frozenset[NodeId]:
        """Return the nodes that an instance left so lately that it does not return to them."""
        return frozenset(
            node
            for (name, node), left in self._left_ns.items()
            if name == instance and now_ns - left < HORIZON_S * SECOND
        )

    def _returns(self, now_ns: int, proposal: MoveProposal) -> bool:
        if proposal.ends_violation:
            return False
        return any(node in self.left_nodes(now_ns, instance) for instance, node in proposal.targets)

    def _why_none(self, now_ns: int, proposals: Sequence[MoveProposal], free: Sequence[MoveProposal]) -> str:
        if not proposals:
            return "nothing may move"
        if not free:
            return "a user has moved all that may move"
        best = max(free, key=_rank)
        return refusal(best) or f"{best.text} would return within {HORIZON_S / 60:.0f} minutes"

    def _rest(self, now_ns: int, best: MoveProposal) -> str:
        """Return why a move must wait because of those before it; empty: it need not."""
        if self._started_ns is None:
            return ""
        lately = sum(now_ns - done < HORIZON_S * SECOND for done in self._done_ns)
        rest = REST_NS if best.ends_violation else REST_NS << max(0, lately - 2)
        if now_ns - self._started_ns >= rest - _JITTER_NS:
            return ""
        return "one move a minute" if rest == REST_NS else f"{rest // REST_NS} minutes after {lately} moves"

    def started(self, now_ns: int, proposal: MoveProposal) -> None:
        """Note that a move was started."""
        self._started_ns, self._moving = now_ns, proposal
        self.moves += 1

    def finished(self, *, is_done: bool) -> None:
        """Note that the move was refused, dropped or rolled back, or is done."""
        moved, self._moving = self._moving, None
        self._seen = {}
        if is_done:
            if self._started_ns is not None and moved is not None:
                self._done_ns.append(self._started_ns)
                left = zip(moved.targets, moved.origins, strict=False)
                now_left = {(instance, origin): self._started_ns for (instance, _), origin in left}
                oldest = self._started_ns - int(HORIZON_S) * SECOND
                self._left_ns = {key: at for key, at in self._left_ns.items() if at > oldest} | now_left
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
