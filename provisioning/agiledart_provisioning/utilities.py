"""Equation 1 and algorithms 1 to 3: the cost of a state, the trigger to scale up, and the utilities of hosts and types.

Source: [Hochreiner 2017] §4.
"""

from dataclasses import dataclass

from agiledart_provisioning.provisioning_settings import DURATIONS_KEPT, ProvisioningSettings
from agiledart_provisioning.state import Host, OperatorType, ProvisioningState

INFEASIBLE = -1.0
"""Utility of a host without capacity, and of a type that must not be scaled down."""


def cost(state: ProvisioningState, settings: ProvisioningSettings) -> float:
    """Return the cost of a state, without unit: price of the hosts, idle shares of CPU and memory, penalties.

    Source: [Hochreiner 2017] equation 1.

    Departs: the printed third term subtracts the host's memory for each instance; the instance's memory is meant. Hosts of
    different price enter with their own price.
    """
    cpu, memory = sum(host.cpu for host in state.hosts), sum(host.memory for host in state.hosts)
    idle_cpu = sum(state.free_cpu(host) for host in state.hosts) / cpu if cpu else 0.0
    idle_memory = sum(state.free_memory(host) for host in state.hosts) / memory if memory else 0.0
    return sum(host.cost for host in state.hosts) + idle_cpu + idle_memory + settings.penalty * state.violations


@dataclass(frozen=True, slots=True)
class UpTrigger:
    """Answer of algorithm 1 for one type.

    Attributes:
        fires: whether another instance is needed.
        prediction_ms: duration that the trend predicts for the next item; None without a trend.
    """

    fires: bool
    prediction_ms: float | None


def predicted_duration(durations: tuple[float, ...]) -> float | None:
    """Return the next duration by linear regression over the last ones, oldest first; None for fewer than two.

    Departs: the paper stores the newest duration first, but predicts at index N + 1; that would extrapolate into the past.
    """
    recent = durations[-DURATIONS_KEPT:]
    number = len(recent)
    if number < 2:
        return None
    middle, mean = (number + 1) / 2, sum(recent) / number
    spread = sum((i - middle) ** 2 for i in range(1, number + 1))
    slope = sum((i - middle) * (duration - mean) for i, duration in enumerate(recent, 1)) / spread
    return mean - slope * middle + slope * (number + 1)


def up_trigger(entry: OperatorType, settings: ProvisioningSettings) -> UpTrigger:
    """Return whether a type needs another instance: it is or will be too slow, and its queue is long.

    A type without a measured duration fires by its queue alone, above five thresholds.

    Source: [Hochreiner 2017] algorithm 1.
    """
    prediction = predicted_duration(entry.durations_ms)
    if entry.duration_ms is None:
        return UpTrigger(entry.queue > settings.double_threshold, prediction)
    slow = entry.duration_ms > entry.slo_ms or (prediction is not None and prediction > entry.slo_ms)
    return UpTrigger(slow and entry.queue > settings.scaling_threshold, prediction)


def host_utility(state: ProvisioningState, host: Host, entry: OperatorType, settings: ProvisioningSettings) -> float:
    """Return how well a type suits a host: lower is better, 0 is a perfect balance, -1 means that capacity is lacking.

    Source: [Hochreiner 2017] algorithm 2.

    Departs: line 10 tests an undefined s; the type's image is meant. The text calls a negative value feasible; it is not.
    """
    free_cpu, free_memory = state.free_cpu(host), state.free_memory(host)
    fitting = min(free_cpu / entry.cpu, free_memory / entry.memory)
    if fitting < 1.0:
        return INFEASIBLE
    difference = abs((free_cpu - entry.cpu) / host.cpu - (free_memory - entry.memory) / host.memory)
    return difference / fitting * (settings.cf if entry.name in host.images else 1.0)


def best_host(
    state: ProvisioningState,
    entry: OperatorType,
    settings: ProvisioningSettings,
    *,
    excluded: str = "",
    running: bool = True,
) -> Host | None:
    """Return the feasible host of least utility, among running ones or among starting ones; None: there is none.

    Ties: hosts with the image first, then those with the fewest instances, then by name.
    """
    candidates = []
    for host in state.hosts:
        if host.name == excluded or host.is_running is not running:
            continue
        utility = host_utility(state, host, entry, settings)
        if utility >= 0.0:
            total = sum(host.instances.values())
            candidates.append((utility, entry.name not in host.images, total, host.name, host))
    return min(candidates, key=lambda candidate: candidate[:4])[4] if candidates else None


def down_utility(state: ProvisioningState, entry: OperatorType, settings: ProvisioningSettings) -> float:
    """Return how well a type can lose an instance: higher is better; negative: it must not.

    Source: [Hochreiner 2017] algorithm 3.
    """
    own = state.instances_of(entry.name)
    if own < 2:
        return INFEASIBLE
    numbers = [state.instances_of(other.name) for other in state.types]
    least, most = min(numbers), max(numbers)
    instances = (own - least) / (most - least) if most > least else 0.0
    delay = (entry.duration_ms or 0.0) / entry.slo_ms * (1.0 + settings.penalty)
    every = sum(other.scalings for other in state.types)
    scalings = entry.scalings / every if every else 0.0
    queue_load = settings.ql if entry.queue < 1.0 else 0.0
    return 1.0 + settings.w1 * instances + settings.w2 * queue_load - settings.w3 * delay - settings.w4 * scalings
