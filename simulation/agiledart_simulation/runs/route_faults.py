"""Faults on the paths between two executors: drawn before the run begins, so that a packet's arrival is known when it is sent."""

from typing import Final, NamedTuple

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.randomness import RandomStream
from agiledart_simulation.paths.wires import NEVER, Trouble
from agiledart_simulation.runs.scenario import Scenario

MOMENTARY: Final = ("reset", "replay", "circle")
"""Faults of one instant: the circuit in use breaks, a node shows a ticket again, or asks a relay for a path that it is on.
"""

WHOLE_RUN: Final = ("no-direct", "low-liar", "stalling-liar")
"""Faults of the whole run: the two ends never connect, a relay claims the least possible costs, a relay passes probes only.
"""


class RouteFaults(NamedTuple):
    """Faults of one run.

    Args:
        troubles: of wires and nodes; moments: (instant, kind).
        ends: of the last of them.
        counts: how often each kind was drawn.
        low, stalling: relays that lie; -1: none.
    """

    troubles: tuple[Trouble, ...]
    moments: tuple[tuple[int, str], ...]
    ends: int
    counts: dict[str, int]
    low: int
    stalling: int


def draw_faults(
    scenario: Scenario, nodes: int, pairs: list[tuple[int, int]], begin: int, random: RandomStream
) -> RouteFaults:
    """Draw the faults of a run. Node 0 sends to the last one; `pairs` are joined, each in both orders."""
    sink, now = nodes - 1, begin
    troubles: list[Trouble] = []
    moments: list[tuple[int, str]] = []
    counts: dict[str, int] = {}
    passing = [kind for kind in scenario.kinds if kind not in WHOLE_RUN]
    for _ in range(scenario.steps if passing else 0):
        kind = random.choice(passing)
        counts[kind] = counts.get(kind, 0) + 1
        end = now + int(SECOND * random.choice((0.3, 1.0, 4.0, 12.0)) * (0.5 + random.uniform()))
        if kind in MOMENTARY:
            moments.append((now, kind))
        else:
            troubles += [Trouble(trouble, now, end, where) for trouble, where in _places(kind, sink, pairs, random)]
        now += int(scenario.step_ms * MILLISECOND * random.uniform())
    ends = max([now, *(trouble.end for trouble in troubles)])
    relays = list(range(2, sink))  # the first relay is honest: it has a link to every node
    random.shuffle(relays)
    if "no-direct" in scenario.kinds:
        counts["no-direct"] = 1
        troubles += [Trouble("cut", begin + SECOND, NEVER, where) for where in ((0, sink), (sink, 0))]
    low = stalling = -1
    if "low-liar" in scenario.kinds and relays:
        low, counts["low-liar"] = relays.pop(), 1
    if "stalling-liar" in scenario.kinds and relays:
        stalling, counts["stalling-liar"] = relays.pop(), 1
    return RouteFaults(tuple(troubles), tuple(moments), ends, counts, low, stalling)


def _places(
    kind: str, sink: int, pairs: list[tuple[int, int]], random: RandomStream
) -> list[tuple[str, tuple[int, ...]]]:
    """Return the nodes and wires that one kind affects."""
    first, second = random.choice(pairs)
    relay = 1 + random.index(sink - 1)
    direct = [(0, sink), (sink, 0)]
    places: dict[str, list[tuple[str, tuple[int, ...]]]] = {
        "cut": [("cut", where) for where in direct],
        "cut-there": [("cut", direct[0])],
        "cut-back": [("cut", direct[1])],
        "cut-any": [("cut", (first, second)), ("cut", (second, first))],
        "cut-all": [("cut", where) for pair in pairs if sink in pair for where in (pair, pair[::-1])],
        "loss": [("loss", where) for where in direct],
        "loss-any": [("loss", (first, second)), ("loss", (second, first))],
        "kill-relay": [("dead", (relay,))],
        "freeze-relay": [("asleep", (relay,))],
        "hold-receiver": [("asleep", (sink,))],
        "hold-sender": [("asleep", (0,))],
        "slow-operator": [("slow", (sink,))],
        "untold": [("untold", (relay,))],
    }
    return places[kind]
