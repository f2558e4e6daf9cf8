"""Evacuation requests at the coordinator of a run: a host asks that other nodes run its instances.

Stages move at once, all in one barrier, as with `move`. Sources and sinks do not change in mid-stream. Those that their topology
lets move do so in the next attempt, which reads again from the last committed epoch.
"""

from agiledart_kernel.errors import TopologyError
from agiledart_kernel.peer import Peer
from agiledart_node.context.idempotent_replies import IdempotentReplies
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.recovery.change_plans import InsufficientNodeCapacity
from agiledart_node.recovery.change_requests import ChangeRequests, NotCoordinated
from agiledart_node.recovery.recovery_service import RecoveryService
from agiledart_node.wire.change_messages import DRAIN, ChangeRequest
from agiledart_node.wire.drain_messages import EvacuationStatus, RequestEvacuation
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import ChangeOutcome, RegisterValue, RunState


class EvacuationRequests:
    """Requests of drained hosts to the runs that this node coordinates."""

    def __init__(self, context: NodeContext, recovery_service: RecoveryService, changes: ChangeRequests) -> None:
        self._context, self._recovery_service, self._changes = context, recovery_service, changes
        self._once = IdempotentReplies(context)

    async def asked(self, sender: Peer, message: RequestEvacuation) -> None:
        """Answer a host; a repeated request gets the same answer."""
        if self._once.is_new(sender, message.request):
            await self._once.send_reply(sender, message.request, self._answer(sender, message))

    async def _answer(self, host: Peer, message: RequestEvacuation) -> EvacuationStatus:
        run, number = RunId(message.application, message.version), message.request
        coordinator = self._recovery_service.machine.coordinators.get(run)
        if coordinator is None or not coordinator.is_coordinating or coordinator.proposer.value is None:
            return EvacuationStatus(number, is_not_coordinator=True)
        if message.voter_slot:
            refusal_text, is_safe = self._recovery_service.machine.request_voter_evacuation(run, host)
            return EvacuationStatus(number, not refusal_text and not is_safe, refusal=refusal_text, is_safe=is_safe)
        last = _last(coordinator.value)
        try:
            if not (value := coordinator.value).plan.at(host.node):
                self._recovery_service.evacuate(run, host)
                return EvacuationStatus(
                    number, is_safe=value.state is not RunState.RUNNING or value.committed.attempt == value.attempt
                )
            request = ChangeRequest(DRAIN, node=host.node)
            if await self._changes.request(run, [request], f"{host.name or host.node.short} is drained"):
                return EvacuationStatus(number, True, last=last)
            if not coordinator.value.plan.at(host.node):
                return EvacuationStatus(number)  # it left while nodes were asked for capacity
        except NotCoordinated:
            return EvacuationStatus(number, is_not_coordinator=True)
        except InsufficientNodeCapacity as refusal:
            return EvacuationStatus(number, refusal=refusal.text)
        except CommandRefused as refusal:
            return EvacuationStatus(number, refusal=refusal.text, last=last, is_transient=True)
        except TopologyError as error:
            return EvacuationStatus(number, refusal=str(error))
        refusal_text = self._recovery_service.evacuate(run, host)
        return EvacuationStatus(
            number, not refusal_text, refusal=refusal_text and f"{run.app}: {refusal_text}", is_transient=True
        )


def _last(value: RegisterValue) -> str:
    """Return why the last drain failed; empty when it did not."""
    drains = [change for change in value.changes if change.kind == DRAIN]
    if not drains or drains[-1].fate in (ChangeOutcome.RUNNING, ChangeOutcome.DONE):
        return ""
    return f"it was {drains[-1].fate.value.replace('-', ' ')}: {drains[-1].why}"
