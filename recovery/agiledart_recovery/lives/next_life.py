"""The life that comes next: whether it may begin, who runs what in it, and from which epoch it begins.

A coordinator tells what became of the last one: hosts that were silent, that could not enter it, that lacked fragments of a state.

| what is known | what it means for the next life |
|---|---|
| a host was silent | it is lost, until there is time to ask it again |
| it could not enter, and was not ended since | for two minutes it gets nothing that somebody else can take |
| it could not rebuild a state | none begins before a holder is back, or before it was waited for long enough: see `verdicts` |

The awkward case: hosts and holders of a state are waited for at the same time. Only time in which a *state* cannot be had counts
against the patience with its holders.
"""

from dataclasses import dataclass

import msgspec

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.desk import Desk
from agiledart_recovery.lives.pace import Pace
from agiledart_recovery.lives.replan import next_plan
from agiledart_recovery.lives.verdicts import gone_with, verdict, way_left
from agiledart_recovery.wire.value import Value

Holders = dict[NodeId, tuple[NodeId, ...]]


@dataclass(frozen=True, slots=True)
class Decision:
    """What comes next.

    Args:
        value: of the next life; None: there is none yet.
        note: what it does not bring back as it was.
        ends: why the run has failed.
        missing: for whom it waits.
    """

    value: Value | None = None
    note: str = ""
    ends: str = ""
    missing: tuple[NodeId, ...] = ()


class NextLife:
    """What one coordinator knows for it.

    Attributes:
        pace: how soon it may begin.
        refusal: why the last one could not be entered, in words of a host.
        lacking: hosts that could not rebuild a state in the life that is being entered, with its holders.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.pace = Pace(desk.config)
        self.refusal = ""
        self.lacking: Holders = {}
        self._unfound: Holders = {}  # the same, of the last life that was tried
        self._lost_since: Instant | None = None
        self._silent: dict[NodeId, None] = {}
        self._unfit: dict[NodeId, Instant] = {}

    # ---- what became of the last one

    def forget_silence(self) -> None:
        """There is time to ask everybody again."""
        self._silent = {}

    def was_silent(self, node: NodeId) -> None:
        """It did not answer in time."""
        self._silent[node] = None

    def could_not(self, node: NodeId, reason: str) -> None:
        """It was not ended since, and could not enter: somebody else may take what is not bound to it."""
        self._unfit[node], self.refusal = self._desk.now, reason

    def lacks(self, node: NodeId, holders: tuple[NodeId, ...], reason: str) -> None:
        """It could not rebuild a state: another life helps when a holder of that has come back, and not before, so this one does
        not count among those that failed.
        """
        if not self.lacking:
            self.pace.forgive()
            self._lost_since = self._lost_since or self._desk.now
        self.lacking[node], self.refusal = holders, reason

    def leaves(self, node: NodeId) -> None:
        """It wants to run nothing more."""
        self._unfit[node] = self._desk.now

    def somebody_is_back(self) -> None:
        """Who could not enter a life may be able to do so now."""
        self._unfit = {}

    def is_tried(self) -> None:
        """A life is being entered."""
        self.lacking = {}

    def has_begun(self) -> None:
        """Everybody has entered the life."""
        self._unfit, self.refusal, self._lost_since = {}, "", None

    @property
    def holders(self) -> tuple[NodeId, ...]:
        """Of the states that are lacking."""
        return tuple(dict.fromkeys(one for each in self.lacking.values() for one in each))

    def looks_again(self) -> bool:
        """Whether it takes another life to look for what was lacking: who has refused this one refuses it again."""
        self._silent = {}
        if self.lacking:
            self._unfound, self.lacking = self.lacking, {}
            return True
        return False

    # ---- the next one

    def decide(self, value: Value) -> Decision:
        """What comes after the life of this value."""
        desk = self._desk
        patience = 2 * desk.config.state_patience_ns
        unfit = tuple(node for node, at in self._unfit.items() if desk.now - at < patience)
        judged = verdict(
            value,
            self.is_there,
            self._unfound,
            lambda node: desk.peer(Peer(node)).name or node.short,
            is_patient=self._is_patient(value),
            unfit=unfit,
        )
        if judged.ends:
            return Decision(ends=judged.ends)
        value = judged.applied(value)
        plan, missing = next_plan(value, self.is_there, (*desk.room, desk.me), desk.peer, unfit)
        if plan is None:
            return Decision(missing=missing)
        self._unfound = {}
        told = value.reason if value.is_regained or (value.gone_back is not None and not judged.goes_back) else ""
        note = "; ".join(part for part in (told, judged.note) if part)[:400]
        made = msgspec.structs.replace(
            value, life=value.next_life, plan=plan, outgoing=(), reason=note, earlier=way_left(value, plan)
        )
        return Decision(made, judged.note)

    def is_there(self, node: NodeId) -> bool:
        """Whether a node can be reached and has not been silent."""
        return self._desk.can_reach(node) and node not in self._silent

    def _is_patient(self, value: Value) -> bool:
        """Whether holders of a state may still come back."""
        plan = value.plan
        movable = (each for each in plan.assignments if not each.is_pinned)
        if not any(gone_with(value, each, self.is_there, self._unfound) for each in movable):
            self._lost_since = None
            return True
        self._lost_since = self._lost_since or self._desk.now
        return self._desk.now - self._lost_since < self._desk.config.state_patience_ns
