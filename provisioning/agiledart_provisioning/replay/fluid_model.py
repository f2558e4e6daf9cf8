"""Fluid model of a workload: items flow in steps of a second, queues are levels, waiting times follow from them."""

from collections.abc import Mapping
from math import inf
from statistics import NormalDist

from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.replay.replay_workload import CONCURRENCY, ReplayWorkload
from agiledart_provisioning.replay.service_levels import NOISE, ServiceLevels

_NORMAL = NormalDist(0.0, NOISE)


def noise(random: RandomStream) -> float:
    """Return a factor on a service time: lognormal, median 1."""
    return float(2.718281828459045 ** _NORMAL.inv_cdf(min(1.0 - 1e-12, max(1e-12, random.uniform()))))


class FluidModel:
    """Queues of all types. `levels` counts items when they arrive, with the time that they will wait."""

    def __init__(self, workload: ReplayWorkload, random: RandomStream) -> None:
        self._workload, self._random = workload, random
        self._queues = {entry.name: 0.0 for entry in workload.types}
        self._waits_ms = dict.fromkeys(self._queues, 0.0)
        self._rates = dict.fromkeys(self._queues, 0.0)
        self.levels = ServiceLevels()

    def step(self, second: int, running: Mapping[str, int]) -> None:
        """Advance by one second with these numbers of serving instances."""
        inflow = {name: self._workload.arriving(name, second) for name in self._queues}
        for entry in self._workload.types:
            name = entry.name
            capacity = running.get(name, 0) * CONCURRENCY * 1_000.0 / entry.slo_ms
            before, arrived = self._queues[name], inflow[name]
            self._rates[name] = arrived
            served = min(before + arrived, capacity)
            left = before + arrived - served
            self._queues[name] = left
            middle = max(0.0, (before + left) / 2.0)
            wait_ms = inf if not capacity and middle else middle / capacity * 1_000.0 if capacity else 0.0
            self._waits_ms[name] = wait_ms
            if arrived:
                self.levels.add(entry, arrived, wait_ms)
            for edge in self._workload.edges:
                if edge.source == name:
                    inflow[edge.target] += served * edge.items

    def queue(self, name: str) -> float:
        """Return the items of a type that wait."""
        return self._queues[name]

    def duration(self, name: str) -> float | None:
        """Return the milliseconds that one item of a type takes now, with the noise of its service; None: it is not served."""
        wait = self._waits_ms[name]
        if wait == inf:
            return None
        entry = next(entry for entry in self._workload.types if entry.name == name)
        return wait + entry.slo_ms * noise(self._random)

    def wait_ms(self, name: str) -> float:
        """Return the milliseconds that an item of a type waits before it is served."""
        return self._waits_ms[name]

    def rate(self, name: str) -> float:
        """Return the items of a type that arrived in the last second."""
        return self._rates[name]
