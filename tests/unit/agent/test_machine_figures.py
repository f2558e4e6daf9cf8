"""Figures of the machine: ticks between two measurements, memory, and a speed that is timed once and kept."""

from pathlib import Path

import pytest

from agiledart_agent.host.machine_gauge import MachineGauge
from agiledart_agent.host.processor_speed import FILE, REFERENCE_NS, processor_speed_permille, timed_speed_permille


def test_the_busy_share_is_that_of_the_time_between_two_measurements(tmp_path: Path) -> None:
    stat, memory = tmp_path / "stat", tmp_path / "meminfo"
    stat.write_text("cpu  100 0 100 700 100 0 0 0 50 0\n")
    memory.write_text("MemTotal: 9 kB\nMemAvailable: 1000000 kB\n")
    gauge = MachineGauge(stat, memory)
    assert gauge.use() == (None, 1_024), "no time has passed"
    stat.write_text("cpu  160 0 140 850 150 0 0 0 99 0\n")  # 100 in work of 300; guest time is part of user time
    assert gauge.use() == (333, 1_024)
    assert gauge.use().busy_permille == 333, "too few ticks since: the last measurement holds"


def test_a_system_without_these_files_measures_nothing(tmp_path: Path) -> None:
    assert MachineGauge(tmp_path / "stat", tmp_path / "meminfo").use() == (None, None)


def test_the_speed_is_timed_once_and_again_when_its_file_is_damaged(tmp_path: Path) -> None:
    first = processor_speed_permille(tmp_path)
    assert int((tmp_path / FILE).read_text()) == first > 0
    (tmp_path / FILE).write_text("700\n")
    assert processor_speed_permille(tmp_path) == 700
    (tmp_path / FILE).write_text("fast\n")
    assert processor_speed_permille(tmp_path) != 700
    assert int((tmp_path / FILE).read_text()) > 0


@pytest.mark.parametrize(("turns", "speed"), [((1, 1, 1, 1, 1, 1, 1, 1, 1), 1_000), ((4, 2, 3, 4, 4, 4, 4, 4, 4), 500)])
def test_the_fastest_turn_counts(turns: tuple[int, ...], speed: int) -> None:
    instants = [instant for turn in turns for instant in (0, turn * REFERENCE_NS)]
    assert timed_speed_permille(lambda: instants.pop(0)) == speed
