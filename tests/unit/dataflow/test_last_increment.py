"""A hand-over rests on a committed snapshot, even when an epoch's snapshot would be full."""

from agiledart_dataflow.runtime.increments import MAX_LINKS, MAX_SINCE, Increments
from agiledart_dataflow.state.async_instance_snapshot import AsyncInstanceSnapshot, AsyncStateSnapshot
from agiledart_dataflow.state.dirty_keys import Increment
from agiledart_dataflow.state.entries import EntryCodec, KeyEntry
from agiledart_dataflow.state.key_groups import Division, StateSnapshot
from agiledart_dataflow.state.store import MemoryStore


class Stored(MemoryStore):
    """A state that is nothing but a store."""

    division: Division = "by group"

    def __init__(self) -> None:
        super().__init__(EntryCodec("sums", int, int, lambda state: state, lambda state: state))

    def snapshot_rest(self) -> bytes:
        return b""

    def restore_rest(self, data: bytes) -> None:
        assert not data

    def change(self, keys: range) -> None:
        for key in keys:
            entry = self.get(key) or KeyEntry()
            entry.state = key
            self.save(key, entry)


def whole_of(made: StateSnapshot | Increment | AsyncStateSnapshot) -> bool:
    """All of a snapshot is encoded; whether it is whole."""
    if isinstance(made, AsyncStateSnapshot):
        element = AsyncInstanceSnapshot(1, b"", made, b"")
        while element.step():
            pass
        element.taken()
        return made.is_whole
    return isinstance(made, StateSnapshot)


def saved_through(state: Stored, kept: Increments, epochs: int) -> None:
    """Snapshots of so many epochs, each committed."""
    for epoch in range(1, epochs + 1):
        whole_of(kept.at(epoch))
        kept.written(epoch, b"%d" % epoch)
        kept.committed(epoch)
        state.change(range(epoch % 7))


def begun() -> tuple[Stored, Increments]:
    state = Stored()
    state.change(range(1_000))
    return state, Increments(state, 0)


def test_the_final_snapshot_may_add_one_link_to_a_full_chain() -> None:
    state, kept = begun()
    saved_through(state, kept, MAX_LINKS)
    assert isinstance(kept.at(MAX_LINKS + 1, is_last=True), Increment)
    assert kept.onto(MAX_LINKS + 1) == b"%d" % MAX_LINKS
    state, kept = begun()
    saved_through(state, kept, MAX_LINKS)
    assert whole_of(kept.at(MAX_LINKS + 1)), "an epoch's is whole then"


def test_the_final_snapshot_is_an_increment_even_long_after_a_commit() -> None:
    state, kept = begun()
    saved_through(state, kept, 2)
    state.change(range(900))
    assert isinstance(kept.at(2 + MAX_SINCE + 1, is_last=True), Increment)
    state, kept = begun()
    saved_through(state, kept, 2)
    state.change(range(900))
    assert whole_of(kept.at(3))


def test_the_final_snapshot_is_full_when_smaller_or_changes_are_unknown() -> None:
    state, kept = begun()
    saved_through(state, kept, 2)
    for key in range(1_000):
        if state.get(key) is not None:
            state.drop(key)
    state.change(range(2_000, 9_000))
    assert isinstance(kept.at(3, is_last=True), StateSnapshot)
    state, kept = begun()
    saved_through(state, kept, 2)
    state.drop_group(state.groups()[0])
    assert isinstance(kept.at(3, is_last=True), StateSnapshot)
    assert isinstance(Increments(state, 0).at(1, is_last=True), StateSnapshot), "nothing is committed"
