"""Requests of this node for a run that it coordinates: change stages, drain a host, or end the run with its state kept.

Each request returns why it is not carried out; empty: it is under way. A request that is made while the run is being restarted
is refused, and the requester repeats it.
"""

from collections.abc import Callable

import msgspec

from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.attempt_writer import AttemptWriter
from agiledart_recovery.attempts.coordinator_state import CoordinatorState, Phase
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.proposer import Phase as Hold
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import CheckpointId
from agiledart_recovery.wire.register_value import Plan, RunState


class RunRequests:
    """Requests for one run.

    Args:
        proceed: does at once what the next tick would do.
    """

    def __init__(
        self, context: RecoveryContext, state: CoordinatorState, writer: AttemptWriter, proceed: Callable[[], None]
    ) -> None:
        self._context, self._state, self._writer, self._proceed = context, state, writer, proceed

    # ---- changes

    def on_change(self, plan: Plan) -> str:
        """Start a change of stages to new generations. Return why not; empty: it is under way."""
        state = self._state
        if self._cannot_begin:
            return self._why_not_now()
        if state.commit_protocol.is_held:
            return "the application is being stopped"
        why = state.commit_protocol.generation_change.want(state.value, plan)
        self._proceed()
        return why

    @property
    def _cannot_begin(self) -> bool:
        state = self._state
        return (
            state.voter_replacement.is_leaving or state.phase is not Phase.RUNNING or state.proposer.phase is Hold.IDLE
        )

    def _why_not_now(self) -> str:
        is_mine = self._state.is_coordinating and not self._state.voter_replacement.is_leaving
        return _refusal(is_coordinating=is_mine)

    # ---- drained hosts

    def on_evacuation(self, host: Peer) -> str:
        """Plan the next attempt without a host that is to be drained. Return why not; empty: it has started, or is done."""
        state = self._state
        if not state.value.plan.at(host.node):
            if state.is_coordinating and state.holds_ballot:
                # The host may not know of the attempt without it.
                self._context.send(host, wire.Reset(state.run, state.proposer.ballot, state.value))
            return ""
        if state.phase is not Phase.RUNNING or not state.holds_ballot or state.need:
            return _refusal(is_coordinating=state.is_coordinating)
        if state.commit_protocol.is_held:
            return "the application is being stopped"
        if not any(
            peer.node != host.node and self._context.can_reach(peer.node)
            for peer in (self._context.me, *self._context.candidates)
        ):
            return "there is no other node"
        state.evacuated[host.node] = host
        state.next_attempt.leaves(host.node)
        self._writer.begin(f"{host.name or host.node.short} is drained", "drained")
        return ""

    def on_voter_evacuation(self, host: Peer) -> tuple[str, bool]:
        """Replace a voter that is about to leave.

        Returns why no node can take its slot (empty: one does), and whether the register already names the replacement.
        """
        value = self._state.value
        if all(voter.peer.node != host.node for voter in (*value.voters, *value.old_voters)):
            return "", True
        return self._state.voter_replacement.request_replacement(host.node, value), False

    # ---- ending with the state kept

    def on_hold(self) -> str:
        """Stop reading behind the next epoch. Return why not; empty: it is under way, see `CommitProtocol.held`."""
        if self._cannot_begin:
            return self._why_not_now()
        commit_protocol = self._state.commit_protocol
        if not commit_protocol.is_held and commit_protocol.generation_change.plan.changes:
            return "a change of it is under way"
        if not commit_protocol.is_held:
            commit_protocol.hold()
            self._proceed()
        return ""

    def on_end_held(self, at: CheckpointId, reason: str) -> str:
        """Write that the run has ended at the epoch behind which sources read nothing. Return why not; empty: it is under way."""
        state = self._state
        if state.phase is not Phase.RUNNING or not state.holds_ballot or state.need:
            return _refusal(is_coordinating=state.is_coordinating)
        if state.commit_protocol.held != at or state.value.committed != at:
            return "it has committed more meanwhile"
        finished = msgspec.structs.replace(state.value, state=RunState.FINISHED, reason=reason[:400], old_voters=())
        state.proposer.write(finished)
        return ""

    def on_release(self, reason: str) -> None:
        """Continue a run that was held: sources read on from the committed epoch in the next attempt."""
        state = self._state
        if state.phase is Phase.RUNNING and state.commit_protocol.is_held:
            state.need = reason
            self._writer.begin(reason)


def _refusal(*, is_coordinating: bool) -> str:
    return "the application is being restarted" if is_coordinating else "another node coordinates it"
