"""Transfer of a leaving node's voter slots: other nodes replace it as voter in the registers of all its runs."""

from collections.abc import Callable
from typing import Final

from agiledart_kernel.instants import MILLISECOND, Duration, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_node.context.node_context import NodeContext
from agiledart_node.recovery.recovery_service import RecoveryService
from agiledart_node.wire.drain_messages import EvacuationStatus, RequestEvacuation
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import RegisterValue, RunState

POLL_INTERVAL: Final = Duration(200 * MILLISECOND)
"""Pause between two requests."""


class VoterSlotTransfer:
    """Voter slots of this node."""

    def __init__(self, context: NodeContext, recovery_service: RecoveryService) -> None:
        self._context, self._recovery_service = context, recovery_service

    def voting_in(self) -> list[RegisterValue]:
        """Return the register values of the runs on which this node votes."""
        coordinators = self._recovery_service.machine.coordinators.values()
        return [
            known
            for coordinator in coordinators
            if not coordinator.is_over and (known := coordinator.known) is not None
        ]

    async def ask(self, value: RegisterValue, until: Instant, *, voter_slot: bool = False) -> EvacuationStatus | None:
        """Request an evacuation from the coordinator of a run, which may be any voter. Return its answer; None without one."""
        for voter in (*value.voters, *value.old_voters):
            timeout = min(self._context.config.ask_timeout_ns, until - self._context.now)
            if timeout <= 0:
                break
            number = self._context.requests.number()
            message = RequestEvacuation(number, value.run.app, value.run.version, voter_slot)
            answer = await self._context.requests.ask(voter.peer, message, number, EvacuationStatus, Duration(timeout))
            if answer is not None and not answer.is_not_coordinator:
                return answer
        return None

    async def give(self, until: Instant, goes_on: Callable[[], bool], report: Callable[[str], None]) -> None:
        """Return when other nodes have replaced this node as voter, or none can, or the time is over.

        When none can, the remaining voters are a majority without this node, or the run waits for it in any case.
        """
        reported: dict[RunId, str] = {}
        asked: dict[RunId, None] = {}
        while goes_on() and self._context.now < until:
            voting_in = {value.run: value for value in self.voting_in() if value.run not in reported}
            open_ = {run: value for run, value in voting_in.items() if self._is_transferable(value)}
            for run in asked:
                # This node coordinated the run itself, and has given up its slot.
                if run in voting_in and not _votes(self._context.me.node, voting_in[run]):
                    reported[run] = f"{run.app}: another node votes in its register"
                    report(reported[run])
            if not open_:
                return
            asked |= dict.fromkeys(open_)
            for value in open_.values():
                answer = await self.ask(value, until, voter_slot=True)
                if answer is not None and answer.is_safe:
                    reported[value.run] = f"{value.run.app}: another node votes in its register"
                elif answer is not None and answer.refusal:
                    reported[value.run] = f"{value.run.app}: {answer.refusal}"
                if value.run in reported:
                    report(reported[value.run])
            await self._context.requests.pause(POLL_INTERVAL)

    def _is_transferable(self, value: RegisterValue) -> bool:
        """Return whether this node votes and enough other voters are alive to write its replacement."""
        me, is_alive = self._context.me.node, self._context.overlay.is_alive
        available = [voter for voter in value.voters if voter.peer.node == me or is_alive(voter.peer.node)]
        is_written = 2 * len(available) > len(value.voters)
        return value.state is RunState.RUNNING and _votes(me, value) and is_written


def _votes(node: NodeId, value: RegisterValue) -> bool:
    return any(voter.peer.node == node for voter in (*value.voters, *value.old_voters))
