"""Rows that come once, over TCP: the source's executor and agent are killed with SIGKILL, and the results are exact."""

import os
import signal
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.mesh import Mesh, executors_of, mesh, wait_for
from tests.e2e.plug import Job, check, pull_the_plug, undisturbed
from tests.ports import lasting_port

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

READINGS = 6_000
BURST = 1_500


@pytest.fixture(scope="module")
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "2")
        with mesh(3) as made:
            yield made


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder with code and input, and what one undisturbed process writes."""
    folder = tmp_path_factory.mktemp("live")
    return folder, undisturbed(folder, READINGS)


class Feeder:
    """Sends each line once, and knows how many the source has read."""

    def __init__(self, job: Job, port: int, lines: list[str]) -> None:
        self.job, self.port, self.lines, self.sent = job, port, lines, 0
        self.socket = self.connected()

    def connected(self) -> socket.socket:
        def dial() -> socket.socket | None:
            try:
                return socket.create_connection(("127.0.0.1", self.port), 1)
            except OSError:
                return None

        found: socket.socket = wait_for(dial, 60, "the source listens")
        return found

    def burst(self, count: int) -> None:
        """Send so many lines and wait until the source has read them: all of them are in its log then."""
        self.socket.sendall("".join(self.lines[self.sent : self.sent + count]).encode())
        self.sent += count
        wait_for(lambda: self.job.read() == self.sent, 60, f"the source has read {self.sent} lines")


def is_in_a_later_life(job: Job, attempt: int, lines: int) -> bool:
    """Whether it runs, in another attempt, and has read so many lines."""
    told = job.status()
    is_there = told["state"] == "running" and (told.get("epoch") or {"attempt": 0})["attempt"] > attempt
    return is_there and job.read() == lines


@pytest.mark.parametrize("victim", [pytest.param("executor", marks=pytest.mark.soak), "agent"])
def test_a_killed_live_source_loses_nothing(ring: Mesh, expected: tuple[Path, str], victim: str) -> None:
    folder, result = expected
    port = lasting_port()
    job = Job(ring, folder, f"live-{victim}", readings=f"tcp:127.0.0.1:{port}?listen=1")
    feeder = Feeder(job, port, (folder / "rows.csv").read_text().splitlines(keepends=True))
    feeder.burst(BURST)
    job.until_committed()
    agent = ring.agent("a1")
    for _ in range(2):
        feeder.burst(BURST)
        attempt = job.status()["epoch"]["attempt"]
        if victim == "executor":
            for pid in executors_of(agent):
                os.kill(pid, signal.SIGKILL)
        else:
            pull_the_plug(agent)
            agent.start()
        wait_for(partial(is_in_a_later_life, job, attempt, feeder.sent), 90, "it was read again")
        feeder.socket.close()
        feeder.socket = feeder.connected()
    feeder.burst(READINGS - feeder.sent)
    feeder.socket.close()
    check(job, result)
