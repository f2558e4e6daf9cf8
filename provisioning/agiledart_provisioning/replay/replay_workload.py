"""Workloads of replays: types of operators, how items pass between them, and how many arrive each second.

The manufacturing topology and its arrival patterns: [Hochreiner 2017] §5.1, tables 1 and 2.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.state import MachineOffer, OperatorType

CONCURRENCY = 3
"""Items that an instance serves at once. The printed durations include messaging and cannot be serial service times."""

TICK_S = 0.48
"""Seconds between two bursts; each holds a simulated minute of every machine's items."""

MINUTES = 120
"""Length of the published runs."""


@dataclass(frozen=True, slots=True)
class ItemFlow:
    """Items pass from one type to another: `items` arrive at the target for each item that the source has finished."""

    source: str
    target: str
    items: float


@dataclass(frozen=True, slots=True)
class ReplayWorkload:
    """Load of a replay: its types and the items that they receive.

    Attributes:
        types: in topological order.
        edges: between them.
        sources: type → items that one machine sends it in a burst.
        machines: for each minute, the number of machines that send; for a load file, one machine.
        rate: items that a type receives from outside in a second, instead of machines; None: machines send.
        seconds: length of the replay.
    """

    types: tuple[OperatorType, ...]
    edges: tuple[ItemFlow, ...]
    sources: Mapping[str, float]
    machines: tuple[int, ...]
    seconds: int
    rate: Callable[[str, int], float] | None = None

    def machines_at(self, second: int) -> int:
        """Return the number of machines that send at a second."""
        return self.machines[min(second // 60, len(self.machines) - 1)]

    def arriving(self, name: str, second: int) -> float:
        """Return the items that a type receives from outside in a second."""
        if self.rate is not None:
            return self.rate(name, second)
        return self.sources.get(name, 0.0) * self.machines_at(second) / TICK_S


_DURATION_CPU_MEMORY_IMAGE = {
    "O2": (600, 131, 524, 68), "O1": (1500, 660, 452, 89), "O6": (600, 65, 440, 68),
    "O3": (750, 100, 430, 68), "O4": (750, 83, 502, 68), "O5": (750, 77, 527, 68),
    "O7": (700, 46, 464, 68), "O9": (1300, 47, 452, 70), "O8": (500, 74, 466, 68),
}  # fmt: skip
"""Type → milliseconds, shares, MB of memory, MB of image, in topological order. Source: [Hochreiner 2017] table 1."""

_EDGES = (
    ItemFlow("O2", "O8", 1 / 50), ItemFlow("O1", "O3", 1), ItemFlow("O1", "O4", 1),
    ItemFlow("O1", "O5", 1), ItemFlow("O3", "O7", 1),
    ItemFlow("O4", "O7", 1), ItemFlow("O5", "O7", 1), ItemFlow("O7", "O9", 1 / 3), ItemFlow("O9", "O8", 1 / 300),
    ItemFlow("O6", "O8", 1 / 100),
)  # fmt: skip

_SOURCES = {"O2": 5.0, "O1": 1.0, "O6": 10.0}
"""Type → items of one machine in a simulated minute. Source: [Hochreiner 2017] table 2."""

VM = MachineOffer(4096, 7168, 1.0)
"""Host of the published runs; a billing time unit of 10 minutes costs 1."""

_WALK_1 = (
    "445655555456677654456765456667677655433445566654556677777666"
    "555545445543433332333322122233223433332333333332111111111233"
)
_WALK_2 = (
    "433211111111111221111122222111112222222344455665665456667877"
    "778888888765678888888888776654445677888887666654455554444321"
)


def manufacturing_types() -> tuple[OperatorType, ...]:
    """Return the nine types; the expected duration is the printed one."""
    return tuple(
        OperatorType(name, cpu, memory, image, float(duration))
        for name, (duration, cpu, memory, image) in _DURATION_CPU_MEMORY_IMAGE.items()
    )


def items_per_machine_and_tick() -> float:
    """Return the items that all types process for one burst of one machine."""
    inflow = {name: _SOURCES.get(name, 0.0) for name in _DURATION_CPU_MEMORY_IMAGE}
    for name in inflow:
        for edge in _EDGES:
            if edge.source == name:
                inflow[edge.target] += inflow[name] * edge.items
    return sum(inflow.values())


def stepwise(levels: tuple[int, int, int]) -> tuple[int, ...]:
    """Return low, middle, high, middle, … machines, four minutes each."""
    low, middle, high = levels
    cycle = (low, middle, high, middle)
    return tuple(cycle[minute // 4 % 4] for minute in range(MINUTES))


def two_level(levels: tuple[int, int]) -> tuple[int, ...]:
    """Return low, high, … machines, eight minutes each."""
    return tuple(levels[minute // 8 % 2] for minute in range(MINUTES))


def random_walk(random: RandomStream) -> tuple[int, ...]:
    """Return a walk of equation 6: it starts at 4 and stays within 1 to 8; steps are -1, 0 and +1 for 40, 20 and 40 %."""
    machines, now = [], 4
    for _ in range(MINUTES):
        machines.append(now)
        drawn = random.uniform()
        now = min(8, max(1, now + (-1 if drawn < 0.4 else 1 if drawn > 0.6 else 0)))
    return tuple(machines)


PATTERNS: Mapping[str, tuple[int, ...]] = {
    "stepwise": stepwise((2, 4, 6)),
    "two_level": two_level((2, 6)),
    "random_walk_1": tuple(int(digit) for digit in _WALK_1),
    "random_walk_2": tuple(int(digit) for digit in _WALK_2),
}
"""Pattern → machines in each minute.

Departs: the text says two to eight machines. The published penalties imply a mean of four for the first two, so their levels are
2, 4, 6 and 2, 6. The walks are those that the authors published.
"""


def manufacturing(pattern: str) -> ReplayWorkload:
    """Return the published workload with one of the four patterns."""
    return ReplayWorkload(manufacturing_types(), _EDGES, _SOURCES, PATTERNS[pattern], MINUTES * 60)
