"""Fragments without a replica are rebuilt between epochs, and the register names their replica nodes."""

import msgspec

from agiledart_kernel.machine import Completed, Failed, Received, Send, SetTimer, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.fragments.fragment_repair import FragmentRepair
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import FragmentKey, SendFragment, StoreAttempt
from agiledart_recovery.wire.events import CandidatesFound, FragmentDamaged, HostBack, HostLost
from agiledart_recovery.wire.names import Ballot, CheckpointId, InstanceId
from agiledart_recovery.wire.register_value import InstanceSnapshot, RegisterValue, ReplacedFragment, SavedState
from tests.unit.recovery.bench import RUN, context, peer, value

STAGE, AT = InstanceId("stage"), CheckpointId(1, 3)
ELEMENT = InstanceSnapshot(AT, b"hash", 4 << 20, 2, (NodeId(6), NodeId(7), NodeId(8)))


class Owner:
    """Node 2, which has saved a snapshot with fragments at 6, 7 and 8; 9 and 10 could take more."""

    def __init__(self, *candidates: int) -> None:
        self.context = context(2)
        self.context.candidates = tuple(peer(number) for number in candidates or (6, 7, 8, 9, 10))
        self.told: list[wire.FragmentsReplaced] = []
        self.fragment_repair = FragmentRepair(self.context, RUN, self.told.append)
        self.update(ELEMENT)

    def update(self, snapshot: InstanceSnapshot, attempt: int = 2) -> None:
        self.fragment_repair.update(attempt, {(STAGE, snapshot.checkpoint): snapshot})

    def sent(self) -> list[SendFragment]:
        effects, self.context.effects = self.context.effects, []
        return [each for each in effects if isinstance(each, SendFragment)]

    def lose(self, node: int) -> None:
        self.context.lost[NodeId(node)] = None
        self.fragment_repair.look()


def test_fragments_of_a_lost_replica_node_move_within_the_current_attempt() -> None:
    owner = Owner()
    assert owner.sent() == []
    owner.lose(7)
    (send,) = owner.sent()
    assert (send.replica_node, send.key.index, send.key.checkpoint, send.attempt) == (NodeId(9), 1, AT, 2)
    assert send.snapshot == ELEMENT, "cut as it was, so that it fits the others"
    owner.context.answered(send.request, None, "")
    (told,) = owner.told
    assert told.made == (ReplacedFragment(STAGE, AT, 1, NodeId(9)),)
    assert owner.fragment_repair.lacking == 0


def test_a_moved_fragment_is_reported_until_the_register_names_it() -> None:
    owner = Owner()
    owner.lose(7)
    owner.context.answered(owner.sent()[0].request, None, "")
    owner.fragment_repair.on_timer()
    assert len(owner.told) == 2
    owner.update(msgspec.structs.replace(ELEMENT, replica_nodes=(NodeId(6), NodeId(9), NodeId(8))))
    owner.fragment_repair.on_timer()
    assert len(owner.told) == 2


def test_refusing_replica_nodes_are_skipped_and_repair_resumes_when_one_joins() -> None:
    owner = Owner(6, 7, 8, 9)
    owner.lose(7)
    (send,) = owner.sent()
    owner.context.answered(send.request, None, "its disk is full")
    assert owner.sent() == []
    assert owner.fragment_repair.lacking == 1
    owner.context.candidates = (*owner.context.candidates, peer(10))
    owner.fragment_repair.look()
    (again,) = owner.sent()
    assert again.replica_node == NodeId(10)


def test_a_fragment_missing_on_its_replica_node_is_stored_on_another_node() -> None:
    for candidates, replica_node in ((), 9), ((6, 7, 8), 8):
        owner = Owner(*candidates)
        owner.fragment_repair.on_holds(NodeId(8), STAGE, ((AT, 2),))
        assert owner.sent() == []
        owner.fragment_repair.on_holds(NodeId(8), STAGE, ())
        (send,) = owner.sent()
        assert (send.replica_node, send.key.index) == (NodeId(replica_node), 2)


def test_a_fragment_on_the_owners_own_node_counts_for_nothing() -> None:
    """A successor was often one of the state's replica nodes."""
    owner = Owner()
    owner.update(msgspec.structs.replace(ELEMENT, replica_nodes=(NodeId(2), NodeId(7), NodeId(0))))
    assert [(each.key.index, each.replica_node) for each in owner.sent()] == [(0, NodeId(6)), (2, NodeId(8))]


def test_an_answer_of_a_past_attempt_counts_for_nothing() -> None:
    owner = Owner()
    owner.lose(7)
    (send,) = owner.sent()
    owner.fragment_repair.forget()
    owner.context.answered(send.request, None, "")
    owner.update(ELEMENT, 3)
    assert owner.told == []
    assert [each.attempt for each in owner.sent()] == [3]


# ---- as a whole


class Hosting:
    """A machine of node 2 that runs the stage in attempt 2, coordinated by node 1."""

    def __init__(self) -> None:
        from agiledart_kernel.instants import Instant
        from agiledart_kernel.randomness import RandomStream
        from agiledart_recovery.recovery_config import RecoveryConfig

        self._instant = Instant
        self.machine = RecoveryMachine(peer(2), RecoveryConfig(), RandomStream(2))
        self.now = 0
        self.effects: list[object] = []
        self.feed(CandidatesFound(tuple(peer(number) for number in (6, 7, 8, 9))))
        self.feed(Received(peer(1), wire.Reset(RUN, Ballot(1, NodeId(1), 1), self.value())))
        while asked := [one for one in self.take() if isinstance(one, StoreAttempt) or hasattr(one, "assignments")]:
            for one in asked:
                self.feed(Completed(one.request))  # type: ignore[attr-defined]
        self.feed(Received(peer(1), wire.Start(RUN, 2)))
        self.take()

    @staticmethod
    def value() -> RegisterValue:
        return msgspec.structs.replace(value(2, AT), saved=(SavedState(STAGE, (ELEMENT,)),))

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


def test_a_host_rebuilds_lost_fragments_and_notifies_its_coordinator() -> None:
    host = Hosting()
    host.feed(HostLost(NodeId(6)))
    (send,) = [one for one in host.take() if isinstance(one, SendFragment)]
    assert (send.replica_node, send.attempt) == (NodeId(9), 2)
    assert host.machine.lacking == 1
    host.feed(Completed(send.request))
    ((to, told),) = host.said(wire.FragmentsReplaced)
    assert to.node == NodeId(1)
    assert isinstance(told, wire.FragmentsReplaced)
    (timer,) = [one for one in host.take() if isinstance(one, SetTimer)]
    host.feed(TimerFired(timer.name))
    assert host.said(wire.FragmentsReplaced)
    host.take()
    named = host.value().with_replica_nodes(told.made)
    host.feed(Received(peer(1), wire.Committed(RUN, 2, named)))
    host.feed(TimerFired(timer.name))
    assert not host.said(wire.FragmentsReplaced)
    assert host.machine.lacking == 0


def test_a_returned_replica_node_is_asked_for_its_inventory() -> None:
    host = Hosting()
    host.feed(HostBack(peer(7, 2)))
    ((to, asked),) = host.said(wire.NeededFragments)
    assert isinstance(asked, wire.NeededFragments)
    assert (to.node, asked.needed, asked.asks) == (NodeId(7), (AT,), True)
    host.feed(Received(peer(7, 2), wire.HeldFragments(RUN, STAGE, ())))
    (send,) = [one for one in host.take() if isinstance(one, SendFragment)]
    assert (send.key.index, send.replica_node) == (1, NodeId(9))
    host.feed(Failed(send.request, "full"))
    (again,) = [one for one in host.take() if isinstance(one, SendFragment)]
    assert again.replica_node == NodeId(7), "it has room for what it had"


def test_a_replica_node_reports_its_inventory_on_request_and_after_damage() -> None:
    host = Hosting()
    keys = [FragmentKey(RUN, STAGE, AT, index) for index in (0, 1)]
    for key in keys:
        host.machine.fragment_store.put(key, NodeId(5))
    host.feed(Received(peer(5), wire.NeededFragments(RUN, 2, STAGE, AT, (AT,), asks=True)))
    assert [message for _, message in host.said(wire.HeldFragments)] == [
        wire.HeldFragments(RUN, STAGE, ((AT, 1), (AT, 0)))
    ]
    host.take()
    host.feed(FragmentDamaged(keys[1]))
    assert [message for _, message in host.said(wire.HeldFragments)] == [wire.HeldFragments(RUN, STAGE, ((AT, 0),))]


def test_the_register_names_new_replica_nodes_once_and_only_of_known_snapshots() -> None:
    before = Hosting.value()
    made = (
        ReplacedFragment(STAGE, AT, 1, NodeId(9)),
        ReplacedFragment(STAGE, AT, 2, NodeId(6)),
        ReplacedFragment(STAGE, CheckpointId(1, 2), 0, NodeId(10)),
        ReplacedFragment(STAGE, AT, 77, NodeId(11)),
    )
    (saved,) = before.with_replica_nodes(made).saved
    assert saved.chain[0].replica_nodes == (NodeId(6), NodeId(9), NodeId(8)), "6 has another fragment of it"
