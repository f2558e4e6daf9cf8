"""Applications on rings of 1 to 400 whole nodes: formed, listed, finished, stopped, refused."""

from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND, Duration
from agiledart_kernel.node_id import ring_distance, shared_prefix
from agiledart_kernel.peer import Peer
from agiledart_node.forming.formation import junctions
from agiledart_node.hosting.stop_coordinator import StopCoordinator
from agiledart_node.records.application import ApplicationRecord, application_key
from agiledart_node.records.records import Records
from agiledart_node.wire.commands import Info, ListApplications, Logs, Nodes, Status, Stop, Submit, Tap, TraceRoute
from agiledart_node.wire.effects import RefusedRequest, Replied
from agiledart_node.wire.formation_messages import RequestStop
from agiledart_simulation.world.network import NetworkConfig
from tests.simulation.mesh import WALL_MS, Mesh, pipeline, submission


@pytest.mark.parametrize("nodes", [1, 2, 5, 8, 40])
def test_a_submission_runs_on_rings_of_every_size(nodes: int) -> None:
    mesh = Mesh(1, nodes).build()
    source, sink = "a1", f"a{nodes}"
    body = mesh.submit("a1", pipeline(source_at=source, sink_at=sink), parallelism={"": 4})
    assert body["state"] == "running"
    assert body["version"] == 1
    assert body["placement"]["trips"] == [source]
    assert body["placement"]["report"] == [sink]
    assert len(body["placement"]["count"]) == 4
    assert body["seconds_to_running"] < 2
    assert sorted(mesh.hosts("frequent-routes")) == sorted({n for names in body["placement"].values() for n in names})
    started = {mesh.names[node] for node, _, _ in mesh.flowing}
    assert source in started, "the source was started"
    assert set(mesh.state_everywhere("frequent-routes").values()) == {"running"}
    assert "frequent-routes →" in mesh.progress[1][0]


@pytest.mark.parametrize(("nodes", "bound"), [(40, 3), pytest.param(400, 4, marks=pytest.mark.soak)])
def test_paths_take_several_hops_by_the_digit_rule(nodes: int, bound: int) -> None:
    """Each hop lengthens the common prefix with the sink's id or comes nearer to it; at most ⌈log16 N⌉ + 1 hops."""
    longest = 0
    mesh = Mesh(7, nodes).build()
    for sink in (f"a{nodes}", "a17", "a5", "a23", "a31", "a11"):
        body = mesh.submit("a1", pipeline(f"to-{sink}", source_at="a3,a9,a14,a27", sink_at=sink, sources=4))
        target = mesh.node(sink)
        for path in body["paths"]:
            ids = [mesh.node(hop) for hop in path]
            assert ids[-1] == target
            assert len(ids) - 1 <= bound
            longest = max(longest, len(ids) - 1)
            for before, after in pairwise(ids):
                closer = ring_distance(after, target) < ring_distance(before, target)
                assert shared_prefix(after, target) > shared_prefix(before, target) or closer
    assert longest >= 2, "a JOIN passed a node that is neither source nor sink"


def test_nodes_on_a_route_hold_soft_state_and_routes_meet_at_a_junction() -> None:
    mesh = Mesh(7, 40).build()
    body = mesh.submit("a1", pipeline(source_at="a3,a9,a12", sink_at="a40", sources=3))
    on_the_way = {hop for path in body["paths"] for hop in path}
    for hop in on_the_way:
        assert mesh.machine(hop).soft_state_size == 1
    record_paths = tuple(tuple(mesh.world.nodes[mesh.node(hop)].peer for hop in path) for path in body["paths"])
    assert mesh.node("a40") in junctions(record_paths) or junctions(record_paths)
    mesh.world.run_for(90 * SECOND)
    assert mesh.machine("a3").soft_state_size == 0, "soft state expires without a refresh"


@cache
def five() -> Mesh:
    """A ring for tests that leave nothing behind but names of their own."""
    return Mesh(3, 5).build()


def test_a_running_name_is_refused_and_is_version_2_after_a_stop() -> None:
    mesh = five()
    mesh.submit("a1", pipeline("twice"))
    text = mesh.refusal(mesh.ask("a4", submission(pipeline("twice"))))
    assert text == "twice is already running, submitted to a1 by tester. Stop it first: agiledart stop twice"
    stopped = mesh.answer(mesh.ask("a3", Stop("twice", now=True)))
    assert stopped["state"] == "stopped"
    assert mesh.hosts("twice") == []
    assert mesh.submit("a2", pipeline("twice"))["version"] == 2


def test_exactly_one_of_two_concurrent_submissions_of_a_name_wins() -> None:
    for seed in range(1, 6):
        mesh = Mesh(seed, 5).build()
        requests = [mesh.ask(at, submission(pipeline("race"))) for at in ("a1", "a2", "a3")]
        assert mesh.world.run_until(lambda m=mesh, r=requests: all(n in m.answers for n in r), 60 * SECOND)
        answers = [mesh.answers[request] for request in requests]
        assert sum(isinstance(answer, Replied) for answer in answers) == 1
        assert all("already" in answer.text for answer in answers if isinstance(answer, RefusedRequest))
        assert len({version for _, app, version in mesh.running if app == "race"}) == 1


def test_end_of_input_everywhere_finishes_a_run_with_a_summary() -> None:
    mesh = five()
    body = mesh.submit("a1", pipeline("ends", sink_at="a5"), parallelism={"count": 3})
    mesh.report("ends", 1)
    mesh.world.run_for(100 * MILLISECOND)
    live = mesh.status("a2", "ends")
    assert live["state"] == "running"
    assert live["silent_nodes"] == []
    counts = next(stage for stage in live["stages"] if stage["name"] == "count")
    assert [row["index"] for row in counts["instances"]] == [0, 1, 2]
    assert [row["node"] for row in counts["instances"]] == body["placement"]["count"]
    assert all(row["busy"] == 0.5 for row in counts["instances"])
    mesh.finish("ends", 1)
    mesh.world.run_for(2 * SECOND)
    assert set(mesh.state_everywhere("ends").values()) == {"finished"}
    status = mesh.status("a3", "ends")
    assert status["summary"]["records_in"] == 10
    assert status["summary"]["malformed"] == {"number": 1}
    assert status["summary"]["late"] == 1
    assert status["summary"]["wall_seconds"] == 1.5
    assert status["summary"]["instances_reporting"] == 7
    assert mesh.hosts("ends") == [], "executors were ended"
    assert "does not run: it is finished" in mesh.refusal(mesh.ask("a1", Stop("ends")))


def test_stop_drains_the_sources_and_waits_for_the_end() -> None:
    mesh = five()
    mesh.submit("a1", pipeline("drains", source_at="a2", sink_at="a4"))
    request = mesh.ask("a5", Stop("drains"))
    mesh.world.run_for(1 * SECOND)
    assert request not in mesh.answers
    assert mesh.status("a1", "drains")["is_stopping"]
    assert mesh.drained == {(mesh.node("a2"), "drains", 1): True}
    mesh.finish("drains", 1)
    body = mesh.answer(request)
    assert body["state"] == "stopped"
    assert body["summary"]["records_in"] == 10


@pytest.mark.parametrize("now", [False, True])
def test_a_stop_that_arrives_during_a_record_read_is_carried_out(now: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ten seconds its coordinator looks at the record; a command of that moment was acknowledged and not carried out."""
    ask_stop, read = StopCoordinator.ask_stop, Records.application

    async def read_slowly(self: Records, name: str, *more: Any) -> tuple[int, ApplicationRecord | None]:
        await self._context.requests.pause(Duration(50 * MILLISECOND))
        return await read(self, name, *more)

    def after_a_patrol(self: StopCoordinator, sender: Peer, message: RequestStop) -> None:
        mesh.world.nodes[self._context.me.node].machine.parts.watching.patrol()
        ask_stop(self, sender, message)

    monkeypatch.setattr(Records, "application", read_slowly)
    monkeypatch.setattr(StopCoordinator, "ask_stop", after_a_patrol)
    mesh, name = Mesh(3, 3).build(), "looked-at"
    mesh.submit("a1", pipeline(name, source_at="a2", sink_at="a3"))
    request = mesh.ask("a1", Stop(name, now=now))
    if not now:
        assert mesh.world.run_until(lambda: (mesh.node("a2"), name, 1) in mesh.drained, 5 * SECOND), "its source drains"
        mesh.finish(name, 1)
    assert mesh.answer(request, 5 * SECOND)["state"] == "stopped"


def test_a_drain_that_does_not_end_is_aborted() -> None:
    mesh = five()
    mesh.submit("a1", pipeline("stuck"))
    body = mesh.answer(mesh.ask("a5", Stop("stuck")), 200 * SECOND)
    assert body["state"] == "stopped"
    mesh.world.run_for(1 * SECOND)  # the answer comes when the record says so, its hosts are notified meanwhile
    assert mesh.hosts("stuck") == []


def test_an_abort_by_an_uninvolved_agent_is_done_when_it_is_answered() -> None:
    mesh = Mesh(6, 16).build()
    mesh.submit("a1", pipeline("cut", source_at="a2", sink_at="a3"))
    part = [node.machine.me.name for node in mesh.world.live if ("cut", 1) in node.machine.hosted]
    outside = next(name for name in mesh.by_name if name not in part)
    body = mesh.answer(mesh.ask(outside, Stop("cut")), 200 * SECOND)  # its drain does not end
    assert body["state"] == "stopped"
    mesh.world.run_for(1 * SECOND)
    assert mesh.hosts("cut") == []


def test_a_drain_lasts_while_rows_move_and_its_last_figures_stay() -> None:
    mesh = five()
    mesh.submit("a1", pipeline("slow"))
    request = mesh.ask("a5", Stop("slow"))
    for waiting in range(400, 0, -100):
        mesh.report("slow", 1, waiting)
        mesh.world.run_for(100 * SECOND)
        assert request not in mesh.answers
    assert mesh.answer(request, 60 * SECOND)["summary"]["waiting"] == 100
    assert mesh.status("a3", "slow")["summary"]["waiting"] == 100


@pytest.mark.parametrize("now", [False, True])
def test_an_aborted_run_leaves_the_last_figures_seen(now: bool) -> None:
    mesh, name = five(), f"cut-{now}".lower()
    mesh.submit("a1", pipeline(name))
    mesh.report(name, 1)
    mesh.world.run_for(2 * SECOND)
    assert mesh.answer(mesh.ask("a5", Stop(name, now=now)), 200 * SECOND)["summary"]["records_in"] == 10
    assert mesh.status("a3", name)["summary"]["records_in"] == 10


def test_a_failed_start_is_undone_and_gives_the_reason() -> None:
    mesh = Mesh(4, 5).build()
    mesh.start_failure = lambda peer, part: (
        f"trips: /data/x.csv.gz does not exist on {peer.name}" if any(p.stage == 0 for p in part.instances) else ""
    )
    text = mesh.refusal(mesh.ask("a1", submission(pipeline("bad", source_at="a2", sink_at="a4"))))
    assert text == "trips: /data/x.csv.gz does not exist on a2"
    mesh.world.run_for(1 * SECOND)
    assert mesh.hosts("bad") == []
    assert all(not node.machine.hosted for node in mesh.world.live)
    assert mesh.status("a3", "bad")["state"] == "failed"
    assert mesh.status("a3", "bad")["reason"] == text


def test_a_full_node_is_replanned_around_once() -> None:
    """Survey and deployment race: the host fills up in between."""
    mesh = Mesh(5, 5, capacity=4).build()
    requests = [
        mesh.ask(f"a{i + 1}", submission(pipeline(f"app{i}", source_at=f"a{i + 1}", sink_at="a5"), parallelism={"": 1}))
        for i in range(3)
    ]
    mesh.world.run_until(lambda: all(request in mesh.answers for request in requests), 60 * SECOND)
    for node in mesh.world.live:
        held = sum(
            len(part.instances) for (at, _, _), parts in mesh.running.items() if at == node.peer.node for part in parts
        )
        assert held <= 4
    assert any(isinstance(mesh.answers[request], Replied) for request in requests)


def test_refusals_use_the_users_words() -> None:
    mesh = five()
    unknown = mesh.refusal(mesh.ask("a1", submission(pipeline("typo", source_at="a22"))))
    assert unknown.startswith(
        "trips: no node, zone or host is called 'a22'. Did you mean a2? Nodes: a1, a2, a3, a4, a5"
    )
    assert "No application 'ghost'." in mesh.refusal(mesh.ask("a1", Status("ghost")))
    assert "is invalid" in mesh.refusal(mesh.ask("a1", Submit("x", pipeline_bytes_out_of_order(), b"code")))
    assert "cannot be read" in mesh.refusal(mesh.ask("a1", Submit("x", b"\xc1", b"code")))
    assert "is not a valid name" in mesh.refusal(mesh.ask("a1", submission(pipeline("-rf"))))
    wrong = submission(pipeline("step"), parallelism={"cuont": 2})
    assert "Did you mean count?" in mesh.refusal(mesh.ask("a1", wrong))
    upside_down = submission(pipeline("step"), parallelism={"count": (8, 1)})
    assert "Limits 8..1 are not possible" in mesh.refusal(mesh.ask("a1", upside_down))
    assert "key" in mesh.refusal(mesh.ask("a1", TraceRoute("not a key")))


def pipeline_bytes_out_of_order() -> bytes:
    import msgspec

    from agiledart_dataflow.plan.specification import Specification

    good = pipeline()
    return msgspec.msgpack.encode(Specification("x", tuple(reversed(good.steps))))


def test_a_dry_run_reports_the_placement_and_starts_nothing() -> None:
    mesh = five()
    body = mesh.submit("a1", pipeline("dry", sink_at="a3"), dry_run=True)
    assert body["placement"]["report"] == ["a3"]
    assert mesh.hosts("dry") == []
    names = [row["name"] for row in mesh.answer(mesh.ask("a1", ListApplications()))["applications"]]
    assert "dry" not in names


def test_nodes_routes_logs_and_info_are_answered() -> None:
    mesh = five()
    nodes = mesh.answer(mesh.ask("a1", Nodes()))
    assert sorted(row["name"] for row in nodes["nodes"]) == ["a1", "a2", "a3", "a4", "a5"]
    assert all(row["answers"] for row in nodes["nodes"])
    assert [row["name"] for row in nodes["nodes"] if row["is_this_node"]] == ["a1"]
    assert all(row["rtt_ms"] > 0 for row in nodes["nodes"] if not row["is_this_node"])
    route = mesh.answer(mesh.ask("a1", TraceRoute("a4")))
    assert [hop["name"] for hop in route["path"]] == ["a1", "a4"]
    assert route["hops"] == 1
    own = mesh.answer(mesh.ask("a1", TraceRoute("a1")))
    assert own["hops"] == 0
    mesh.submit("a1", pipeline("prints", source_at="a2", sink_at="a4"))
    logs = mesh.answer(mesh.ask("a5", Logs("prints")))
    assert sorted({line["node"] for line in logs["lines"]}) == mesh.hosts("prints")
    again = mesh.answer(mesh.ask("a5", Logs("prints", logs["after"])))
    assert [line["number"] for line in again["lines"]] == [2] * len(again["lines"])
    info = mesh.answer(mesh.ask("a1", Info()))
    assert info["joined"]
    assert info["known_nodes"] == 5


def test_a_tap_asks_only_the_nodes_that_run_the_step() -> None:
    mesh = five()
    mesh.submit("a1", pipeline("tapped", source_at="a2", sink_at="a4"))
    step = "report"
    first = mesh.answer(mesh.ask("a5", Tap("tapped", step)))
    assert [row["node"] for row in first["rows"]] == ["a4"]
    assert first["rows"][0]["row"] == {"seen": step}
    assert first["passed"] == 7
    again = mesh.answer(mesh.ask("a5", Tap("tapped", step, first["after"])))
    assert again["after"]["a4"] == first["after"]["a4"] + 1
    assert f"Did you mean {step}?" in mesh.refusal(mesh.ask("a5", Tap("tapped", step + "s")))
    assert "No application" in mesh.refusal(mesh.ask("a5", Tap("taped", step)))


def test_a_route_of_several_hops_is_traced_on_40_nodes() -> None:
    mesh = Mesh(7, 40).build()
    routes = [mesh.answer(mesh.ask("a1", TraceRoute(f"name:thing-{i}"))) for i in range(20)]
    assert max(route["hops"] for route in routes) >= 2
    for route in routes:
        assert route["path"][0]["name"] == "a1"
        closest = min(mesh.ids, key=lambda node, r=route: (ring_distance(node, int(r["key"], 16)), node))
        assert route["path"][-1]["name"] == mesh.names[closest]


@pytest.mark.parametrize("seed", range(1, 6))
def test_with_two_percent_loss_submissions_still_run_and_end(seed: int) -> None:
    mesh = Mesh(seed, 8, network=NetworkConfig(loss=0.02, duplicate=0.01)).build()
    for number in range(4):
        name = f"lossy{number}"
        assert mesh.submit(f"a{number + 1}", pipeline(name, sink_at="a8"), parallelism={"": 3})["state"] == "running"
    for number in range(4):
        mesh.finish(f"lossy{number}", 1)
    mesh.world.run_for(10 * SECOND)
    for number in range(4):
        assert mesh.status("a2", f"lossy{number}")["state"] == "finished"
        assert mesh.hosts(f"lossy{number}") == []


def test_join_key_hash_meets_elsewhere_and_still_ends_at_the_sink() -> None:
    mesh = Mesh(9, 40, join_key="hash").build()
    body = mesh.submit("a1", pipeline(source_at="a3", sink_at="a40"))
    assert body["paths"][0][0] == "a3"
    assert body["paths"][0][-1] == "a40"


def test_slow_starts_do_not_start_twice() -> None:
    """Executors take 10 s: the scheduler repeats its question, the host starts its instances once."""
    mesh = Mesh(2, 5, start_ns=5 * SECOND).build()
    assert mesh.submit("a1", pipeline("slow", sink_at="a2"))["state"] == "running"
    copies = [p.copy for parts in mesh.running.values() for part in parts for p in part.instances]
    assert len(copies) == len(set(copies)) == 5


def test_wall_times_come_from_the_driver() -> None:
    mesh = Mesh(2, 2).build()
    mesh.submit("a1", pipeline("timed"))
    row = mesh.status("a2", "timed")
    assert WALL_MS < row["submitted_ms"] <= row["running_ms"] < WALL_MS + 60_000


def test_the_record_key_is_derived_from_the_name() -> None:
    assert application_key("a") != application_key("b")
