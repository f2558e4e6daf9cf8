"""Copies of records: which is newer, what there is room for."""

from agiledart_kernel.node_id import NodeId
from agiledart_overlay.records.record_store import Record, RecordStore

WRITER = (NodeId(1), 1, 1)


def test_the_newest_version_wins_and_equal_ones_are_decided_by_digest() -> None:
    copies = [
        Record(NodeId(1), 2, b"a", WRITER),
        Record(NodeId(1), 2, b"b", WRITER),
        Record(NodeId(1), 1, b"c", WRITER),
    ]
    results = []
    for order in (copies, copies[::-1]):
        store = RecordStore(1_000)
        for copy in order:
            assert store.keep(copy)
        kept = store.get(NodeId(1))
        assert kept is not None
        results.append((kept.version, kept.value))
    assert results[0] == results[1]
    assert results[0][0] == 2


def test_bytes_are_bounded() -> None:
    store = RecordStore(10)
    assert store.keep(Record(NodeId(1), 1, b"12345678", WRITER))
    assert not store.keep(Record(NodeId(2), 1, b"123", WRITER))
    assert store.keep(Record(NodeId(1), 2, b"1", WRITER))
    assert store.keep(Record(NodeId(2), 1, b"123", WRITER))
    store.drop(NodeId(2))
    assert len(store) == 1
    assert store.rank(NodeId(2)) == (0, b"")
