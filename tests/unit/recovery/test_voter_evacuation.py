"""A voter that is about to leave: another node takes its voter slot before it goes."""

from typing import Any, cast

import msgspec

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import Send
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.attempts.voter_replacement import VoterReplacement
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.proposer import Phase
from agiledart_recovery.wire.messages import RequestVoterSlot
from agiledart_recovery.wire.names import CheckpointId
from agiledart_recovery.wire.register_value import RegisterValue
from tests.unit.recovery.bench import RUN, context, peer, value

VALUE = value(2, CheckpointId(2, 7))


class Register:
    """One that takes everything."""

    def __init__(self) -> None:
        self.phase, self.value = Phase.LEADING, VALUE

    def write(self, value: RegisterValue) -> None:
        """It is there."""
        self.value = value


def tick(voter_replacement: VoterReplacement, here: RecoveryContext, register: Register) -> list[int]:
    """A tick; return the node asked for a voter slot."""
    here.effects = []
    voter_replacement.on_tick(cast(Any, register))
    return [
        int(one.to.node) for one in here.effects if isinstance(one, Send) and isinstance(one.message, RequestVoterSlot)
    ]


def made(*candidates: int) -> tuple[VoterReplacement, RecoveryContext, Register]:
    here = context(1)
    here.candidates = tuple(peer(number) for number in candidates)
    voter_replacement = VoterReplacement(here, RUN)
    voter_replacement.began(VALUE)
    return voter_replacement, here, Register()


def test_another_node_takes_the_voter_slot_and_the_previous_voter_agrees() -> None:
    voter_replacement, here, register = made(4, 5, 6)
    assert tick(voter_replacement, here, register) == []
    assert voter_replacement.request_replacement(NodeId(5), VALUE) == ""
    assert tick(voter_replacement, here, register) == [6]
    voter_replacement.on_voter_slot_made(peer(6), 66)
    tick(voter_replacement, here, register)
    assert [voter.voter_slot for voter in register.value.voters] == [1, 4, 66]
    assert register.value.old_voters == VALUE.voters
    tick(voter_replacement, here, register)
    assert register.value == msgspec.structs.replace(VALUE, voters=register.value.voters)


def test_no_node_is_left_to_take_the_voter_slot() -> None:
    voter_replacement, here, register = made(4, 5)
    assert voter_replacement.request_replacement(NodeId(5), VALUE) == "no other node can take its seat in the register"
    assert tick(voter_replacement, here, register) == []
    assert voter_replacement.request_replacement(NodeId(9), VALUE) == "", "it has none"


def test_a_node_about_to_leave_takes_no_voter_slot() -> None:
    voter_replacement, here, register = made(6)
    voter_replacement._leaving[NodeId(6)] = here.now
    assert voter_replacement.request_replacement(NodeId(5), VALUE)
    assert tick(voter_replacement, here, register) == []


def test_a_node_that_cancels_its_leave_keeps_its_voter_slot() -> None:
    voter_replacement, here, register = made(6)
    voter_replacement.request_replacement(NodeId(5), VALUE)
    here.now = Instant(11 * SECOND)
    assert tick(voter_replacement, here, register) == []
