"""How busy a node says that it is."""

from typing import Any

import msgspec

from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Completed
from agiledart_node.wire.commands import Stop
from agiledart_node.wire.effects import StartInstances
from agiledart_node.wire.events import InstanceFinished, InstanceReported
from agiledart_node.wire.formation_messages import Deploy, Halt
from tests.simulation.mesh import Mesh, pipeline
from tests.unit.node.test_node import SCHEDULER, Bench, part


def load(bench: Bench) -> int:
    return bench.node.overlay._view.distances.vitals.load_permille


def start(bench: Bench, instances: int) -> None:
    bench.hear(SCHEDULER, Deploy(1, part(copies=instances, planned=instances)))
    (effect,) = bench.of(StartInstances)
    bench.feed(Completed(effect.request, {(0, index): f"host:{index}" for index in range(instances)}))
    bench.take()


def say(bench: Bench, index: int, busy_s: float, after_s: float = 1.0, **event: Any) -> None:
    bench.now += int(after_s * SECOND) - 1_000_000  # `feed` adds a millisecond
    kind = event.pop("kind", InstanceReported)
    bench.feed(kind("app", 1, 0, index, {"busy_ns": int(busy_s * SECOND)}))


def test_capacity_is_taken_from_the_plan_on_and_released() -> None:
    bench = Bench(capacity=10)
    assert load(bench) == 0
    bench.hear(SCHEDULER, Deploy(1, part(copies=3, planned=3)))
    assert load(bench) == 300
    bench.hear(SCHEDULER, Halt(2, "app", 1, "enough"))
    assert load(bench) == 0


def test_busy_instances_are_counted_by_available_cores() -> None:
    bench = Bench(cores=4)
    start(bench, 2)
    assert load(bench) == 1_000 * 2 // 64
    say(bench, 0, 10.0)
    assert load(bench) == 1_000 * 2 // 64, "one report alone says nothing of how busy it is"
    say(bench, 0, 11.0)
    assert load(bench) == 250
    say(bench, 1, 5.0)
    say(bench, 1, 5.4)
    assert load(bench) == 350
    say(bench, 0, 99.0)
    assert load(bench) <= 350, "an instance uses one core at the most"
    say(bench, 1, 0.1)
    assert load(bench) == 250, "a count that went back counts as nothing"


def test_small_load_changes_are_not_reported() -> None:
    bench = Bench(capacity=64)
    start(bench, 1)
    say(bench, 0, 0.0)
    say(bench, 0, 0.5)
    told = load(bench)
    assert told == 500
    say(bench, 0, 1.03)
    assert load(bench) == told
    say(bench, 0, 1.03)
    assert load(bench) == 1_000 // 64


def test_a_finished_instance_is_not_busy() -> None:
    bench = Bench()
    start(bench, 1)
    say(bench, 0, 0.0)
    say(bench, 0, 1.0)
    assert load(bench) == 1_000
    say(bench, 0, 2.0, kind=InstanceFinished)
    assert load(bench) == 1_000 // 64


def test_load_reports_of_unknown_nodes_are_ignored() -> None:
    bench = Bench()
    for busy in (0, 1):
        bench.now += SECOND
        bench.feed(InstanceReported("app", 1, 0, 0, {"busy_ns": busy * SECOND}))
    assert load(bench) == 0


def test_load_travels_with_probes_and_expires() -> None:
    mesh = Mesh(1, 4, capacity=8).build()
    body = mesh.submit("a1", pipeline("app", source_at="a2", sink_at="a3"))
    mesh.world.run_for(5 * SECOND)
    host = body["placement"]["report"][0]

    def heard() -> list[int]:
        machines = [node.machine.overlay._view for node in mesh.world.live if node.peer.name != host]
        vitals = [view.book.alive[mesh.node(host)].vitals for view in machines]
        return [each.load_permille for each in vitals if each is not None]

    loads = heard()
    assert len(loads) == 3
    assert all(told >= 125 for told in loads), loads
    mesh.answer(mesh.ask("a4", Stop("app", True)))
    mesh.world.run_for(5 * SECOND)
    assert heard() == [0, 0, 0]
    assert msgspec.structs.asdict(machine_vitals(mesh, host))["load_permille"] == 0


def machine_vitals(mesh: Mesh, name: str) -> Any:
    return mesh.machine(name).overlay._view.distances.vitals
