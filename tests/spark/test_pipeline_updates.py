"""Ten updates of a pipeline project, each in a process of its own; one with a table refreshed, one with a day filled again.

After each of them bronze equals the log row by row, silver and quarantine together are bronze, and gold equals a plain reference.
"""

import contextlib
import itertools
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.mesh import Mesh, mesh, wait_for
from tests.spark import test_pipeline_project as parts
from tests.spark.kills import Round
from tests.spark.written import Written

pytestmark = [*parts.pytestmark, pytest.mark.soak, pytest.mark.timeout(1_800)]

UPDATES = 10
ROUNDS = int(os.environ.get("AGILEDART_KILLS", "2"))
FIRST = int(os.environ.get("AGILEDART_KILLS_SEED", "1"))
LOOKS = 50
FILES_OF_UPDATE = 6
"""Each of the three streaming tables plans a micro-batch and ends it."""

REFRESHED = 4
FILLED_AGAIN = 7

written = parts.written


@pytest.fixture(scope="module")
def made() -> Iterator[Mesh]:
    with mesh(2) as running:
        yield running


@pytest.fixture(scope="module")
def project(written: Written, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return parts.made_project(tmp_path_factory.mktemp("projects") / "taxi", written)


def test_ten_updates_by_ten_processes_equal_a_plain_reference(made: Mesh, written: Written, project: Path) -> None:
    for number in range(UPDATES):
        parts.write_rows(made, 200 + 50 * number)
        with contextlib.closing(parts.Driver(project)) as driver:
            if number == REFRESHED:
                driver.ask("update", "silver")
            elif number == FILLED_AGAIN:
                driver.ask("update")
                [[day]] = driver.ask("sql", "select string(min(_day)) from bronze")
                assert driver.ask("backfill", day) > 0
            else:
                driver.ask("update")
            parts.check(driver, written)
        print(f"update {number + 1} of {UPDATES}: {written.committed():,} rows are exact")


def test_updates_that_are_killed_leave_exact_tables(
    made: Mesh, written: Written, project: Path, keep_round: Callable[[Round], None]
) -> None:
    """Each round kills an update after so many files of its checkpoints and some looks; another process finishes it."""
    drivers = [parts.Driver(project)]
    try:
        for seed in range(FIRST, FIRST + ROUNDS):
            this, chance = Round("update of a pipeline", seed, "project"), random.Random(f"update {seed}")
            parts.write_rows(made, 200)
            known, more, looks = checkpoint_files(project), chance.randrange(FILES_OF_UPDATE), chance.randrange(LOOKS)
            drivers[-1].begin("update")
            wait_for(lambda: checkpoint_files(project) >= known + more, 240, f"{more} files of checkpoints")  # noqa: B023
            counted = itertools.count()
            wait_for(lambda: next(counted) >= looks, 60, "the moment")  # noqa: B023
            assert not drivers[-1].has_answered()
            drivers[-1].kill()
            this.note = f"{more} of {FILES_OF_UPDATE} files of checkpoints and {looks} looks"
            drivers.append(parts.Driver(project))
            drivers[-1].ask("update")
            parts.check(drivers[-1], written)
            this.rows, this.seconds = written.committed(), round(time.monotonic() - this.began, 1)
            keep_round(this)
    finally:
        drivers[-1].close()


def checkpoint_files(project: Path) -> int:
    """Micro-batches that the project's queries have planned, and those that are done."""
    return sum(1 for kind in ("offsets", "commits") for _ in (project / "state" / "storage").rglob(f"{kind}/[0-9]*"))
