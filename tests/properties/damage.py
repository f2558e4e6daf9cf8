"""Bytes that are nearly good ones: input of a decoder from a broken or hostile peer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st


@dataclass(frozen=True)
class Damage:
    """A mutation of valid bytes.

    Args:
        bits: put in anywhere: awkward values of this format.
        opening: put in many times: bytes that open one more level.
        deepest: so often at most.
        other: also what is not damaged at all: bytes of nothing, one time in so many.
        longest: of those.
    """

    bits: Sequence[bytes]
    opening: bytes
    deepest: int
    other: int
    longest: int


MESSAGE_PACK: Final = Damage(
    [b"\xc0", b"\x90", b"\xdc\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xcf" + b"\xff" * 8], b"\x91", 2_000, 10, 400
)
TEXT: Final = Damage(
    [b"null", b"1e999", b"-0", b"NaN", b'"', b"[", b"{}", b"\xff", b"\n", b"9" * 19, b"9" * 40], b"[", 200, 5, 300
)


@st.composite
def damaged(draw: Any, samples: list[bytes], damage: Damage) -> bytes:
    """A good one with bytes changed, left out, put in, repeated or swapped for those of another one; or bytes of nothing."""
    if draw(st.integers(0, damage.other - 1)) == 0:
        return bytes(draw(st.binary(max_size=damage.longest)))
    data = bytearray(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 5)):
            case 0:
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=3))
            case 1:
                del data[at : at + draw(st.integers(1, 40))]
            case 2:
                data[at:at] = draw(st.sampled_from(damage.bits))
            case 3:
                data[at:at] = data[: draw(st.integers(0, 60))]
            case 4:
                data[at:] = draw(st.sampled_from(samples))[at:]
            case _:
                data[at:at] = damage.opening * draw(st.integers(1, damage.deepest))
    return bytes(data)
