"""`kill -9` at random moments of a query from a log to a feed: of Spark's driver, and of the feed's agent, and its full disk.

Each row comes once.

Each seed is a round of its own; all are soaks. The series is

    AGILEDART_KILLS=20 python -m pytest tests/spark/test_feed_kills.py -s
"""

import contextlib
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agiledart_agent.identity.reader_identity import identity_from_token
from agiledart_node.wire.commands import CreateToken
from agiledart_sink_log.client import SinkLogClient
from tests.e2e.mesh import Mesh, cli, mesh, wait_for
from tests.spark.kills import LATEST_BATCH, LOOKS, Driver, Round, Spare, commits
from tests.spark.written import FEED, SINK, submit, wait_for_end

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

ROUNDS = int(os.environ.get("AGILEDART_KILLS", "2"))
FIRST = int(os.environ.get("AGILEDART_KILLS_SEED", "1"))
SECONDS = 600.0
COLUMNS = ("taxi", "start_cell", "seconds", "total_cents")
COUNT = 3_000

Row = tuple[Any, ...]


class FeedRounds:
    """A log on one agent, feeds on another, and the rows of both as they are stored."""

    def __init__(self, made: Mesh, folder: Path) -> None:
        self.mesh = made
        self.log_agent, self.keeper = made.agents
        submit(self.log_agent, f"taxi:?count={COUNT}@a1", f"log:{SINK}?partitions=4@a1")
        assert wait_for_end(self.log_agent) == "finished"
        self._tokens = {}
        for role in ("reader", "writer"):
            path = folder / f"{role}.token"
            path.write_text(str(self.log_agent.ask(CreateToken(role=role, uses=1_000))["token"]))
            path.chmod(0o600)
            self._tokens[role] = str(path)

    def task(self, feed: str, folder: Path, seconds: float, keeper: str = "") -> str:
        """Create the feed unless it is there, and return the task of a driver that copies the log to it."""
        cli("feed", "create", feed, "--at", keeper or self.keeper.name, "--agent", str(self.log_agent.state_dir))
        reader = {
            "sink": SINK,
            "tokenFile": self._tokens["reader"],
            "columns": ",".join(COLUMNS),
            "maxRowsPerBatch": "500",
        }
        writer = {"feed": feed, "tokenFile": self._tokens["writer"]}
        task = {"reader": reader, "writer": writer, "folder": str(folder), "kind": FEED, "seconds": seconds}
        return msgspec.json.encode(task).decode() + "\n"

    def rows(self, log: str, wanted: tuple[str, ...] = COLUMNS) -> "Counter[Row]":
        """Return every committed row of a log with these fields."""
        found: Counter[Row] = Counter()
        identity, _ = identity_from_token(f"@{self._tokens['reader']}")
        with SinkLogClient([self.log_agent.address], identity, 20.0) as client:
            fields = [str(field["name"]) for field in msgspec.json.decode(client.locate(log).schema)["fields"]]
            places = [fields.index(name) for name in wanted]
            for ends in client.ends(log).partitions:
                at = ends.first
                while at < ends.committed:
                    for batch in client.fetch(log, ends.partition, at).batches:
                        rows = msgspec.msgpack.decode(batch.body)[max(0, at - batch.offset) :]
                        found.update(tuple(row[place] for place in places) for row in rows)
                        at = batch.offset + batch.rows
        return found

    def judge(self, this: Round, feed: str) -> None:
        """Compare the feed with the log, row by row."""
        expected, found = self.rows(SINK), self.rows(feed)
        this.rows, this.seconds = expected.total(), round(time.monotonic() - this.began, 1)
        this.missing, this.repeated = (expected - found).total(), (found - expected).total()
        assert this.rows > 2_000
        assert (this.missing, this.repeated) == (0, 0), str(this)


def give(driver: Driver, task: str) -> None:
    """Hand a task to a driver; `Driver.end` returns when it is done."""
    driver._task = task
    assert driver.process.stdin is not None
    driver.process.stdin.write(task)
    driver.process.stdin.flush()


def wait_for_moment(chance: random.Random, folder: Path, driver: Driver) -> int:
    """Wait for a random moment, and return the number of micro-batches that were done then."""
    batches, looks = chance.randrange(0, LATEST_BATCH + 1), chance.randrange(0, LOOKS)

    def committed() -> bool:
        assert not (why := driver.failure()), why
        return (folder / "checkpoint" / "offsets" / "0").exists() and commits(folder) >= batches

    wait_for(committed, SECONDS, f"{batches} micro-batches are committed")
    deadline = time.monotonic() + 0.02 * looks
    wait_for(lambda: time.monotonic() >= deadline or commits(folder) >= LATEST_BATCH, SECONDS, "the moment")
    return commits(folder)


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FeedRounds]:
    with mesh(2) as made:
        yield FeedRounds(made, tmp_path_factory.mktemp("tokens"))


@pytest.fixture(scope="module")
def spare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spare]:
    made = Spare(tmp_path_factory.mktemp("drivers"))
    yield made
    made.kill()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
def test_a_killed_driver_leaves_each_row_once_in_the_feed(
    rounds: FeedRounds, spare: Spare, tmp_path: Path, seed: int, keep_round: Callable[[Round], None]
) -> None:
    chance, feed = random.Random(f"feed driver {seed}"), f"driver-{seed}"
    give(spare.driver(), rounds.task(feed, tmp_path, 0.05))
    this = Round("driver that writes a feed", seed, FEED)
    this.batches_at_kill = wait_for_moment(chance, tmp_path, spare.driver())
    spare.kill()
    assert this.batches_at_kill <= LATEST_BATCH
    give(spare.driver(), rounds.task(feed, tmp_path, 0))
    spare.driver().end()
    rounds.judge(this, feed)
    keep_round(this)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
def test_a_killed_keeper_leaves_each_row_once_in_the_feed(
    rounds: FeedRounds, spare: Spare, tmp_path: Path, seed: int, keep_round: Callable[[Round], None]
) -> None:
    chance, feed = random.Random(f"feed agent {seed}"), f"agent-{seed}"
    driver = spare.driver()
    give(driver, rounds.task(feed, tmp_path, 0))
    this = Round("feed's agent", seed, FEED)
    this.batches_at_kill = wait_for_moment(chance, tmp_path, driver)
    rounds.keeper.kill()
    rounds.keeper.start()
    rounds.keeper.ready()
    driver.end()
    rounds.judge(this, feed)
    keep_round(this)


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[Path]:
    """Put a disk of one MiB at a folder; yield a file that fills it once it is written, and makes room once it is gone."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if (mounted := subprocess.run(mount, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder / "ballast"
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(ballast: Path) -> None:
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4_096))


@pytest.mark.parametrize("part", ["feeds", "sink-logs"])
def test_a_query_waits_while_the_disk_of_the_feed_is_full(
    rounds: FeedRounds, spare: Spare, tmp_path: Path, part: str
) -> None:
    """Stages of tasks are in `feeds`, published rows in `sink-logs`."""
    [keeper] = rounds.mesh.grow(1)
    driver, feed, this = spare.driver(), f"full-{part}", Round("full disk", 0, FEED)
    with full_disk(keeper.state_dir / part) as ballast:
        task = rounds.task(feed, tmp_path, 0, keeper.name)
        fill(ballast)
        give(driver, task)
        wait_for(
            lambda: f"The disk of {keeper.name} is full" in driver.said(), SECONDS, "the query reports the full disk"
        )
        assert commits(tmp_path) == 0
        ballast.unlink()
        driver.end()
        rounds.judge(this, feed)
    keeper.kill()
