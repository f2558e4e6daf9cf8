"""The end of a run: the coordinator tells the node that notes it in the application's record, which notes it.

all hosts know that the register says so → RUN_CLOSED to who notes it, until it is noted

The awkward case: who notes it has died for good, or was banned, after it knew and before it had noted. What it had to show is on
its disk by then, so another host may note it as well: after `HEIR_NS` of silence the next is asked, and so on, for a day.
"""

from typing import Final

import msgspec

from agiledart_kernel.instants import SECOND, Duration
from agiledart_kernel.peer import Peer
from agiledart_node.desk.desk import Desk
from agiledart_node.hosting.hosting import Hosting
from agiledart_node.recovering.entering import Home
from agiledart_node.wire.formation_messages import Acknowledged
from agiledart_node.wire.recovery_messages import RunClosed
from agiledart_recovery.lives.coordinator import Coordinator
from agiledart_recovery.wire.names import Run
from agiledart_recovery.wire.value import Role, State, Value

HEIR_NS: Final = 60 * SECOND
"""Without an answer for so long another host is asked to note an end."""

LONGEST_NS: Final = 24 * 3_600 * SECOND


class Ending:
    """Tells and hears of ends."""

    def __init__(self, desk: Desk, hosting: Hosting, home: Home) -> None:
        self._desk, self._hosting, self._home = desk, hosting, home
        self._reported: dict[Run, bool] = {}

    def forget(self, run: Run) -> None:
        """Nothing of a run is known here any more."""
        self._reported.pop(run, None)

    def look(self, run: Run, coordinator: Coordinator) -> None:
        """When a run is over, and all hosts know, the node that notes it is told."""
        if coordinator.leads and coordinator.is_over and run not in self._reported:
            self._reported[run] = True
            self._desk.talks.begin(self._tell_end(run, coordinator.value))

    def run_closed(self, sender: Peer, message: RunClosed) -> None:
        """The register says that a run is over, and all its hosts know it."""
        hosted = self._hosting.table.get((message.application, message.version))
        value = self._home.value(Run(message.application, message.version))
        if value is not None and not value.may_be_told_by(sender.node):
            self._desk.drop("end of a run")
            return
        if hosted is None and (run := self._home.runs.get((message.application, message.version))) is not None:
            if not self._home.machine.has_ended(Run(message.application, message.version)):
                return  # this process is new, and what it has of the run's end must count before that is noted
            hosted = self._hosting.adopt_ended(run.part)
        is_mine = message.instead or message.state == "failed"
        if hosted is None or not (is_mine or hosted.part.coordinator.node == self._desk.me.node):
            self._desk.send(sender, Acknowledged(message.request))
        else:  # acknowledged when it is noted: then nothing of it is hosted here
            self._home.closed(hosted, message.state, message.reason)

    async def _tell_end(self, run: Run, value: Value) -> None:
        """Whoever notes the end is told, for as long as this node knows of the run."""
        state = "finished" if value.state is State.FINISHED else "failed"
        message = RunClosed(0, run.app, run.version, state, value.reason)
        timeout = Duration(self._desk.config.ask_timeout_ns)
        pause, since, turn = self._desk.config.resend_ns, self._desk.now, 0
        until = self._desk.now + LONGEST_NS
        while run in self._home.machine.coordinators and self._desk.now < until:
            to = self._who_notes(value, turn)
            number = self._desk.talks.number()
            said = msgspec.structs.replace(message, request=number, instead=turn > 0)
            if await self._desk.talks.ask(to, said, number, Acknowledged, timeout) is not None:
                return
            self._home.machine.tell_end_again(run, to)
            self._home.flush()
            if self._desk.now - since > HEIR_NS:
                turn, since, pause = turn + 1, self._desk.now, self._desk.config.resend_ns
            await self._desk.talks.pause(Duration(pause))
            pause = min(2 * pause, self._desk.config.patrol_interval_ns)

    def _who_notes(self, value: Value, turn: int) -> Peer:
        """The first host of a sink, after that one all hosts in turn; a failure is noted by any host that is there."""
        first = min((one.host for one in value.plan.of(Role.SINK)), key=lambda peer: peer.node)
        hosts = list({peer.node: peer for peer in (first, *value.plan.hosts.values())}.values())
        if value.state is State.FAILED:
            hosts = [host for host in hosts if not self._desk.talks.is_gone(host)] or hosts
        return hosts[turn % len(hosts)]
