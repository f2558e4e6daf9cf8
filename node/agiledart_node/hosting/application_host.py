"""The hosting side: accepts parts of applications, starts and stops their instances, reports their end."""

from collections.abc import Callable
from typing import Any

import msgspec

from agiledart_dataflow.counts.statistics import PASSED_ROWS
from agiledart_dataflow.plan.deployment import DeploymentPart, InstanceAddress
from agiledart_kernel.instants import SECOND, Duration, Instant
from agiledart_kernel.machine import Completed, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.hosting.hosted_application import (
    HostedApplication,
    Key,
    figures_of,
    is_sound,
    planned_for,
    report_key,
)
from agiledart_node.hosting.source_sessions import sessions_at
from agiledart_node.records.application import FINISHED
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.records import Records
from agiledart_node.wire.effects import (
    DrainLocalSources,
    PrepareExecutors,
    StartInstances,
    StartLocalSources,
    StopInstances,
)
from agiledart_node.wire.events import InstanceFinished, InstanceReported, UserCallPending
from agiledart_node.wire.formation_messages import (
    Acknowledged,
    Deploy,
    Deployed,
    Drain,
    Halt,
    InstancesEnded,
    StartFlow,
)

MAX_LAST = 32
"""Ended runs whose last reports are kept for the node that records their end."""

MAX_CLOSED = 1_024
"""Closed runs that a node remembers, so that a late message does not start them again."""


def _nothing(hosted: HostedApplication) -> None:
    """Ignore the application; default of the hooks."""


def _no_change() -> None:
    """Ignore the change; default of the hook."""


class ApplicationHost:
    """Parts of applications at this node.

    Attributes:
        table: by (application, version), oldest first.
        on_flow, on_close: called with an application that runs, and with one that has ended here.
        on_part: called with an accepted part.
        on_capacity_changed: called when capacity was reserved or released.
        on_report: called with an accepted report of a local instance.
        on_rows_passed: called when such a report shows that rows have passed since the last one.
        on_outsider_halt: called when a node that takes no part in a run reports its end.
    """

    def __init__(self, context: NodeContext, verifier: CommandVerifier, records: Records) -> None:
        self._context, self._verifier, self._records = context, verifier, records
        self._doubted: dict[tuple[NodeId, int], bool] = {}
        self.table: dict[Key, HostedApplication] = {}
        self._last: dict[Key, dict[tuple[int, int], dict[str, Any]]] = {}
        self._closed: dict[int, tuple[int, Key, str]] = {}
        self.on_flow: Callable[[HostedApplication], None] = _nothing
        self.on_close: Callable[[HostedApplication], None] = _nothing
        self.on_capacity_changed: Callable[[], None] = _no_change
        self.on_outsider_halt: Callable[[HostedApplication, Peer, Halt], None] = lambda hosted, sender, message: None
        self.on_part: Callable[[HostedApplication, DeploymentPart], None] = lambda hosted, part: None
        self.on_report: Callable[[InstanceReported | InstanceFinished], None] = lambda event: None
        self.on_rows_passed: Callable[[HostedApplication], None] = _nothing

    @property
    def operators(self) -> int:
        """Instances that run here, or that an accepted plan assigns to this node."""
        return sum(hosted.reserved for hosted in self.table.values())

    @property
    def applications(self) -> tuple[str, ...]:
        """Names of applications with an instance here, sorted."""
        return tuple(sorted({hosted.part.application for hosted in self.table.values() if hosted.reserved}))

    def deploy(self, sender: Peer, message: Deploy) -> None:
        """Accept or refuse a part from a scheduler."""
        part = message.part
        if sender.node != part.scheduler.node or not is_sound(part):
            self._context.drop("deploy form")
            return
        hosted = self.table.get((part.application, part.version))
        if hosted is not None and (sender.node, message.request) in hosted.answers:
            answer = hosted.answers[sender.node, message.request]
            if answer is not None:
                self._context.send(sender, answer)
            return
        if hosted is None and self._verifier.may_be_replay(part):
            if (sender.node, message.request) not in self._doubted:
                self._doubted[sender.node, message.request] = True
                self._context.requests.begin(self._look_up(sender, message))
            return
        self._take(sender, message, hosted)

    async def _look_up(self, sender: Peer, message: Deploy) -> None:
        """Check an old command against the application's record, which alone shows whether it is still valid."""
        part, record = message.part, None
        try:
            _, record = await self._records.application(part.application)
        except CommandRefused:
            record = None
        del self._doubted[sender.node, message.request]
        if (
            record is None
            or record.is_final
            or (record.version, record.signed_command) != (part.version, part.signed_command)
        ):
            self._context.drop("command: spent")
            text = f"the command to submit {part.application} was carried out before, or is too old"
            self._context.send(sender, Deployed(message.request, (), text))
        else:
            self._take(sender, message, self.table.get((part.application, part.version)))

    def _take(self, sender: Peer, message: Deploy, hosted: HostedApplication | None) -> None:
        """Accept a part: reserve capacity, and start its instances if it has any."""
        part = message.part
        reason, is_full = self._objection(part, hosted)
        if reason:
            self._context.send(sender, Deployed(message.request, (), reason, is_full))
            return
        if hosted is None:
            hosted = self._admit(part)
        elif part.attempt > hosted.part.attempt or len(part.addresses) >= len(hosted.part.addresses):
            hosted.part = msgspec.structs.replace(part, bundle=b"")
        hosted.bundle = part.bundle or hosted.bundle
        if not part.instances:
            if part.bundle:
                slots = tuple(range(min(part.executors, hosted.planned)))
                self._context.emit(PrepareExecutors(msgspec.structs.replace(part, bundle=hosted.bundle), slots))
            hosted.answers[sender.node, message.request] = Deployed(message.request, ())
            self._context.send(sender, Deployed(message.request, ()))
            return
        hosted.answers[sender.node, message.request] = None
        for placed in part.instances:
            hosted.instances[placed.copy] = placed.executor
        self.on_part(hosted, part)
        self._context.requests.begin(self._start(hosted, sender, message.request, part))

    def _objection(self, part: DeploymentPart, hosted: HostedApplication | None) -> tuple[str, bool]:
        """Return (why this part is refused, whether for lack of capacity)."""
        key, me = (part.application, part.version), self._context.me.name
        known = hosted.part if hosted is not None else None
        content = part.signed_command, part.specification, part.owner
        is_known = known is not None and (known.signed_command, known.specification, known.owner) == content
        # A part with known content and without code was verified with an earlier part.
        if (part.bundle or not is_known) and (why := self._verifier.objection(part)):
            self._context.drop("command: refused")
            return why, False
        attempt, _, closed = self._closed.get(part.number, (0, key, ""))
        newer = [version for name, version in self.table if name == part.application and version > part.version]
        if attempt >= part.attempt or newer:
            return closed or f"{me} runs a newer version of {part.application}", False
        if hosted is not None and hosted.part.number != part.number:
            return f"{me} takes part in another run of {part.application}, which was submitted elsewhere", False
        if hosted is not None and hosted.is_closing:
            return f"{part.application} is being stopped on {me}", False
        if part.instances and not part.bundle and (hosted is None or not hosted.bundle):
            return f"the first part of {part.application} arrived without its code", False
        if self._context.no_work_reason:
            return f"{me} {self._context.no_work_reason}", True
        if self._context.requests.is_full or (hosted is None and len(self.table) >= self._context.config.max_hosted):
            return f"{me} takes part in {len(self.table)} applications, which is its limit", True
        # Instances reserved for this application are counted by `planned_for`, not twice.
        held = self.operators - (hosted.reserved if hosted is not None else 0)
        most = self._context.config.capacity
        if hosted is None and part.most:
            most = min(most, part.most)
        if held + planned_for(part, self._context.me.node) > most:
            return f"{me} has capacity for {most} instances and runs {held}", True
        return "", False

    def objection_to_part(self, part: DeploymentPart) -> str:
        """Return why a part does not follow from the command that submitted its application; empty: it does."""
        return self._verifier.objection(part)

    def adopt(self, part: DeploymentPart) -> HostedApplication:
        """Resume a part that this node hosted before its restart."""
        known = self.table.get((part.application, part.version))
        self._closed.pop(part.number, None)  # the entry dates from before the run moved away
        return known if known is not None else self._admit(part)

    def adopt_ended(self, part: DeploymentPart) -> HostedApplication | None:
        """Resume the end of a run that this node hosted before its restart, to record it. None: a newer version runs here."""
        if any(name == part.application and version > part.version for name, version in self.table):
            return None
        hosted = self.adopt(msgspec.structs.replace(part, coordinator=self._context.me))
        hosted.has_register, hosted.planned = True, 0
        self.on_capacity_changed()
        return hosted

    def moved(self, hosted: HostedApplication, part: DeploymentPart) -> None:
        """Watch the new hosts after instances have moved."""
        before = self._watched_by(hosted)
        hosted.part = part
        if self.table.get(hosted.key) is hosted:
            for peer in self._watched_by(hosted):
                self._context.watch(peer)
            for peer in before:
                self._context.unwatch(peer)

    def _admit(self, part: DeploymentPart) -> HostedApplication:
        for key in [key for key in self.table if key[0] == part.application and key[1] < part.version]:
            self.close(self.table[key], f"version {part.version} was submitted")
        hosted = HostedApplication(
            msgspec.structs.replace(part, bundle=b""), planned=planned_for(part, self._context.me.node)
        )
        self.table[hosted.key] = hosted
        self.on_capacity_changed()
        for peer in self._watched_by(hosted):
            self._context.watch(peer)
        return hosted

    def _watched_by(self, hosted: HostedApplication) -> tuple[Peer, ...]:
        """Return the nodes whose death matters: hosts, and the scheduler while it deploys."""
        scheduler = hosted.part.scheduler
        others = [peer for peer in hosted.hosts if peer.node != scheduler.node]
        return (scheduler, *others)

    async def _start(self, hosted: HostedApplication, sender: Peer, request: int, part: DeploymentPart) -> None:
        number = self._context.requests.number()
        effect = StartInstances(number, msgspec.structs.replace(part, bundle=hosted.bundle))
        answers = await self._context.ask_driver(number, effect, self._context.config.start_timeout_ns)
        answer = answers.get(number)
        reason = ""
        addresses: tuple[InstanceAddress, ...] = ()
        if isinstance(answer, Completed):
            addresses = _addresses(part, answer.result)
            if not addresses:
                reason = f"{self._context.me.name} did not report the addresses of the instances of {part.application}"
        elif isinstance(answer, Failed):
            reason = answer.reason
        else:
            seconds = self._context.config.start_timeout_ns // 1_000_000_000
            reason = f"{self._context.me.name} did not start its instances of {part.application} within {seconds} s"
        # The run was closed while its instances started: they must not outlive it. Those of a newer plan of it stay.
        if (current := self.table.get(hosted.key)) is not hosted:
            if current is None:
                self._context.emit(StopInstances(part.application, part.version))
            return
        if reason:
            for placed in part.instances:
                hosted.instances.pop(placed.copy, None)
        acknowledged = Deployed(request, addresses, reason)
        hosted.answers[sender.node, request] = acknowledged
        self._context.send(sender, acknowledged)

    def start_flow(self, sender: Peer, message: StartFlow) -> None:
        """Start the sources of an application that runs now."""
        hosted = self.table.get((message.application, message.version))
        if hosted is None or not hosted.concerns(sender.node):
            key = (message.application, message.version)
            reason = next((why for _, of, why in reversed(self._closed.values()) if of == key), "not deployed here")
            self._context.send(sender, Acknowledged(message.request, reason))
            return
        self.flow(hosted)
        self._context.send(sender, Acknowledged(message.request))

    def flow(self, hosted: HostedApplication) -> None:
        """Let local sources read."""
        if not hosted.is_flowing and not hosted.is_closing:
            hosted.is_flowing = True
            hosted.bundle = b""  # all parts have arrived: release up to 8 MiB
            self._context.emit(StartLocalSources(*hosted.key))
            self.on_flow(hosted)

    def halt(self, sender: Peer, message: Halt) -> None:
        """Close a run that a participant reports as ended. Acknowledged in any case: nothing of it remains here."""
        key = (message.application, message.version)
        hosted = self.table.get(key)
        is_ours = hosted is not None and message.number in (0, hosted.part.number)
        if hosted is not None and is_ours and not hosted.concerns(sender.node):
            self._context.drop("halt of a stranger")
            self.on_outsider_halt(hosted, sender, message)
            return
        if hosted is not None and is_ours:
            self.close(hosted, message.reason)
        self._context.send(sender, Acknowledged(message.request))

    def drain(self, sender: Peer, message: Drain) -> None:
        """End the local sources on request of the coordinator."""
        hosted = self.table.get((message.application, message.version))
        if hosted is not None and hosted.concerns(sender.node):
            self.drain_here(hosted)
        self._context.send(sender, Acknowledged(message.request))

    def drain_here(self, hosted: HostedApplication) -> None:
        """End the local sources."""
        hosted.is_draining = True
        self._context.emit(DrainLocalSources(*hosted.key))

    def stop_local(self, hosted: HostedApplication) -> None:
        """End the executors; the application's state is kept until `close`."""
        if not hosted.is_closing:
            hosted.is_closing = True
            self._context.emit(StopInstances(*hosted.key))

    def close(self, hosted: HostedApplication, reason: str) -> None:
        """Close an application here: end its executors, and watch no node for it any more."""
        if self.table.get(hosted.key) is not hosted:
            return
        self.stop_local(hosted)
        del self.table[hosted.key]
        if hosted.reports or hosted.seen:
            self._last[hosted.key] = figures_of(hosted)
            if len(self._last) > MAX_LAST:
                del self._last[next(iter(self._last))]
        for peer in self._watched_by(hosted):
            self._context.unwatch(peer)
        if len(self._closed) >= MAX_CLOSED:
            del self._closed[next(iter(self._closed))]
        if not hosted.has_moved:  # otherwise the run may move back here
            self._verifier.mark_executed(hosted.part, ran=hosted.is_flowing)
            self._end_sessions(hosted)
        why = reason or f"{hosted.part.application} was ended"
        self._closed[hosted.part.number] = (hosted.part.attempt, hosted.key, why)
        self.on_close(hosted)
        self.on_capacity_changed()

    def _end_sessions(self, hosted: HostedApplication) -> None:
        """Let brokers forget the sessions of its sources here, and of those at nodes that are gone."""
        known = {peer.node for peer in self._context.known()}
        lost = {peer.node for peer in hosted.part.nodes if peer.node not in known}
        if (request := sessions_at(hosted.part, {self._context.me.node} | lost)) is not None:
            self._context.emit(request)

    def why_closed(self, hosted: HostedApplication) -> str:
        """Return why it ended here, as long as that is remembered; empty: it has finished."""
        _, _, why = self._closed.get(hosted.part.number, (0, hosted.key, ""))
        return "" if why == FINISHED else why

    def figures(self, key: Key) -> dict[tuple[int, int], dict[str, Any]]:
        """Return the last reports of a run's instances that this node knows, and keeps for a while after the run's end here."""
        hosted = self.table.get(key)
        return figures_of(hosted) if hosted is not None else self._last.get(key, {})

    def reported(self, event: InstanceReported | InstanceFinished) -> HostedApplication | None:
        """Store a local instance's report; None when the instance is not hosted here."""
        hosted = self.table.get((event.application, event.version))
        if hosted is None or hosted.is_closing or (event.stage, event.index) not in hosted.instances:
            self._context.drop("stale report")
            return None
        before = hosted.reports.get((event.stage, event.index))
        hosted.reports[event.stage, event.index] = event.report
        hosted.reported_at[event.stage, event.index] = self._context.now
        hosted.pending_calls.pop((event.stage, event.index), None)
        self.on_report(event)
        if event.report.get(PASSED_ROWS, 0) != (0 if before is None else before.get(PASSED_ROWS, 0)):
            self.on_rows_passed(hosted)
        return hosted

    def call_pending(self, event: UserCallPending) -> None:
        """Note user code that does not return, at all instances of its executor: none of them can report."""
        hosted = self.table.get((event.application, event.version))
        if hosted is None or hosted.is_closing:
            return
        since = Instant(self._context.now - event.seconds * SECOND)
        for copy in event.instances:
            if copy in hosted.instances:
                hosted.pending_calls[copy] = (event.step, event.place, since)

    def finished(self, event: InstanceFinished) -> None:
        """Note the end of a local instance, and report it to the coordinator until that acknowledges."""
        hosted = self.reported(event)
        if hosted is None:
            return
        hosted.finished[event.stage, event.index] = True
        if not hosted.is_reporting:
            hosted.is_reporting = True
            self._context.requests.begin(self._report_finished(hosted))

    async def _report_finished(self, hosted: HostedApplication) -> None:
        # Ends are reported within their attempt only: the instances of the next attempt end again.
        attempt = hosted.attempt
        while not hosted.is_closing and hosted.attempt == attempt:
            copies = [copy for copy in hosted.finished if copy not in hosted.acknowledged]
            if not copies:
                break
            number = self._context.requests.number()
            reports: dict[str, Any] = {report_key(copy): hosted.reports[copy] for copy in copies}
            message = InstancesEnded(number, *hosted.key, reports, attempt)
            timeout = Duration(self._context.config.ask_timeout_ns)
            answer = await self._context.requests.ask(hosted.part.coordinator, message, number, Acknowledged, timeout)
            if answer is not None and hosted.attempt == attempt:
                hosted.acknowledged.update(dict.fromkeys(copies, True))
            elif answer is None and not hosted.is_closing:  # declared dead: its watchers end the application
                await self._context.requests.pause(Duration(self._context.config.resend_ns))
        if hosted.attempt == attempt:
            hosted.is_reporting = False

    def violations(self) -> list[str]:
        """Return violated invariants: one version per application, watched hosts, ends only after reports, and all limits."""
        context, config, broken = self._context, self._context.config, []
        for key, hosted in self.table.items():
            name, part = f"hosted: {key[0]} version {key[1]}", hosted.part
            unwatched = [peer.node.short for peer in self._watched_by(hosted) if not context.is_watched(peer)]
            if hosted.key != key or any(other[0] == key[0] and other[1] != key[1] for other in self.table):
                broken.append(f"{name} is kept as {hosted.key}, or beside another version")
            if unwatched:
                broken.append(f"{name}: this node does not watch {', '.join(unwatched)}")
            if (
                not hosted.acknowledged.keys()
                <= hosted.finished.keys()
                <= hosted.reports.keys()
                <= hosted.instances.keys()
            ):
                broken.append(
                    f"{name}: acknowledged, finished, reported and running instances are not subsets of each other"
                )
            if hosted.collected and part.coordinator.node != context.me.node:
                broken.append(f"{name}: its results are collected here, and its coordinator is another node")
            if self._closed.get(part.number, (0, key, ""))[0] >= part.attempt:
                broken.append(f"{name}, attempt {part.attempt}, was closed here already")
        for things, count, most in (
            ("applications", len(self.table), config.max_hosted),
            ("instances", self.operators, config.capacity),
            ("closed runs", len(self._closed), MAX_CLOSED),
            ("runs' last figures", len(self._last), MAX_LAST),
        ):
            if count > most:
                broken.append(f"bound: {count} {things}, at most {most}")
        return broken


def _addresses(part: DeploymentPart, result: object) -> tuple[InstanceAddress, ...]:
    """Return the driver's answer for every instance of the part, or nothing when one is missing."""
    if not isinstance(result, dict):
        return ()
    addresses = []
    for placed in part.instances:
        address = result.get(placed.copy)
        if not isinstance(address, str):
            return ()
        addresses.append(InstanceAddress(placed.stage, placed.index, address))
    return tuple(addresses)
