"""Fragments that nobody has any more are made again between epochs, and the register names who has them."""

import msgspec

from agiledart_kernel.machine import Completed, Failed, Received, Send, SetTimer, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.fragments.repairing import Repairing
from agiledart_recovery.machine import RecoveryMachine
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import FragmentKey, KeepLife, SendFragment
from agiledart_recovery.wire.events import FragmentDamaged, HostBack, HostLost, RoomSeen
from agiledart_recovery.wire.names import Ballot, Party, Snapshot
from agiledart_recovery.wire.value import Element, MadeAgain, Saved, Value
from tests.unit.recovery.bench import RUN, desk, peer, value

STAGE, AT = Party("stage"), Snapshot(1, 3)
ELEMENT = Element(AT, b"hash", 4 << 20, 2, (NodeId(6), NodeId(7), NodeId(8)))


class Owner:
    """Node 2, which has saved an element with fragments at 6, 7 and 8; 9 and 10 could take more."""

    def __init__(self, *room: int) -> None:
        self.desk = desk(2)
        self.desk.room = tuple(peer(number) for number in room or (6, 7, 8, 9, 10))
        self.told: list[wire.Remade] = []
        self.repairing = Repairing(self.desk, RUN, self.told.append)
        self.know(ELEMENT)

    def know(self, element: Element, life: int = 2) -> None:
        self.repairing.know(life, {(STAGE, element.snapshot): element})

    def sent(self) -> list[SendFragment]:
        effects, self.desk.effects = self.desk.effects, []
        return [each for each in effects if isinstance(each, SendFragment)]

    def lose(self, node: int) -> None:
        self.desk.lost[NodeId(node)] = None
        self.repairing.look()


def test_what_a_lost_holder_had_goes_to_another_one_in_the_life_that_is_lived_now() -> None:
    owner = Owner()
    assert owner.sent() == []
    owner.lose(7)
    (send,) = owner.sent()
    assert (send.holder, send.key.index, send.key.snapshot, send.life) == (NodeId(9), 1, AT, 2)
    assert send.element == ELEMENT, "cut as it was, so that it fits the others"
    owner.desk.answered(send.request, None, "")
    (told,) = owner.told
    assert told.made == (MadeAgain(STAGE, AT, 1, NodeId(9)),)
    assert owner.repairing.lacking == 0


def test_it_is_said_until_the_register_names_it() -> None:
    owner = Owner()
    owner.lose(7)
    owner.desk.answered(owner.sent()[0].request, None, "")
    owner.repairing.on_timer()
    assert len(owner.told) == 2
    owner.know(msgspec.structs.replace(ELEMENT, holders=(NodeId(6), NodeId(9), NodeId(8))))
    owner.repairing.on_timer()
    assert len(owner.told) == 2


def test_who_refuses_is_passed_over_and_where_nobody_is_left_it_is_tried_when_somebody_comes() -> None:
    owner = Owner(6, 7, 8, 9)
    owner.lose(7)
    (send,) = owner.sent()
    owner.desk.answered(send.request, None, "its disk is full")
    assert owner.sent() == []
    assert owner.repairing.lacking == 1
    owner.desk.room = (*owner.desk.room, peer(10))
    owner.repairing.look()
    (again,) = owner.sent()
    assert again.holder == NodeId(10)


def test_what_a_holder_has_not_any_more_goes_elsewhere_or_to_it_where_there_is_no_other() -> None:
    for room, holder in ((), 9), ((6, 7, 8), 8):
        owner = Owner(*room)
        owner.repairing.on_holds(NodeId(8), STAGE, ((AT, 2),))
        assert owner.sent() == []
        owner.repairing.on_holds(NodeId(8), STAGE, ())
        (send,) = owner.sent()
        assert (send.holder, send.key.index) == (NodeId(holder), 2)


def test_a_fragment_on_the_owners_own_node_counts_for_nothing() -> None:
    """Who takes a state over was often one of its holders."""
    owner = Owner()
    owner.know(msgspec.structs.replace(ELEMENT, holders=(NodeId(2), NodeId(7), NodeId(0))))
    assert [(each.key.index, each.holder) for each in owner.sent()] == [(0, NodeId(6)), (2, NodeId(8))]


def test_an_answer_of_a_life_that_is_over_counts_for_nothing() -> None:
    owner = Owner()
    owner.lose(7)
    (send,) = owner.sent()
    owner.repairing.forget()
    owner.desk.answered(send.request, None, "")
    owner.know(ELEMENT, 3)
    assert owner.told == []
    assert [each.life for each in owner.sent()] == [3]


# ---- as a whole


class Hosting:
    """A machine of node 2 that runs the stage in life 2, and hears of its coordinator, node 1."""

    def __init__(self) -> None:
        from agiledart_kernel.instants import Instant
        from agiledart_kernel.randomness import RandomStream
        from agiledart_recovery.config import RecoveryConfig

        self._instant = Instant
        self.machine = RecoveryMachine(peer(2), RecoveryConfig(), RandomStream(2))
        self.now = 0
        self.effects: list[object] = []
        self.feed(RoomSeen(tuple(peer(number) for number in (6, 7, 8, 9))))
        self.feed(Received(peer(1), wire.Reset(RUN, Ballot(1, NodeId(1), 1), self.value())))
        while asked := [one for one in self.take() if isinstance(one, KeepLife) or hasattr(one, "assignments")]:
            for one in asked:
                self.feed(Completed(one.request))  # type: ignore[attr-defined]
        self.feed(Received(peer(1), wire.Start(RUN, 2)))
        self.take()

    @staticmethod
    def value() -> Value:
        return msgspec.structs.replace(value(2, AT), saved=(Saved(STAGE, (ELEMENT,)),))

    def feed(self, event: object) -> None:
        self.now += 1
        self.effects += self.machine.step(event, self._instant(self.now))  # type: ignore[arg-type]

    def take(self) -> list[object]:
        taken, self.effects = self.effects, []
        return taken

    def said(self, kind: type) -> list[tuple[Peer, object]]:
        return [
            (one.to, one.message) for one in self.effects if isinstance(one, Send) and isinstance(one.message, kind)
        ]


def test_a_host_makes_fragments_again_when_a_holder_is_lost_and_tells_its_coordinator() -> None:
    host = Hosting()
    host.feed(HostLost(NodeId(6)))
    (send,) = [one for one in host.take() if isinstance(one, SendFragment)]
    assert (send.holder, send.life) == (NodeId(9), 2)
    assert host.machine.lacking == 1
    host.feed(Completed(send.request))
    ((to, told),) = host.said(wire.Remade)
    assert to.node == NodeId(1)
    assert isinstance(told, wire.Remade)
    (timer,) = [one for one in host.take() if isinstance(one, SetTimer)]
    host.feed(TimerFired(timer.name))
    assert host.said(wire.Remade)
    host.take()
    named = host.value().with_holders(told.made)
    host.feed(Received(peer(1), wire.Committed(RUN, 2, named)))
    host.feed(TimerFired(timer.name))
    assert not host.said(wire.Remade)
    assert host.machine.lacking == 0


def test_a_holder_that_is_back_is_asked_what_it_still_has() -> None:
    host = Hosting()
    host.feed(HostBack(peer(7, 2)))
    ((to, asked),) = host.said(wire.Kept)
    assert isinstance(asked, wire.Kept)
    assert (to.node, asked.needed, asked.asks) == (NodeId(7), (AT,), True)
    host.feed(Received(peer(7, 2), wire.Holds(RUN, STAGE, ())))
    (send,) = [one for one in host.take() if isinstance(one, SendFragment)]
    assert (send.key.index, send.holder) == (1, NodeId(9))
    host.feed(Failed(send.request, "full"))
    (again,) = [one for one in host.take() if isinstance(one, SendFragment)]
    assert again.holder == NodeId(7), "it has room for what it had"


def test_a_holder_says_what_it_has_when_it_is_asked_and_when_something_was_damaged() -> None:
    host = Hosting()
    keys = [FragmentKey(RUN, STAGE, AT, index) for index in (0, 1)]
    for key in keys:
        host.machine.shelf.put(key, NodeId(5))
    host.feed(Received(peer(5), wire.Kept(RUN, 2, STAGE, AT, (AT,), asks=True)))
    assert [message for _, message in host.said(wire.Holds)] == [wire.Holds(RUN, STAGE, ((AT, 1), (AT, 0)))]
    host.take()
    host.feed(FragmentDamaged(keys[1]))
    assert [message for _, message in host.said(wire.Holds)] == [wire.Holds(RUN, STAGE, ((AT, 0),))]


def test_the_value_names_new_holders_once_and_only_of_elements_that_it_has() -> None:
    before = Hosting.value()
    made = (
        MadeAgain(STAGE, AT, 1, NodeId(9)),
        MadeAgain(STAGE, AT, 2, NodeId(6)),
        MadeAgain(STAGE, Snapshot(1, 2), 0, NodeId(10)),
        MadeAgain(STAGE, AT, 77, NodeId(11)),
    )
    (saved,) = before.with_holders(made).saved
    assert saved.chain[0].holders == (NodeId(6), NodeId(9), NodeId(8)), "6 has another fragment of it"
