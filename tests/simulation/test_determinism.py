"""Same seed, same run: in two processes with different hash seeds, and twice in one."""

import os
import subprocess
import sys

from agiledart_simulation.runner import run_seed

_PROGRAM = "from agiledart_simulation.runner import run_seed; print([run_seed(seed).digest for seed in (2, 7, 20)])"


def _digests(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=120
    ).stdout


def test_two_processes_with_different_hash_seeds() -> None:
    assert _digests("0") == _digests("12345")


def test_twice_in_one_process() -> None:
    assert run_seed(7).digest == run_seed(7).digest


def test_another_seed_is_another_run() -> None:
    assert run_seed(7).digest != run_seed(2).digest
