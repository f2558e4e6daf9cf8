"""Voter of a run's register: one voter slot on one node.

| message | state change | answer |
|---|---|---|
| PREPARE(b) above what was promised | promised ← b | PROMISE(b, accepted, value) once that is on the disk |
| ACCEPT(s, value), s.ballot ≥ promised, s ≥ accepted | promised, accepted, value ← those of s | ACCEPTED(s) once on the disk |
| the same again | nothing | the same answer, once the disk has it |
| a lower ballot | nothing | BALLOT_REFUSED(promised), at once: it promises nothing |
| a ballot farther above than one message may raise it | nothing | BALLOT_REFUSED(promised), to be asked in steps |
| a ballot of a later configuration, without the admin's signed command | nothing | nothing |

The awkward case: a second message comes while the first is being written. Its answer has the state in memory, so it waits for a
write of its own, and writes of one run are carried out in order. A node that lost its disk makes another slot when it is asked
for one. Until the register names that number, its answers count as no vote. So does one that has no value yet when a node asks
for it whose voters it does not believe: it might hold a stranger's value by the time the register names it.

The literature's form of it is Paxos; a rewritable value with a number under one ballot is the specification's.
"""

from collections.abc import Callable
from typing import Final

from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.limits import MAX_CONFIGURATIONS, MAX_ROUND_STEP, ROUNDS_PER_CONFIGURATION
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.stored_shares import StoredShares
from agiledart_recovery.register.voter_trust import KnownVoters, NamedVoters
from agiledart_recovery.wire.effects import ReservedSlot, StoreVoter, VoterFile
from agiledart_recovery.wire.messages import (
    Accept,
    Accepted,
    BallotRefused,
    KeyShareDealt,
    Prepare,
    Promise,
    RunKeyParts,
)
from agiledart_recovery.wire.names import Ballot, Stamp
from agiledart_recovery.wire.observations import MessageIgnored
from agiledart_recovery.wire.register_value import RegisterValue

MAX_RESERVED: Final = 4
"""Slots of one run that a node reserves: there is one coordinator, and strangers may ask, too."""


class VoterSlot:
    """Voter slot: a file on this node's disk, and what was promised under its number.

    Attributes:
        signed_command: the admin's command that began the latest configuration that this voter knows of.
        key_shares: this voter's shares of the run's key.
        reserved: slots promised to nodes for which this one does not wait; lost when one of them takes its place.
    """

    def __init__(self, context: RecoveryContext, file: VoterFile) -> None:
        self._context = context
        self.run, self.voter_slot, self._requested_by = file.run, file.voter_slot, file.requested_by
        self.promised, self.accepted, self.value, self.signed_command = (
            file.promised,
            file.accepted,
            file.value,
            file.signed_command,
        )
        self.key_shares, self.reserved = StoredShares(file.key_shares), file.reserved

    def keep(self, then: Callable[[], None]) -> None:
        """Write the file, then continue. On a disk error the voter stays silent, so it counts as dead."""
        file = VoterFile(
            self.run,
            self.voter_slot,
            self.promised,
            self.accepted,
            self.value,
            self.signed_command,
            self._requested_by if self.value is None else (),
            self.key_shares.stored,
            self.reserved,
        )
        self._context.ask(
            self.run, lambda request: StoreVoter(request, file), lambda _, reason: None if reason else then()
        )

    @property
    def held(self) -> KnownVoters | None:
        """Return what names the voters that this slot believes: its value, else those that asked for it; None: nothing does."""
        if self.value is not None or not self._requested_by:
            return self.value
        return NamedVoters(self._requested_by)

    def reserve(self, slot: ReservedSlot) -> None:
        """Promise a node a slot beside this one, in place of the oldest promise when there are too many."""
        self.reserved = (*self.reserved, slot)[-MAX_RESERVED:]

    def _answer(self, to: Peer, message: Message) -> None:
        self.keep(lambda: self._context.send(to, message))

    def on_prepare(self, sender: Peer, message: Prepare) -> None:
        """Answer PREPARE; the module's head has the table."""
        ballot = message.ballot
        if not self.is_known(ballot.configuration, message.signed_command):
            self._context.observe(MessageIgnored(sender.node, "configuration"))
            return
        if ballot < self.promised or self.is_far_above(ballot):
            self.refuse(sender, ballot)
            return
        if ballot.configuration > self.configuration:
            self.signed_command = message.signed_command
        self.promised = ballot
        self._answer(sender, Promise(self.run, message.ballot, self.voter_slot, self.accepted, self.value))

    def on_accept(self, sender: Peer, message: Accept) -> None:
        """Answer ACCEPT; the module's head has the table. Ignore a late ACCEPT below what was accepted under the same ballot."""
        stamp = message.stamp
        if self._is_unproven(stamp.ballot, message.value):
            self._context.observe(MessageIgnored(sender.node, "configuration"))
            return
        if stamp.ballot < self.promised or self.is_far_above(stamp.ballot):
            self.refuse(sender, stamp.ballot)
            return
        if stamp < self.accepted or self._is_of_before(message.value):
            return
        self._take(stamp, message.value)
        self._answer(sender, Accepted(self.run, stamp, self.voter_slot))

    def _is_of_before(self, value: RegisterValue) -> bool:
        """Return whether a value belongs to a quorum generation that an admin has ended, whatever its ballot is."""
        return self.value is not None and value.quorum_generation < self.value.quorum_generation

    def yield_to(self, ballot: Ballot, signed_command: bytes) -> None:
        """Promise nothing below a later configuration, in which the run continues without this slot, also after a restart."""
        if ballot > self.promised:
            self.promised, self.signed_command = ballot, signed_command
            self.keep(lambda: None)

    # ---- the run's key

    def names_host(self, node: NodeId) -> bool:
        """Return whether the value that this voter holds names a node as a host of the run."""
        return self.value is not None and self.value.needs_key(node)

    def on_share_dealt(self, sender: Peer, message: KeyShareDealt) -> None:
        """Store a share of the run's key, and report the shares that are on the disk."""
        hosts = self.value.plan.hosts if self.value is not None else {}
        if self.key_shares.put(sender.node, message.share, hosts):
            self.keep(lambda: self._context.send(sender, self.key_parts))
        else:
            self._context.send(sender, self.key_parts)

    @property
    def key_parts(self) -> RunKeyParts:
        """Return what this voter has of the run's key."""
        return RunKeyParts(self.run, b"", self.voter_slot, self.key_shares.shares)

    # ---- eras

    @property
    def configuration(self) -> int:
        """Return the latest configuration that this voter knows of."""
        return max(self.promised.configuration, self.value.configuration if self.value is not None else 0)

    def is_known(self, configuration: int, signed_command: bytes) -> bool:
        """Return whether a configuration is known here, or an admin has begun it by a signed command since the last one."""
        return configuration <= self.configuration or (
            configuration <= MAX_CONFIGURATIONS
            and self._context.is_command_authorised(self.run, signed_command, self.signed_command)
        )

    def is_far_above(self, ballot: Ballot) -> bool:
        """Return whether a ballot is farther above what was promised than one message may raise it."""
        return ballot.round - max(self.promised.round, ballot.configuration * ROUNDS_PER_CONFIGURATION) > MAX_ROUND_STEP

    def _is_unproven(self, ballot: Ballot, value: RegisterValue) -> bool:
        return ballot.configuration != value.configuration or not self.is_known(
            value.configuration, value.signed_command
        )

    def refuse(self, sender: Peer, ballot: Ballot) -> None:
        """Send what was promised, with the command that proves it to a proposer of an earlier configuration."""
        signed_command = self.signed_command if ballot.configuration < self.promised.configuration else b""
        self._context.send(sender, BallotRefused(self.run, ballot, self.promised, signed_command))

    def _take(self, stamp: Stamp, value: RegisterValue) -> None:
        if value.configuration > self.configuration:
            self.signed_command = value.signed_command
        self.promised, self.accepted, self.value = stamp.ballot, stamp, value

    def violations(self) -> list[str]:
        """Return violated invariants, for checkers."""
        return [f"{self.run.app}: accepted above what was promised"] if self.accepted.ballot > self.promised else []
