"""Ten updates of a pipeline project, each in a process of its own; one with a table refreshed, one with a day filled again.

After each of them bronze equals the log row by row, silver and quarantine together are bronze, and gold equals a plain reference.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.mesh import Mesh, mesh
from tests.spark import test_pipeline_project as parts
from tests.spark.written import Written

pytestmark = [*parts.pytestmark, pytest.mark.soak, pytest.mark.timeout(1_800)]

UPDATES = 10
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
