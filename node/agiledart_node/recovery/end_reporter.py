"""The end of a run: the coordinator reports it to the end recorder, which writes it into the application's record.

    all hosts know that the register has the end → `RunClosed` to the end recorder, repeated until it has written the record

The awkward case: the end recorder dies for good, or is banned, after it knew of the end and before it wrote it. Its output is on
its
disk by then, so another host may write it as well. After `SUCCESSOR_TIMEOUT_NS` of silence the next host is asked, for a day at
most.
"""

from typing import Final

import msgspec

from agiledart_kernel.instants import SECOND, Duration
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.recovery.attempt_entry import RunHost
from agiledart_node.wire.formation_messages import Acknowledged
from agiledart_node.wire.recovery_messages import RunClosed
from agiledart_recovery.attempts.coordinator import Coordinator
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import InstanceRole, RegisterValue, RunState

SUCCESSOR_TIMEOUT_NS: Final = 60 * SECOND
"""Time without an answer after which another host is asked to record an end."""

REPORTING_NS: Final = 24 * 3_600 * SECOND


class EndReporter:
    """Reports the ends of runs, and receives such reports."""

    def __init__(self, context: NodeContext, hosting: ApplicationHost, run_host: RunHost) -> None:
        self._context, self._hosting, self._run_host = context, hosting, run_host
        self._reported: dict[RunId, bool] = {}

    def forget(self, run: RunId) -> None:
        """Forget a run that is over here."""
        self._reported.pop(run, None)

    def look(self, run: RunId, coordinator: Coordinator) -> None:
        """Report the end of a run to its end recorder when the run is over and all hosts know."""
        if coordinator.leads and coordinator.is_over and run not in self._reported:
            self._reported[run] = True
            self._context.requests.begin(self._report_end(run, coordinator.value))

    def run_closed(self, sender: Peer, message: RunClosed) -> None:
        """Record the end of a run at the coordinator's request."""
        hosted = self._hosting.table.get((message.application, message.version))
        value = self._run_host.value(RunId(message.application, message.version))
        if value is not None and not value.may_be_sent_by(sender.node):
            self._context.drop("end of a run")
            return
        if hosted is None and (run := self._run_host.runs.get((message.application, message.version))) is not None:
            if not self._run_host.machine.has_ended(RunId(message.application, message.version)):
                return  # this process is new: its rows of the run's last epoch must be committed before the end is recorded
            hosted = self._hosting.adopt_ended(run.part)
        is_mine = message.is_substitute or message.state == "failed"
        if hosted is None or not (is_mine or hosted.part.coordinator.node == self._context.me.node):
            self._context.send(sender, Acknowledged(message.request))
        else:  # acknowledged once the end is recorded: then nothing of the run is hosted here
            self._run_host.closed(hosted, message.state, message.reason)

    async def _report_end(self, run: RunId, value: RegisterValue) -> None:
        """Report the end to the end recorder until it answers, or this node forgets the run."""
        state = "finished" if value.state is RunState.FINISHED else "failed"
        message = RunClosed(0, run.app, run.version, state, value.reason)
        timeout = Duration(self._context.config.ask_timeout_ns)
        pause, since, host_number = self._context.config.resend_ns, self._context.now, 0
        until = self._context.now + REPORTING_NS
        while run in self._run_host.machine.coordinators and self._context.now < until:
            to = self._end_recorder_at(value, host_number)
            number = self._context.requests.number()
            report = msgspec.structs.replace(message, request=number, is_substitute=host_number > 0)
            if await self._context.requests.ask(to, report, number, Acknowledged, timeout) is not None:
                return
            self._run_host.machine.resend_end(run, to)
            self._run_host.flush()
            if self._context.now - since > SUCCESSOR_TIMEOUT_NS:
                host_number, since, pause = host_number + 1, self._context.now, self._context.config.resend_ns
            await self._context.requests.pause(Duration(pause))
            pause = min(2 * pause, self._context.config.patrol_interval_ns)

    def _end_recorder_at(self, value: RegisterValue, host_number: int) -> Peer:
        """Return the host to ask: the first host of a sink, then all hosts in turn; any live host may record a failure."""
        first = min((assignment.host for assignment in value.plan.of(InstanceRole.SINK)), key=lambda peer: peer.node)
        hosts = list({peer.node: peer for peer in (first, *value.plan.hosts.values())}.values())
        if value.state is RunState.FAILED:
            hosts = [host for host in hosts if not self._context.requests.is_gone(host)] or hosts
        return hosts[host_number % len(hosts)]
