"""`Ambiguity` finds what a plain look finds, also where what is ambiguous lies across two pieces."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_connectors.codecs import ambiguity
from agiledart_connectors.codecs.ambiguity import Ambiguity

SPACE = re.compile(rb"^ |[,\n] | [,\n]|[\"\t\r]", re.DOTALL)
HEXADECIMAL = re.compile(rb"(?:^|[,\n+-])0[xX]", re.DOTALL)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ambiguity, "_PIECE", 4)


@given(
    st.lists(st.sampled_from(b' ,\nabB1"\xd0\xa6\x80&') | st.sampled_from(b"0xX,-"), min_size=1, max_size=20).map(
        bytes
    ),
    st.booleans(),
)
def test_the_check_agrees_with_a_plain_search(data: bytes, ints: bool) -> None:
    plainly = SPACE.search(data) or (ints and HEXADECIMAL.search(data))
    assert Ambiguity(ints=ints).has_ambiguous_bytes(data) is bool(plainly)


@pytest.mark.parametrize("place", range(9))
@pytest.mark.parametrize("odd", [b" ,", b", ", b" \n", b"\n ", b'"', b",0x", b"\n0X", b"-0x"])
def test_an_ambiguity_is_found_at_any_position(place: int, odd: bytes) -> None:
    looks = Ambiguity(ints=True)
    assert looks.has_ambiguous_bytes(b"1" * place + odd + b"2\n")
    assert not looks.has_ambiguous_bytes(b"1" * place + b"2 3\n")


@pytest.mark.parametrize("place", range(9))
@pytest.mark.parametrize("text", [b"Bronx", b"x", b"X0", b"10x", b"a0x1"])
def test_a_name_with_an_x_is_not_ambiguous(place: int, text: bytes) -> None:
    assert not Ambiguity(ints=True).has_ambiguous_bytes(b"a" * place + text + b",1\n")
