"""A run's key is split among its voters: hosts that the register names get it, also when all earlier hosts are lost; no other node
does."""

from itertools import combinations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Completed, Received, Send, SetTimer, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.register.key_splitting import combine_shares, deal_of, key_digest, split_key
from agiledart_recovery.register.stored_shares import StoredShares
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import RequestEffect, RunKeyFound, StoreAttempt
from agiledart_recovery.wire.events import HostLost, MakeVoterSlot
from agiledart_recovery.wire.key_share import KeyShare
from agiledart_recovery.wire.names import Ballot, Stamp, Voter
from agiledart_recovery.wire.register_value import RegisterValue
from tests.unit.recovery.bench import RUN, peer, plan, value
from tests.unit.recovery.test_machine import machine

KEY = bytes(range(32))
VOTERS = (1, 4, 5)
NODES = tuple(peer(number).node for number in VOTERS)


@settings(max_examples=30, deadline=None)
@given(key=st.binary(min_size=32, max_size=32), count=st.sampled_from([1, 3, 5]), data=st.data())
def test_any_majority_has_the_key_and_fewer_have_nothing(key: bytes, count: int, data: st.DataObject) -> None:
    shares = split_key(key, tuple(NodeId(number) for number in range(count)))
    needed = count // 2 + 1
    majority = data.draw(st.sampled_from(list(combinations(shares, needed))))
    assert combine_shares(majority, count, key_digest(key)) == key
    assert combine_shares(majority[1:], count, key_digest(key)) == b""
    assert combine_shares(majority, count, key_digest(b"another")) == b""


@settings(max_examples=30, deadline=None)
@given(lies=st.lists(st.binary(min_size=32, max_size=32), max_size=4), liar=st.sampled_from([1, 2, 3, 4, 5]))
def test_wrong_shares_hide_no_key(lies: list[bytes], liar: int) -> None:
    nodes = tuple(NodeId(number) for number in range(5))
    shares = [share for share in split_key(KEY, nodes) if share.index != liar]
    wrong = [KeyShare(deal_of(nodes), index, lie) for index in (liar, 1 + liar % 5) for lie in lies]
    assert combine_shares([*wrong, *shares], 5, key_digest(KEY)) == KEY


def test_a_dealer_displaces_only_its_own_shares() -> None:
    stored, honest = StoredShares(), split_key(KEY, NODES)[0]
    assert stored.put(NodeId(2), honest, ())
    assert not stored.put(NodeId(9), honest, ()), "it is on the disk already"
    for number in range(100):
        stored.put(NodeId(9), KeyShare(bytes((number,)), 1, KEY), ())
    assert honest in stored.shares
    assert len(stored.shares) == 3
    assert StoredShares(stored.stored).shares == stored.shares


class Net:
    """Machines whose messages arrive at once; requests succeed at once, and timers fire when `wait` is called."""

    def __init__(self, value: RegisterValue) -> None:
        self.machines: dict[NodeId, RecoveryMachine] = {}
        self.timers: list[tuple[NodeId, object]] = []
        self.sent: list[tuple[NodeId, NodeId, wire.RunMessage]] = []
        self.found: list[NodeId] = []
        self.files: dict[NodeId, StoreAttempt] = {}
        self.now = Instant(0)
        for voter, share in zip(value.voters, split_key(KEY, NODES), strict=True):
            self.step(voter.peer, MakeVoterSlot(RUN, NodeId(99), share))
            self.accept(voter.peer, value)

    def machine(self, node: Peer) -> RecoveryMachine:
        if node.node not in self.machines:
            self.machines[node.node] = machine(int(node.node))
        return self.machines[node.node]

    def accept(self, voter: Peer, value: RegisterValue, by: int = 1) -> None:
        stamp = Stamp(Ballot(value.attempt, peer(by).node, 1), value.attempt)
        self.step(voter, Received(peer(by), wire.Accept(RUN, stamp, value)))

    def reset(self, host: Peer, value: RegisterValue, by: int = 1) -> None:
        self.step(host, Received(peer(by), wire.Reset(RUN, Ballot(value.attempt, peer(by).node, 1), value)))

    def step(self, to: Peer, event: object) -> None:
        made = self.machine(to)
        self.carry_out(to, made.step(event, self.now))  # type: ignore[arg-type]

    def carry_out(self, at: Peer, effects: object) -> None:
        for effect in list(effects):  # type: ignore[call-overload]
            if isinstance(effect, Send) and isinstance(
                effect.message, wire.QueryRunKey | wire.RunKeyParts | wire.KeyShareDealt
            ):
                self.sent.append((at.node, effect.to.node, effect.message))
                if effect.to.node in self.machines:
                    self.step(effect.to, Received(at, effect.message))
            elif isinstance(effect, RunKeyFound):
                self.found.append(at.node)
            elif isinstance(effect, SetTimer):
                self.timers.append((at.node, effect.name))
            elif isinstance(effect, RequestEffect):
                if isinstance(effect, StoreAttempt):
                    self.files[at.node] = effect
                self.step(at, Completed(effect.request))

    def wait(self) -> None:
        due = [timer for timer in self.timers if timer[1] == (RUN, "key")]
        self.timers = [timer for timer in self.timers if timer[1] != (RUN, "key")]
        for node, name in due:
            if node in self.machines:
                self.step(Peer(node, 1), TimerFired(name))

    def lose(self, *numbers: int) -> None:
        for number in numbers:
            del self.machines[peer(number).node]
            for node in list(self.machines):
                self.step(Peer(node, 1), HostLost(peer(number).node))

    def key(self, number: int) -> bytes:
        part = self.machines[peer(number).node].participants.get(RUN)
        return part.run_key.key if part is not None else b""


def keyed(attempt: int = 1, stage: int = 2, voters: tuple[int, ...] = VOTERS) -> RegisterValue:
    return msgspec.structs.replace(
        value(attempt, made=plan(source=2, stage=stage, sink=stage)),
        voters=tuple(Voter(peer(number), SLOTS[number]) for number in voters),
        key_digest=key_digest(KEY),
    )


def _slots() -> dict[int, int]:
    numbers: dict[int, int] = {}
    for number in (1, 4, 5, 8):
        made = machine(number)
        made.step(MakeVoterSlot(RUN), Instant(0))
        numbers[number] = made.voter_slots[RUN].voter_slot
    return numbers


SLOTS = _slots()


def test_a_host_that_the_register_names_gets_the_key_and_stores_it() -> None:
    net = Net(first := keyed())
    net.reset(peer(2), first)
    assert net.key(2) == KEY
    assert net.found == [peer(2).node]
    assert net.files[peer(2).node].file.key == KEY
    net.wait()
    assert not any(isinstance(message, wire.KeyShareDealt) for *_, message in net.sent), "the voters have shares"


def test_a_node_that_votes_and_a_stranger_get_no_key() -> None:
    net = Net(first := keyed())
    net.reset(peer(2), first)
    for asking in (peer(4), peer(9)):
        for asked in (peer(1), peer(2), peer(4), peer(5)):
            net.step(asked, Received(asking, wire.QueryRunKey(RUN)))
    answered = {to for _, to, message in net.sent if isinstance(message, wire.RunKeyParts)}
    assert answered == {peer(2).node}
    assert all(KEY not in msgspec.msgpack.encode(message) for *_, message in net.sent)


def test_the_next_hosts_get_the_key_from_a_majority_when_all_are_lost() -> None:
    net = Net(keyed())
    net.reset(peer(2), keyed())
    net.lose(2, 5)
    second = keyed(2, stage=7)
    net.accept(peer(1), second)
    net.reset(peer(7), second)
    assert net.key(7) == b"", "one of three voters holds the value that names it"
    net.accept(peer(4), second)
    net.wait()
    assert net.key(7) == KEY


def test_a_new_voter_gets_a_share_that_counts() -> None:
    net = Net(first := keyed())
    net.reset(peer(2), first)
    second = keyed(2, voters=(1, 4, 8))
    net.step(peer(8), MakeVoterSlot(RUN))
    for voter in (1, 4, 8):
        net.accept(peer(voter), second)
    net.reset(peer(2), second)
    net.wait()
    net.lose(2, 1)
    third = keyed(3, stage=7, voters=(1, 4, 8))
    for voter in (4, 8):
        net.accept(peer(voter), third, by=4)
    net.reset(peer(7), third, by=4)
    net.wait()
    assert net.key(7) == KEY, "the shares of the second deal combine"


def test_a_share_is_dealt_again_until_the_voter_has_it() -> None:
    net = Net(first := keyed())
    net.reset(peer(2), first)
    second = keyed(2, voters=(1, 4, 8))
    for voter in (1, 4):
        net.accept(peer(voter), second)
    net.reset(peer(2), second)
    net.wait()  # the new voter does not run yet
    net.step(peer(8), MakeVoterSlot(RUN))
    net.accept(peer(8), second)
    net.wait()
    assert len(net.machines[peer(8).node].voter_slots[RUN].key_shares.shares) == 1


def test_a_voter_takes_no_share_of_a_node_that_its_value_does_not_name() -> None:
    net = Net(keyed())
    before = net.machines[peer(1).node].voter_slots[RUN].key_shares.shares
    net.step(peer(1), Received(peer(9), wire.KeyShareDealt(RUN, KeyShare(b"deal", 1, KEY))))
    assert net.machines[peer(1).node].voter_slots[RUN].key_shares.shares == before
