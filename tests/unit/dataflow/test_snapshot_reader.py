"""Snapshots that are read as their bytes come: the same as at once, whatever the pieces, and not in memory as a whole."""

import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_dataflow.state.key_groups import NoState, StateSnapshot
from agiledart_dataflow.state.plain_codec import StateFormatError
from agiledart_dataflow.state.restoring_from_run import state_snapshot_in
from agiledart_dataflow.state.snapshot_reader import SnapshotReader, restore_groups

plain = st.recursive(
    st.none()
    | st.integers(-(2**63), 2**64 - 1)
    | st.binary(max_size=40)
    | st.text(max_size=9)
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
groups = st.lists(st.tuples(st.integers(0, 127), st.binary(max_size=300)), max_size=20)
snapshots = st.tuples(plain, st.builds(StateSnapshot, groups, st.binary(max_size=50)), plain, plain, plain)


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    """The bytes in pieces, some of them empty."""
    edges = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    return [raw[start:end] for start, end in pairwise(edges)]


class Groups(NoState):
    """Restored state, by group."""

    def __init__(self) -> None:
        self.held: dict[int, bytes] = {5: b"what was there before"}

    def groups(self) -> list[int]:
        return sorted(self.held)

    def drop_group(self, group: int) -> None:
        self.held.pop(group)

    def restore_group(self, group: int, data: bytes) -> None:
        self.held[group] = data


@given(snapshots, st.lists(st.integers(0, 10_000), max_size=30))
def test_a_snapshot_read_in_pieces_equals_the_whole(
    parts: tuple[Any, StateSnapshot, Any, Any, Any], places: list[int]
) -> None:
    raw = msgspec.msgpack.encode(parts)
    state = Groups()
    rest = restore_groups(state, cut(raw, places))
    assert state.held == dict(parts[1].groups)
    assert rest == msgspec.msgpack.encode((parts[0], StateSnapshot([], parts[1].rest), *parts[2:])), (
        "each other part as it was written"
    )
    assert state_snapshot_in(rest) == StateSnapshot([], parts[1].rest)


@given(snapshots, st.data())
def test_an_incomplete_snapshot_is_refused(
    parts: tuple[Any, StateSnapshot, Any, Any, Any], data: st.DataObject
) -> None:
    raw = msgspec.msgpack.encode(parts)
    short = raw[: data.draw(st.integers(0, len(raw) - 1))]
    with pytest.raises(StateFormatError):
        restore_groups(Groups(), cut(short, data.draw(st.lists(st.integers(0, 10_000), max_size=5))))
    with pytest.raises(StateFormatError, match="bytes follow its end"):
        restore_groups(Groups(), [raw, b"\0"])


@pytest.mark.parametrize(
    "wrong",
    [
        b"\xc1",
        b"\x01",
        b"\x93\xc0",
        b"\x95\xc0\x91",
        b"\x95\xc0\x92\x91\x93",
        b"\x95\xc0\x92\x91\x92\xa1a\xc4\x00",
        b"\x95\xc0\x92\xa0",
    ],
)
def test_bytes_that_are_no_snapshot_are_refused(wrong: bytes) -> None:
    with pytest.raises(StateFormatError):
        restore_groups(Groups(), [wrong, bytes(50)])


def test_a_large_snapshot_is_never_completely_in_memory() -> None:
    size, count = 1 << 18, 100

    def pieces() -> Iterator[bytes]:
        yield msgspec.msgpack.encode([None, None])[1:2].join([b"\x95", b"\x92\xdc" + count.to_bytes(2)])
        for group in range(count):
            yield b"\x92" + msgspec.msgpack.encode(group) + b"\xc6" + size.to_bytes(4) + bytes(size)
        yield b"\xc4\x00\xc0\xc0\xc0"

    seen = 0
    tracemalloc.start()
    try:
        reader = SnapshotReader(pieces())
        for _, data in reader.groups():
            seen += len(data)
        reader.remainder()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen == count * size
    assert peak < 8 * size, "some pieces and a group, where all of it are a hundred"
