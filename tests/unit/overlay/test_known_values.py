"""A read of a record repeats its value over the network only when it has changed."""

from agiledart_kernel.node_id import NodeId
from agiledart_overlay.records.record_client import LEAST_REMEMBERED, MOST_REMEMBERED, REMEMBERED
from agiledart_overlay.records.record_store import value_digest
from agiledart_overlay.wire.effects import RecordAnswer
from agiledart_overlay.wire.events import ReadRecord, StoreRecord
from agiledart_overlay.wire.messages import RecordRead, RecordReply
from tests.unit.overlay.bench import Bench, of, peer, sent

KEY = NodeId(7 << 120)
ROOT = peer(7)
LARGE = b"x" * 4_000


def asked(bench: Bench, key: NodeId = KEY) -> RecordRead:
    return sent(bench.give(ReadRecord(1, key)), RecordRead)[-1][1]


def answered(bench: Bench, reply: RecordReply) -> list[tuple[int, bytes]]:
    return [(answer.version, answer.value) for answer in of(bench.receive(ROOT, reply), RecordAnswer)]


def test_a_client_sends_the_digest_of_the_value_that_it_read_last() -> None:
    bench = Bench(1).adopt(ROOT)
    first = asked(bench)
    assert first.known == b""
    assert answered(bench, RecordReply(first.number, True, 3, LARGE, "")) == [(3, LARGE)]
    second = asked(bench)
    assert second.known == value_digest(LARGE)
    assert answered(bench, RecordReply(second.number, True, 4, b"", "", is_known=True)) == [(4, LARGE)]
    third = asked(bench)
    assert answered(bench, RecordReply(third.number, True, 5, b"y" * 500, "")) == [(5, b"y" * 500)]
    assert asked(bench).known == value_digest(b"y" * 500)


def test_a_root_cannot_answer_known_to_a_client_that_knows_no_value() -> None:
    bench = Bench(1).adopt(ROOT)
    number = asked(bench).number
    assert answered(bench, RecordReply(number, True, 3, b"", "", is_known=True)) == []
    assert dict(bench.machine.statistics().dropped) == {"record-known": 1}
    assert answered(bench, RecordReply(number, True, 3, LARGE, "")) == [(3, LARGE)], "the request still waits"


def test_small_and_very_large_values_are_not_remembered_and_others_are_bounded() -> None:
    bench = Bench(1).adopt(ROOT)
    for size in (LEAST_REMEMBERED - 1, MOST_REMEMBERED + 1):
        answered(bench, RecordReply(asked(bench).number, True, 1, bytes(size), ""))
        assert asked(bench).known == b""
    for number in range(REMEMBERED + 1):
        key = NodeId(KEY + number)
        answered(bench, RecordReply(asked(bench, key).number, True, 1, LARGE, ""))
    assert asked(bench).known == b"", "the one that was read first is forgotten"
    assert asked(bench, NodeId(KEY + 1)).known


def test_a_root_repeats_only_changed_values() -> None:
    root, client = Bench(1).found(), peer(3)
    root.give(StoreRecord(1, root.machine.me.node, 0, LARGE))

    def reply(number: int, known: bytes) -> RecordReply:
        message = RecordRead(client, number, 1, root.machine.me.node, known)
        return sent(root.receive(client, message), RecordReply)[-1][1]

    assert reply(1, b"") == RecordReply(1, True, 1, LARGE, "")
    assert reply(2, value_digest(LARGE)) == RecordReply(2, True, 1, b"", "", is_known=True)
    assert reply(3, value_digest(b"old")) == RecordReply(3, True, 1, LARGE, "")
