"""How often the garbage collector runs beside a job."""

import gc
from collections.abc import Iterator

import pytest

from agiledart import Topology, collect
from agiledart_executor.local_runs.local_run import run_topology
from agiledart_executor.process.python_gc import YOUNG_OBJECTS, collecting_rarely


@pytest.fixture(autouse=True)
def _own_thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_garbage_collection_is_rare_during_a_job_and_settings_are_restored() -> None:
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
def test_a_rarer_user_setting_is_kept(young: int) -> None:
    gc.set_threshold(young, 10, 10)
    with collecting_rarely():
        assert gc.get_threshold()[0] == young
    assert gc.get_threshold()[0] == young


def test_overlapping_jobs_restore_the_original_settings() -> None:
    gc.set_threshold(700, 10, 10)
    first, second = collecting_rarely(), collecting_rarely()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert gc.get_threshold() == (700, 10, 10)


def test_a_setting_changed_by_user_code_stays() -> None:
    gc.set_threshold(700, 10, 10)
    with collecting_rarely():
        gc.set_threshold(0)
    assert gc.get_threshold()[0] == 0


def test_a_local_run_uses_the_setting_while_rows_pass() -> None:
    gc.set_threshold(700, 10, 10)
    seen: list[int] = []

    def look(number: int) -> int:
        seen.append(gc.get_threshold()[0])
        return number

    topology = Topology("looking")
    topology.source("numbers", [1], event_time=lambda number: number).map(look).sink("out", collect)
    assert run_topology(topology).collected["out"] == [1]
    assert seen == [YOUNG_OBJECTS]
    assert gc.get_threshold() == (700, 10, 10)
