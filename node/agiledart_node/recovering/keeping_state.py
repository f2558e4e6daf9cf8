"""A run's state as a file that outlives it: made where the run is coordinated, and kept there and on others that take part in it.

    stop with a checkpoint:  held (nothing more is read behind an epoch) → gathered → copied → the register says that it has ended
    export of what runs:     gathered

The awkward case: somebody dies meanwhile, and the run goes back to its last epoch. Then what was gathered counts only if the
register still is at that epoch in that life when its end is written; else all of it is done again. Where it comes to nothing the
run goes on. An end that was proposed may be chosen whenever voters are back, also by who coordinates next: from then on what was
gathered is given up only where the register is seen to have gone on, and else stays, with the outcome unknown.
"""

from collections.abc import Sequence
from typing import Final

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.instants import MILLISECOND, SECOND, Duration
from agiledart_kernel.machine import Completed, Failed
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Asker
from agiledart_node.desk.answering_once import MAX_REMEMBERED, AnsweringOnce
from agiledart_node.desk.conversations import Question
from agiledart_node.desk.desk import CommandRefused, Desk, NotAllowed
from agiledart_node.records.allowing import check
from agiledart_node.records.application import ApplicationRecord
from agiledart_node.records.order_checks import Orders
from agiledart_node.records.records import Records
from agiledart_node.recovering.founding import copy_of
from agiledart_node.recovering.recovering import Recovering
from agiledart_node.wire.checkpoint_effects import (
    DropCheckpoint,
    ElementAt,
    FetchCheckpoint,
    GatherCheckpoint,
    LendCheckpoint,
)
from agiledart_node.wire.checkpoint_messages import AskCheckpoint, AskCopy, CheckpointIs, CopyIs, KnownCheckpoint
from agiledart_node.wire.commands import VERB_BY_COMMAND, Stop
from agiledart_recovery.fragments.placement import host_of
from agiledart_recovery.lives.coordinator import Coordinator
from agiledart_recovery.wire.names import Run, Snapshot
from agiledart_recovery.wire.value import State, Value

COPIES: Final = 3
"""Nodes that keep a checkpoint, the one that made it among them."""

TRIES: Final = 3
"""So often a run is held again when it has gone back to its last epoch meanwhile."""


HELD_NS: Final = 150 * SECOND
"""For an epoch to be committed behind which nothing is read: longer than one may take, with a recovery before it."""

END_NS: Final = 60 * SECOND
"""For the register to take the end."""

PATIENCE: Final = 20
"""Intervals after which a node that copies is asked again: it answers when it is done."""

SLOWEST_NS: Final = 1_000
"""A byte on its way: one that moves less than 1 MB/s is given up."""

LEAST_NS: Final = 30 * SECOND

_LOOK: Final = Duration(100 * MILLISECOND)


class NotHere(CommandRefused):
    """Another node coordinates the run, or nobody does now."""


class OutcomeUnknown(OperationFailed):
    """The end of a run was proposed to its register, which may take it yet."""


class KeepingState:
    """Checkpoints of runs that this node coordinates; copies of others'."""

    def __init__(self, desk: Desk, records: Records, recovering: Recovering, orders: Orders) -> None:
        self._desk, self._records, self._recovering, self._orders = desk, records, recovering, orders
        self._once = AnsweringOnce(desk)
        self._copying: dict[bytes, None] = {}
        self._stopping: dict[Run, None] = {}
        self._proposed: dict[Run, tuple[int, Snapshot]] = {}  # ends of which nobody has said yet what became of them

    # ---- asked for by an agent for its user

    async def asked(self, sender: Peer, message: AskCheckpoint) -> None:
        """An agent brings its user's wish; it is answered when it is fulfilled."""
        if self._once.is_new(sender, message.request):
            while len(self._proposed) >= MAX_REMEMBERED:
                del self._proposed[next(iter(self._proposed))]
            await self._once.say(sender, message.request, self._answer(message))

    async def _answer(self, message: AskCheckpoint) -> CheckpointIs:
        run, number = Run(message.application, message.version), message.request
        try:
            self._leading(run)
            record, by = await self._who(message)
            if isinstance(message.command, Stop):
                kept, nodes = await self._stopped(run, record, message.command.checkpoint, by)
            else:
                kept, nodes = await self._gathered(run, self._leading(run).value, record, ""), (self._desk.me,)
        except NotHere as refusal:
            return CheckpointIs(number, refusal=refusal.text, is_elsewhere=True)
        except CommandRefused as refusal:
            if isinstance(refusal, NotAllowed):
                self._desk.drop(f"order: {refusal.reason}")
            return CheckpointIs(number, refusal=refusal.text, exit_code=refusal.exit_code)
        except OperationFailed as failure:
            return CheckpointIs(number, refusal=f"No checkpoint of {run.app} was made: {failure}.")
        return CheckpointIs(number, kept, tuple(nodes))

    async def _who(self, message: AskCheckpoint) -> tuple[ApplicationRecord, str]:
        """The record, and who gave the order, for people. Raises CommandRefused."""
        command = message.command
        asker, by = self._orders.given(message.order, command, Asker(), message.submitter)
        _, record = await self._records.application(message.application)
        if record is None or record.version != message.version:
            raise CommandRefused(f"{message.application} v{message.version} is not the one that runs.")
        if self._orders.are_signed and isinstance(command, Stop):
            self._orders.check_stop(message.order, asker, record)
        elif self._orders.are_signed:
            check(asker, VERB_BY_COMMAND[type(command)], message.application, record)
        if command.name != message.application:
            raise NotAllowed("order", f"The order is for {command.name}, not for {message.application}.")
        return record, by

    def _leading(self, run: Run) -> Coordinator:
        coordinator = self._recovering.machine.coordinators.get(run)
        if coordinator is None or not coordinator.leads or coordinator.proposer.value is None:
            raise NotHere(f"{run.app} is not coordinated by {self._desk.me.name}.")
        return coordinator

    # ---- ending with the state kept

    async def _stopped(
        self, run: Run, record: ApplicationRecord, name: str, by: str
    ) -> tuple[KnownCheckpoint, Sequence[Peer]]:
        if run in self._stopping:
            raise CommandRefused(f"{run.app} is being stopped with a checkpoint already.")
        self._stopping[run] = None
        try:
            for _ in range(TRIES):
                done = await self._tried(run, record, name, by)
                if done is not None:
                    return done
        finally:
            del self._stopping[run]
        raise CommandRefused(
            f"{run.app} went back to its last epoch {TRIES} times meanwhile, so it was not stopped."
            f" Look at agiledart status {run.app}."
        )

    async def _tried(
        self, run: Run, record: ApplicationRecord, name: str, by: str
    ) -> tuple[KnownCheckpoint, Sequence[Peer]] | None:
        """None: it has gone back to its last epoch meanwhile. Raises CommandRefused; the run goes on then."""
        value = await self._held(run)
        at, nodes = value.committed, [self._desk.me]
        kept: KnownCheckpoint | None = None
        try:
            kept = await self._gathered(run, value, record, name)
            nodes += await self._copied(value, kept)
            who = f"stopped by {by}" if by else "stopped by a user"
            is_ended = await self._ended(run, value, f"{who}; its state is kept as checkpoint {name}")
        except OutcomeUnknown:
            raise CommandRefused(_unknown(run.app, name)) from None
        except NotHere:
            await self._taken_back(kept, nodes)
            raise
        except OperationFailed as failure:
            await self._taken_back(kept, nodes)
            self._release(run, "it was to be stopped with a checkpoint, which could not be kept")
            raise CommandRefused(f"{run.app} was not stopped, and goes on from epoch {at.epoch}: {failure}.") from None
        if not is_ended:
            await self._taken_back(kept, nodes)
            return None
        return kept, nodes

    async def _held(self, run: Run) -> Value:
        """The value of the register that has an epoch behind which nothing was read."""
        desk = self._desk
        until, why = desk.now + HELD_NS, ""
        while desk.now < until:
            coordinator = self._leading(run)
            value = coordinator.value
            if value.state is not State.RUNNING:
                ended = "come to its end" if value.state is State.FINISHED else "failed"
                raise CommandRefused(f"{run.app} has {ended} by itself meanwhile: there is no state to keep.")
            if coordinator.committing.held is not None and coordinator.committing.held == value.committed:
                return value
            why = self._recovering.begun(self._recovering.machine.request_hold(run))
            await desk.talks.pause(_LOOK)
        self._release(run, "it was to be stopped with a checkpoint, and no epoch was committed")
        raise CommandRefused(
            f"No epoch of {run.app} was committed within {HELD_NS // SECOND} s{': ' + why if why else ''}, so it was not stopped."
            f" Look at agiledart status {run.app}."
        )

    async def _ended(self, run: Run, before: Value, reason: str) -> bool:
        """Whether the register says that the run has ended there; it does not where it has gone on.

        Raises:
            NotHere: another coordinates it, and no end was proposed.
            OutcomeUnknown: one was, and nobody says what became of it.
            OperationFailed: none could be proposed.
        """
        desk, machine = self._desk, self._recovering.machine
        until, mark = desk.now + END_NS, (before.life, before.committed)
        while desk.now < until:
            value = self._newest(run, before)
            if value.state is not State.RUNNING or (value.life, value.committed) != mark:
                self._proposed.pop(run, None)
                return value.state is not State.RUNNING and value.committed == before.committed
            if self._proposed.get(run) != mark:
                self._leading(run)
            if not self._recovering.begun(machine.request_end_held(run, before.committed, reason)):
                self._proposed[run] = mark
            await desk.talks.pause(_LOOK)
        if self._proposed.get(run) == mark:
            raise OutcomeUnknown(f"whether {run.app} has ended")
        raise OperationFailed("the register did not take its end")

    def _newest(self, run: Run, before: Value) -> Value:
        """The newest value that is known here to be in the register: read or written by this node, or told to it as a host."""
        coordinator = self._recovering.machine.coordinators.get(run)
        part = self._recovering.machine.participants.get(run)
        told = coordinator.proposer.value if coordinator is not None else None, part.value if part is not None else None
        return max((before, *(one for one in told if one is not None)), key=_age)

    def _release(self, run: Run, reason: str) -> None:
        self._recovering.machine.request_release(run, reason)
        self._recovering.begun("")

    # ---- one file

    async def _gathered(self, run: Run, value: Value, record: ApplicationRecord, name: str) -> KnownCheckpoint:
        """Raises OperationFailed: somebody did not give what it saved, or there is no room."""
        if not value.committed.epoch:
            raise CommandRefused(f"No epoch of {run.app} is committed yet. Try again in some seconds.")
        elements = elements_of(value)
        about = KnownCheckpoint(
            name,
            run,
            value.at.life,
            value.at.epoch,
            self._desk.wall_ms,
            record.owner_key,
            record.shared_keys,
            b"\0" * 32,
            0,
        )
        number = self._desk.talks.number()
        plan = value.plan.body or record.plan
        order = GatherCheckpoint(number, about, record.specification, plan, elements)
        return await self._driven(number, order, sum(element.most for element in elements))

    async def _driven(self, number: int, order: GatherCheckpoint | FetchCheckpoint, size: int) -> KnownCheckpoint:
        patience = LEAST_NS + SLOWEST_NS * size
        answer = (await self._desk.driven(number, order, patience)).get(number)
        if isinstance(answer, Completed) and isinstance(answer.result, KnownCheckpoint):
            return answer.result
        raise OperationFailed(answer.reason if isinstance(answer, Failed) else "it took too long")

    async def _copied(self, value: Value, kept: KnownCheckpoint) -> list[Peer]:
        """Others that keep it, too: voters and hosts, which may know the state in any case, on machines of their own."""
        desk = self._desk
        known = {peer.node: peer for peer in desk.known()}
        others = [voter.peer for voter in value.voters] + list(value.plan.hosts.values())
        there = {peer.node: known.get(peer.node, peer) for peer in others if not desk.talks.is_gone(peer)}
        there.pop(desk.me.node, None)
        apart = [peer for peer in there.values() if host_of(peer) != host_of(desk.me)] or list(there.values())
        took: list[Peer] = []
        refusals: list[str] = []
        for peer in apart:
            if len(took) >= COPIES - 1:
                break
            if host_of(peer) != host_of(desk.me) and any(host_of(peer) == host_of(one) for one in took):
                continue
            desk.emit(LendCheckpoint(kept.digest, peer.node))
            number = desk.talks.number()
            question = Question(peer, AskCopy(number, kept), CopyIs, PATIENCE)
            patience = Duration(LEAST_NS + SLOWEST_NS * kept.size)
            answer = (await desk.talks.answers({number: question}, patience)).get(number)
            if isinstance(answer, CopyIs) and not answer.refusal:
                took.append(peer)
            else:
                why = answer.refusal if isinstance(answer, CopyIs) else "no answer"
                refusals.append(f"{peer.name or peer.node.short}: {why}")
        if refusals and not took:
            raise OperationFailed(f"no other node keeps a copy of it ({'; '.join(refusals)})")
        return took

    async def _taken_back(self, kept: KnownCheckpoint | None, nodes: Sequence[Peer]) -> None:
        """It does not count: a run that goes on has gone on from there."""
        if kept is None:
            return
        desk = self._desk
        number = desk.talks.number()
        await desk.driven(number, DropCheckpoint(number, kept.name, kept.digest, kept.run), LEAST_NS)
        others = [peer for peer in nodes if peer.node != desk.me.node]
        await desk.talks.ask_all(
            others, lambda number, _: AskCopy(number, kept, is_back=True), CopyIs, Duration(desk.config.ask_timeout_ns)
        )

    # ---- the node that keeps a copy

    async def copy(self, sender: Peer, message: AskCopy) -> None:
        """Who coordinates a run that this node takes part in wants a checkpoint of it to be kept here, or no more.

        Only voters of that run are heard, and only a checkpoint of that run goes: others bring a user's order (`AskRemoval`).
        """
        kept, desk = message.checkpoint, self._desk
        refusal = ""
        if kept.digest in self._copying:
            return  # it is answered when it is here
        if not self._may_coordinate(sender, kept.run):
            desk.drop("copy of a checkpoint")
            why = f"{desk.me.name} knows of no {kept.run.app} that {sender.name or sender.node.short} coordinates"
            desk.send(sender, CopyIs(message.request, why[:4_096]))
            return
        self._copying[kept.digest] = None
        try:
            if message.is_back:
                number = desk.talks.number()
                await desk.driven(number, DropCheckpoint(number, kept.name, kept.digest, kept.run), LEAST_NS)
            else:
                number = desk.talks.number()
                await self._driven(number, FetchCheckpoint(number, sender, kept), kept.size)
        except OperationFailed as failure:
            refusal = str(failure)
        finally:
            del self._copying[kept.digest]
        desk.send(sender, CopyIs(message.request, refusal[:4_096]))

    def _may_coordinate(self, sender: Peer, run: Run) -> bool:
        """Whether a node votes on a run, as far as this one knows from hosting something of it or voting on it."""
        machine = self._recovering.machine
        part, seat = machine.participants.get(run), machine.seats.get(run)
        known = part.value if part is not None else None, seat.value if seat is not None else None
        return any(value is not None and value.may_be_told_by(sender.node) for value in known)


def _age(value: Value) -> tuple[int, Snapshot, bool]:
    return value.life, value.committed, value.state is not State.RUNNING


def _unknown(application: str, name: str) -> str:
    return (
        f"Whether {application} was stopped is not known: too few voters of its register answered within {END_NS // SECOND} s."
        f" Its state is kept as checkpoint {name}, which counts if it was. Look at agiledart status {application}: where it has"
        f" ended, all is well; where it goes on, agiledart checkpoint remove {name}. What is kept: agiledart checkpoint list {name}"
    )


def elements_of(value: Value) -> tuple[ElementAt, ...]:
    """Where the elements of the committed epoch lie: each host has on its disk what its instances saved."""
    assigned = {each.party: each for each in value.plan.assignments}
    found: list[ElementAt] = []
    for saved in value.saved:
        each = assigned.get(saved.party)
        if each is None:
            raise OperationFailed(f"the state of {saved.party} is on its way to another node; try again")
        stage, index = copy_of(saved.party)
        found += (
            ElementAt(each.host, stage, saved.party.term, index, each.role.value, element.digest, element.length)
            for element in saved.chain
        )
    return tuple(found)
