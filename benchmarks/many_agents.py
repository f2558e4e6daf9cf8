"""Many real agents on one machine: how long their ring takes to form, what it costs when idle, and what it survives.

    python -m benchmarks.many_agents [--agents 50] [--kill 10] [--idle 30] [-o json]
    python -m benchmarks.many_agents --places hosts.txt --cut "lab cut" --heal "lab heal" [--cut-seconds 20]

Every agent is a process of its own with its own key, its TLS links and its state directory. The ring is right when every live agent
has the true next agent on both sides, sends no request to a dead agent, and random keys asked at random agents end at the one
nearest agent.

With `--places` agents run elsewhere than on loopback: each line of the file has an address and, after it, a command that runs what
follows it there, for example `10.0.0.1 ip netns exec h1`. `--cut` and `--heal` are commands that part these places in two halves
and join them again. Reads `/proc` and, for bytes, `ss` (Debian package iproute2): bytes are those of the TCP payload, TLS included.
"""

import argparse
import json
import os
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agiledart_control.agent_place import AGENT_FILE, in_state_dir, read_note
from agiledart_control.control_client import ControlClient
from agiledart_kernel.errors import AgileDartError
from agiledart_kernel.node_id import ID_BITS, NodeId, clockwise_distance, ring_distance
from agiledart_node.wire.commands import CreateToken, Nodes, TraceRoute
from benchmarks.run import cpu_seconds, memory

PROBES = 40
"""Keys asked for in each look at the ring."""


@dataclass
class AgentHost:
    """Place at which an agent runs: an address, and a prefix for the agent's command."""

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


@dataclass
class AgentUnderTest:
    """Process of one agent."""

    name: str
    folder: Path
    place: AgentHost
    process: "subprocess.Popen[bytes]"
    node: NodeId = field(default_factory=lambda: NodeId(0))
    pid: int = 0

    def ask(self, command: Any) -> dict[str, Any]:
        """Send one request over the agent's control socket; return the answer."""
        where = in_state_dir(self.folder)
        if where is None:
            raise RuntimeError(f"{self.name} is gone")
        with ControlClient(where) as client:
            return dict(client.ask(command))


class Agents:
    """All agents of a run; a context manager that removes them at its end."""

    def __init__(self, places: list[AgentHost]) -> None:
        self.places = places
        self.folder = Path(tempfile.mkdtemp(prefix="agents-"))
        self.all: list[AgentUnderTest] = []

    def __enter__(self) -> "Agents":
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.all:
            agent.process.send_signal(signal.SIGKILL)
        for agent in self.all:
            agent.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def live(self) -> list[AgentUnderTest]:
        """Return the agents whose process runs, by id."""
        return sorted((agent for agent in self.all if agent.process.poll() is None), key=lambda agent: agent.node)

    def start(self) -> float:
        """Start all agents; return the seconds until each reports that it is in the ring."""
        began = time.monotonic()
        founder = self._launch(0, "")
        self._until_ready([founder])
        token = self.folder / "token"
        body = founder.ask(CreateToken(uses=len(self.places), expires=3_600, member_for=86_400))
        token.touch(mode=0o600)
        token.write_text(str(body["token"]))
        self._until_ready([self._launch(index, f"@{token}") for index in range(1, len(self.places))])
        return time.monotonic() - began

    def _launch(self, index: int, join: str) -> AgentUnderTest:
        place, name = self.places[index], f"a{index + 1}"
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        command = [
            *place.enter,
            *(sys.executable, "-m", "agiledart_cli.main", "agent", "--name", name, "--state-dir", str(folder)),
            *("--listen", f"{place.address}:0", "--metrics", "127.0.0.1:0"),
            *(("--join", join) if join else ()),
        ]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        agent = AgentUnderTest(name, folder, place, process)
        self.all.append(agent)
        return agent

    def _until_ready(self, agents: list[AgentUnderTest]) -> None:
        for agent in agents:
            while not (note := read_note(agent.folder / AGENT_FILE)):
                if agent.process.poll() is not None:
                    raise SystemExit(f"{agent.name} ended:\n{(self.folder / f'{agent.name}.log').read_text()[-2000:]}")
                time.sleep(0.02)
            agent.node, agent.pid = NodeId.from_hex(str(note["node_id"])), int(str(note["pid"]))

    # ---- checks of the ring

    def faults(self, seed: int, members: list[AgentUnderTest] | None = None) -> list[str]:
        """Return the faults of these agents' ring, queried from outside."""
        members = members or self.live
        ids = [agent.node for agent in members]
        chance = random.Random(seed)
        wrong = []
        for index, agent in enumerate(members):
            try:
                rows = agent.ask(Nodes())["nodes"]
            except (AgileDartError, OSError) as error:
                wrong.append(f"{agent.name}: {error}")
                continue
            known = [NodeId.from_hex(row["node_id"]) for row in rows]
            others = [node for node in known if node != agent.node]
            after = min(others, key=lambda node: clockwise_distance(agent.node, node, ID_BITS), default=agent.node)
            before = min(others, key=lambda node: clockwise_distance(node, agent.node, ID_BITS), default=agent.node)
            if after != ids[(index + 1) % len(ids)] or before != ids[index - 1]:
                wrong.append(f"{agent.name}: its neighbours are not the true ones")
        for _ in range(PROBES):
            key, asked = NodeId(chance.getrandbits(ID_BITS)), chance.choice(members)
            want = min(ids, key=lambda node: (ring_distance(node, key, ID_BITS), node))
            try:
                path = asked.ask(TraceRoute(key.hex))["path"]
            except (AgileDartError, OSError) as error:
                wrong.append(f"{asked.name}: {error}")
                continue
            if NodeId.from_hex(path[-1]["node_id"]) != want:
                wrong.append(f"{key.short} from {asked.name} ends at {path[-1]['name']}")
        return wrong

    def until_right(self, limit: float, members: list[AgentUnderTest] | None = None) -> float:
        """Return the seconds until the ring has no fault. Raises `SystemExit` with the faults after `limit` seconds."""
        began, seed = time.monotonic(), 0
        while wrong := self.faults(seed, members):
            seed += 1
            if time.monotonic() - began > limit:
                raise SystemExit(f"after {limit:.0f} s {len(wrong)} things are wrong, among them: {wrong[:3]}")
        return time.monotonic() - began


def sent_bytes(pids: list[int]) -> dict[int, int]:
    """Return the TCP payload bytes that each process has sent over its open connections."""
    output = subprocess.run(["ss", "-tinpH", "state", "established"], capture_output=True, text=True, check=True).stdout
    totals = dict.fromkeys(pids, 0)
    pid = 0
    for line in output.splitlines():
        if match := re.search(r"pid=(\d+)", line):
            pid = int(match.group(1))
        if (match := re.search(r"bytes_sent:(\d+)", line)) and pid in totals:
            totals[pid] += int(match.group(1))
    return totals


def idle(agents: Agents, seconds: float) -> dict[str, Any]:
    """Return CPU, bytes and memory of idle agents."""
    live = agents.live
    pids = [agent.pid for agent in live]
    has_ss = shutil.which("ss") is not None and not live[0].place.enter
    cpu, sent = {pid: cpu_seconds(pid) for pid in pids}, sent_bytes(pids) if has_ss else {}
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    shares = [100 * (cpu_seconds(pid) - cpu[pid]) / took for pid in pids]
    figures = {
        "idle_cpu_percent_mean": round(statistics.mean(shares), 2),
        "idle_cpu_percent_max": round(max(shares), 2),
        "idle_rss_mb_mean": round(statistics.mean(memory(pid, "Rss") for pid in pids), 1),
    }
    if has_ss:
        later = sent_bytes(pids)
        rates = [(later[pid] - sent[pid]) / took / 1000 for pid in pids]
        figures["idle_sent_kb_per_s_mean"] = round(statistics.mean(rates), 2)
        figures["idle_sent_kb_per_s_max"] = round(max(rates), 2)
    return figures


def places_of(options: argparse.Namespace) -> list[AgentHost]:
    """Return the places at which the agents run."""
    if not options.places:
        return [AgentHost() for _ in range(options.agents)]
    lines = [line.split(maxsplit=1) for line in Path(options.places).read_text().splitlines() if line.strip()]
    return [AgentHost(line[0], tuple(shlex.split(line[1])) if len(line) > 1 else ()) for line in lines][
        : options.agents
    ]


def measure(options: argparse.Namespace, print_line: Callable[[str], None]) -> dict[str, Any]:
    """Carry out the whole run; return its figures."""
    places = places_of(options)
    result: dict[str, Any] = {"agents": len(places), "cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    with Agents(places) as agents:
        result["started_s"] = round(agents.start(), 2)
        result["ring_right_after_s"] = round(result["started_s"] + agents.until_right(120), 2)
        print_line(f"{len(places)} agents in one ring after {result['ring_right_after_s']} s")
        if options.idle:
            result.update(idle(agents, options.idle))
            print_line(f"idle: {result['idle_cpu_percent_mean']} % of a core each")
        if options.kill:
            victims = random.Random(options.seed).sample(agents.live, options.kill)
            for agent in victims:
                os.kill(agent.pid, signal.SIGKILL)
            for agent in victims:
                agent.process.wait()
            result["killed"] = len(victims)
            result["right_after_kill_s"] = round(agents.until_right(60), 2)
            print_line(f"{len(victims)} killed, right again after {result['right_after_kill_s']} s")
        if options.cut:
            result.update(partition(agents, options, print_line))
    return result


def partition(agents: Agents, options: argparse.Namespace, print_line: Callable[[str], None]) -> dict[str, Any]:
    """Cut the places in two, check both halves, join them and wait for one ring."""
    half = len(agents.places) // 2
    first = [agent for agent in agents.live if agents.all.index(agent) < half]
    second = [agent for agent in agents.live if agents.all.index(agent) >= half]
    subprocess.run(shlex.split(options.cut), check=True)
    began = time.monotonic()
    apart = max(agents.until_right(60, first), agents.until_right(60, second))
    print_line(f"cut: two rings of {len(first)} and {len(second)} after {apart:.1f} s")
    time.sleep(max(0.0, options.cut_seconds - (time.monotonic() - began)))
    subprocess.run(shlex.split(options.heal), check=True)
    healed = agents.until_right(180)
    print_line(f"healed: one ring of {len(agents.live)} after {healed:.1f} s")
    return {
        "halves": [len(first), len(second)],
        "two_rings_after_s": round(apart, 2),
        "one_ring_after_heal_s": round(healed, 2),
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_agents", description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--kill", type=int, default=10, help="so many are killed at once; 0: none")
    parser.add_argument("--idle", type=float, default=30, help="seconds to look at idle agents; 0: not")
    parser.add_argument("--places", help="file of addresses and commands that run something there")
    parser.add_argument("--cut", help="command that parts the first half of the places from the others")
    parser.add_argument("--heal", help="command that joins them again")
    parser.add_argument("--cut-seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    if bool(options.cut) != bool(options.heal):
        parser.error("--cut and --heal belong together")
    result = measure(options, lambda text: print(text, file=sys.stderr))
    if options.output == "json":
        print(json.dumps(result, indent=2))
    else:
        for name, value in result.items():
            print(f"{name:28} {value}")


if __name__ == "__main__":
    main()
