"""Two queries on one checkpoint: one goes on, the other ends and names the cause."""

from pathlib import Path

import pytest

from tests.e2e.mesh import wait_for
from tests.spark.kills import commits, driver
from tests.spark.written import FILES, Written, copied

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.xdist_group("spark")]

SECONDS_A_BATCH = 1.0
ROWS_A_BATCH = 10
"""The log of 3,000 rows takes 300 micro-batches: the second query starts long before its end."""


def test_one_of_two_queries_on_a_checkpoint_ends(written: Written, tmp_path: Path) -> None:
    with driver(tmp_path, "local[1,4]") as first, driver(tmp_path, "local[1,4]") as second:
        first.begin(tmp_path, written, FILES, SECONDS_A_BATCH, ROWS_A_BATCH)
        wait_for(lambda: commits(tmp_path) > 0, 120, "the first query has committed a micro-batch")
        second.begin(tmp_path, written, FILES, SECONDS_A_BATCH, ROWS_A_BATCH)
        wait_for(lambda: first.has_answered() or second.has_answered(), 300, "one of the queries has ended")
        ended = first if first.has_answered() else second
        told = ended.answer()
        assert "Another query uses this checkpoint" in told["error"], told
        committed = commits(tmp_path)
        wait_for(lambda: commits(tmp_path) > committed, 120, "the other query goes on")
        assert copied(tmp_path / "copy", FILES) <= written.rows()
