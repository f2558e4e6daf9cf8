"""Each overlay scenario in both worlds: in the simulator, and on real sockets. Whatever a scenario finds must be the same."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from agiledart_kernel.node_id import ID_BITS, NodeId, key_of_name
from agiledart_overlay.wire.effects import Delivered, LeaveCompleted, RecordAnswer
from agiledart_simulation.checkers.leaf_sets import leaf_violations, stale_violations
from agiledart_simulation.checkers.periodic_checks import machine_violations
from agiledart_simulation.checkers.routing import root_of, route_violations
from tests.conformance.overlay_beds import Bed, DirectBed, SimulatedBed, id_of, leave, read, route, store

NODES = 6
KEYS = [key_of_name("conformance", str(number)) for number in range(12)]
BEDS: dict[str, Callable[[], Bed]] = {"simulated": SimulatedBed, "direct": DirectBed}

Scenario = Callable[[Bed], Awaitable[object]]


def violations(bed: Bed) -> list[str]:
    """Faults of the ring of all nodes that are up."""
    machines = [bed.machine(number) for number in bed.up]
    if not all(machine.joined for machine in machines):
        return ["not everybody is a member"]
    lives = {machine.me.node: machine.me.incarnation for machine in machines}
    sources = [machines[index % len(machines)].me.node for index in range(len(KEYS))]
    return [
        *leaf_violations(machines, 24),
        *machine_violations(machines),
        *stale_violations(machines, lives),
        *route_violations(machines, KEYS, sources, ID_BITS, 4),
    ]


async def formed(bed: Bed, count: int = NODES, seconds: float = 20) -> None:
    """A ring of nodes that start one right after the other."""
    for number in range(count):
        await bed.start(number, *range(min(number, 2)))
    await right(bed, seconds)


async def right(bed: Bed, seconds: float) -> None:
    """Everything is right within so many seconds."""
    assert await bed.until(lambda: not violations(bed), seconds), violations(bed)


def leaves(bed: Bed) -> dict[int, list[str]]:
    """Everybody's leaf set."""
    return {number: sorted(peer.node.short for peer in bed.machine(number).leaf_set.members) for number in bed.up}


async def answer(bed: Bed, number: int, request: int) -> RecordAnswer:
    """The answer to a request about a record."""

    def found() -> list[RecordAnswer]:
        return [
            effect
            for at, effect in bed.effects
            if at == number and isinstance(effect, RecordAnswer) and effect.request == request
        ]

    assert await bed.until(lambda: bool(found()), 15)
    return found()[0]


async def forms_a_ring(bed: Bed) -> object:
    await formed(bed)
    return leaves(bed)


async def looks_up(bed: Bed) -> object:
    """Look-ups end, once, at the node closest to their key."""
    await formed(bed)
    for index, key in enumerate(KEYS):
        route(bed, index % NODES, key, b"%d" % index)

    def delivered() -> list[tuple[bytes, int]]:
        return sorted((effect.payload, at) for at, effect in bed.effects if isinstance(effect, Delivered))

    assert await bed.until(lambda: len(delivered()) == len(KEYS), 10)
    roots = [root_of([id_of(number) for number in bed.up], key, ID_BITS) for key in KEYS]
    assert {int(payload): id_of(at) for payload, at in delivered()} == dict(enumerate(roots))
    return delivered()


async def keeps_records(bed: Bed) -> object:
    """Written at one node, read at another, written again by compare-and-set; kept when their root dies."""
    await formed(bed)
    key = KEYS[0]
    root = next(number for number in bed.up if id_of(number) == root_of([id_of(n) for n in bed.up], key, ID_BITS))
    first, second = [number for number in bed.up if number != root][:2]
    seen = []
    store(bed, first, 1, key, 0, b"gold")
    seen.append(await answer(bed, first, 1))
    store(bed, second, 1, key, 0, b"lead")
    seen.append(await answer(bed, second, 1))
    store(bed, second, 2, key, 1, b"silver")
    seen.append(await answer(bed, second, 2))
    await bed.kill(root)
    await right(bed, 15)
    read(bed, first, 2, key)
    seen.append(await answer(bed, first, 2))
    facts = [(each.ok, each.version, each.value, each.reason) for each in seen]
    assert facts == [(True, 1, b"", ""), (False, 1, b"gold", "conflict"), (True, 2, b"", ""), (True, 2, b"silver", "")]
    return facts


async def a_node_leaves(bed: Bed) -> object:
    await formed(bed)
    leave(bed, 3)
    assert await bed.until(lambda: any(isinstance(effect, LeaveCompleted) for _, effect in bed.effects), 10)
    await bed.kill(3)
    await right(bed, 15)
    return leaves(bed)


async def a_node_is_killed_and_comes_back(bed: Bed) -> object:
    await formed(bed)
    await bed.kill(2)
    await right(bed, 10)
    without = leaves(bed)
    await bed.start(2, 4)
    await right(bed, 15)
    assert bed.machine(2).me.incarnation == 2
    return without, leaves(bed)


async def all_start_at_once(bed: Bed) -> object:
    """One ring forms although no node is in a ring yet."""
    await bed.start(0)
    for number in range(1, NODES):
        await bed.start(number, 0)
    await right(bed, 30)
    return leaves(bed)


SCENARIOS: list[Scenario] = [
    forms_a_ring,
    looks_up,
    keeps_records,
    a_node_leaves,
    a_node_is_killed_and_comes_back,
    all_start_at_once,
]


def play(scenario: Scenario, make: Callable[[], Bed]) -> object:
    """Run a scenario in a world of its own."""

    async def run() -> object:
        bed = make()
        try:
            return await scenario(bed)
        finally:
            await bed.close()

    return asyncio.run(run())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_simulation_and_transport_agree(scenario: Scenario) -> None:
    outcomes = {name: play(scenario, make) for name, make in BEDS.items()}
    assert outcomes["simulated"] == outcomes["direct"]


def test_ids_are_derived_from_the_keys() -> None:
    assert len({id_of(number) for number in range(NODES)}) == NODES
    assert all(isinstance(id_of(number), NodeId) for number in range(NODES))
