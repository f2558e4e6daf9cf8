"""MOPA at single hosts: points that instances reach by messages, and walks to the nodes nearest to a point."""

from itertools import count

import pytest

from agiledart_placement.latency_space.mopa_instance import (
    HOLD_NS,
    LEAST_INTERVAL_NS,
    MopaInstance,
    NeighbourLink,
    PositionNews,
)
from agiledart_placement.latency_space.nearest_walk import ACQUAINTANCES, MAX_QUESTIONS, NearestWalk, near_acquaintances
from agiledart_placement.latency_space.points import Point
from agiledart_placement.problem.network_view import SpacePosition

Name = tuple[int, ...]
A: Name = (1,)
B: Name = (2,)
C: Name = (3,)
D: Name = (4,)


def instance(name: Name, at: Point, links: dict[Name, tuple[float, bool, Point]]) -> MopaInstance[Name]:
    """Return an instance; links: neighbour → (rate, whether it may move, its point)."""
    made = {other: NeighbourLink[Name](rate, free, point) for other, (rate, free, point) in links.items()}
    return MopaInstance(name, at, made)


def react(machines: dict[Name, MopaInstance[Name]], rounds: int = 40) -> int:
    """Let machines react in turn, a hold apart, until no message is sent; return the number of messages."""
    messages = 0
    for turn in range(rounds):
        for name, machine in machines.items():
            now = (turn + 1) * 2 * HOLD_NS
            for other, news in machine.step(now).items():
                machines[other].received(name, news, now)
                messages += 1
    return messages


def test_one_instance_takes_the_weber_point_of_its_neighbours() -> None:
    pinned = {B: (1.0, False, (0.0, 0.0, 0.0)), C: (1.0, False, (4.0, 0.0, 0.0)), D: (1.0, False, (0.0, 3.0, 0.0))}
    machine = instance(A, (9.0, 9.0, 0.0), pinned)
    assert machine.step(0) == {}  # pinned neighbours hear nothing
    assert machine.at == pytest.approx((0.695, 0.751, 0.0), abs=1e-3)


def test_two_instances_at_one_point_move_as_one() -> None:
    """Point P4 of the specification: no single move gains, both together do."""
    origin = (0.0, 0.0, 0.0)
    a = instance(A, origin, {B: (10.0, True, origin), C: (1.0, False, (1.0, 0.0, 0.0))})
    b = instance(B, origin, {A: (10.0, True, origin), D: (1.0, False, (1.0, 0.5, 0.0))})
    react({A: a, B: b})
    assert a.at == pytest.approx(b.at, abs=1e-6)
    usage = 10 * 0 + ((a.at[0] - 1) ** 2 + a.at[1] ** 2) ** 0.5 + ((b.at[0] - 1) ** 2 + (b.at[1] - 0.5) ** 2) ** 0.5
    assert usage == pytest.approx(0.5, abs=1e-3)


def test_neighbours_that_attract_each_other_do_not_swap_places_for_ever() -> None:
    ends = {C: (1.0, False, (0.0, 0.0, 0.0))}, {D: (1.0, False, (50.0, 0.0, 0.0))}
    a = instance(A, (0.0, 0.0, 0.0), {B: (10.0, True, (50.0, 0.0, 0.0)), **ends[0]})
    b = instance(B, (50.0, 0.0, 0.0), {A: (10.0, True, (0.0, 0.0, 0.0)), **ends[1]})
    sent = 0
    machines = {A: a, B: b}
    for turn in count():  # both react at once, on what the other said before
        news = {name: machine.step(turn * LEAST_INTERVAL_NS) for name, machine in machines.items()}
        sent += sum(map(len, news.values()))
        for name, messages in news.items():
            for other, message in messages.items():
                machines[other].received(name, message, turn * LEAST_INTERVAL_NS)
        if turn > 20 and not any(news.values()):
            break
        assert turn < 60, "they swap places"
    assert a.at == b.at
    assert sent <= 8


def test_neighbours_get_moves_only_and_at_most_every_two_seconds() -> None:
    machine = instance(A, (0.0, 0.0, 0.0), {B: (1.0, True, (0.0, 0.0, 0.0)), C: (5.0, False, (10.0, 0.0, 0.0))})
    assert machine.step(0)[B].at == (10.0, 0.0, 0.0)
    machine.links[C].at = (20.0, 0.0, 0.0)
    machine.received(B, PositionNews((0.0, 0.0, 0.0), {}), 1)
    assert machine.step(1) == {}
    assert machine.next_step() == LEAST_INTERVAL_NS
    assert machine.step(LEAST_INTERVAL_NS)[B].at == (20.0, 0.0, 0.0)
    machine.links[C].at = (20.5, 0.0, 0.0)
    machine.received(B, PositionNews((0.0, 0.0, 0.0), {}), LEAST_INTERVAL_NS)
    assert machine.step(9 * LEAST_INTERVAL_NS) == {}  # less than a millisecond


def test_a_rate_counts_when_its_average_has_changed_by_a_tenth() -> None:
    machine = instance(A, (0.0, 0.0, 0.0), {B: (10.0, False, (1.0, 0.0, 0.0))})
    machine.rate_measured(B, 10.0)
    machine.rate_measured(B, 12.0)  # average 10.6
    assert machine.links[B].rate == 10.0
    machine.rate_measured(B, 20.0)  # average 13.42
    assert machine.links[B].rate == pytest.approx(13.42)


def line(number: int) -> SpacePosition:
    return SpacePosition((float(number), 0.0, 0.0))


def test_a_walk_finds_the_nearest_nodes_with_few_questions() -> None:
    known = {node: {other: line(other) for other in range(node - 20, node + 21)} for node in range(-100, 400)}
    walk = NearestWalk((300.2, 0.0, 0.0), {node: line(node) for node in (0, 10, 250)})
    while (node := walk.question()) is not None:
        walk.answered(node, near_acquaintances((300.2, 0.0, 0.0), known[node]))
    assert walk.best(3) == (300, 301, 299)
    assert len(walk.best()) == ACQUAINTANCES
    assert walk.questions <= 8


def test_a_walk_passes_over_dead_nodes_and_ends_after_twelve_questions() -> None:
    walk = NearestWalk((0.0, 0.0, 0.0), {node: line(node) for node in range(1, 40)})
    asked = []
    while (node := walk.question()) is not None:
        asked.append(node)
        walk.failed(node)
    assert asked == list(range(1, MAX_QUESTIONS + 1))
    assert walk.best(1) == (13,)
