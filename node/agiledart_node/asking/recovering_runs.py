"""A run goes on without the majority of its voters, at an admin's word: `checkpoint recover`.

the agent that was asked:   what is left → in words (`left_voters`) → who carries it out
who carries it out:         what is left, once more → seats → the register's first value of the next era → its answer
"""

from collections.abc import Sequence
from typing import Final

from agiledart_dataflow.plan.delivery import SAVING
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.instants import MILLISECOND, SECOND, Duration
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Asker
from agiledart_node.asking.everybody import MAX_AGENTS, ask_everybody
from agiledart_node.desk.answering_once import AnsweringOnce
from agiledart_node.desk.conversations import Question
from agiledart_node.desk.desk import CommandRefused, Desk, NotAllowed
from agiledart_node.records.allowing import check
from agiledart_node.records.application import RUNNING, ApplicationRecord
from agiledart_node.records.order_checks import Orders
from agiledart_node.records.records import Records
from agiledart_node.recovering.left_voters import meant, notes_of, untold
from agiledart_node.recovering.recovering import Recovering
from agiledart_node.wire.checkpoint_bodies import RecoveredBody
from agiledart_node.wire.commands import RecoverRun
from agiledart_node.wire.effects import Progressed
from agiledart_node.wire.recovery_messages import MakeVoter, VoterMade
from agiledart_node.wire.regain_messages import AskRegain, AskStanding, RegainedIs, StandingIs
from agiledart_recovery.register.proposer import electors_of
from agiledart_recovery.register.regaining import Finding, electable, judged, leader_of, newest_of, regained
from agiledart_recovery.wire.events import RegainRun
from agiledart_recovery.wire.names import Run, Voter
from agiledart_recovery.wire.register_left import Standing
from agiledart_recovery.wire.value import Value

END_NS: Final = Duration(60 * SECOND)
"""For the new voters to take the first value."""

_PATIENCE: Final = 20
_LOOK: Final = Duration(100 * MILLISECOND)

Left = list[tuple[Peer, Standing]]


class RegainingRuns:
    """What this node does about runs that have lost their voters."""

    def __init__(self, desk: Desk, records: Records, recovering: Recovering, orders: Orders) -> None:
        self._desk, self._records, self._recovering, self._orders = desk, records, recovering, orders
        self._once = AnsweringOnce(desk)
        self._under_way: dict[Run, None] = {}

    # ---- the agent that was asked

    async def recover(self, request: int, command: RecoverRun, submitter: str, asker: Asker, signed: bytes) -> None:
        """Answer `checkpoint recover`. Raises CommandRefused."""
        asker, submitter = self._orders.given(signed, command, asker, submitter)
        record = await self._record(command, asker)
        run = Run(record.name, record.version)
        found, left, names = await self._found(run, command, signed)
        there = {peer.node: None for peer, _ in left}
        notes = notes_of(found, there, lambda node: names.get(node, node.short))
        assert found.value is not None
        generation, voters = found.value.generation + 1, tuple[Peer, ...]()
        leader = leader_of(run, found, left)
        if not command.check and leader is not None:
            lost = ", ".join(names.get(voter.peer.node, voter.peer.node.short) for voter in found.silent)
            self._desk.emit(Progressed(request, f"{run.app}: new voters are made, it goes on without {lost}"))
            done = await self._carried_out(leader, AskRegain(0, *_named(run), command, signed, submitter))
            generation, voters = done.generation, done.voters
        shown = [names.get(peer.node, peer.name or peer.node.short) for peer in voters]
        body = RecoveredBody(
            record.name,
            record.version,
            generation,
            found.value.committed.epoch,
            found.value.committed.life,
            [names.get(voter.peer.node, voter.peer.node.short) for voter in found.silent],
            [names.get(voter.peer.node, voter.peer.node.short) for voter in found.there],
            shown,
            notes,
            done=bool(voters),
        )
        self._desk.reply(request, body)

    async def _record(self, command: RecoverRun, asker: Asker) -> ApplicationRecord:
        _, record = await self._records.application(command.name)
        if self._orders.are_signed:
            check(asker, "recover", command.name, record)
        if record is None or record.is_forgotten:
            raise CommandRefused(f"No application {command.name!r}. Look at agiledart list.")
        if not record.by_epoch:
            raise CommandRefused(
                f"{record.name} is not saved by epochs, so it has no register. Submit it with {SAVING}."
            )
        if record.state != RUNNING:
            raise CommandRefused(f"{record.name} is {record.state}: there is nothing to recover.")
        return record

    async def _carried_out(self, leader: Peer, message: AskRegain) -> RegainedIs:
        number = self._desk.talks.number()
        asked = AskRegain(
            number, message.application, message.version, message.command, message.order, message.submitter
        )
        patience = Duration(2 * END_NS)
        found = await self._desk.talks.answers({number: Question(leader, asked, RegainedIs, _PATIENCE)}, patience)
        answer = found.get(number)
        if not isinstance(answer, RegainedIs):
            raise CommandRefused(
                f"{leader.name or leader.node.short} was to carry it out, and does not say what became of it."
                f" Look at agiledart status {message.application}, and ask again if it still waits."
            )
        if answer.refusal:
            raise CommandRefused(answer.refusal)
        return answer

    # ---- what is left

    async def _found(self, run: Run, command: RecoverRun, signed: bytes) -> tuple[Finding, Left, dict[NodeId, str]]:
        """Raises CommandRefused: it is not to go on without these."""
        answers = await ask_everybody(
            self._desk, lambda number, peer, count: AskStanding(number, run.version, command, signed), StandingIs
        )
        refusals = {peer.node: answer.refusal for peer, answer in answers if answer is not None and answer.refusal}
        left = [(peer, answer.standing) for peer, answer in answers if answer is not None and not answer.refusal]
        value, _ = newest_of(left)
        names = self._names(value)
        if why := untold(run.app, value, refusals, lambda node: names.get(node, node.short)):
            raise CommandRefused(why)
        without = meant(value, command.without, lambda node: names.get(node, node.short))
        found = judged(run, left, without, lambda node: names.get(node, node.short))
        if found.refusal:
            raise CommandRefused(f"{run.app} is not recovered: {found.refusal}. Look at agiledart status {run.app}.")
        return found, left, names

    def _names(self, value: Value | None) -> dict[NodeId, str]:
        """For people, also of nodes that nobody knows any more."""
        names: dict[NodeId, str] = {}
        if value is not None:
            gone = (*(voter.peer for voter in electors_of(value)), *value.plan.hosts.values())
            names |= {peer.node: peer.name or peer.node.short for peer in gone}
        return names | self._desk.names()

    async def standing(self, sender: Peer, message: AskStanding) -> None:
        """An agent wants to know, for an admin, what is left here of a run's register."""
        refusal, standing = "", Standing()
        try:
            self._admin(message.command, message.order)
            standing = self._recovering.machine.register_at(Run(message.command.name, message.version))
        except NotAllowed as error:
            self._desk.drop(f"order: {error.reason}")
            refusal = error.text
        self._desk.send(sender, StandingIs(message.request, standing, self._desk.known()[:MAX_AGENTS], refusal[:4_096]))

    def _admin(self, command: RecoverRun, order: bytes) -> str:
        """Who gave an order, for people. Raises NotAllowed."""
        asker, by = self._orders.given(order, command, Asker(), "")
        if self._orders.are_signed:
            check(asker, "recover", command.name, None)
        return by

    # ---- who carries it out

    async def asked(self, sender: Peer, message: AskRegain) -> None:
        """An agent brings its admin's order; it is answered when it is carried out."""
        if self._once.is_new(sender, message.request):
            await self._once.say(sender, message.request, self._answer(message))

    async def _answer(self, message: AskRegain) -> RegainedIs:
        run, number = Run(message.application, message.version), message.request
        if run in self._under_way:
            return RegainedIs(number, refusal=f"{run.app} is being recovered already.")
        self._under_way[run] = None
        try:
            by = self._admin(message.command, message.order) or message.submitter
            if message.command.name != run.app or message.command.check:
                raise NotAllowed("order", f"The order is for something else than to recover {run.app}.")
            value = await self._regained(run, message, by)
        except CommandRefused as refusal:
            if isinstance(refusal, NotAllowed):
                self._desk.drop(f"order: {refusal.reason}")
            return RegainedIs(number, refusal=refusal.text[:4_096])
        except OperationFailed as failure:
            return RegainedIs(number, refusal=f"{run.app} was not recovered: {failure}.")
        finally:
            del self._under_way[run]
        return RegainedIs(number, value.generation, tuple(voter.peer for voter in value.voters))

    async def _regained(self, run: Run, message: AskRegain, by: str) -> Value:
        found, left, names = await self._found(run, message.command, message.order)
        voters = await self._seats(run, electable(found, left, self._desk.me))
        lost = ", ".join(names.get(voter.peer.node, voter.peer.node.short) for voter in found.silent)
        reason = f"{by or 'an admin'} had it go on without {lost}; rows that they committed since may appear twice"
        first, below = regained(found, left, voters, reason, message.order)
        self._recovering.step(RegainRun(first, below))
        until = self._desk.now + END_NS
        while self._desk.now < until:
            coordinator = self._recovering.machine.coordinators.get(run)
            value = coordinator.proposer.value if coordinator is not None else None
            if value is not None and value.generation >= first.generation:
                return value
            await self._desk.talks.pause(_LOOK)
        raise OperationFailed("its new voters did not take the first value; ask again")

    async def _seats(self, run: Run, chosen: Sequence[Peer]) -> tuple[Voter, ...]:
        """Raises OperationFailed: one of them makes none."""
        answers = await self._desk.talks.ask_all(
            list(chosen),
            lambda number, _: MakeVoter(number, run.app, run.version),
            VoterMade,
            Duration(self._desk.config.ask_timeout_ns),
        )
        silent = [peer.name or peer.node.short for peer, answer in answers if answer is None]
        if silent:
            raise OperationFailed(f"{', '.join(silent)} did not make a seat in its register; try again")
        return tuple(Voter(peer, answer.seat) for peer, answer in answers if answer is not None)


def _named(run: Run) -> tuple[str, int]:
    return run.app, run.version
