"""Positions of nodes in a latency space: given ones, or Vivaldi coordinates computed from the delays.

Source: [Vivaldi]; spec of placement §5.6.
"""

from agiledart_kernel.coordinates import Coordinate, refined
from agiledart_kernel.instants import MILLISECOND
from agiledart_kernel.randomness import RandomStream
from agiledart_placement.problem.network_view import SpacePosition, estimated_delay_ms
from agiledart_placement.problem.problem import Problem

ROUNDS, PEERS = 60, 8
"""Rounds of the embedding, and nodes that each node measures in a round."""

_ROUND_TRIP_US = 2_000.0
"""Microseconds of a round trip for each ms of one-way delay."""


def positions_of(problem: Problem) -> list[SpacePosition]:
    """Return the place of each node: all given ones, else an embedding of the delays."""
    network = problem.request.network
    given = [network.position(node) for node in problem.nodes] if network is not None else []
    if given and all(position is not None for position in given):
        return [position for position in given if position is not None]
    return embedded(problem)


def embedded(problem: Problem, rounds: int = ROUNDS) -> list[SpacePosition]:
    """Return Vivaldi coordinates with heights: each node refines its own by delays to random nodes, round after round."""
    count, delay = len(problem.nodes), problem.delay
    draw = RandomStream(problem.request.seed, "embedding")
    if count < 2:
        return [SpacePosition((0.0, 0.0, 0.0))] * count
    coordinates = [Coordinate() for _ in range(count)]
    for _ in range(rounds):
        for node in range(count):
            samples = []
            for _ in range(PEERS):
                peer = (node + 1 + draw.index(count - 1)) % count
                rtt_ns = max(1, round((delay[node][peer] + delay[peer][node]) * MILLISECOND))
                samples.append((coordinates[peer], rtt_ns))
            direction = draw.between(-1, 1), draw.between(-1, 1), draw.between(0.1, 1)
            coordinates[node] = refined(coordinates[node], samples, 1, direction)
    return [
        SpacePosition((c.x / _ROUND_TRIP_US, c.y / _ROUND_TRIP_US, c.z / _ROUND_TRIP_US), c.height / _ROUND_TRIP_US)
        for c in coordinates
    ]


def embedding_error_ms(problem: Problem, positions: list[SpacePosition]) -> float:
    """Return the mean absolute error of guessed one-way delays over all pairs, in ms."""
    count = len(positions)
    errors = [
        abs(estimated_delay_ms(positions[a], positions[b]) - problem.delay[a][b])
        for a in range(count)
        for b in range(a)
    ]
    return sum(errors) / len(errors) if errors else 0.0
