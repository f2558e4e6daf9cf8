"""A voter that is about to leave: another node takes its seat before it goes."""

from typing import Any, cast

import msgspec

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import Send
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.desk import Desk
from agiledart_recovery.lives.replacing import Replacing
from agiledart_recovery.register.proposer import Phase
from agiledart_recovery.wire.messages import AskSeat
from agiledart_recovery.wire.names import Snapshot
from agiledart_recovery.wire.value import Value
from tests.unit.recovery.bench import RUN, desk, peer, value

VALUE = value(2, Snapshot(2, 7))


class Register:
    """One that takes everything."""

    def __init__(self) -> None:
        self.phase, self.value = Phase.LEADING, VALUE

    def write(self, value: Value) -> None:
        """It is there."""
        self.value = value


def tick(replacing: Replacing, here: Desk, register: Register) -> list[int]:
    """A tick; who was asked for a seat."""
    here.effects = []
    replacing.on_tick(cast(Any, register))
    return [int(one.to.node) for one in here.effects if isinstance(one, Send) and isinstance(one.message, AskSeat)]


def made(*room: int) -> tuple[Replacing, Desk, Register]:
    here = desk(1)
    here.room = tuple(peer(number) for number in room)
    replacing = Replacing(here, RUN)
    replacing.began(VALUE)
    return replacing, here, Register()


def test_another_node_takes_the_seat_and_the_one_before_agrees() -> None:
    replacing, here, register = made(4, 5, 6)
    assert tick(replacing, here, register) == []
    assert replacing.wants_to_go(NodeId(5), VALUE) == ""
    assert tick(replacing, here, register) == [6]
    replacing.on_seat(peer(6), 66)
    tick(replacing, here, register)
    assert [voter.seat for voter in register.value.voters] == [1, 4, 66]
    assert register.value.outgoing == VALUE.voters
    tick(replacing, here, register)
    assert register.value == msgspec.structs.replace(VALUE, voters=register.value.voters)


def test_nobody_is_left_to_take_it() -> None:
    replacing, here, register = made(4, 5)
    assert replacing.wants_to_go(NodeId(5), VALUE) == "no other node can take its seat in the register"
    assert tick(replacing, here, register) == []
    assert replacing.wants_to_go(NodeId(9), VALUE) == "", "it has none"


def test_who_is_about_to_leave_takes_no_seat() -> None:
    replacing, here, register = made(6)
    replacing._going[NodeId(6)] = here.now
    assert replacing.wants_to_go(NodeId(5), VALUE)
    assert tick(replacing, here, register) == []


def test_who_thought_better_of_it_keeps_it() -> None:
    replacing, here, register = made(6)
    replacing.wants_to_go(NodeId(5), VALUE)
    here.now = Instant(11 * SECOND)
    assert tick(replacing, here, register) == []
