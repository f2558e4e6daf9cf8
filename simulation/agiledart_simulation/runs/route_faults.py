"""What goes wrong on the way between two executors: drawn before the run begins, so that packets know when they will come."""

from typing import Final, NamedTuple

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.randomness import RandomStream
from agiledart_simulation.paths.wires import NEVER, Trouble
from agiledart_simulation.runs.scenario import Scenario

MOMENTARY: Final = ("reset", "replay", "circle")
"""Happen at one instant: the circuit in use breaks, somebody shows a ticket again, or asks a relay for a way that it is on."""

WHOLE_RUN: Final = ("no-direct", "low-liar", "stalling-liar")
"""Hold for the whole run: the two ends never meet, a relay claims the least costs that there can be, one passes probes alone."""


class RouteFaults(NamedTuple):
    """All of one run.

    Args:
        troubles: of wires and nodes; moments: what happens when.
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
    """Node 0 sends to the last one; `pairs` are joined, each in both orders."""
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
            troubles += [Trouble(what, now, end, where) for what, where in _places(kind, sink, pairs, random)]
        now += int(scenario.step_ms * MILLISECOND * random.uniform())
    ends = max([now, *(trouble.end for trouble in troubles)])
    relays = list(range(2, sink))  # the first one is honest: it has a link to everybody
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
    """Which machines and wires one kind means."""
    one, other = random.choice(pairs)
    relay = 1 + random.index(sink - 1)
    direct = [(0, sink), (sink, 0)]
    places: dict[str, list[tuple[str, tuple[int, ...]]]] = {
        "cut": [("cut", where) for where in direct],
        "cut-there": [("cut", direct[0])],
        "cut-back": [("cut", direct[1])],
        "cut-any": [("cut", (one, other)), ("cut", (other, one))],
        "cut-all": [("cut", where) for pair in pairs if sink in pair for where in (pair, pair[::-1])],
        "loss": [("loss", where) for where in direct],
        "loss-any": [("loss", (one, other)), ("loss", (other, one))],
        "kill-relay": [("dead", (relay,))],
        "freeze-relay": [("asleep", (relay,))],
        "hold-receiver": [("asleep", (sink,))],
        "hold-sender": [("asleep", (0,))],
        "slow-operator": [("slow", (sink,))],
        "untold": [("untold", (relay,))],
    }
    return places[kind]
