"""Random submissions, stops, ends, crashes, restarts and leaves under loss; then quiet, and everything must add up."""

import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.randomness import RandomStream
from agiledart_node.wire.commands import Status, Stop
from agiledart_node.wire.events import InstanceFailed
from agiledart_overlay.wire.events import LeaveRing
from agiledart_simulation.world.network import NetworkConfig
from tests.simulation.mesh import Mesh, pipeline, submission

APPLICATIONS = 5
STEPS = 30


class Swarm:
    """One random run. Nodes that crash come back at most once more; at least half of them stay up."""

    def __init__(self, seed: int) -> None:
        self.random = RandomStream(seed, "swarm")
        self.nodes = 4 + self.random.index(6)
        network = NetworkConfig(loss=self.random.between(0, 0.02), duplicate=0.01)
        start = self.random.index(400) * MILLISECOND
        self.mesh = Mesh(seed, self.nodes, network=network, start_ns=start).build()
        self.asked: list[tuple[str, int, int]] = []
        self.down: list[str] = []

    @property
    def live(self) -> list[str]:
        return [node.peer.name for node in self.mesh.world.live if node.machine.joined]

    def ask(self, command: object) -> None:
        at = self.random.choice(self.live)
        life = self.mesh.world.nodes[self.mesh.node(at)].peer.incarnation
        self.asked.append((at, life, self.mesh.ask(at, command)))  # type: ignore[arg-type]

    def name(self) -> str:
        return f"app{self.random.index(APPLICATIONS)}"

    def step(self) -> None:
        mesh, random = self.mesh, self.random
        dice = random.index(20)
        if dice < 8:
            source, sink = random.choice(self.live), random.choice(self.live)
            graph = pipeline(self.name(), source_at=source, sink_at=sink)
            self.ask(submission(graph, parallelism={"": 1 + random.index(3)}))
        elif dice < 11:
            self.ask(Stop(self.name(), now=random.index(2) == 0))
        elif dice < 13 and mesh.running:
            _, name, version = random.choice(sorted(mesh.running))
            mesh.finish(name, version)
        elif dice < 14 and mesh.running:
            (node, name, version), parts = random.choice(sorted(mesh.running.items(), key=lambda item: item[0]))
            placed = parts[0].instances[0]
            mesh.world.inject(node, InstanceFailed(name, version, placed.stage, placed.index, "KeyError: 'fare'"))
        elif dice < 16 and len(self.live) > self.nodes // 2 + 1:
            self.crash(random.choice(self.live))
        elif dice < 18 and self.down:
            back = self.down.pop(random.index(len(self.down)))
            mesh.start(mesh.node(back), *(mesh.node(name) for name in self.live[:2]))
        elif dice < 19 and len(self.live) > self.nodes // 2 + 1:
            leaving = random.choice(self.live)
            mesh.world.inject(mesh.node(leaving), LeaveRing())
        else:
            self.ask(Status(self.name()))
        mesh.world.run_for(random.index(1_500) * MILLISECOND)

    def crash(self, victim: str) -> None:
        self.mesh.crash(victim, silent=self.random.index(2) == 0)
        self.down.append(victim)

    def settle(self) -> None:
        """A last submission loses a host; then nothing happens any more."""
        at = self.random.choice(self.live)
        self.ask(submission(pipeline("last", source_at=at, sink_at=at), parallelism={"": 3}))
        self.mesh.world.run_for(8 * SECOND)
        hosts = [host for host in self.mesh.hosts("last") if host in self.live]
        if hosts:
            self.crash(self.random.choice(hosts))
        self.mesh.world.network.config = NetworkConfig()
        self.mesh.world.run_for(240 * SECOND)


def open_requests(mesh: Mesh) -> int:
    return sum(node.machine.parts.context.requests.count for node in mesh.world.live)


@pytest.mark.parametrize(
    "seed", [*range(1, 13), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(13, 41))]
)
def test_all_figures_add_up_after_the_storm(seed: int) -> None:
    swarm = Swarm(seed)
    for _ in range(STEPS):
        swarm.step()
    swarm.settle()
    mesh = swarm.mesh
    left = [node.peer.name for node in mesh.world.live if not node.machine.joined]
    for at, life, request in swarm.asked:
        node = mesh.world.nodes[mesh.node(at)]
        if node.is_up and node.peer.incarnation == life and at not in left:
            assert request in mesh.answers, f"{at} never answered {mesh.commands[request]}"
    for name in (*(f"app{number}" for number in range(APPLICATIONS)), "last"):
        at = swarm.live[0]
        states = {mesh_state(mesh, node, name) for node in swarm.live}
        assert len(states) == 1, states
        state = states.pop()
        assert state != "deploying"
        hosted = {
            node.peer.name
            for node in mesh.world.live
            for (app, _), one in node.machine.parts.hosting.table.items()
            # A voter doubts for minutes what it knows from gossip only; it runs nothing meanwhile.
            if app == name and (one.instances or not one.unverified_checks)
        }
        if state != "running":
            assert mesh.hosts(name) == [], f"{name} is {state}"
            assert not hosted
        else:
            status = mesh.status(at, name)
            assert status["silent_nodes"] == []
            wanted = sorted({node for names in status["placement"].values() for node in names})
            assert mesh.hosts(name) == wanted
            sources = [mesh.names[node] for node, app, _ in mesh.flowing if app == name]
            assert set(status["placement"]["trips"]) <= set(sources), "its source never began to read"
    # Nodes compare records of ended applications about every minute; such a conversation may be under way right now.
    for _ in range(30):
        if open_requests(mesh) == 0:
            break
        mesh.world.run_for(SECOND)
    assert open_requests(mesh) == 0, "a conversation never ended"


def mesh_state(mesh: Mesh, at: str, name: str) -> str:
    from agiledart_node.wire.commands import ListApplications

    rows = mesh.answer(mesh.ask(at, ListApplications()))["applications"]
    return str(next((row["state"] for row in rows if row["name"] == name), "unknown"))


def test_a_planted_bug_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignores dead hosts: the judgement above must notice."""
    monkeypatch.setattr(
        "agiledart_node.hosting.application_watcher.ApplicationWatcher.peer_gone", lambda self, peer, how: None
    )
    with pytest.raises(AssertionError):
        test_all_figures_add_up_after_the_storm(2)
