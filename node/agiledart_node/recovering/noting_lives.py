"""What the record of an application says of its lives and voters: written by who notes its end, and by who coordinates it."""

from collections.abc import Awaitable, Callable

import msgspec

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.peer import Peer
from agiledart_node.desk.desk import Desk
from agiledart_node.hosting.hosted import Hosted, Key
from agiledart_node.records.application import RECORD_CODEC, RUNNING, ApplicationRecord
from agiledart_node.records.records import Records
from agiledart_node.recovering.bringing_back import HostedRun, in_life, notes_end
from agiledart_node.recovering.entering import Home
from agiledart_recovery.wire.names import Run
from agiledart_recovery.wire.value import AFTER_DEPLOYMENT, Plan, Value

MAX_GUARDS = 16
"""Nodes that a record names beside the hosts; those that vote no longer go first."""


class NotingLives:
    """Keeps records of runs that are hosted here.

    Attributes:
        drain: has the sources of a run end, by its record: a wish that the life before had not fulfilled.
    """

    def __init__(self, desk: Desk, records: Records, home: Home) -> None:
        self._desk, self._records, self._home = desk, records, home
        self._voters: dict[Run, tuple[Peer, ...]] = {}
        self.drain: Callable[[Key, ApplicationRecord], Awaitable[None]]

    def noted(self, hosted: Hosted, record: ApplicationRecord) -> None:
        """The record of an application that is hosted here was read: keep it for the day when the ring has forgotten it."""
        run = self._home.runs.get(hosted.key)
        if run is not None and not run.record and record.state == RUNNING:
            run.record = RECORD_CODEC.encode(record)
            self._home.keep(hosted.key, "record", run.record)

    def note_life(self, hosted: Hosted, life: int) -> None:
        """Whoever notes the end of an application keeps its record, and notes in it that it was brought back."""
        if hosted.part.coordinator.node == self._desk.me.node:
            self._desk.talks.begin(self._noted_life(hosted, life))

    def note_known(self, key: Key, plan: Plan) -> None:
        """A life is being entered. Where the ring has forgotten the application, as after a power cut, it hears of it before
        that is done: people are to see what it waits for.
        """
        run = self._home.runs.get(key)
        if run is not None and run.record and (notes_end(plan) or run.part.coordinator).node == self._desk.me.node:
            self._desk.talks.begin(self._noted_known(key, run))

    async def _noted_known(self, key: Key, run: HostedRun) -> None:
        known = RECORD_CODEC.decode(run.record)
        try:
            revision, found = await self._records.application(key[0], run.part)
            if found is None and await self._records.create(revision, known):
                await self._records.add_name(known.name)
        except OperationFailed:
            return  # who has entered the life looks again

    async def _noted_life(self, hosted: Hosted, life: int) -> None:
        run = self._home.runs.get(hosted.key)
        part, value = hosted.part, self._home.value(Run(*hosted.key))
        note = value.reason if value is not None and value.life == life else ""
        begins = value is not None and value.is_brought and life == AFTER_DEPLOYMENT
        what = "its state is there" if begins else "brought back"
        try:
            revision, found = await self._records.application(part.application, part)
            if found is None and run is not None and run.record:
                known = RECORD_CODEC.decode(run.record)
                await self._records.create(revision, in_life(known, part, life, self._desk.wall_ms))
                await self._records.add_name(known.name)
            elif found is not None:
                self.noted(hosted, found)
        except OperationFailed:
            return  # the next life, or the patrol, finds the ring again
        if life == 1:
            return
        record = await self._records.change(
            *hosted.key,
            lambda record: (
                None
                if record.is_final or record.life >= life
                else in_life(record, part, life, self._desk.wall_ms, note, what)
            ),
            part=part,
        )
        if record is not None and record.is_stopping and not hosted.is_closing:
            await self.drain(hosted.key, record)

    def forget(self, run: Run) -> None:
        """Nothing of a run is known here any more."""
        self._voters.pop(run, None)

    def note_voters(self, run: Run, value: Value) -> None:
        """Who coordinates a run has the record name its voters: whoever leads is found, and all hear of the end."""
        voters = tuple(voter.peer for voter in value.voters)
        if value.life and self._voters.get(run) != voters:
            self._voters[run] = voters
            self._desk.talks.begin(self._noted_voters(run, voters))

    async def _noted_voters(self, run: Run, voters: tuple[Peer, ...]) -> None:
        await self._records.change(run.app, run.version, lambda record: with_guards(record, voters))


def with_guards(record: ApplicationRecord, voters: tuple[Peer, ...]) -> ApplicationRecord | None:
    """The record that names these voters as hosts or guards; None where it does."""
    known = {peer.node: peer for peer in (*record.guards, *record.hosts())}
    new = [peer for peer in voters if peer.node not in known]
    if record.state != RUNNING or not new:
        return None
    votes = {peer.node for peer in voters}
    stay = [peer for peer in record.guards if peer.node in votes]
    others = [peer for peer in record.guards if peer.node not in votes]
    room = max(0, MAX_GUARDS - len(stay) - len(new))
    return msgspec.structs.replace(record, guards=(*others[len(others) - min(room, len(others)) :], *stay, *new))
