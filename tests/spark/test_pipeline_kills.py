"""`kill -9` during updates of a pipeline project.

Victims are its driver, Spark's Python, the log's agent, the process that rewrites the log's segments, and a feed's agent.

After every update bronze equals the log row by row, silver and quarantine together are bronze, and the broadcast state of a running
topology equals the feed that silver's rows go to. Each seed is a round of its own; the moment is drawn from it. The series is

    AGILEDART_KILLS=20 python -m pytest tests/spark/test_pipeline_kills.py -s
"""

import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from agiledart_node.wire.commands import CreateToken
from agiledart_pipelines.file_tables import live_files
from agiledart_pipelines.project import open_project
from agiledart_pipelines.session import JVM
from agiledart_sink_log.segment_rewriter import full_segments
from tests.e2e.mesh import AgentProcess, Mesh, mesh, wait_for
from tests.e2e.test_broadcast_equals_feed import ShownState, rows_of_feed
from tests.spark import test_pipeline_project as parts
from tests.spark.kills import Round, processes_of
from tests.spark.written import SINK, Row, Written, plain_column, reader_token, submit, wait_for_end

pytestmark = [*parts.pytestmark, pytest.mark.soak, pytest.mark.timeout(1_800)]

ROUNDS = int(os.environ.get("AGILEDART_KILLS", "2"))
FIRST = int(os.environ.get("AGILEDART_KILLS_SEED", "1"))
COUNT = 80
SECONDS = 240.0
FILES_OF_UPDATE = 6
"""Each of the three streaming tables plans a micro-batch and ends it."""

LOOKS = 50
READING_LOOKS = 150
"""Looks of 20 ms until bronze has read its rows, at most."""

REWRITING = b"agiledart_sink_log.columns_program"
REWRITTEN_ROWS = 1_500
"""They fill segments enough for a kill between two of them."""

PLACE = ("_log", "_partition", "_offset")
UPDATE, PUBLISH = "update", "publish"


class PipelineRounds:
    """A log on one agent, a feed on another, an application with broadcast state on a third, and a project between them.

    Attributes:
        log_agent, keeper: agents of the log and of the feed.
    """

    def __init__(self, made: Mesh, folder: Path) -> None:
        self._mesh = made
        self.host, self.log_agent, self.keeper = made.agents
        self.write_rows()
        self.written = Written(self.host, reader_token(self.host, folder / "reader.token", f"sink:{SINK}"))
        self._writer = folder / "writer.token"
        self._writer.touch(mode=0o600)
        token = self.host.ask(CreateToken(role="writer", scope="feed:model", uses=1_000))["token"]
        self._writer.write_text(str(token))
        self.shown = ShownState(self.host, self.keeper, folder)
        self.project = open_project(parts.made_project(folder / "taxi", self.written))
        self.driver = parts.Driver(self.project.root)
        self._update()
        wait_for(self.shown.rows, SECONDS, "the application has the first rows")
        self.check()

    def write_rows(self) -> None:
        self.begin_writing(COUNT)
        assert wait_for_end(self.host) == "finished"

    def begin_writing(self, rows: int) -> None:
        self._mesh.wait_for_ring()
        log = f"log:{SINK}?partitions=2&segment_bytes=4KiB@{self.log_agent.name}"
        submit(self.host, f"taxi:?count={rows}@{self.host.name}", log)

    def full_segments(self) -> int:
        """Return the number of segments that are to be rewritten by columns."""
        return len(list(full_segments(self.log_agent.state_dir)))

    def begin(self, verb: str) -> None:
        self.driver.begin(*((verb, str(self._writer)) if verb == PUBLISH else (verb,)))

    def _update(self) -> None:
        for verb in (UPDATE, PUBLISH):
            self.begin(verb)
            self.driver.answer()

    def update(self) -> None:
        """Update all tables and the feed, and compare them."""
        self._update()
        self.check()

    def checkpoint_files(self) -> int:
        """Micro-batches that the project's queries have planned, and those that are done."""
        kinds = ("offsets", "commits")
        return sum(1 for kind in kinds for _ in self.project.state.rglob(f"{kind}/[0-9]*"))

    def wait_for_moment(self, more: int, looks: int) -> None:
        """Wait for so many files of checkpoints more, and then so many looks, unless the request is answered before."""
        known, counted = self.checkpoint_files(), itertools.count()
        wait_for(
            lambda: self.checkpoint_files() >= known + more or self.driver.has_answered(),
            SECONDS, f"{more} files of checkpoints",
        )  # fmt: skip
        wait_for(lambda: next(counted) >= looks or self.driver.has_answered(), SECONDS, "the moment")

    def restart(self) -> None:
        """Begin a new session after the driver was killed."""
        self.driver.kill()
        self.driver = parts.Driver(self.project.root)

    def _rows(self, table: str, columns: tuple[str, ...]) -> "Counter[Row]":
        found: Counter[Row] = Counter()
        for file in live_files(self.project.table_folder(table)):
            read = pyarrow.parquet.read_table(file, columns=list(columns), partitioning=None)
            found.update(zip(*(plain_column(read.column(name)) for name in columns), strict=True))
        return found

    def check(self) -> None:
        """Compare the tables with the log, the feed with silver, and the broadcast state with the feed."""
        first, *_ = live_files(self.project.table_folder("bronze"))
        names = pyarrow.parquet.read_schema(first).names
        bronze = self._rows("bronze", tuple(name for name in names if not name.startswith("_")))
        log = self.written.rows()
        assert bronze == log, f"{(log - bronze).total()} rows are missing, {(bronze - log).total()} are too many"
        places = self._rows("bronze", PLACE)
        assert len(places) == places.total() == log.total()
        assert self._rows("silver", PLACE) + self._rows("quarantine", PLACE) == places
        feed = rows_of_feed(self.host)
        assert Counter(feed) == Counter(self._rows("silver", ("start_cell", "seconds")))
        wait_for(lambda: self.shown.answer() == feed, SECONDS, "the broadcast state equals the feed")

    def close(self) -> None:
        self.driver.close()


def kill_driver(rounds: PipelineRounds, chance: random.Random) -> str:
    """Kill Python or its JVM, or both; a new session goes on."""
    rounds.begin(UPDATE)
    more, looks = chance.randrange(FILES_OF_UPDATE), chance.randrange(LOOKS)
    rounds.wait_for_moment(more, looks)
    assert not rounds.driver.has_answered()
    victims = chance.choice(("Python", "JVM", "both"))
    jvm = int(rounds.project.read_document(JVM)["pid"])
    if victims != "Python":
        os.kill(jvm, signal.SIGKILL)
    if victims == "JVM":
        with pytest.raises(AssertionError) as said:
            rounds.driver.answer()
        assert "Traceback" not in str(said.value)
    rounds.restart()
    return f"{victims} after {more} files of checkpoints and {looks} looks"


def kill_python(rounds: PipelineRounds, chance: random.Random) -> str:
    """Kill one of Spark's Python processes, which run the source: planners and tasks. Spark goes on, or the next update does."""
    jvm = int(rounds.project.read_document(JVM)["pid"])
    rounds.begin(UPDATE)
    more, looks = chance.randrange(FILES_OF_UPDATE - 1), chance.randrange(LOOKS)
    rounds.wait_for_moment(more, looks)
    found = wait_for(lambda: processes_of(jvm, b"pyspark"), SECONDS, "a Python process of Spark")
    assert not rounds.driver.has_answered()
    os.kill(chance.choice(found), signal.SIGKILL)
    note = f"one of {len(found)} after {more} files of checkpoints and {looks} looks"
    try:
        rounds.driver.answer()
    except AssertionError as error:
        return f"{note}; the update failed: {str(error)[:200]}"
    return note


def _restarted(rounds: PipelineRounds, agent: AgentProcess) -> None:
    assert not rounds.driver.has_answered()
    agent.kill()
    agent.start()
    agent.ready()
    rounds.driver.answer()


def kill_log_agent(rounds: PipelineRounds, chance: random.Random) -> str:
    """Kill the agent of the log while bronze reads; it comes back on another port."""
    rounds.begin(UPDATE)
    more, looks = chance.randrange(2), chance.randrange(READING_LOOKS)
    rounds.wait_for_moment(more, 0 if more else looks)
    _restarted(rounds, rounds.log_agent)
    return f"after {more} files of checkpoints and {0 if more else looks} looks"


def kill_rewriting(rounds: PipelineRounds, chance: random.Random) -> str:
    """Kill the process that rewrites full segments by columns, with some rewritten and some not; its agent starts another."""
    share, seen = chance.uniform(0.3, 1.0), 0

    def is_between() -> bool:
        nonlocal seen
        left = rounds.full_segments()
        seen = max(seen, left)
        return bool(0 < left <= share * seen and processes_of(rounds.log_agent.pid, REWRITING))

    rounds.begin(UPDATE)
    rounds.begin_writing(REWRITTEN_ROWS)
    wait_for(is_between, SECONDS, "some of the segments are rewritten")
    [victim] = processes_of(rounds.log_agent.pid, REWRITING)
    os.kill(victim, signal.SIGKILL)
    note = f"{rounds.full_segments()} of {seen} segments left"
    assert wait_for_end(rounds.host) == "finished"
    rounds.driver.answer()
    return note


def kill_keeper(rounds: PipelineRounds, chance: random.Random) -> str:
    """Kill the agent of the feed while silver's new rows go to it; it comes back on another port."""
    rounds.begin(UPDATE)
    rounds.driver.answer()
    rounds.begin(PUBLISH)
    more, looks = chance.randrange(2), chance.randrange(LOOKS)
    rounds.wait_for_moment(more, 0 if more else looks)
    _restarted(rounds, rounds.keeper)
    return f"after {more} files of checkpoints and {0 if more else looks} looks"


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipelineRounds]:
    with mesh(3) as made:
        running = PipelineRounds(made, tmp_path_factory.mktemp("kills"))
        yield running
        running.close()


Kill = Callable[[PipelineRounds, random.Random], str]


@pytest.mark.parametrize("kill", [kill_python, kill_log_agent, kill_rewriting, kill_keeper, kill_driver])
@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
def test_an_update_with_a_kill_leaves_exact_tables(
    rounds: PipelineRounds, kill: Kill, seed: int, keep_round: Callable[[Any], None]
) -> None:
    rounds.write_rows()
    this = Round(f"pipeline: {kill.__name__.removeprefix('kill_').replace('_', ' ')}", seed, "update")
    this.note = kill(rounds, random.Random(f"{kill.__name__} {seed}"))
    rounds.update()
    this.rows, this.seconds = rounds.written.committed(), round(time.monotonic() - this.began, 1)
    keep_round(this)
