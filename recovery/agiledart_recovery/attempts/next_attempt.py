"""The next attempt: whether it may begin, which node runs what in it, and from which epoch it begins.

A coordinator reports what became of the last attempt: hosts that were silent, could not enter it, or lacked fragments of a state.

| what is known | what it means for the next attempt |
|---|---|
| a host was silent | it counts as lost, until there is time to ask it again |
| it could not enter, and was not restarted since | for two minutes it gets nothing that another node can take |
| it could not rebuild a state | no attempt begins before a replica node is back, or the wait is over: see `loss_policy` |

The awkward case: the run waits for hosts and for replica nodes at the same time. Only time in which a *state* is unavailable
counts against the timeout for replica nodes.
"""

from dataclasses import dataclass

import msgspec

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.loss_policy import decide_loss, nodes_lost_with_state, remaining_fallback
from agiledart_recovery.attempts.replanning import forbidding_rule, next_plan
from agiledart_recovery.attempts.restart_backoff import RestartBackoff
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire.register_value import RegisterValue

ReplicaNodesByHost = dict[NodeId, tuple[NodeId, ...]]


@dataclass(frozen=True, slots=True)
class AttemptDecision:
    """Decision about the next attempt.

    Args:
        value: the next attempt's value; None: there is none yet.
        note: state that it does not restore as it was, or the rule that makes it wait.
        ends: why the run has failed.
        missing: nodes that it waits for.
    """

    value: RegisterValue | None = None
    note: str = ""
    ends: str = ""
    missing: tuple[NodeId, ...] = ()


class NextAttempt:
    """State of one coordinator for planning the next attempt.

    Attributes:
        restart_backoff: how soon it may begin.
        refusal: why the last attempt could not be entered, in words of a host.
        lacking: hosts that could not rebuild a state in the attempt that is being entered, with its replica nodes.
    """

    def __init__(self, context: RecoveryContext) -> None:
        self._context = context
        self.restart_backoff = RestartBackoff(context.config)
        self.refusal = ""
        self.lacking: ReplicaNodesByHost = {}
        self._unfound: ReplicaNodesByHost = {}  # the same, of the last attempt that was tried
        self._lost_since: Instant | None = None
        self._silent: dict[NodeId, None] = {}
        self._unfit: dict[NodeId, Instant] = {}

    # ---- what became of the last one

    def clear_silent(self) -> None:
        """Forget which hosts were silent: there is time to ask all again."""
        self._silent = {}

    def on_silent(self, node: NodeId) -> None:
        """Note that a host did not answer in time."""
        self._silent[node] = None

    def on_entry_failed(self, node: NodeId, reason: str) -> None:
        """Note that a host could not enter, though it was not restarted since; its unpinned instances may move."""
        self._unfit[node], self.refusal = self._context.now, reason

    def lacks(self, node: NodeId, replica_nodes: tuple[NodeId, ...], reason: str) -> None:
        """Note that a host could not rebuild a state.

        Another attempt helps only when a replica node has come back, so this one does not count among those that failed.
        """
        if not self.lacking:
            self.restart_backoff.forgive()
            self._lost_since = self._lost_since or self._context.now
        self.lacking[node], self.refusal = replica_nodes, reason

    def leaves(self, node: NodeId) -> None:
        """Note that a host is being drained."""
        self._unfit[node] = self._context.now

    def on_node_back(self) -> None:
        """Let hosts that could not enter an attempt try again, now that a node is back."""
        self._unfit = {}

    def on_attempt_started(self) -> None:
        """Note that an attempt is being entered."""
        self.lacking = {}

    def on_all_entered(self) -> None:
        """Note that all hosts have entered the attempt."""
        self._unfit, self.refusal, self._lost_since = {}, "", None

    @property
    def replica_nodes(self) -> tuple[NodeId, ...]:
        """Return the replica nodes of the states that are lacking."""
        return tuple(dict.fromkeys(node for nodes in self.lacking.values() for node in nodes))

    def retry_lacking(self) -> bool:
        """Return whether looking for a lacking state takes another attempt: a host that refused this one refuses it again."""
        self._silent = {}
        if self.lacking:
            self._unfound, self.lacking = self.lacking, {}
            return True
        return False

    # ---- the next one

    def decide(self, value: RegisterValue) -> AttemptDecision:
        """Decide what comes after the attempt of this value."""
        context = self._context
        timeout_ns = 2 * context.config.state_timeout_ns
        unfit = tuple(node for node, at in self._unfit.items() if context.now - at < timeout_ns)
        decision = decide_loss(
            value,
            self.is_there,
            self._unfound,
            lambda node: context.peer(Peer(node)).name or node.short,
            may_wait_for_state=self._may_wait_for_state(value),
            unfit=unfit,
        )
        if decision.ends:
            return AttemptDecision(ends=decision.ends)
        value = decision.applied(value)
        candidates, rules = (*context.candidates, context.me), context.host_rules
        plan, missing = next_plan(value, self.is_there, candidates, context.peer, unfit, rules)
        if plan is None:
            return AttemptDecision(note=forbidding_rule(value, self.is_there, candidates, rules), missing=missing)
        self._unfound = {}
        earlier_note = (
            value.reason
            if value.is_first_of_configuration
            or (value.rolled_back_to is not None and not decision.switches_checkpoint)
            else ""
        )
        note = "; ".join(part for part in (earlier_note, decision.note) if part)[:400]
        made = msgspec.structs.replace(
            value,
            attempt=value.next_attempt,
            plan=plan,
            old_voters=(),
            reason=note,
            fallback_checkpoint=remaining_fallback(value, plan),
        )
        return AttemptDecision(made, decision.note)

    def is_there(self, node: NodeId) -> bool:
        """Return whether a node can be reached and has not been silent."""
        return self._context.can_reach(node) and node not in self._silent

    def _may_wait_for_state(self, value: RegisterValue) -> bool:
        """Return whether replica nodes of a state may still come back."""
        plan = value.plan
        movable = (assignment for assignment in plan.assignments if not assignment.is_pinned)
        if not any(nodes_lost_with_state(value, assignment, self.is_there, self._unfound) for assignment in movable):
            self._lost_since = None
            return True
        self._lost_since = self._lost_since or self._context.now
        return self._context.now - self._lost_since < self._context.config.state_timeout_ns
