"""What people met on their first day: each was found by hand."""

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agiledart_agent.addresses import own_addresses
from tests.e2e.mesh import COMMAND, cli, mesh, wait_for

pytestmark = pytest.mark.e2e


def agent(*words: str) -> subprocess.CompletedProcess[str]:
    """An agent that cannot start, or is shown."""
    return cli("agent", "--metrics", "", *words)


@contextlib.contextmanager
def running(folder: Path, *words: str) -> Iterator[Path]:
    """An agent that nobody named, until the end of the block; gives its log."""
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


def test_a_start_that_fails_founds_nothing(tmp_path: Path) -> None:
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
            assert "joined the ring of 2" in log.read_text()


def test_an_address_of_another_machine_is_not_blamed_on_a_process(tmp_path: Path) -> None:
    with socket.socket() as elsewhere:  # somebody has that port, on an address of ours
        elsewhere.bind(("127.0.0.1", 0))
        elsewhere.listen()
        port = elsewhere.getsockname()[1]
        failed = agent("--state-dir", str(tmp_path / "state"), "--listen", f"203.0.113.9:{port}")
    assert failed.returncode == 1
    assert "203.0.113.9 is no address of this machine. Its addresses:" in failed.stderr
    assert "127.0.0.1" in failed.stderr
    assert "in use" not in failed.stderr


def test_this_machines_addresses_are_found() -> None:
    assert "127.0.0.1" in own_addresses()
    for address in own_addresses():
        if ":" not in address:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.bind((address, 0))


def test_a_second_agent_of_a_machine_moves_its_metrics_and_has_a_name_of_its_own(tmp_path: Path) -> None:
    with running(tmp_path / "one") as first, running(tmp_path / "two") as second:
        notes = [json.loads((tmp_path / name / "agent.json").read_text()) for name in ("one", "two")]
        assert notes[0]["metrics"] != notes[1]["metrics"]
        assert notes[0]["name"] != notes[1]["name"]
        host = socket.gethostname().split(".")[0]
        assert notes[1]["name"].startswith(f"{host}-")
        assert f"is called {host}" in second.read_text()
        assert "in use by another process" in second.read_text()
        assert first.exists()


def test_a_network_of_one_gives_way_to_a_token(tmp_path: Path) -> None:
    with mesh(1) as made:
        with running(tmp_path / "old", "--metrics", ""):
            pass
        refused = agent("--state-dir", str(tmp_path / "old"), "--listen", "127.0.0.1:0", "--join", made.token)
        assert refused.returncode == 1
        assert "where nothing ever ran" in refused.stderr
        with running(tmp_path / "old", "--metrics", "", "--join", made.token, "--leave-old") as log:
            assert "joined the ring of 2" in log.read_text()


def test_a_token_goes_into_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
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
