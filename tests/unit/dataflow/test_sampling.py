"""Which records are sampled: one in twenty, the same for everybody, whatever the data's period."""

import pytest

from agiledart_dataflow.counts.sampling import SAMPLED_SHARE, is_sampled, sampled_among
from agiledart_dataflow.data.position import EXPIRY, RECORD

COUNT = 20_000
FIRST = [23, 32, 52, 64, 70, 93, 97, 114, 131, 136, 158, 172]


@pytest.mark.parametrize("source", range(4))
@pytest.mark.parametrize("period", [1, 2, 7, 20, 64, 750])
def test_one_row_in_twenty_is_sampled_whatever_the_period(source: int, period: int) -> None:
    chosen = sampled_among([(0, RECORD, source, n * period) for n in range(COUNT)])
    # Five standard deviations of a fair draw.
    assert len(chosen) == pytest.approx(SAMPLED_SHARE * COUNT, abs=5 * (COUNT * 0.05 * 0.95) ** 0.5)


def test_all_rows_caused_by_one_record_are_sampled_or_none() -> None:
    records = [(n, RECORD, 1, n) for n in range(300)]
    chosen = sampled_among(records)
    assert [n for n in range(300) if is_sampled(1, n)] == chosen
    assert sampled_among([(n + 900, EXPIRY, 1, n, -1, 4) for n in range(300)]) == chosen


def test_the_sample_is_the_same_on_every_machine_and_in_every_version() -> None:
    assert [n for n in range(200) if is_sampled(0, n)] == FIRST
    assert not is_sampled(0, 0)


def test_sources_are_sampled_independently() -> None:
    assert {n for n in range(2_000) if is_sampled(0, n)} != {n for n in range(2_000) if is_sampled(1, n)}
