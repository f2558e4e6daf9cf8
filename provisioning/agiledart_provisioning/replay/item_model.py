"""Item model of a workload: bursts of single items, servers that take one item each, first come, first served."""

from collections import defaultdict, deque
from collections.abc import Mapping
from heapq import heappop, heappush, heapreplace

from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.replay.fluid_model import noise
from agiledart_provisioning.replay.replay_workload import CONCURRENCY, TICK_S, ReplayWorkload
from agiledart_provisioning.replay.service_levels import ServiceLevels


class ItemModel:
    """Queues and servers of all types. Each instance is `CONCURRENCY` servers; a stopped one finishes the item that it serves."""

    def __init__(self, workload: ReplayWorkload, random: RandomStream) -> None:
        self._workload, self._random = workload, random
        self._waiting: dict[str, deque[float]] = {entry.name: deque() for entry in workload.types}
        self._free: dict[str, list[float]] = {entry.name: [] for entry in workload.types}
        self._arriving: dict[str, defaultdict[int, list[float]]] = {
            entry.name: defaultdict(list) for entry in workload.types
        }
        self._owed: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._taken_ms: dict[str, float] = {}
        self._waits_ms = dict.fromkeys(self._waiting, 0.0)
        self._ticks = 0
        self._fractions: defaultdict[str, float] = defaultdict(float)
        self._arrived = dict.fromkeys(self._waiting, 0)
        self.levels = ServiceLevels()

    def step(self, second: int, running: Mapping[str, int]) -> None:
        """Advance by one second with these numbers of serving instances."""
        self._emit(second)
        for entry in self._workload.types:
            name = entry.name
            self._set_servers(name, running.get(name, 0) * CONCURRENCY, float(second))
            queue, free = self._waiting[name], self._free[name]
            arrived_now = sorted(self._arriving[name].pop(second, ()))
            self._arrived[name] = len(arrived_now)
            queue.extend(arrived_now)
            while queue and free and max(queue[0], free[0]) < second + 1:
                arrived = queue.popleft()
                begins = max(arrived, free[0])
                ends = begins + entry.slo_ms / 1_000.0 * noise(self._random)
                heapreplace(free, ends)
                taken = (ends - arrived) * 1_000.0
                self._taken_ms[name], self._waits_ms[name] = taken, (begins - arrived) * 1_000.0
                self.levels.add_item(entry, taken)
                self._pass_on(name, ends)

    def _emit(self, second: int) -> None:
        """Add the items that machines send in this second; a burst every `TICK_S` seconds."""
        if self._workload.rate is not None:
            for name in self._waiting:
                self._fractions[name] += self._workload.rate(name, second)
                number, self._fractions[name] = int(self._fractions[name]), self._fractions[name] % 1.0
                self._arriving[name][second] += [second + index / number for index in range(number)]
            return
        while (at := self._ticks * TICK_S) < second + 1:
            self._ticks += 1
            machines = self._workload.machines_at(second)
            for name, items in self._workload.sources.items():
                self._arriving[name][int(at)] += [at] * round(items * machines)

    def _set_servers(self, name: str, number: int, now: float) -> None:
        """Add servers that are free now, or remove those that are free first."""
        free = self._free[name]
        while len(free) < number:
            heappush(free, now)
        while len(free) > number:
            heappop(free)

    def _pass_on(self, name: str, at: float) -> None:
        for edge in self._workload.edges:
            if edge.source == name:
                self._owed[name, edge.target] += edge.items
                while self._owed[name, edge.target] >= 1.0 - 1e-9:
                    self._owed[name, edge.target] -= 1.0
                    self._arriving[edge.target][int(at)].append(at)

    def queue(self, name: str) -> float:
        """Return the items of a type that wait."""
        return float(len(self._waiting[name]))

    def duration(self, name: str) -> float | None:
        """Return the milliseconds that the last served item of a type took; None: none was served."""
        return self._taken_ms.get(name)

    def wait_ms(self, name: str) -> float:
        """Return the milliseconds that the last served item of a type waited."""
        return self._waits_ms[name]

    def rate(self, name: str) -> float:
        """Return the items of a type that arrived in the last second."""
        return float(self._arrived[name])
