"""State that was saved in format 1 is read, and goes on as it would have; the bytes were written by the code of then."""

from operator import add

import pytest

from agiledart_dataflow.data.position import RECORD
from agiledart_dataflow.data.rows import Entry, Ranking
from agiledart_dataflow.operators.top import Top, emitted_type, ranked_type
from agiledart_dataflow.state.dirty_keys import StateChanges
from agiledart_dataflow.state.key_groups import StateSnapshot, restore_state, snapshot_of
from agiledart_dataflow.state.open_windows import OpenWindows, window_entry_type
from agiledart_dataflow.state.plain_codec import PlainCodec, StateFormatError

RANKING = bytes.fromhex("930100969493a16101ff93a16203fe93a16303fd93a16402fc9292a1630392a16203c004c290")
"""The two best of a 1, b 3, c 3 and d 2, all in what belongs to no key."""

WINDOWS = [
    (68, bytes.fromhex("9301009194a162cd07d0910105")),
    (126, bytes.fromhex("9301009294a161cd03e891000194a161cd07d0910002")),
]
"""Up to 1000: a 1; up to 2000: a 2, b 5."""

CHANGES = StateChanges(
    [
        (68, bytes.fromhex("9301009194a162cd07d0910106")),
        (82, bytes.fromhex("9301009294a163cd07d091020794a163cd0bb8910001")),
    ],
    bytes.fromhex("91cd07d0"),
)
"""Then that window closed; up to 2000: b 6, c 7; up to 3000: c 1."""


def top() -> Top:
    """The two best; newer information first."""
    codec = PlainCodec("busiest", lambda: ranked_type(str, int))
    rest = PlainCodec("busiest", lambda: emitted_type(str, int, str))
    return Top("busiest", lambda value: value, codec, rest, n=2, newest_first=True)


def windows() -> OpenWindows:
    """Sums, without positions."""
    codec = PlainCodec("rides", lambda: window_entry_type(str, int))
    return OpenWindows(
        codec,
        positions=False,
        new_pane=dict,
        to_plain=lambda one, _: one,
        from_plain=lambda one: (one, None),
        joined=add,
    )


def test_a_ranking_of_an_older_format_is_restored() -> None:
    state = top()
    restore_state(state, StateSnapshot([], RANKING))
    again = top()
    restore_state(again, snapshot_of(state))  # as it is written now
    for one in (state, again):
        assert one.state_keys == 4
        out, at = one.run([("a", 3, "r4"), ("b", None, "r5")], [(4, RECORD, 0, 4), (5, RECORD, 0, 5)], (6,))
        assert out == [Ranking("r4", [Entry("a", 3), Entry("c", 3)])]
        assert [place[:4] for place in at] == [(4, RECORD, 0, 4)]
        assert one.state_keys == 3


def test_a_restored_ranking_replaces_the_current_one() -> None:
    state = top()
    state.run([("z", 9, "r0")], [(0, RECORD, 0, 0)], (1,))
    restore_state(state, StateSnapshot([], RANKING))
    assert state.state_keys == 4
    assert sum(len(state._build_group_index()[group]) for group in state.groups()) == 4


def test_windows_resume_from_changes_of_an_older_format() -> None:
    state = windows()
    restore_state(state, StateSnapshot(WINDOWS, b""))
    state.apply(CHANGES)
    assert state.windows() == [(2000, [("a", None, 2), ("b", None, 6), ("c", None, 7)]), (3000, [("c", None, 1)])]
    state.apply(StateChanges([], b"\x90"))
    assert state.windows() == [], "no window has stayed"


def test_format_1_refuses_state_of_the_current_format() -> None:
    """The number shows older code that it would lose the keys of a ranking."""
    data = top().snapshot_rest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agiledart_dataflow.state.plain_codec.FORMAT", 1)
        with pytest.raises(StateFormatError, match="format 2; this version reads up to 1"):
            top().restore_rest(data)
