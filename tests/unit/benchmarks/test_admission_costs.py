"""The benchmark of admission compares the intended quantities."""

from benchmarks.admission_costs import GOALS, confining, memory


def test_the_admission_modules_are_loaded_last_and_are_small() -> None:
    assert 0.0 < memory(1) < 5.0  # it fails where one of the others has loaded them


def test_a_process_sandboxes_itself_each_time() -> None:
    found = confining(2)
    assert found.keys() == {"confining_cpu_ms", "confining_least_ms"}
    assert min(found.values()) >= 0.0
    assert "confining_cpu_ms" in GOALS
