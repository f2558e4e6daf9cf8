"""`GivingSeats`: a node that goes has others vote in its place, in the registers of all runs in which it has a seat."""

from collections.abc import Callable
from typing import Final

from agiledart_kernel.instants import MILLISECOND, Duration, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_node.desk.desk import Desk
from agiledart_node.recovering.recovering import Recovering
from agiledart_node.wire.drain_messages import AskRelief, Relieved
from agiledart_recovery.wire.names import Run
from agiledart_recovery.wire.value import State, Value

LOOK: Final = Duration(200 * MILLISECOND)
"""From one question to the next."""


class GivingSeats:
    """Seats of one node."""

    def __init__(self, desk: Desk, recovering: Recovering) -> None:
        self._desk, self._recovering = desk, recovering

    def led(self) -> list[Value]:
        """What the registers say in which this node has a seat."""
        coordinators = self._recovering.machine.coordinators.values()
        return [known for one in coordinators if not one.is_over and (known := one.known) is not None]

    async def ask(self, value: Value, until: Instant, *, seat: bool = False) -> Relieved | None:
        """What who coordinates a run says to a wish to go. Any voter may coordinate."""
        for voter in (*value.voters, *value.outgoing):
            timeout = min(self._desk.config.ask_timeout_ns, until - self._desk.now)
            if timeout <= 0:
                break
            number = self._desk.talks.number()
            message = AskRelief(number, value.run.app, value.run.version, seat)
            answer = await self._desk.talks.ask(voter.peer, message, number, Relieved, Duration(timeout))
            if answer is not None and not answer.is_elsewhere:
                return answer
        return None

    async def give(self, until: Instant, goes_on: Callable[[], bool], say: Callable[[str], None]) -> None:
        """Return when others vote in place of this node, or nobody can, or it is late.

        Where nobody can, the voters that stay are a majority without this node, or the run waits for it in any case.
        """
        told: dict[Run, str] = {}
        asked: dict[Run, None] = {}
        while goes_on() and self._desk.now < until:
            led = {value.run: value for value in self.led() if value.run not in told}
            open_ = {run: value for run, value in led.items() if self._can_be_given(value)}
            for run in asked:
                if run in led and not _votes(self._desk.me.node, led[run]):  # this node coordinated it, and has let go
                    told[run] = f"{run.app}: another node votes in its register"
                    say(told[run])
            if not open_:
                return
            asked |= dict.fromkeys(open_)
            for value in open_.values():
                answer = await self.ask(value, until, seat=True)
                if answer is not None and answer.is_safe:
                    told[value.run] = f"{value.run.app}: another node votes in its register"
                elif answer is not None and answer.refusal:
                    told[value.run] = f"{value.run.app}: {answer.refusal}"
                if value.run in told:
                    say(told[value.run])
            await self._desk.talks.pause(LOOK)

    def _can_be_given(self, value: Value) -> bool:
        """Whether this node votes, and enough others are there to write down who does in its place."""
        me, is_alive = self._desk.me.node, self._desk.overlay.is_alive
        there = [voter for voter in value.voters if voter.peer.node == me or is_alive(voter.peer.node)]
        is_written = 2 * len(there) > len(value.voters)
        return value.state is State.RUNNING and _votes(me, value) and is_written


def _votes(node: NodeId, value: Value) -> bool:
    return any(voter.peer.node == node for voter in (*value.voters, *value.outgoing))
