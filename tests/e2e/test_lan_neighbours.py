"""py-libp2p beside real agents: a token without a reachable address joins by an announcement on the local network."""

import os
import signal
import subprocess
from importlib.util import find_spec

import pytest

from tests.e2e.mesh import AgentProcess, Mesh, alive, mesh, wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        find_spec("libp2p") is None, reason='py-libp2p is not installed: pip install "agiledart[libp2p]"'
    ),
]


def joiner(ring: Mesh, name: str, libp2p: str) -> AgentProcess:
    agent = AgentProcess(name, ring.folder)
    agent.environment["AGILEDART_AGENT__LIBP2P"] = libp2p
    ring.agents.append(agent)
    agent.start("--join", ring.token)
    return agent


def test_a_token_of_an_address_that_is_gone_joins_by_the_local_network() -> None:
    with mesh(1) as ring:
        (first,) = ring.agents
        before = first.address
        first.environment["AGILEDART_AGENT__LIBP2P"] = "on"
        first.end()
        first.start()
        first.ready()
        assert first.address != before
        without = joiner(ring, "a2", "off")
        assert without.process is not None
        assert without.process.wait(60) != 0
        assert "Could not join" in without.log.read_text()
        ring.agents.remove(without)
        found = joiner(ring, "a3", "on")
        try:
            found.ready(60)
        except AssertionError:
            if "was announced on this network" not in found.log.read_text():
                pytest.skip("this machine's network carries no multicast")
            raise
        ring.wait_for_ring()
        assert f"a node was announced on this network at {first.address}" in found.log.read_text()


def test_the_end_of_the_process_of_libp2p_ends_nothing_else() -> None:
    with mesh(1) as ring:
        agent = joiner(ring, "a2", "on")
        agent.ready()
        child = wait_for(lambda: reach_pid(agent.pid), 30, "a process of py-libp2p")
        os.kill(child, signal.SIGKILL)
        wait_for(lambda: "the process of py-libp2p ended" in agent.log.read_text(), 30, "its end in the log")
        wait_for(lambda: reach_pid(agent.pid) not in (0, child), 30, "another process")
        ring.wait_for_ring()
        last = reach_pid(agent.pid)
        assert agent.end() == 0
        wait_for(lambda: not alive(last), 20, "the end of the process with its agent")


def reach_pid(parent: int) -> int:
    """Return the reach process of an agent; 0: none."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines()[1:]:
        pid, ppid, words = line.split(maxsplit=2)
        if int(ppid) == parent and "agiledart_reach.reach_program" in words:
            return int(pid)
    return 0
