"""What an instance hands over rests on a committed element, whatever would make an epoch's element a whole one."""

from agiledart_dataflow.runtime.increments import MAX_LINKS, MAX_SINCE, Increments
from agiledart_dataflow.state.entries import Entry, EntryCodec
from agiledart_dataflow.state.groups import Division, Saved
from agiledart_dataflow.state.notes import Increment
from agiledart_dataflow.state.open_element import OpenElement, OpenState
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
            entry = self.get(key) or Entry()
            entry.state = key
            self.save(key, entry)


def whole_of(made: Saved | Increment | OpenState) -> bool:
    """All of an element is encoded; whether it is whole."""
    if isinstance(made, OpenState):
        element = OpenElement(1, b"", made, b"")
        while element.step():
            pass
        element.taken()
        return made.is_whole
    return isinstance(made, Saved)


def saved_through(state: Stored, kept: Increments, epochs: int) -> None:
    """Elements of so many epochs, each committed."""
    for epoch in range(1, epochs + 1):
        whole_of(kept.at(epoch))
        kept.written(epoch, b"%d" % epoch)
        kept.committed(epoch)
        state.change(range(epoch % 7))


def begun() -> tuple[Stored, Increments]:
    state = Stored()
    state.change(range(1_000))
    return state, Increments(state, 0)


def test_a_chain_that_is_long_enough_has_one_link_more() -> None:
    state, kept = begun()
    saved_through(state, kept, MAX_LINKS)
    assert isinstance(kept.at(MAX_LINKS + 1, is_last=True), Increment)
    assert kept.onto(MAX_LINKS + 1) == b"%d" % MAX_LINKS
    state, kept = begun()
    saved_through(state, kept, MAX_LINKS)
    assert whole_of(kept.at(MAX_LINKS + 1)), "an epoch's is whole then"


def test_so_it_is_long_after_the_last_commit_and_where_much_has_changed() -> None:
    state, kept = begun()
    saved_through(state, kept, 2)
    state.change(range(900))
    assert isinstance(kept.at(2 + MAX_SINCE + 1, is_last=True), Increment)
    state, kept = begun()
    saved_through(state, kept, 2)
    state.change(range(900))
    assert whole_of(kept.at(3))


def test_it_is_whole_where_that_is_less_or_nobody_knows_what_has_changed() -> None:
    state, kept = begun()
    saved_through(state, kept, 2)
    for key in range(1_000):
        if state.get(key) is not None:
            state.drop(key)
    state.change(range(2_000, 9_000))
    assert isinstance(kept.at(3, is_last=True), Saved)
    state, kept = begun()
    saved_through(state, kept, 2)
    state.drop_group(state.groups()[0])
    assert isinstance(kept.at(3, is_last=True), Saved)
    assert isinstance(Increments(state, 0).at(1, is_last=True), Saved), "nothing is committed"
