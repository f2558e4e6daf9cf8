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
from agiledart_recovery.attempts.loss_policy import decide_loss, nodes_lost_with_state, remaining_fallback
from agiledart_recovery.attempts.replanning import next_plan
from agiledart_recovery.attempts.restart_backoff import RestartBackoff
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire.register_value import RegisterValue

ReplicaNodesByHost = dict[NodeId, tuple[NodeId, ...]]


@dataclass(frozen=True, slots=True)
class AttemptDecision:
    """What comes next.

    Args:
        value: of the next life; None: there is none yet.
        note: what it does not bring back as it was.
        ends: why the run has failed.
        missing: for whom it waits.
    """

    value: RegisterValue | None = None
    note: str = ""
    ends: str = ""
    missing: tuple[NodeId, ...] = ()


class NextAttempt:
    """What one coordinator knows for it.

    Attributes:
        pace: how soon it may begin.
        refusal: why the last one could not be entered, in words of a host.
        lacking: hosts that could not rebuild a state in the life that is being entered, with its holders.
    """

    def __init__(self, context: RecoveryContext) -> None:
        self._context = context
        self.restart_backoff = RestartBackoff(context.config)
        self.refusal = ""
        self.lacking: ReplicaNodesByHost = {}
        self._unfound: ReplicaNodesByHost = {}  # the same, of the last life that was tried
        self._lost_since: Instant | None = None
        self._silent: dict[NodeId, None] = {}
        self._unfit: dict[NodeId, Instant] = {}

    # ---- what became of the last one

    def clear_silent(self) -> None:
        """There is time to ask everybody again."""
        self._silent = {}

    def on_silent(self, node: NodeId) -> None:
        """It did not answer in time."""
        self._silent[node] = None

    def on_entry_failed(self, node: NodeId, reason: str) -> None:
        """It was not ended since, and could not enter: somebody else may take what is not bound to it."""
        self._unfit[node], self.refusal = self._context.now, reason

    def lacks(self, node: NodeId, replica_nodes: tuple[NodeId, ...], reason: str) -> None:
        """It could not rebuild a state: another life helps when a holder of that has come back, and not before, so this one does
        not count among those that failed.
        """
        if not self.lacking:
            self.restart_backoff.forgive()
            self._lost_since = self._lost_since or self._context.now
        self.lacking[node], self.refusal = replica_nodes, reason

    def leaves(self, node: NodeId) -> None:
        """It wants to run nothing more."""
        self._unfit[node] = self._context.now

    def on_node_back(self) -> None:
        """Who could not enter a life may be able to do so now."""
        self._unfit = {}

    def on_attempt_started(self) -> None:
        """A life is being entered."""
        self.lacking = {}

    def on_all_entered(self) -> None:
        """Everybody has entered the life."""
        self._unfit, self.refusal, self._lost_since = {}, "", None

    @property
    def replica_nodes(self) -> tuple[NodeId, ...]:
        """Of the states that are lacking."""
        return tuple(dict.fromkeys(one for each in self.lacking.values() for one in each))

    def retry_lacking(self) -> bool:
        """Whether it takes another life to look for what was lacking: who has refused this one refuses it again."""
        self._silent = {}
        if self.lacking:
            self._unfound, self.lacking = self.lacking, {}
            return True
        return False

    # ---- the next one

    def decide(self, value: RegisterValue) -> AttemptDecision:
        """What comes after the life of this value."""
        context = self._context
        patience = 2 * context.config.state_timeout_ns
        unfit = tuple(node for node, at in self._unfit.items() if context.now - at < patience)
        judged = decide_loss(
            value,
            self.is_there,
            self._unfound,
            lambda node: context.peer(Peer(node)).name or node.short,
            may_wait_for_state=self._may_wait_for_state(value),
            unfit=unfit,
        )
        if judged.ends:
            return AttemptDecision(ends=judged.ends)
        value = judged.applied(value)
        plan, missing = next_plan(value, self.is_there, (*context.candidates, context.me), context.peer, unfit)
        if plan is None:
            return AttemptDecision(missing=missing)
        self._unfound = {}
        told = (
            value.reason
            if value.is_first_of_configuration or (value.rolled_back_to is not None and not judged.switches_checkpoint)
            else ""
        )
        note = "; ".join(part for part in (told, judged.note) if part)[:400]
        made = msgspec.structs.replace(
            value,
            attempt=value.next_attempt,
            plan=plan,
            old_voters=(),
            reason=note,
            fallback_checkpoint=remaining_fallback(value, plan),
        )
        return AttemptDecision(made, judged.note)

    def is_there(self, node: NodeId) -> bool:
        """Whether a node can be reached and has not been silent."""
        return self._context.can_reach(node) and node not in self._silent

    def _may_wait_for_state(self, value: RegisterValue) -> bool:
        """Whether holders of a state may still come back."""
        plan = value.plan
        movable = (each for each in plan.assignments if not each.is_pinned)
        if not any(nodes_lost_with_state(value, each, self.is_there, self._unfound) for each in movable):
            self._lost_since = None
            return True
        self._lost_since = self._lost_since or self._context.now
        return self._context.now - self._lost_since < self._context.config.state_timeout_ns
