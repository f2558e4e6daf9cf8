"""A ring of real processes: joining, dying, coming back, leaving."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from agiledart_node.wire.commands import Nodes
from tests.e2e.mesh import COMMAND, AgentProcess, alive, cli, mesh, names_seen, wait_for

pytestmark = pytest.mark.e2e


def test_three_agents_form_a_ring_lose_one_and_regain_it() -> None:
    with mesh(3) as made:
        victim = made.agent("a2")
        node_id = victim.ready()["node_id"]
        victim.kill()
        made.wait_for_ring(6.0)

        began = time.monotonic()
        victim.start()  # no token: it remembers its network and its peers
        back = victim.ready(5.0)
        made.wait_for_ring(5.0)
        assert time.monotonic() - began < 5.0
        assert back["node_id"] == node_id
        assert back["incarnation"] == 2


def test_an_agent_restarted_at_once_is_back_before_it_is_missed() -> None:
    with mesh(3) as made:
        victim = made.agent("a3")
        victim.kill()
        victim.start()
        victim.ready(5.0)
        made.wait_for_ring(5.0)
        assert names_seen(made.agent("a1")) == {"a1", "a2", "a3"}


def test_agents_of_one_machine_report_it_unless_configured_otherwise() -> None:
    with mesh(2) as made:
        made.grow(1, "--host", "elsewhere")
        for asked in made.agents:
            hosts = {node["name"]: node["host"] for node in asked.ask(Nodes())["nodes"]}
            assert hosts["a1"] == hosts["a2"] != ""
            assert hosts["a3"] == "elsewhere"


def test_sigterm_drains_and_leaves_nothing() -> None:
    with mesh(3) as made:
        leaver = made.agent("a3")
        assert leaver.end() == 0
        made.wait_for_ring(3.0)
        assert not (leaver.state_dir / "agent.json").exists()
        assert not (leaver.state_dir / "control.sock").exists()


def test_a_founder_can_leave_and_the_ring_continues() -> None:
    with mesh(3) as made:
        assert made.agent("a1").end() == 0
        made.wait_for_ring(3.0)
        assert names_seen(made.agent("a2")) == {"a2", "a3"}


def test_the_whole_ring_stops_and_starts_again() -> None:
    """After a power cut all start at once, without tokens, and are one ring again."""
    with mesh(3) as made:
        addresses = {}
        for agent in made.agents:
            addresses[agent.name] = agent.address
            agent.kill()
        for agent in made.agents:
            agent.start("--listen", addresses[agent.name])
        for agent in made.agents:
            agent.ready()
        made.wait_for_ring(15.0)


def test_an_agent_ends_with_its_parent_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("p")
    reader, writer = os.pipe()
    agent = AgentProcess("a1", folder)
    process = subprocess.Popen(
        [*COMMAND, "agent", "--state-dir", str(agent.state_dir), "--listen", "127.0.0.1:0", "--metrics", "",
         "--parent-fd", str(reader)],
        pass_fds=(reader,), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    agent.process = process
    os.close(reader)
    agent.ready()
    os.close(writer)
    assert process.wait(60) == 0


def test_a_second_signal_aborts_the_drain() -> None:
    with mesh(1) as made:
        process = made.agent("a1").process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)


def test_one_state_directory_has_one_agent() -> None:
    with mesh(1) as made:
        agent = made.agent("a1")
        second = cli("agent", "--state-dir", str(agent.state_dir), "--listen", "127.0.0.1:0", "--metrics", "")
        assert second.returncode == 1
        assert f"pid {agent.pid}" in second.stderr
        assert "Traceback" not in second.stderr


def test_a_port_in_use_is_named() -> None:
    with mesh(1) as made:
        agent = made.agent("a1")
        port = agent.address.rpartition(":")[2]
        second = cli("agent", "--state-dir", str(made.folder / "x"), "--listen", f"127.0.0.1:{port}", "--metrics", "")
        assert second.returncode == 1
        assert f"Port {port} is in use" in second.stderr
        assert f"pid {agent.pid}" in second.stderr


def test_a_join_without_any_answer_fails(tmp_path: Path) -> None:
    nothing = cli("nodes", "--agent", "/nonexistent")
    assert nothing.returncode == 3
    nothing = cli("nodes", env=os.environ | {"XDG_STATE_HOME": str(tmp_path), "STATE_DIRECTORY": str(tmp_path)})
    assert nothing.returncode == 3
    assert 'Start one with "agiledart agent"' in nothing.stderr


def test_a_stopped_agent_is_missed_and_found_again() -> None:
    """SIGSTOP: silent, but its sockets stay open; after SIGCONT it is a member again."""
    with mesh(3) as made:
        sleeper = made.agent("a2")
        os.kill(sleeper.pid, signal.SIGSTOP)
        try:
            wait_for(lambda: names_seen(made.agent("a1")) == {"a1", "a3"}, 6.0, "a2 is missed")
        finally:
            os.kill(sleeper.pid, signal.SIGCONT)
        made.wait_for_ring(10.0)
        assert alive(sleeper.pid)


@pytest.mark.soak
def test_a_member_that_forgot_the_others_reports_isolation_and_finds_them_again() -> None:
    """Without its memory it says so and says what to do; with it, it goes on looking until one of them is there."""
    with mesh(2) as made:
        founder, member = made.agents
        address = founder.address
        assert founder.end() == 0
        assert member.end() == 0
        for name in ("peers.json", "peers.json.good"):
            (member.state_dir / name).rename(member.state_dir.parent / name)
        member.start()
        member.ready()
        told = wait_for(lambda: member.ask(Nodes())["isolation_warning"], 10.0, "the word that it is alone")
        assert "without any address of them" in told
        doctor = cli("doctor", "--agent", str(member.state_dir))
        assert "isolated, looking for the other nodes" in doctor.stdout
        assert "agiledart agent --join" in doctor.stdout

        assert member.end() == 0
        for name in ("peers.json", "peers.json.good"):
            (member.state_dir.parent / name).rename(member.state_dir / name)
        (member.state_dir / "peers.json").write_bytes(b"")  # a power cut: the good copy is taken
        member.start()
        member.ready()
        told = wait_for(lambda: member.ask(Nodes())["isolation_warning"], 10.0, "the word that it is alone")
        assert address in told
        (founder.state_dir / "peers.json").unlink()
        (founder.state_dir / "peers.json.good").unlink()  # it cannot find the member: the member has to find it
        founder.start("--listen", address)
        founder.ready()
        made.wait_for_ring(30.0)
        wait_for(member.has_company, 30.0, "the word that it is no longer alone")
