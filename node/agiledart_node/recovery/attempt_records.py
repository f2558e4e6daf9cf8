"""Attempts and voters in application records; written by the end recorder and by the coordinator of a run."""

from collections.abc import Awaitable, Callable

import msgspec

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.hosting.hosted_application import HostedApplication, Key
from agiledart_node.records.application import RECORD_CODEC, RUNNING, ApplicationRecord
from agiledart_node.records.records import Records
from agiledart_node.recovery.attempt_entry import RunHost
from agiledart_node.recovery.hosted_run import HostedRun, end_recorder, record_of_attempt
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import FIRST_RESTARTED_ATTEMPT, Plan, RegisterValue

MAX_GUARDS = 16
"""Nodes that a record names beside the hosts; those that no longer vote are dropped first."""


class AttemptRecords:
    """Updates the records of runs that this node hosts.

    Attributes:
        drain: ends the sources of a run as its record requires, when an earlier attempt did not complete that.
    """

    def __init__(self, context: NodeContext, records: Records, run_host: RunHost) -> None:
        self._context, self._records, self._run_host = context, records, run_host
        self._voters: dict[RunId, tuple[Peer, ...]] = {}
        self.drain: Callable[[Key, ApplicationRecord], Awaitable[None]]

    def record_read(self, hosted: HostedApplication, record: ApplicationRecord) -> None:
        """Store the record of a hosted application on the disk, for the case that the ring loses it."""
        run = self._run_host.runs.get(hosted.key)
        if run is not None and not run.record and record.state == RUNNING:
            run.record = RECORD_CODEC.encode(record)
            self._run_host.keep(hosted.key, "record", run.record)

    def record_attempt(self, hosted: HostedApplication, attempt: int) -> None:
        """Write a new attempt into the application's record, if this node is the application's end recorder."""
        if hosted.part.coordinator.node == self._context.me.node:
            self._context.requests.begin(self._record_attempt(hosted, attempt))

    def restore_record(self, key: Key, plan: Plan) -> None:
        """Write the record again when the ring has lost it, for example in a power cut.

        The end recorder does so before it has entered the attempt, so that people see what the application waits for.
        """
        run = self._run_host.runs.get(key)
        if (
            run is not None
            and run.record
            and (end_recorder(plan) or run.part.coordinator).node == self._context.me.node
        ):
            self._context.requests.begin(self._restore_record(key, run))

    async def _restore_record(self, key: Key, run: HostedRun) -> None:
        known = RECORD_CODEC.decode(run.record)
        try:
            revision, current = await self._records.application(key[0], run.part)
            if current is None and await self._records.create(revision, known):
                await self._records.add_name(known.name)
        except OperationFailed:
            return  # `record_attempt` tries again once the attempt has been entered

    async def _record_attempt(self, hosted: HostedApplication, attempt: int) -> None:
        run = self._run_host.runs.get(hosted.key)
        part, value = hosted.part, self._run_host.value(RunId(*hosted.key))
        note = value.reason if value is not None and value.attempt == attempt else ""
        begins = value is not None and value.is_brought and attempt == FIRST_RESTARTED_ATTEMPT
        what = "its state is restored" if begins else "restarted"
        try:
            revision, current = await self._records.application(part.application, part)
            if current is None and run is not None and run.record:
                known = RECORD_CODEC.decode(run.record)
                await self._records.create(revision, record_of_attempt(known, part, attempt, self._context.wall_ms))
                await self._records.add_name(known.name)
            elif current is not None:
                self.record_read(hosted, current)
        except OperationFailed:
            return  # the next attempt, or the next patrol, tries again
        if attempt == 1:
            return
        record = await self._records.change(
            *hosted.key,
            lambda record: (
                None
                if record.is_final or record.attempt >= attempt
                else record_of_attempt(record, part, attempt, self._context.wall_ms, note, what)
            ),
            part=part,
        )
        if record is not None and record.is_stopping and not hosted.is_closing:
            await self.drain(hosted.key, record)

    def forget(self, run: RunId) -> None:
        """Forget a run that is over here."""
        self._voters.pop(run, None)

    def record_voters(self, run: RunId, value: RegisterValue) -> None:
        """Write the voters of a run into its record, so that its leader can be found and all voters learn of its end."""
        voters = tuple(voter.peer for voter in value.voters)
        if value.attempt and self._voters.get(run) != voters:
            self._voters[run] = voters
            self._context.requests.begin(self._record_voters(run, voters))

    async def _record_voters(self, run: RunId, voters: tuple[Peer, ...]) -> None:
        await self._records.change(run.app, run.version, lambda record: with_guards(record, voters))


def with_guards(record: ApplicationRecord, voters: tuple[Peer, ...]) -> ApplicationRecord | None:
    """Return the record with these voters as hosts or guards; None when it names them already."""
    known = {peer.node: peer for peer in (*record.guards, *record.hosts())}
    new = [peer for peer in voters if peer.node not in known]
    if record.state != RUNNING or not new:
        return None
    votes = {peer.node for peer in voters}
    stay = [peer for peer in record.guards if peer.node in votes]
    others = [peer for peer in record.guards if peer.node not in votes]
    places = max(0, MAX_GUARDS - len(stay) - len(new))
    return msgspec.structs.replace(record, guards=(*others[len(others) - min(places, len(others)) :], *stay, *new))
