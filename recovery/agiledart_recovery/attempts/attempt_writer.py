"""Writer of the next attempt: it plans an attempt and has the register ACCEPT it, or lets the run wait or fail.

The awkward case: a new attempt is needed while a write is under way, or too soon after the last attempt. The need stays noted,
and the coordinator asks again with its next tick.
"""

import msgspec

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.coordinator_state import CoordinatorState, Phase
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire.observations import AttemptBegan, RunWaits
from agiledart_recovery.wire.register_value import RegisterValue, RunState


class AttemptWriter:
    """Writer of one run's next attempt."""

    def __init__(self, context: RecoveryContext, state: CoordinatorState) -> None:
        self._context, self._state = context, state
        self._retry_at = 0

    def begin(self, reason: str, kind: str = "broken") -> None:
        """Plan the next attempt and write it; no node acts on it before the register has it."""
        context, state = self._context, self._state
        value, restart_backoff = state.value, state.next_attempt.restart_backoff
        if value.attempt and state.progress.phase != "waiting":
            state.progress.enter("plan", context.now, reason)
        if not state.holds_ballot or context.now < restart_backoff.due(context.now):
            state.need = state.need or reason
            state.phase = Phase.RUNNING if state.phase is Phase.READING else state.phase
            return
        value = state.commit_protocol.generation_change.in_next_attempt(value, reason)
        if restart_backoff.is_exhausted(context.now):
            self._fail(value, f"{reason[:300]}; {restart_backoff.exhausted_text()}")
            return
        decision = state.next_attempt.decide(value)
        if decision.ends:
            self._fail(value, decision.ends)
        elif decision.value is None:
            text = "; ".join(part for part in (reason, decision.note) if part)
            self.wait_for(decision.missing, text, context.config.capacity_retry_ns)
        else:
            state.need = ""
            text = "; ".join(part for part in (reason, decision.note) if part)
            context.observe(AttemptBegan(state.run, decision.value.attempt, kind, text))
            state.proposer.write(decision.value)

    def _fail(self, value: RegisterValue, reason: str) -> None:
        failed = msgspec.structs.replace(value, state=RunState.FAILED, reason=reason[:400], old_voters=())
        self._state.proposer.write(failed)

    def wait_for(self, missing: tuple[NodeId, ...], reason: str, span_ns: int) -> None:
        """Keep the attempt until a missing node is back, or the time span (nanoseconds) is over."""
        state, now = self._state, self._context.now
        if missing != state.progress.waits_for:
            peers = tuple(self._context.peer(Peer(node)) for node in missing)
            self._context.observe(RunWaits(state.run, state.value.attempt, peers, reason))
        state.progress.enter("waiting", now, reason)
        state.progress.waits_for = missing
        state.phase, self._retry_at = Phase.WAITING, now + span_ns

    @property
    def is_retry_due(self) -> bool:
        """Return whether the time span is over for which the run waits."""
        return self._context.now >= self._retry_at
