"""Problems that users met on their first day: each was found manually."""

import contextlib
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agiledart_agent.host.network_addresses import own_addresses
from tests.e2e.mesh import COMMAND, Mesh, cli, mesh, wait_for

pytestmark = pytest.mark.e2e


def agent(*words: str) -> subprocess.CompletedProcess[str]:
    """An agent that cannot start, or is displayed."""
    return cli("agent", "--metrics", "", *words)


@contextlib.contextmanager
def running(folder: Path, *words: str) -> Iterator[Path]:
    """An agent without a given name, until the end of the block; gives its log."""
    log = folder.with_suffix(".log")
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*COMMAND, "agent", "--state-dir", str(folder), "--listen", "127.0.0.1:0", *words],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip

    def is_up() -> bool:
        assert process.poll() is None, log.read_text()
        return (folder / "agent.json").exists()

    try:
        wait_for(is_up, 30, "the agent in its ring")
        yield log
    finally:
        process.terminate()
        process.wait(20)


def test_a_failed_start_bootstraps_nothing(tmp_path: Path) -> None:
    with mesh(1) as made, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        state = tmp_path / "state"
        port = taken.getsockname()[1]
        failed = agent("--state-dir", str(state), "--listen", f"127.0.0.1:{port}")
        assert failed.returncode == 1
        assert f"Port {port} is in use by another process" in failed.stderr
        assert not (state / "network.json").exists()
        assert not (state / "authority.key").exists()
        with running(state, "--metrics", "", "--join", made.token) as log:
            wait_for(lambda: "joined the ring of 2" in log.read_text(), 10, "it says so")


def test_an_address_of_another_machine_is_not_blamed_on_a_process(tmp_path: Path) -> None:
    with socket.socket() as elsewhere:  # another process has that port, on an address of this machine
        elsewhere.bind(("127.0.0.1", 0))
        elsewhere.listen()
        port = elsewhere.getsockname()[1]
        failed = agent("--state-dir", str(tmp_path / "state"), "--listen", f"203.0.113.9:{port}")
    assert failed.returncode == 1
    assert "203.0.113.9 is not an address of this machine. Its addresses:" in failed.stderr
    assert "127.0.0.1" in failed.stderr
    assert "in use" not in failed.stderr


def test_this_machines_addresses_are_found() -> None:
    assert "127.0.0.1" in own_addresses()
    for address in own_addresses():
        if ":" not in address:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.bind((address, 0))


def test_a_second_agent_of_a_machine_gets_its_own_metrics_port_and_name(tmp_path: Path) -> None:
    with running(tmp_path / "one") as first, running(tmp_path / "two") as second:
        notes = [json.loads((tmp_path / name / "agent.json").read_text()) for name in ("one", "two")]
        assert notes[0]["metrics"] != notes[1]["metrics"]
        assert notes[0]["name"] != notes[1]["name"]
        host = socket.gethostname().split(".")[0]
        assert notes[1]["name"].startswith(f"{host}-")
        assert f"is called {host}" in second.read_text()
        assert "in use by another process" in second.read_text()
        assert first.exists()


def test_a_network_of_one_is_replaced_by_a_token(tmp_path: Path) -> None:
    with mesh(1) as made:
        with running(tmp_path / "old", "--metrics", ""):
            pass
        refused = agent("--state-dir", str(tmp_path / "old"), "--listen", "127.0.0.1:0", "--join", made.token)
        assert refused.returncode == 1
        assert "where nothing ever ran" in refused.stderr
        with running(tmp_path / "old", "--metrics", "", "--join", made.token, "--leave-previous-network") as log:
            wait_for(lambda: "joined the ring of 2" in log.read_text(), 10, "it says so")


def test_a_token_is_written_to_a_private_file(tmp_path: Path) -> None:
    with mesh(1) as made:
        file = tmp_path / "submitter.token"
        words = (
            "token",
            "create",
            "--role",
            "submitter",
            "--agent",
            str(made.agents[0].state_dir),
            "--output",
            str(file),
        )
        done = cli(*words)
        assert done.returncode == 0, done.stderr
        assert (done.stdout, file.stat().st_mode & 0o777) == ("", 0o600)
        asked = cli("list", "--agent", made.agents[0].address, "--identity", f"@{file}")
        assert asked.returncode == 0, asked.stderr


ROOMS = """
from typing import NamedTuple

from agiledart import Sink, Source, Topology, csv


class Reading(NamedTuple):
    room: str
    celsius: float


def warm(reading: Reading) -> bool:
    return reading.celsius > 20


def rooms(readings: Source[Reading], report: Sink[Reading] = csv("out.csv")) -> Topology:
    topology = Topology("rooms")
    topology.source("readings", readings).filter(warm).sink("report", report)
    return topology
"""


def submit(folder: Path, made: Mesh, *words: str, at: str = "") -> subprocess.CompletedProcess[str]:
    """Submit rooms.py to the first agent; its input never ends."""
    (folder / "rooms.py").write_text(ROOMS)
    (folder / "in.csv").write_text("hall,21.5\n")
    source = f"readings=csv:{folder}/in.csv?follow=1{at}"
    return cli(
        "submit", "rooms.py:rooms", "--set", source, "--agent", str(made.agents[0].state_dir), *words, cwd=folder
    )


def test_an_application_with_source_and_sink_on_one_node_stays_there(tmp_path: Path) -> None:
    with mesh(3) as made:
        shown = submit(tmp_path, made, "--dry-run")
        assert "path a1 (0 hops)" in shown.stdout, shown.stderr
        assert submit(tmp_path, made).returncode == 0
        status = cli("status", "rooms", "--agent", str(made.agents[1].state_dir))
        assert "path a1 (0 hops)" in status.stdout
        assert " is on " not in status.stdout


def test_missing_capacity_is_reported_at_once_and_nodes_lists_free_capacity(tmp_path: Path) -> None:
    with mesh(1, "--capacity", "5") as made:
        assert submit(tmp_path, made).returncode == 0
        state_dir = str(made.agents[0].state_dir)
        (node,) = json.loads(cli("nodes", "--agent", state_dir, "-o", "json").stdout)["nodes"]
        assert (node["instances"], node["capacity"]) == (3, 5)
        head, row = cli("nodes", "--agent", state_dir).stdout.splitlines()
        shown = [row[head.index(word) : head.index(word) + 4].strip() for word in ("used", "free")]
        assert shown == ["3", "2"]
        full = submit(tmp_path, made, "--name", "more")
        assert full.returncode == 1
        assert "more waiting for capacity: no node has capacity" in full.stderr
        assert "agiledart agent --capacity" in full.stderr
        assert cli("stop", "rooms", "--now", "--agent", state_dir).returncode == 0
        status = lambda: cli("status", "more", "--agent", state_dir, "-o", "json").stdout  # noqa: E731
        wait_for(lambda: json.loads(status())["state"] == "running", 30, "it runs once there is room")


def test_an_application_is_replaced_in_one_command_and_forgotten_once_ended(tmp_path: Path) -> None:
    with mesh(1) as made:
        state_dir = str(made.agents[0].state_dir)
        assert submit(tmp_path, made).returncode == 0
        twice = submit(tmp_path, made)
        assert "rooms is already running" in twice.stderr
        replaced = submit(tmp_path, made, "--replace")
        assert replaced.returncode == 0, replaced.stderr
        assert "rooms v2" in replaced.stdout
        assert "Stop it first" in cli("forget", "rooms", "--agent", state_dir).stderr
        assert cli("stop", "rooms", "--now", "--agent", state_dir).returncode == 0
        assert "ended" in cli("list", "--agent", state_dir).stdout
        assert cli("forget", "rooms", "--agent", state_dir).returncode == 0
        assert "rooms" not in cli("list", "--agent", state_dir).stdout


def test_a_node_is_found_by_the_address_that_nodes_prints(tmp_path: Path) -> None:
    with mesh(2) as made:
        shown = submit(tmp_path, made, "--dry-run", at=f"@{made.agents[1].address}")
        placed = [line.split() for line in shown.stdout.splitlines() if line.startswith(" readings")]
        assert [words[2] for words in placed[:1]] + [words[1] for words in placed[1:]] == ["a2", "a2"], (
            shown.stdout + shown.stderr
        )


def test_ctrl_c_during_submit_leaves_the_application_running(tmp_path: Path) -> None:
    with mesh(1) as made:
        (tmp_path / "slow.py").write_text("import time\n" + ROOMS.replace('"rooms")', '"rooms")\n    time.sleep(3)'))
        (tmp_path / "in.csv").write_text("hall,21.5\n")
        state_dir = str(made.agents[0].state_dir)
        process = subprocess.Popen(
            [*COMMAND, "submit", "slow.py:rooms", "--set", f"readings=csv:{tmp_path}/in.csv?follow=1", "--agent", state_dir],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        listed = lambda: "deploying" in cli("list", "--agent", state_dir).stdout  # noqa: E731
        wait_for(listed, 30, "it is being deployed")
        process.send_signal(signal.SIGINT)
        _, talk = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "rooms is still being started. Watch:" in talk
        assert "Traceback" not in talk
        status = lambda: json.loads(cli("status", "rooms", "--agent", state_dir, "-o", "json").stdout)["state"]  # noqa: E731
        wait_for(lambda: status() == "running", 40, "it runs all the same")
