"""Nodes die while an application is deployed and while it runs: it fails, everywhere visibly, or nothing changes at all."""

import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import ring_distance
from agiledart_node.records.application import application_key
from agiledart_node.wire.effects import RefusedRequest
from agiledart_node.wire.events import InstanceFailed
from agiledart_overlay.wire.effects import LeaveCompleted
from agiledart_overlay.wire.events import LeaveRing
from agiledart_simulation.world.network import NetworkConfig
from tests.simulation.mesh import Mesh, pipeline, submission

WITHIN = int(4.5 * SECOND)
"""The issue asks for 5 s; the answers of `list` take some of it."""


def running(seed: int, nodes: int = 8, **options: object) -> Mesh:
    """Submitted at a2, source at a1, sink at the last node."""
    mesh = Mesh(seed, nodes).build()
    mesh.submit("a2", pipeline("job", source_at="a1", sink_at=f"a{nodes}", steps=4))  # more than stay at the ends
    return mesh


def root_of_record(mesh: Mesh) -> str:
    key = application_key("job")
    return mesh.names[min(mesh.ids, key=lambda node: (ring_distance(node, key), node))]


@pytest.mark.parametrize("silent", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("part", ["source", "sink", "stage", "record root"])
def test_a_dead_host_fails_the_application_everywhere_within_5_seconds(part: str, silent: bool) -> None:
    for seed in (1, 2):
        mesh = running(seed)
        hosts = mesh.hosts("job")
        inner = [host for host in hosts if host not in ("a1", "a8")]
        victim = {"source": "a1", "sink": "a8", "stage": inner[0], "record root": root_of_record(mesh)}[part]
        mesh.crash(victim, silent=silent)
        mesh.world.run_for(WITHIN)
        states = mesh.state_everywhere("job")
        if victim in hosts:
            assert set(states.values()) == {"failed"}, states
            reason = mesh.status("a3" if victim != "a3" else "a4", "job")["reason"]
            assert reason.startswith(f"{victim} is gone (since 00:00:")
            assert " and held " in reason
            assert "agiledart submit" in reason
            assert mesh.hosts("job") == [], "everybody else stopped"
        else:
            assert set(states.values()) == {"running"}, states
            assert mesh.hosts("job") == hosts


@pytest.mark.parametrize("part", ["source", "stage", "user code"])
def test_a_failed_run_reports_its_last_figures(part: str) -> None:
    """Also those of a host that died, as its coordinator saw them last."""
    for seed in (1, 2):
        mesh = running(seed)
        inner = [host for host in mesh.hosts("job") if host not in ("a1", "a8")]
        mesh.report("job", 1)
        mesh.world.run_for(2 * mesh.config.patrol_interval_ns)
        assert mesh.status("a3", "job")["summary"]["records_in"] == 10
        if part == "user code":
            stage = next(placed.stage for parts in mesh.running.values() for one in parts for placed in one.instances)
            host = next(
                node
                for node, parts in mesh.running.items()
                if any(placed.stage == stage for one in parts for placed in one.instances)
            )[0]
            mesh.world.inject(host, InstanceFailed("job", 1, stage, 0, "it raised"))
        else:
            mesh.crash("a1" if part == "source" else inner[0])
        mesh.world.run_for(WITHIN)
        body = mesh.status("a4", "job")
        assert body["state"] == "failed"
        assert body["summary"]["records_in"] == 10, f"seed {seed}: {body['summary']}"
        assert body["summary"]["instances_reporting"] == sum(stage["parallelism"] for stage in body["stages"])


def test_the_message_names_the_instances_of_the_dead_node() -> None:
    mesh = Mesh(1, 3).build()
    body = mesh.submit("a1", pipeline("job", sink_at="a2"), parallelism={"count": 4})
    victim = "a3"
    held = [str(index) for index, node in enumerate(body["placement"]["count"]) if node == victim]
    assert held
    mesh.crash(victim)
    mesh.world.run_for(WITHIN)
    reason = mesh.status("a1", "job")["reason"]
    assert f"count {' and '.join(held)}" in reason


@pytest.mark.parametrize("silent", [False, True])
def test_a_dead_node_that_hosts_nothing_changes_nothing(silent: bool) -> None:
    for seed in (1, 2, 3):
        mesh = running(seed)
        hosts = mesh.hosts("job")
        for victim in [n.peer.name for n in mesh.world.live if n.peer.name not in hosts][:2]:
            mesh.crash(victim, silent=silent)
        mesh.world.run_for(20 * SECOND)
        assert set(mesh.state_everywhere("job").values()) == {"running"}
        assert mesh.hosts("job") == hosts


def test_the_loss_of_a_single_node_application_is_detected_by_its_voters() -> None:
    mesh = Mesh(1, 5, max_ops_balanced=64).build()
    mesh.submit("a1", pipeline("job", steps=1), parallelism={"": 1})
    alone = mesh.hosts("job")
    mesh.crash("a1")
    mesh.world.run_for(WITHIN)
    assert set(mesh.state_everywhere("job").values()) == {"failed"}, alone


def test_list_detects_that_hosts_and_voters_died_together() -> None:
    mesh = Mesh(6, 8, guards=0).build()
    mesh.submit("a1", pipeline("job"))
    victims = mesh.hosts("job")
    assert len(victims) < 8
    for victim in victims:
        mesh.crash(victim)
    mesh.world.run_for(WITHIN)
    states = mesh.state_everywhere("job")
    assert set(states.values()) == {"failed"}


def test_a_restarted_host_counts_as_lost() -> None:
    """It is back before any node has declared it dead, but its instances are not."""
    mesh = running(1)
    victim = next(host for host in mesh.hosts("job") if host not in ("a1", "a8"))
    node = mesh.node(victim)
    mesh.crash(victim)
    mesh.start(node, mesh.node("a2" if victim != "a2" else "a3"))
    mesh.world.run_for(WITHIN)
    assert set(mesh.state_everywhere("job").values()) == {"failed"}
    assert mesh.machine(victim).joined
    reason = mesh.status("a1", "job")["reason"]
    assert reason.startswith((f"{victim} was restarted", f"{victim} is gone"))


def test_a_failed_application_can_be_submitted_again() -> None:
    mesh = running(1)
    mesh.crash("a8")
    mesh.world.run_for(WITHIN)
    body = mesh.submit("a3", pipeline("job", source_at="a1", sink_at="a4"))
    assert body["version"] == 2
    assert body["state"] == "running"


@pytest.mark.parametrize("role", ["scheduler", "source", "sink", "stage"])
@pytest.mark.parametrize("delay_ms", [1, 4, 8, 12, 16, 20, 40, 1_000])
def test_a_crash_during_deployment_fails_the_run_and_leaves_nothing(role: str, delay_ms: int) -> None:
    probe = Mesh(1, 8).build()
    probe.submit("a2", pipeline("job", source_at="a1", sink_at="a8", steps=4))
    inner = [host for host in probe.hosts("job") if host not in ("a1", "a2", "a8")]
    victim = {"scheduler": "a2", "source": "a1", "sink": "a8", "stage": inner[0]}[role]
    mesh = Mesh(1, 8, start_ns=300 * MILLISECOND).build()
    request = mesh.ask("a2", submission(pipeline("job", source_at="a1", sink_at="a8", steps=4)))
    mesh.world.run_for(delay_ms * MILLISECOND)
    assert request not in mesh.answers
    mesh.crash(victim)
    mesh.world.run_for(WITHIN)
    states = mesh.state_everywhere("job")
    if set(states.values()) == {"running"}:  # the crash came before this node got a part; another one took it
        assert victim not in mesh.hosts("job")
        assert not isinstance(mesh.answers.get(request), RefusedRequest)
        return
    assert set(states.values()) <= {"failed", "unknown"}, states
    mesh.world.run_for(40 * SECOND)
    assert set(mesh.state_everywhere("job").values()) == set(states.values())
    assert mesh.hosts("job") == []
    assert all(not node.machine.hosted for node in mesh.world.live)
    if role != "scheduler":
        assert isinstance(mesh.answers[request], RefusedRequest)
    again = "a3" if victim != "a3" else "a4"
    assert mesh.submit(again, pipeline("job"))["state"] == "running"


def test_user_code_that_raises_fails_the_run_with_the_users_message() -> None:
    mesh = running(1)
    node, app, version = next(key for key in mesh.running if mesh.names[key[0]] not in ("a1", "a8"))
    placed = mesh.running[node, app, version][0].instances[0]
    message = "step count, taxi.py:22: KeyError: 'fare' for record {…}"
    mesh.world.inject(node, InstanceFailed(app, version, placed.stage, placed.index, message))
    mesh.world.run_for(1 * SECOND)
    assert set(mesh.state_everywhere("job").values()) == {"failed"}
    assert mesh.status("a3", "job")["reason"] == message
    assert mesh.hosts("job") == []


def test_a_broken_link_waits_for_its_cause() -> None:
    """The neighbours of a dead node report broken links at once; the reason is the dead node all the same."""
    mesh = running(1)
    victim = "a8"
    others = [(key, parts) for key, parts in mesh.running.items() if mesh.names[key[0]] != victim]
    mesh.crash(victim, silent=True)
    for (node, app, version), parts in others:
        placed = parts[0].instances[0]
        broken = InstanceFailed(app, version, placed.stage, placed.index, "a link broke", is_consequence=True)
        mesh.world.inject(node, broken)
    mesh.world.run_for(WITHIN)
    assert mesh.status("a3", "job")["reason"].startswith("a8 is gone")


def test_a_broken_link_without_a_cause_is_reported_by_itself() -> None:
    mesh = running(1)
    node, app, version = next(iter(mesh.running))
    placed = mesh.running[node, app, version][0].instances[0]
    mesh.world.inject(
        node, InstanceFailed(app, version, placed.stage, placed.index, "a link broke", is_consequence=True)
    )
    mesh.world.run_for(2 * SECOND)
    assert mesh.status("a3", "job")["state"] == "running"
    mesh.world.run_for(2 * SECOND)
    assert mesh.status("a3", "job")["reason"] == "a link broke"


def test_a_leaving_host_announces_it_before_it_leaves() -> None:
    mesh = running(1)
    victim = next(host for host in mesh.hosts("job") if host not in ("a1", "a8"))
    left: list[str] = []
    carried_out = mesh.world._on_effect

    def listen(peer, effect) -> None:  # type: ignore[no-untyped-def]
        if isinstance(effect, LeaveCompleted):
            left.append(peer.name)
        carried_out(peer, effect)

    mesh.world._on_effect = listen
    mesh.world.inject(mesh.node(victim), LeaveRing())
    mesh.world.run_for(3 * SECOND)
    assert left == [victim]
    other = "a3" if victim != "a3" else "a4"
    status = mesh.status(other, "job")
    assert status["state"] == "failed"
    assert status["reason"].startswith(f"{victim} left")
    assert mesh.hosts("job") == []


def test_orphaned_parts_end_on_patrol() -> None:
    """A node that was cut off while its application was stopped finds the closed record when it is back."""
    mesh = running(3)
    lonely = next(host for host in mesh.hosts("job") if host not in ("a1", "a8"))
    node = mesh.node(lonely)
    mesh.world.pause(node, 8 * SECOND)
    mesh.world.run_for(7 * SECOND)
    assert set(mesh.state_everywhere_but(lonely, "job").values()) == {"failed"}
    mesh.world.run_for(30 * SECOND)
    assert mesh.hosts("job") == []


@pytest.mark.parametrize("seed", range(1, 5))
def test_crashes_under_loss_are_still_reported(seed: int) -> None:
    mesh = Mesh(seed, 8, network=NetworkConfig(loss=0.02)).build()
    mesh.submit("a2", pipeline("job", source_at="a1", sink_at="a8"))
    victim = mesh.hosts("job")[0]
    mesh.crash(victim, silent=True)
    mesh.world.run_for(2 * WITHIN)
    assert set(mesh.state_everywhere("job").values()) == {"failed"}
    assert mesh.hosts("job") == []
