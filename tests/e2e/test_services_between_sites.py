"""Every service between networks: an application at two sites behind routers, used from a third one that has no agent.

The one open agent is the only machine that all of them reach.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_agent.checkpoints.checkpoint_file import verify
from tests.e2e.mesh import COMMAND, AgentProcess, Mesh, cli, executors_of, wait_for
from tests.e2e.plug import CODE, Job, check, pull_the_plug, undisturbed
from tests.e2e.routers import Routers, Site, brought_up
from tests.e2e.test_sites_behind_routers import READER

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

READINGS, READINGS_OF_TAKE_OVER = 200_000, 40_000
"""More than pass, at 1,000 a second, while the services are used; and all, while a host is killed."""

PLACES = {"a1": "s1.1", "a2": "o1", "a3": "s2.1", "a4": "s2.2"}
"""Agents: the source's at one site, the log's at another, the open one and one more at the second site."""

PRINTING = '\nprint("a line of the builder")\n'


@pytest.fixture(scope="module")
def routers() -> Iterator[Routers]:
    yield from brought_up(1, Site(), Site(2), Site())


@pytest.fixture(scope="module")
def ring(routers: Routers) -> Iterator[Mesh]:
    folder = Path(tempfile.mkdtemp(prefix="adt-"))
    made = Mesh(folder)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
            for name in ("a2", "a1", "a3", "a4"):
                host = PLACES[name]
                agent = AgentProcess(
                    name, folder, "--listen", f"{routers.address(host)}:9464", "--host", f"machine-{name}"
                )
                agent.enter = routers.enter(host)
                made.add([agent])
            made.agents.sort(key=lambda agent: agent.name)
            yield made
    finally:
        made.close()
        shutil.rmtree(folder)


class Visitor:
    """A machine of a third network without an agent, which asks the open one."""

    def __init__(self, routers: Routers, ring: Mesh, folder: Path) -> None:
        self.enter, self.folder = routers.enter("s3.1"), folder
        self.address = ring.agent("a2").address
        self.identity = self.token(ring, "submitter")
        self.reader = self.token(ring, "reader")

    def token(self, ring: Mesh, role: str) -> Path:
        """A file with a token."""
        shown = cli("token", "create", "--role", role, "--agent", str(ring.agent("a2").state_dir), "-o", "json")
        assert shown.returncode == 0, shown.stderr
        file = self.folder / f"{role}.token"
        file.write_text(json.loads(shown.stdout)["token"])
        return file

    def run(self, *words: str) -> str:
        """The output of a verb."""
        ran = subprocess.run(
            [*self.enter, *COMMAND, *words, "--agent", self.address, "--identity", f"@{self.identity}"],
            capture_output=True, text=True, timeout=60, check=False, cwd=self.folder,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


class SubmittedByVisitor(Job):
    """The job of the tests that pull plugs, submitted from another network."""

    def __init__(self, ring: Mesh, visitor: Visitor) -> None:
        self.ring, self.name, self.out = ring, "plug", visitor.folder / "plug.csv"
        visitor.run(
            "submit", "plug.py:build", "--set", f"readings=csv:{visitor.folder / 'rows.csv'}?speed=1@a1",
            "--set", "report=log:plug@a3", "--set", f"copy=csv:{self.out}@a3", "--parallelism", "sums=6",
        )  # fmt: skip


def data_ports(routers: Routers, host: str) -> set[int]:
    """Ports at which a host takes connections of others."""
    shown = subprocess.run([*routers.enter(host), "ss", "-ltnH"], capture_output=True, text=True, check=True).stdout
    listening = [line.split()[3].rpartition(":") for line in shown.splitlines()]
    return {int(port) for address, _, port in listening if not address.startswith("127.")}


def rows_read(routers: Routers, host: str, address: str, token: Path) -> list[int]:
    """Number of rows of the log, and the sum of their values, as a reader on a host sees them."""
    words = [sys.executable, "-c", READER.replace('"doubles"', '"plug"'), address, str(token)]
    read = subprocess.run([*routers.enter(host), *words], capture_output=True, text=True, timeout=60, check=False)
    assert read.returncode == 0, read.stderr
    return list(json.loads(read.stdout))


def test_each_service_works_between_networks(routers: Routers, ring: Mesh, tmp_path: Path) -> None:
    (tmp_path / "plug.py").write_text(CODE + PRINTING)
    (tmp_path / "rows.csv").write_text("".join(f"{n},{n % 7},{n * n % 101}\n" for n in range(READINGS)))
    visitor = Visitor(routers, ring, tmp_path)
    job = SubmittedByVisitor(ring, visitor)
    job.until_committed()

    for name, host in PLACES.items():
        if executors_of(ring.agent(name)):
            assert data_ports(routers, host) == {9464}, f"{name} has executors and one port"
    assert {name for name in PLACES if executors_of(ring.agent(name))} >= {"a1", "a3"}

    tapped = visitor.run("tap", "plug", "sums", "--limit", "5", "-o", "json").splitlines()
    assert len([json.loads(line) for line in tapped]) == 5
    lines = visitor.run("logs", "plug")
    assert all(name in lines for name in ("a1", "a3", "a line of the builder")), lines

    exported = tmp_path / "plug.checkpoint"
    visitor.run("checkpoint", "export", "plug", "--output", str(exported))
    assert verify(exported)[0].application == "plug"

    visitor.run("stop", "plug")
    logged: list[Any] = job.logged()
    assert logged
    for host, asked in (("s3.1", "a2"), ("s1.1", "a1"), ("s2.2", "a4"), ("o1", "a2")):
        read = rows_read(routers, host, ring.agent(asked).address, visitor.reader)
        assert read == [len(logged), sum(row[-1] for row in logged)], f"{host} asks {asked}"


@pytest.mark.soak
def test_state_is_taken_over_between_sites(ring: Mesh, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, READINGS_OF_TAKE_OVER)
    job = Job(ring, tmp_path, "over", "--parallelism", "sums=6")
    job.until_committed()
    assert "a4" in job.status()["placement"]["sums"]
    pull_the_plug(ring.agent("a4"))
    wait_for(lambda: "a4" not in job.status().get("placement", {}).get("sums", ["a4"]), 60, "others took over")
    check(job, expected)
