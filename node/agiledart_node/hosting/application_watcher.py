"""Ends of an application: a dead host, a failed instance, the end of its input, a user's command, a leaving node.

The first cause that reaches the record is the cause (see the decision on the record of an application). Its writer halts all other
nodes; halted nodes report nothing more. A node that hosts nothing of it and loses contact with a host may itself be cut off: its
write is marked as unverified and halts no node, and the coordinator revokes it while the run lives.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from agiledart_kernel.instants import MILLISECOND, Duration
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.hosting.hosted_application import HostedApplication, Key, figures_of, report_copy
from agiledart_node.hosting.last_figures import LastFigures
from agiledart_node.hosting.record_refresher import RecordRefresher, again_text
from agiledart_node.hosting.stop_coordinator import StopCoordinator
from agiledart_node.records.application import (
    DEPLOYING,
    FAILED,
    FINISHED,
    RUNNING,
    STOPPED,
    ApplicationRecord,
    advanced,
    instances_text,
    kept_changes,
)
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.lost_rows import losses_of, with_losses
from agiledart_node.records.merged_applications import with_rival_ended
from agiledart_node.records.records import Records
from agiledart_node.records.signed_entries import with_stop
from agiledart_node.records.summary import summary_of
from agiledart_node.wire.change_responses import ChangeRow
from agiledart_node.wire.events import InstanceFailed
from agiledart_node.wire.formation_messages import (
    Acknowledged,
    Halt,
    InstancesEnded,
    QueryActive,
)

_SURE = ("left", "restarted")
"""Ways of leaving after which a peer's instances are certainly gone."""

MAX_UNVERIFIED_CHECKS = 60
"""Consecutive patrols with an unverified failure before a guard accepts it."""

MAX_MISSING_CHECKS = 3
"""Consecutive patrols without a record before a part counts as forgotten."""


LAST_FIGURES_NS: Final = 600 * MILLISECOND
"""Time for the last figures of instances that were stopped; their executors report every half second."""


class ApplicationWatcher:
    """Ends of applications in which this node takes part."""

    def __init__(
        self, context: NodeContext, records: Records, hosting: ApplicationHost, verifier: CommandVerifier
    ) -> None:
        self._context, self._records, self._hosting, self._verifier = context, records, hosting, verifier
        self._figures = LastFigures(context, records)
        self.stops = StopCoordinator(context, records, hosting, verifier, self._end)
        self.refresher = RecordRefresher(context, records, hosting, self.halt)
        self._looking: dict[Key, None] = {}
        hosting.on_outsider_halt = self._verify_halt
        self.on_record: Callable[[HostedApplication, ApplicationRecord], None] = lambda hosted, record: None
        self.on_broken: Callable[[HostedApplication, InstanceFailed], None] = lambda hosted, event: None
        self.changes_of: Callable[[Key], list[ChangeRow]] = lambda key: []

    def peer_gone(self, peer: Peer, how: str) -> None:
        """Handle a peer that was declared dead (`how`: silent, link, rumour, restarted) or left (`left`)."""
        for hosted in list(self._hosting.table.values()):
            host = hosted.host(peer.node)
            if hosted.has_register or (hosted.part.by_epoch and not hosted.planned and host is not None):
                continue  # its register's coordinator restarts it; guards do nothing
            # A host of a later incarnation than the dead peer is not affected.
            if host is not None and host.incarnation <= peer.incarnation:
                # Hosts of the run, or a certain loss, end it at once; a guard may be cut off itself, so its report is unverified.
                text = self._loss_text(hosted, host, how)
                if how in _SURE or hosted.host(self._context.me.node) is not None:
                    self._fail(hosted, text, rank=self._rank(hosted))
                elif not self._context.requests.is_full:
                    self._context.requests.begin(self._report_unverified(hosted, text))
            elif peer.node == hosted.part.scheduler.node and not hosted.is_flowing:
                self._context.requests.begin(self._orphaned(hosted))

    def check_incarnations(self) -> None:
        """Compare hosting nodes with the overlay's view: a host in a later incarnation has lost its instances."""
        known = {peer.node: peer for peer in self._context.overlay.known_peers()}
        for hosted in list(self._hosting.table.values()):
            for host in () if hosted.has_register or (hosted.part.by_epoch and not hosted.planned) else hosted.hosts:
                now = known.get(host.node)
                if now is not None and now.incarnation > host.incarnation:
                    self._fail(hosted, self._loss_text(hosted, host, "restarted"), rank=self._rank(hosted))

    def _rank(self, hosted: HostedApplication) -> int:
        """Return the number of nodes that detect the same before this one: a later rank waits longer, so that few write at once."""
        nodes = [peer.node for peer in hosted.part.nodes]
        return nodes.index(self._context.me.node) if self._context.me.node in nodes else len(nodes)

    def _loss_text(self, hosted: HostedApplication, lost: Peer, how: str) -> Callable[[ApplicationRecord], str]:
        when, me, name = self._context.wall_text, self._context.me.name, lost.name or lost.node.short
        since = f"since {when}, " if when else ""
        is_unverified = how not in _SURE and hosted.host(self._context.me.node) is None
        me = f"{me}, which hosts nothing of it" if is_unverified else me
        event = {"left": "left", "restarted": "was restarted"}.get(how, "is gone")

        def text(record: ApplicationRecord) -> str:
            verb = "held" if record.assignment else "was to hold"
            planned = msgspec.structs.replace(record, nodes=hosted.part.nodes, assignment=hosted.part.assignment)
            held = instances_text(planned, lost.node) if planned.is_consistent() else "a part of it"
            return f"{name} {event} ({since}seen by {me}) and {verb} {held}. {again_text(record)}"

        return text

    def instance_failed(self, event: InstanceFailed) -> None:
        """Handle a local instance that cannot continue."""
        hosted = self._hosting.table.get((event.application, event.version))
        if hosted is None or (event.stage, event.index) not in hosted.instances:
            return
        # A run with a register recovers from crashes and broken links; an error of user code would only repeat.
        if hosted.has_register and (event.is_crash or event.is_consequence):
            if not hosted.is_closing:
                self.on_broken(hosted, event)
            return
        if event.is_consequence:
            if not hosted.is_closing:
                self._context.requests.begin(self._consequence(hosted, event.message))
            return
        self._fail(hosted, lambda _: event.message, rank=0)

    async def _consequence(self, hosted: HostedApplication, message: str) -> None:
        await self._context.requests.pause(Duration(self._context.config.consequence_ns))
        if not hosted.is_closing:
            await self._end(hosted, FAILED, lambda _: message)

    def _fail(self, hosted: HostedApplication, reason: Callable[[ApplicationRecord], str], *, rank: int) -> None:
        if hosted.is_closing:
            return
        self._hosting.stop_local(hosted)
        self._context.requests.begin(self._end_after(hosted, reason, rank))

    async def _end_after(
        self, hosted: HostedApplication, reason: Callable[[ApplicationRecord], str], rank: int
    ) -> None:
        if rank:
            await self._context.requests.pause(Duration(min(rank, 10) * 40 * MILLISECOND))
        await self._end(hosted, FAILED, reason)

    async def _report_unverified(self, hosted: HostedApplication, reason: Callable[[ApplicationRecord], str]) -> None:
        """Record as a guard that a host is unreachable, unverified; the guard keeps checking the record."""
        await self._context.requests.pause(Duration(40 * MILLISECOND))  # a host of the run may write the cause first
        await self._records.change(
            *hosted.key,
            lambda record: advanced(record, FAILED, reason(record), self._context.wall_ms, is_unverified=True),
            hosted.part.number,
        )

    async def _end(
        self, hosted: HostedApplication, state: str, reason: Callable[[ApplicationRecord], str], signed: bytes = b""
    ) -> None:
        """Close the record, halt all others, close here. An earlier cause of another node is kept.

        `signed`: the signed command to stop, if a user stops it.
        """
        if self._hosting.table.get(hosted.key) is not hosted:
            return

        def close(record: ApplicationRecord) -> ApplicationRecord | None:
            closed = advanced(record, state, reason(record), self._context.wall_ms)
            return with_stop(self._with_changes(hosted, closed), signed)

        record = await self._records.change(*hosted.key, close, hosted.part.number, hosted.part)
        final_reason = record.reason if record is not None else f"{hosted.part.application} failed"
        self._hosting.close(hosted, final_reason)
        if record is None:
            await self._note_rival(hosted, state, final_reason)
        elif not record.summary:
            # In parallel with the halt: no instance keeps running for the sake of its totals.
            self._context.requests.begin(self._figures.note(hosted))
        await self.halt(hosted.part.nodes, hosted.key, final_reason, hosted.part.number)

    def _with_changes(self, hosted: HostedApplication, record: ApplicationRecord | None) -> ApplicationRecord | None:
        """Return a closing record with the changes of its stages: its register is deleted soon."""
        changes = kept_changes(self.changes_of(hosted.key)) if record is not None and hosted.part.by_epoch else ()
        return msgspec.structs.replace(record, changes=changes) if record is not None and changes else record

    async def halt(self, nodes: tuple[Peer, ...], key: tuple[str, int], reason: str, run: int) -> None:
        """Report a run's end to all its nodes; silent ones detect it on their patrol. `run`: its number."""
        timeout = Duration(self._context.config.ask_timeout_ns)
        await self._context.requests.ask_all(
            nodes, lambda number, _: Halt(number, *key, reason, run), Acknowledged, timeout
        )

    async def _note_rival(self, hosted: HostedApplication, state: str, reason: str) -> None:
        """Record the end of a run in the record of another run with its name, if that lists it."""
        name, number = hosted.part.application, hosted.part.number
        try:
            _, record = await self._records.application(name)
        except CommandRefused:
            return
        if record is not None and any(rival.number == number for rival in record.rivals):
            await self._records.change(
                name,
                record.version,
                lambda current: with_rival_ended(current, number, state, reason, self._context.wall_ms),
            )

    async def _end_superseded(self, hosted: HostedApplication, record: ApplicationRecord) -> None:
        """End this run and record that, because its name's record belongs to another run."""
        if record.version > hosted.part.version:
            why = f"version {record.version} was submitted"
        else:
            why = (
                f"another run of {record.name}, submitted to {record.submitted_to} while the network was partitioned, has "
                "the name: this run was stopped"
            )
        self._hosting.close(hosted, why)
        if hosted.part.coordinator.node == self._context.me.node:
            await self._note_rival(hosted, STOPPED, why)

    async def _orphaned(self, hosted: HostedApplication) -> None:
        """Handle the death of the scheduler: an application that does not run yet fails with it; a running one is not affected."""
        scheduler = hosted.part.scheduler

        def close(record: ApplicationRecord) -> ApplicationRecord | None:
            text = f"{scheduler.name or scheduler.node.short} is gone and was still deploying it. {again_text(record)}"
            is_open = record.state == DEPLOYING or (is_host and record.is_unverified)
            return advanced(record, FAILED, text, self._context.wall_ms, is_unverified=not is_host) if is_open else None

        is_host = hosted.host(self._context.me.node) is not None
        record = await self._records.change(*hosted.key, close, hosted.part.number, hosted.part)
        if record is not None and record.state == RUNNING:
            self._hosting.flow(hosted)
        elif record is None or record.is_final:
            self._hosting.close(hosted, record.reason if record is not None else "its scheduler is gone")

    def ended(self, sender: Peer, message: InstancesEnded) -> None:
        """Collect the ends of instances that a host reports to its coordinator."""
        hosted = self._hosting.table.get((message.application, message.version))
        if hosted is None:
            # The run has ended here: the host will be halted too.
            self._context.send(sender, Acknowledged(message.request))
            return
        if hosted.part.coordinator.node != self._context.me.node:
            self._context.drop("not the coordinator")
            return
        if message.attempt > hosted.attempt:
            self._context.drop("end of a future attempt")  # the host repeats it
            return
        if 0 < message.attempt < hosted.attempt:
            # It ended in an earlier attempt, and runs again now.
            self._context.send(sender, Acknowledged(message.request))
            return
        places = hosted.part.places()
        for key, report in message.reports.items():
            copy = report_copy(key)
            if copy in places and places[copy].node == sender.node and isinstance(report, dict):
                hosted.collected[copy] = report
        self._context.send(sender, Acknowledged(message.request))
        self._finish_when_through(hosted)

    def _finish_when_through(self, hosted: HostedApplication) -> None:
        is_through = len(hosted.collected) == len(hosted.part.places())
        if is_through and not hosted.is_closing and (hosted.is_committed or not hosted.part.by_epoch):
            self._hosting.stop_local(hosted)  # all instances have ended: nothing can fail any more
            self._context.requests.begin(self._finish(hosted))

    def closed(self, hosted: HostedApplication, state: str, reason: str) -> None:
        """Finish a run that its register ended, once all its hosts know."""
        if state == FAILED:
            self._fail(hosted, lambda _: reason, rank=0)
            return
        if hosted.is_committed:
            return  # the register repeats it until the end is recorded
        hosted.is_committed, hosted.ended_by = True, reason
        self._finish_when_through(hosted)
        if not hosted.is_closing:
            # Instances of a run that a user ended with a checkpoint do not end by themselves: only their figures may come.
            ask_timeout = self._context.config.ask_timeout_ns
            timeout_ns = min(ask_timeout, LAST_FIGURES_NS) if reason else ask_timeout
            self._context.requests.begin(self._finish_without(hosted, Duration(timeout_ns)))

    async def _finish_without(self, hosted: HostedApplication, timeout: Duration) -> None:
        """Finish a run without missing reports: a restarted host does not send them any more."""
        await self._context.requests.pause(timeout)
        if hosted.is_closing:
            return
        figures = await self._figures.elsewhere(hosted)
        if self._hosting.table.get(hosted.key) is hosted and not hosted.is_closing:
            hosted.collected = {**figures, **hosted.reports, **hosted.collected}
            self._hosting.stop_local(hosted)
            await self._finish(hosted)

    async def _finish(self, hosted: HostedApplication) -> None:
        def close(record: ApplicationRecord) -> ApplicationRecord | None:
            is_requested = self._verifier.without_unproven_rights(record).stopping
            drained = "stopped by a user; its input was drained" if is_requested else ""
            reason = hosted.ended_by or drained
            closed = advanced(record, STOPPED if reason else FINISHED, reason, self._context.wall_ms)
            closed = self._with_changes(hosted, closed)
            if closed is None or not hosted.collected:
                return closed
            losses = losses_of(hosted.attempt, hosted.lines_before, hosted.collected)
            closed = with_losses(closed, losses) or closed
            return msgspec.structs.replace(closed, summary=summary_of(record.specification, hosted.collected))

        record = await self._records.change(*hosted.key, close, hosted.part.number, hosted.part)
        while record is None and hosted.part.by_epoch and not await self._is_anothers(hosted):
            # No other node can record the end, so this one asks the ring until it answers.
            await self._context.requests.pause(Duration(self._context.config.ask_timeout_ns))
            record = await self._records.change(*hosted.key, close, hosted.part.number, hosted.part)
        while record is not None and record.state == DEPLOYING and hosted.key in self._hosting.table:
            # The run ended before its scheduler had recorded `running`.
            await self._context.requests.pause(Duration(self._context.config.resend_ns))
            record = await self._records.change(*hosted.key, close, hosted.part.number, hosted.part)
        state = record.state if record is not None else FINISHED
        self._hosting.close(hosted, state)
        if record is None:
            await self._note_rival(hosted, FINISHED, "")
        await self.halt(hosted.part.nodes, hosted.key, state, hosted.part.number)

    async def _is_anothers(self, hosted: HostedApplication) -> bool:
        """Return whether the name's record is gone or belongs to another run. False also when the ring does not answer."""
        if self._hosting.table.get(hosted.key) is not hosted:
            return True  # the run has ended here
        try:
            _, record = await self._records.application(hosted.part.application, hosted.part)
        except CommandRefused:
            return False
        return record is None or (record.version, record.number) != (hosted.part.version, hosted.part.number)

    def answer_active_query(self, sender: Peer, message: QueryActive, *, is_scheduling: bool) -> None:
        """Answer whether this node still works on an application, as scheduler or host."""
        hosted = self._hosting.table.get((message.application, message.version))
        active = is_scheduling or (hosted is not None and message.number in (0, hosted.part.number))
        self._context.send(sender, Acknowledged(message.request, "" if active else "no"))

    def _verify_halt(self, hosted: HostedApplication, sender: Peer, message: Halt) -> None:
        """Check the record after a halt from a non-participant, an agent whose user cut the run. Only the record is trusted."""
        if not (hosted.is_closing or hosted.key in self._looking or self._context.requests.is_full):
            self._looking[hosted.key] = None
            self._context.requests.begin(self._look_for(hosted, sender, message))

    async def _look_for(self, hosted: HostedApplication, sender: Peer, message: Halt) -> None:
        await self._look(hosted)
        if self._hosting.table.get(hosted.key) is not hosted:
            self._context.send(sender, Acknowledged(message.request))

    def patrol(self) -> None:
        """Check the records of everything hosted here: runs that ended elsewhere end here too."""
        self.check_incarnations()
        if not self._context.requests.is_full:
            self._context.requests.begin(self._look_at_all())

    async def _look_at_all(self) -> None:
        for number, hosted in enumerate(list(self._hosting.table.values())):
            await self._context.requests.pause_after(number)
            is_gone = hosted.is_closing or self._hosting.table.get(hosted.key) is not hosted
            is_busy = is_gone or self.stops.is_stopping(hosted.key) or hosted.key in self._looking
            if not (is_busy or self._context.requests.is_full):
                self._looking[hosted.key] = None
                self._context.requests.begin(self._look(hosted))

    async def _look(self, hosted: HostedApplication) -> None:
        try:
            _, record = await self._records.application(hosted.part.application, hosted.part)
        except CommandRefused:
            return
        finally:
            del self._looking[hosted.key]
        hosted.missing_checks = hosted.missing_checks + 1 if record is None else 0
        if record is not None:
            if record.number == hosted.part.number:
                self.on_record(hosted, record)
            hosted.unverified_checks += 1 if record.is_unverified else -hosted.unverified_checks
        if record is None:
            if hosted.has_register:
                return  # its register has the state; the next attempt writes the record again
            if hosted.missing_checks >= MAX_MISSING_CHECKS:
                self._hosting.close(hosted, "its record is gone")
        elif record.version > hosted.part.version or (
            record.version == hosted.part.version and record.number != hosted.part.number
        ):
            await self._end_superseded(hosted, record)
        elif record.version == hosted.part.version and record.is_final:
            if record.is_unverified:
                await self._contradict(hosted, record)
            else:
                self._hosting.close(hosted, record.reason or record.state)
        elif record.state == RUNNING and not hosted.is_flowing:
            if not (hosted.has_register or hosted.part.by_epoch):  # otherwise sources start with their attempt
                self._hosting.flow(hosted)  # StartFlow was lost with its sender
        elif record.state == DEPLOYING and self._context.requests.is_gone(record.scheduler):
            await self._orphaned(hosted)
        elif hosted.is_flowing:
            await self._goes_on(hosted, record)

    async def _goes_on(self, hosted: HostedApplication, record: ApplicationRecord) -> None:
        if record.is_stopping and not hosted.is_draining:
            self._hosting.drain_here(hosted)  # the drain request was lost with its sender, or with its attempt
        if hosted.part.coordinator.node == self._context.me.node:
            hosted.seen = await self._figures.elsewhere(hosted)
            if (
                with_losses(record, losses := losses_of(hosted.attempt, hosted.lines_before, figures_of(hosted)))
                is not None
            ):
                await self._records.change(*hosted.key, lambda current: with_losses(current, losses), part=hosted.part)

    async def _contradict(self, hosted: HostedApplication, record: ApplicationRecord) -> None:
        """Handle a record that shows an unverified end of this run: reported by non-hosts, or a stop without a user's command."""
        me = self._context.me
        is_mine = hosted.is_flowing and hosted.part.coordinator.node == me.node
        if hosted.host(me.node) is None or (record.state == STOPPED and not is_mine):
            if hosted.unverified_checks >= MAX_UNVERIFIED_CHECKS:
                self._hosting.close(hosted, record.reason)
        elif not hosted.is_flowing:
            if self._context.requests.is_gone(record.scheduler):
                await self._orphaned(hosted)
        elif is_mine and not hosted.is_closing:
            text = f"it runs: {me.name or me.node.short} coordinates it, and all its hosts answer"

            def revive(current: ApplicationRecord) -> ApplicationRecord | None:
                is_unproven = self._verifier.without_unproven_rights(current).is_unverified
                current = msgspec.structs.replace(
                    current, is_unverified=is_unproven, stopping=current.stopping and not is_unproven
                )
                return advanced(current, RUNNING, text, self._context.wall_ms) if is_unproven else None

            await self._records.change(*hosted.key, revive, hosted.part.number, hosted.part)

    async def leave(self) -> None:
        """End the runs here before this node leaves, so that the records show why; for at most `leave_timeout_ns`."""
        deadline = self._context.now + self._context.config.leave_timeout_ns
        me = self._context.me
        ended: list[HostedApplication] = []
        for hosted in list(self._hosting.table.values()):
            is_host = hosted.host(me.node) is not None
            if hosted.has_register or (hosted.part.by_epoch and not is_host):
                self._hosting.stop_local(hosted)  # it continues without this node, whose vote stays on the disk
                continue
            ended.append(hosted)
            if is_host:
                self._fail(hosted, self._loss_text(hosted, me, "left"), rank=0)
            else:
                self._hosting.close(hosted, f"{me.name} left")
        while any(self._hosting.table.get(ending.key) is ending for ending in ended) and self._context.now < deadline:
            await self._context.requests.pause(Duration(20 * MILLISECOND))
