"""`kill -9` of a feed's agent and of the executor that reads the feed: the broadcast state equals the feed, row by row.

Each kill is at a moment drawn from the seed, while a writer publishes. The series is

    AGILEDART_KILLS=20 python -m pytest tests/e2e/test_broadcast_equals_feed.py -s
"""

import contextlib
import json
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agiledart_sink_log.client import SinkLogError
from agiledart_sink_log.feed_client import FeedError
from tests.e2e.mesh import AgentProcess, cli, executors_of, mesh, wait_for
from tests.e2e.test_feeds import CODE, Rows, publish, rows_of, writer

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("AGILEDART_KILLS", "2"))
SEED = int(os.environ.get("AGILEDART_KILLS_SEED", "1"))

SHOW = """

class Shown(NamedTuple):
    question: float
    number: int
    route: str
    seconds: float


class Show(BroadcastOperator[str, Trip, int, Shown, Usual, list[tuple[str, float]]]):
    def initial(self, key: str) -> int:
        return 0

    def initial_shared(self) -> list[tuple[str, float]]:
        return []

    def on_broadcast(self, record: Usual, shared: list[tuple[str, float]]) -> None:
        shared.append((record.route, record.seconds))

    def on_record(self, key: str, record: Trip, state: int, context: Context[Shown]) -> None:
        for number, (route, seconds) in enumerate(context.shared):
            context.emit(Shown(record.seconds, number, route, seconds))


def show(trips: Source[Trip], usual: Source[Usual], out: Sink[Shown], name: str = "shown") -> Topology:
    topology = Topology(name)
    durations = topology.source("usual", usual, event_time=read_ms, clock="wall")
    keyed = topology.source("trips", trips, event_time=read_ms, clock="wall").key_by(lambda trip: trip.route)
    keyed.connect(durations).stateful("show", Show()).sink("out", out)
    return topology
"""


class ShownState:
    """An application that shows its broadcast state row by row, when a trip asks for it."""

    def __init__(self, host: AgentProcess, keeper: AgentProcess, folder: Path) -> None:
        self.host, self.keeper = host, keeper
        self.at = "--agent", str(self.host.state_dir)
        self._trips, self._question = folder / "trips.jsonl", 0
        self._trips.touch()
        self.committed_at_kill = -1
        (folder / "shown.py").write_text(CODE + SHOW)
        assert cli("feed", "create", "model", "--at", self.keeper.name, *self.at).returncode == 0
        connectors = f"trips=jsonl:{self._trips}?follow=1@{host.name}", "usual=feed:model", f"out=log:shown@{host.name}"
        settings = (word for connector in connectors for word in ("--set", connector))
        submitted = cli("submit", f"{folder / 'shown.py'}:show", *settings, *self.at)
        assert submitted.returncode == 0, submitted.stderr

    def status(self) -> dict[str, Any]:
        return dict(msgspec.json.decode(cli("status", "shown", "-o", "json", *self.at).stdout))

    def committed(self) -> int:
        """The last committed epoch; -1 while no coordinator answers."""
        epoch = self.status()["epoch"]
        return int(epoch["committed"]) if epoch else -1

    def _ask(self) -> float:
        self._question += 1
        with self._trips.open("a") as file:
            file.write(json.dumps({"route": "a", "seconds": float(self._question)}) + "\n")
        return float(self._question)

    def rows(self) -> Rows:
        """Ask, and return the state that the last answer shows."""
        self._ask()
        shown = rows_of(self.host, self.host, "shown")
        return [(row[2], row[3]) for row in shown if row[0] == shown[-1][0]]

    def answer(self) -> Rows:
        """Ask, and return the state, which has rows already, as the answer to this question shows it."""
        number = self._ask()

        def answered() -> Rows:
            with contextlib.suppress(SinkLogError):  # the first answer makes the log
                rows: list[tuple[Any, ...]] = [*rows_of(self.host, self.host, "shown")]
                return [(row[2], row[3]) for row in rows if row[0] == number]
            return []

        return list(wait_for(answered, 120.0, f"the answer to question {number:g}"))


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[ShownState]:
    with mesh(2) as made:
        host, keeper = made.agents
        yield ShownState(host, keeper, tmp_path)


def kill_keeper(shown: ShownState) -> None:
    shown.keeper.kill()
    shown.keeper.start()
    shown.keeper.ready()


def kill_executor(shown: ShownState) -> None:
    try:
        # An executor that dies three times in a row without a checkpoint ends its application.
        wait_for(lambda: shown.committed() > shown.committed_at_kill, 120.0, "a checkpoint since the last kill")
        shown.committed_at_kill = shown.committed()
        victims = wait_for(lambda: executors_of(shown.host), 60.0, "an executor runs")
    except AssertionError as error:
        raise AssertionError(f"{error}: {cli('status', 'shown', *shown.at).stdout}") from None
    os.kill(victims[0], signal.SIGKILL)


@pytest.mark.parametrize("kill", [kill_keeper, kill_executor])
def test_the_broadcast_state_equals_the_feed(shown: ShownState, kill: Callable[[ShownState], None]) -> None:
    chance = random.Random(f"{kill.__name__} {SEED}")
    client = writer(shown.host, shown.host, "feed:model")
    client.agent_timeout_s = 120.0  # a killed agent starts again
    wait_for(lambda: publish(client, "model", 0, [("a", 0.0)]), 30.0, "the first batch")
    wait_for(shown.rows, 60.0, "the application has the first batch")
    done = threading.Event()
    published: Rows = [("a", 0.0)]
    faults: list[FeedError] = []

    def write() -> None:
        batch = 0
        try:
            while not done.wait(0.05):
                batch += 1
                rows = [(f"r{batch}", float(number)) for number in range(batch % 3 + 1)]
                publish(client, "model", batch, rows)
                published.extend(rows)
        except FeedError as error:
            faults.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(KILLS):
            begin = len(published)
            more = chance.randrange(1, 20)
            wait_for(lambda: len(published) >= begin + more or faults, 120.0, f"{more} rows more")  # noqa: B023
            kill(shown)
    finally:
        done.set()
        thread.join(120.0)
    assert not faults, faults
    assert rows_of_feed(shown.host) == published
    wait_for(lambda: shown.rows() == published, 120.0, "the state equals the feed")

    def is_running() -> bool:
        return bool(shown.status()["state"] == "running")

    wait_for(is_running, 120.0, "the application runs")


def rows_of_feed(agent: AgentProcess) -> Rows:
    return rows_of(agent, agent, "model")
