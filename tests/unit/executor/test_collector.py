"""How often the garbage collector runs beside a job."""

import gc
from collections.abc import Iterator

import pytest

from agiledart_executor.collector import YOUNG_OBJECTS, collecting_rarely


@pytest.fixture(autouse=True)
def _own_thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_a_job_is_seldom_looked_at_and_what_was_before_comes_back() -> None:
    gc.set_threshold(700, 11, 12)
    seen: list[tuple[int, int, int]] = []

    def job() -> None:
        with collecting_rarely():
            seen.append(gc.get_threshold())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job()
    assert seen == [(YOUNG_OBJECTS, 11, 12)]
    assert gc.get_threshold() == (700, 11, 12)


@pytest.mark.parametrize("young", [0, 10 * YOUNG_OBJECTS])
def test_who_wants_it_rarer_still_keeps_what_they_want(young: int) -> None:
    gc.set_threshold(young, 10, 10)
    with collecting_rarely():
        assert gc.get_threshold()[0] == young
