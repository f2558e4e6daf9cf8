"""The end of a run: the coordinator tells the node that notes it in the application's record, which notes it.

all hosts know that the register says so → RUN_CLOSED to who notes it, until it is noted
"""

import msgspec

from agiledart_kernel.instants import Duration
from agiledart_kernel.peer import Peer
from agiledart_node.desk.desk import Desk
from agiledart_node.hosting.hosting import Hosting
from agiledart_node.recovering.entering import Home
from agiledart_node.wire.formation_messages import Acknowledged
from agiledart_node.wire.recovery_messages import RunClosed
from agiledart_recovery.lives.coordinator import Coordinator
from agiledart_recovery.wire.names import Run
from agiledart_recovery.wire.value import Role, State, Value


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
        if hosted is None or not (message.state == "failed" or hosted.part.coordinator.node == self._desk.me.node):
            self._desk.send(sender, Acknowledged(message.request))
        else:  # acknowledged when it is noted: then nothing of it is hosted here
            self._home.closed(hosted, message.state, message.reason)

    async def _tell_end(self, run: Run, value: Value) -> None:
        """Whoever notes the end is told, for as long as this node knows of the run."""
        state = "finished" if value.state is State.FINISHED else "failed"
        message = RunClosed(0, run.app, run.version, state, value.reason)
        timeout = Duration(self._desk.config.ask_timeout_ns)
        pause = self._desk.config.resend_ns
        while run in self._home.machine.coordinators:
            to = self._who_notes(value)
            number = self._desk.talks.number()
            said = msgspec.structs.replace(message, request=number)
            if await self._desk.talks.ask(to, said, number, Acknowledged, timeout) is not None:
                return
            self._home.machine.tell_end_again(run, to)
            self._home.flush()
            await self._desk.talks.pause(Duration(pause))
            pause = min(2 * pause, self._desk.config.patrol_interval_ns)

    def _who_notes(self, value: Value) -> Peer:
        """The first host of a sink; a failure is noted by any host that is there."""
        sinks = [one.host for one in value.plan.of(Role.SINK)]
        to = min(sinks, key=lambda peer: peer.node)
        if value.state is State.FAILED:
            to = next((host for host in (to, *value.plan.hosts.values()) if not self._desk.talks.is_gone(host)), to)
        return to
