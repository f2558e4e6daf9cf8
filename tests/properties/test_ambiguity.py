"""`Ambiguity` finds what a plain look finds, also where a pair of bytes lies across two pieces."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_executor.connectors import ambiguity
from agiledart_executor.connectors.ambiguity import Ambiguity


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ambiguity, "_PIECE", 4)


def plainly(data: bytes, alone: bytes) -> bool:
    """The same, byte by byte."""
    pairs = {bytes(pair) for pair in pairwise(data)}
    return data.startswith(b" ") or any(byte in data for byte in alone) or not pairs.isdisjoint(
        {b" ,", b", ", b" \n", b"\n "}
    )  # fmt: skip


@given(
    st.lists(st.sampled_from(b' ,\nabB1"\xd0\xa6\x80&'), min_size=1, max_size=20).map(bytes),
    st.sampled_from([b"", b'"']),
)
def test_it_finds_what_a_plain_look_finds(data: bytes, alone: bytes) -> None:
    assert Ambiguity(alone).is_in(data) is plainly(data, alone)


@pytest.mark.parametrize("place", range(9))
@pytest.mark.parametrize("odd", [b" ,", b", ", b" \n", b"\n ", b"x"])
def test_it_finds_one_wherever_it_lies(place: int, odd: bytes) -> None:
    looks = Ambiguity(b"x")
    assert looks.is_in(b"1" * place + odd + b"2\n")
    assert not looks.is_in(b"1" * place + b"2 3\n")
