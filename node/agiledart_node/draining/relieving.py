"""`AskRelief` at who coordinates a run: a host wants others to run what it runs.

Stages go at once, all in one barrier, as with `move`. Sources and sinks do not change in mid-stream: those that their topology
lets move do so by the next life, which reads again from the last committed epoch.
"""

from agiledart_kernel.errors import TopologyError
from agiledart_kernel.peer import Peer
from agiledart_node.desk.answering_once import AnsweringOnce
from agiledart_node.desk.desk import CommandRefused, Desk
from agiledart_node.recovering.change_plans import NoRoom
from agiledart_node.recovering.change_requests import ChangeRequests, NotCoordinated
from agiledart_node.recovering.recovering import Recovering
from agiledart_node.wire.change_messages import DRAIN, Wish
from agiledart_node.wire.drain_messages import AskRelief, Relieved
from agiledart_recovery.wire.names import Run
from agiledart_recovery.wire.value import Fate, State, Value


class Relieving:
    """What hosts that are drained want of runs that this node coordinates."""

    def __init__(self, desk: Desk, recovering: Recovering, changes: ChangeRequests) -> None:
        self._desk, self._recovering, self._changes = desk, recovering, changes
        self._once = AnsweringOnce(desk)

    async def asked(self, sender: Peer, message: AskRelief) -> None:
        """Answer a host; a question that comes again gets the same answer."""
        if self._once.is_new(sender, message.request):
            await self._once.say(sender, message.request, self._answer(sender, message))

    async def _answer(self, host: Peer, message: AskRelief) -> Relieved:
        run, number = Run(message.application, message.version), message.request
        coordinator = self._recovering.machine.coordinators.get(run)
        if coordinator is None or not coordinator.is_at_work or coordinator.proposer.value is None:
            return Relieved(number, is_elsewhere=True)
        if message.seat:
            why, is_safe = self._recovering.machine.request_seat_relief(run, host)
            return Relieved(number, not why and not is_safe, refusal=why, is_safe=is_safe)
        last = _last(coordinator.value)
        try:
            if not (value := coordinator.value).plan.at(host.node):
                self._recovering.relieve(run, host)
                return Relieved(number, is_safe=value.state is not State.RUNNING or value.committed.life == value.life)
            wish = Wish(DRAIN, node=host.node)
            if await self._changes.request(run, [wish], f"{host.name or host.node.short} is drained"):
                return Relieved(number, True, last=last)
            if not coordinator.value.plan.at(host.node):
                return Relieved(number)  # it left while room was asked for
        except NotCoordinated:
            return Relieved(number, is_elsewhere=True)
        except NoRoom as refusal:
            return Relieved(number, refusal=refusal.text)
        except CommandRefused as refusal:
            return Relieved(number, refusal=refusal.text, last=last, passes=True)
        except TopologyError as error:
            return Relieved(number, refusal=str(error))
        why = self._recovering.relieve(run, host)
        return Relieved(number, not why, refusal=why and f"{run.app}: {why}", passes=True)


def _last(value: Value) -> str:
    """What became of the last drain, when it came to nothing."""
    drains = [change for change in value.changes if change.kind == DRAIN]
    if not drains or drains[-1].fate in (Fate.RUNNING, Fate.DONE):
        return ""
    return f"it was {drains[-1].fate.value.replace('-', ' ')}: {drains[-1].why}"
