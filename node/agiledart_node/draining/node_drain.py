"""The drained node's side of `drain`.

| state | what happens |
|---|---|
| serving | normal work |
| emptying | it takes nothing new; one run after the other is evacuated through its coordinator |
| drained | it runs nothing and takes nothing, until the drain is undone or the agent starts anew |
| leaving | as drained; other nodes have replaced it as voter, and the process ends |

A node that leaves in any case gives away what it can within some seconds (`before_leaving`), in the same order: instances, votes.

The evacuation of a run is requested again while parts of it are left, while it is deployed or restarted, and after a failed
change. When there is no capacity, or no progress, the node takes work again; runs that have left stay away.
"""

from dataclasses import dataclass
from typing import Final

from agiledart_kernel.instants import MILLISECOND, SECOND, Duration, Instant
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal, own_node_refusal, refusal_before_lookup
from agiledart_node.context.node_context import CommandRefused, NodeContext, NotAllowed
from agiledart_node.draining.drain_obstacles import obstacles, refusal, runs_losing_majority
from agiledart_node.draining.voter_slot_transfer import POLL_INTERVAL, VoterSlotTransfer
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.hosting.hosted_application import Key
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.permission_checks import why_not
from agiledart_node.records.records import Records
from agiledart_node.recovery.recovery_service import RecoveryService
from agiledart_node.wire.drain_messages import (
    EMPTIED,
    EMPTYING,
    LEAVING,
    MAX_EVACUATED,
    MAX_LINES,
    SERVING,
    DrainStatus,
    EvacuatedRun,
    QueryDrain,
    RequestDrain,
)
from agiledart_node.wire.effects import EndAgent
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import RegisterValue

DRAIN_TIMEOUT: Final = Duration(120 * SECOND)
"""Time without a run leaving after which a drain is given up; longer than one change with a recovery behind it."""

VOTER_SLOT_TIMEOUT: Final = Duration(30 * SECOND)
"""Timeout for other nodes to replace this node as voter before it leaves."""

FINAL_DRAIN_TIME, FINAL_VOTER_SLOT_TIME = Duration(8 * SECOND), Duration(3 * SECOND)
"""Time in which a node that leaves in any case gives away what it can; the share of it that is reserved for its votes."""

MAX_TRIES: Final = 5
"""Evacuations of one run that may begin and fail."""

_NOTICE_TIME: Final = Duration(2 * SECOND)
"""Time for the waiting agent to learn that the node leaves."""


@dataclass(slots=True)
class _DrainingRun:
    """A run that leaves, or `stays`. `value`: the last known value of its register; `last`: the last obstacle."""

    key: Key
    instances: int = 0
    at: Instant | None = None
    value: RegisterValue | None = None
    tries: int = 0
    last: str = ""
    has_left: bool = False
    stays: bool = False

    @property
    def name(self) -> str:
        """Return the application's name."""
        return self.key[0]


class NodeDrain:
    """Drain of this node.

    Attributes:
        state: serving, emptying, drained or leaving, as the module describes.
        lease_key: key of the gate that has leased this node; empty: it is not leased.
    """

    def __init__(
        self,
        context: NodeContext,
        records: Records,
        hosting: ApplicationHost,
        recovery_service: RecoveryService,
        verifier: CommandVerifier,
    ) -> None:
        self._records, self._voter_slots = records, VoterSlotTransfer(context, recovery_service)
        self._context, self._hosting, self._recovery_service, self._verifier = (
            context,
            hosting,
            recovery_service,
            verifier,
        )
        self.state = SERVING
        self.lease_key = b""
        self._stays = False
        self._number = 0
        self._refusal = ""
        self._lines: list[str] = []
        self._left: list[EvacuatedRun] = []
        self._taken: dict[bytes | int, bool] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether this node runs nothing and takes no work."""
        return self.state in (EMPTIED, LEAVING) and not any(hosted.reserved for hosted in self._hosting.table.values())

    def begin_empty(self) -> None:
        """Take no work from the start, as after a drain."""
        self.state, self._stays, self._context.is_draining = EMPTIED, True, True

    def begin_to_serve(self) -> None:
        """Take work, unless a user has drained this node meanwhile."""
        if self.state == EMPTIED and self._number == 0:
            self.state, self._context.is_draining = SERVING, False
            self._hosting.on_capacity_changed()

    # ---- commands and queries

    async def asked(self, sender: Peer, message: RequestDrain) -> None:
        """Carry out a user's drain command that an agent forwards, and answer with the status."""
        name: bytes | int = message.signed_command or message.request
        if name not in self._taken:
            try:
                self._check(message)
                self._taken = {name: self._take(message)}
            except NotAllowed as error:
                self._context.drop(f"command: {error.reason}")
                answer = DrainStatus(message.request, self.state, error.text, error.reason)
                self._context.send(sender, answer)
                return
            except CommandRefused as error:
                self._context.send(sender, DrainStatus(message.request, self.state, error.text))
                return
        self._context.send(sender, self._drain_status(message.request, 0, is_unchanged=self._taken[name]))

    def look(self, sender: Peer, message: QueryDrain) -> None:
        """Answer an agent that follows the drain."""
        self._context.send(sender, self._drain_status(message.request, message.after))

    def _drain_status(self, request: int, after: int, *, is_unchanged: bool = False) -> DrainStatus:
        return DrainStatus(
            request,
            self.state,
            self._refusal,
            is_unchanged=is_unchanged,
            lines=tuple(self._lines[after : after + MAX_LINES]),
            evacuated=tuple(self._left[:MAX_EVACUATED]),
        )

    def _check(self, message: RequestDrain) -> None:
        if not self._verifier.requires_signatures:
            return
        principal, _ = self._verifier.identify_requester(
            message.signed_command, message.command, Principal(), message.submitter
        )
        if why := refusal_before_lookup(principal, "drain") or own_node_refusal(
            principal, self._context.me.node, self.lease_key
        ):
            raise NotAllowed(why, why_not(principal, "drain", why))

    def _take(self, message: RequestDrain) -> bool:
        """Start what a command demands. Return whether that was so already. Raises CommandRefused."""
        context, command = self._context, message.command
        if context.is_leaving or self.state == LEAVING:
            raise CommandRefused(f"{context.me.name} is leaving the ring.")
        if command.undo:
            previous_state, self.state, context.is_draining = self.state, SERVING, False
            self._number += 1
            self._hosting.on_capacity_changed()
            return previous_state == SERVING
        if self.state in (EMPTYING, EMPTIED) and self._stays == command.stay:
            return self.state == EMPTIED
        if self.state in (SERVING, EMPTIED):
            lines = obstacles(self._hosting.table.values(), self._value, context.me.node)
            lines += (
                []
                if command.stay
                else runs_losing_majority(self._voter_slots.voting_in(), context.me.node, context.overlay.is_alive)
            )
            if lines:
                raise CommandRefused(refusal(context.me.name, lines))
        self._stays = command.stay  # set before the drain begins, because without runs it is over at once
        if self.state == SERVING:
            self._lines, self._left, self._refusal = [], [], ""
            self.state, context.is_draining = EMPTYING, True
            self._number += 1
            context.requests.begin(self._empty(self._number))
        if self.state == EMPTIED and not command.stay:
            context.requests.begin(self._leave(self._number))
        return False

    # ---- the work

    async def _empty(self, number: int) -> None:
        had: dict[Key, _DrainingRun] = {}
        since = self._context.now
        while self._number == number and (open_ := self._open(had)):
            leaving = open_[0]
            if leaving.at is None:
                leaving.at = since = self._context.now
                self._report(f"{leaving.name}: {_instances(leaving.instances)} to leave")
            reason = await self._evacuate(leaving, Instant(self._context.now + DRAIN_TIMEOUT))
            if not reason and not leaving.has_left:
                await self._context.requests.pause(POLL_INTERVAL)
                late = self._context.now - since > DRAIN_TIMEOUT
                reason = f"{leaving.name} has not left in {DRAIN_TIMEOUT // SECOND} s{leaving.last}" if late else ""
            if self._number != number:
                return
            if reason:
                self._give_up(reason)
                return
            if leaving.has_left:
                took = (self._context.now - leaving.at) // MILLISECOND
                self._left.append(EvacuatedRun(*leaving.key, leaving.instances, took))
                self._report(f"{leaving.name} has left in {took / 1_000:.1f} s")
        if self._number == number and self._stays:
            self.state = EMPTIED
        elif self._number == number:
            await self._leave(number)

    async def before_leaving(self) -> None:
        """Drain as much as the time allows, on a node that leaves in any case and may come back.

        A run that cannot move, or not in time, or is being restarted just now, is restarted by other nodes or waits for this
        node.
        """
        self._number += 1
        number, self.state = self._number, LEAVING
        until = Instant(self._context.now + FINAL_DRAIN_TIME)
        had: dict[Key, _DrainingRun] = {}
        while self._context.now < until - FINAL_VOTER_SLOT_TIME and (leaving := self._open(had)):
            for run in leaving:
                hosted = self._hosting.table.get(run.key)
                may_move = hosted is None or (hosted.is_flowing and hosted.has_register)
                run.stays = not may_move or bool(await self._evacuate(run, Instant(until - FINAL_VOTER_SLOT_TIME)))
            if self._open(had):
                await self._context.requests.pause(POLL_INTERVAL)
        await self._voter_slots.give(until, lambda: self._number == number, self._report)

    def _open(self, had: dict[Key, _DrainingRun]) -> list[_DrainingRun]:
        """Return the runs that have, or had, instances here and have not left yet."""
        for key, hosted in self._hosting.table.items():
            if hosted.reserved:
                known = had.setdefault(key, _DrainingRun(key))
                known.instances = max(known.instances, hosted.reserved)
                known.has_left = False
        return [run for run in had.values() if not (run.has_left or run.stays)]

    async def _evacuate(self, leaving: _DrainingRun, until: Instant) -> str:
        """Request the evacuation of one run. Return why it cannot succeed; empty: continue."""
        hosted, value = self._hosting.table.get(leaving.key), self._value(leaving.key)
        leaving.value = value or leaving.value
        if hosted is not None and not (hosted.is_flowing and hosted.has_register):
            return ""  # it is being deployed
        if leaving.value is None:
            leaving.has_left = hosted is None
            return ""
        lines = obstacles([hosted], self._value, self._context.me.node) if hosted is not None else []
        if lines:  # the drain began while the run was being deployed, so `_take` did not see them
            return "; ".join(lines)
        answer = await self._voter_slots.ask(leaving.value, until)
        if answer is None:
            leaving.last = ": no node coordinates it"
            leaving.has_left = hosted is None and await self._is_over(leaving.key)
            return ""
        leaving.last = f": {answer.refusal or answer.last}" if answer.refusal or answer.last else leaving.last
        if answer.refusal and not answer.is_transient:
            return answer.refusal
        leaving.tries += answer.is_begun
        if leaving.tries > MAX_TRIES:
            return f"{leaving.name} did not leave in {MAX_TRIES} tries{leaving.last}"
        leaving.has_left = answer.is_safe and leaving.key not in self._hosting.table
        return ""

    async def _is_over(self, key: Key) -> bool:
        """Return whether a run has ended meanwhile, so that no node coordinates it any more."""
        try:
            _, record = await self._records.application(key[0])
        except CommandRefused:
            return False
        return record is None or record.is_final or record.version != key[1]

    def _value(self, key: Key) -> RegisterValue | None:
        """Return the register's value of a run, as this host knows it."""
        part = self._recovery_service.machine.participants.get(RunId(*key))
        return part.value if part is not None else None

    def _report(self, text: str) -> None:
        if len(self._lines) < MAX_LINES:
            self._lines.append(text)

    def _give_up(self, why: str) -> None:
        suffix = f"; {', '.join(run.name for run in self._left)} left, and stays away" if self._left else ""
        self.state, self._context.is_draining = SERVING, False
        self._refusal = f"{self._context.me.name} was not emptied, and takes work again: {why.rstrip('.')}{suffix}."
        self._hosting.on_capacity_changed()

    async def _leave(self, number: int) -> None:
        self.state = EMPTYING
        until = Instant(self._context.now + VOTER_SLOT_TIMEOUT)
        await self._voter_slots.give(until, lambda: self._number == number, self._report)
        if self._number != number:
            return
        if self._stays:  # the user has asked meanwhile that it stay in the ring
            self.state = EMPTIED
            return
        self.state = LEAVING
        self._report("it is empty, and leaves the ring")
        await self._context.requests.pause(_NOTICE_TIME)
        if self._number == number:
            self._context.emit(EndAgent())


def _instances(count: int) -> str:
    return "1 instance" if count == 1 else f"{count} instances"
