"""Failure recovery, sections 2 and 9: any m of the m + k fragments rebuild the data, by the code that agents run (oracle R2)."""

from hashlib import shake_256
from itertools import combinations
from math import comb

import pytest

from agiledart_agent.fragments.erasure_code import cut, joined


@pytest.mark.parametrize(("m", "k"), [(1, 1), (2, 2), (3, 2), (4, 2), (6, 3), (10, 4)])
@pytest.mark.parametrize("length", [1, 1_000, 1_003])
def test_r2_every_choice_of_m_fragments_rebuilds_the_data(m: int, k: int, length: int) -> None:
    """§9 R2, all subsets; §8 "S < m: pad"."""
    data = shake_256(bytes([m, k])).digest(length)
    fragments = cut(data, m, m + k)
    assert len(fragments) == m + k
    assert {len(fragment) for fragment in fragments} == {-(-length // m)}
    chosen = list(combinations(range(m + k), m))
    assert len(chosen) == comb(m + k, m)
    for indices in chosen:
        assert next(joined([{index: fragments[index] for index in indices}], m, m + k, length)) == data


def test_r1_the_first_m_fragments_are_the_data_itself() -> None:
    """§2 "systematic". Departs: §9 R1 names the parity bytes of a Cauchy matrix; zfec has another one, for which R2 holds."""
    data = bytes(range(40))
    fragments = cut(data, 4, 6)
    assert b"".join(fragments[:4]) == data
    assert len(dict.fromkeys(fragments)) == 6
