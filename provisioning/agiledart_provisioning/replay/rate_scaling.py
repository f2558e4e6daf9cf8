"""Stand-in for scaling and placement in replays of policies that lease hosts only: instances follow the arriving rate."""

from collections.abc import Mapping
from math import ceil

from agiledart_provisioning.actions import Action, ActionKind, Round
from agiledart_provisioning.provisioning_settings import ProvisioningSettings
from agiledart_provisioning.replay.replay_workload import CONCURRENCY
from agiledart_provisioning.state import ProvisioningState
from agiledart_provisioning.utilities import best_host

TARGET = 0.8
"""Utilisation of its instances that a type aims at."""

CATCH_UP_S = 60.0
"""Seconds in which waiting items should be served, beside those that arrive."""


def scale_by_rate(
    state: ProvisioningState, rates: Mapping[str, float], settings: ProvisioningSettings
) -> tuple[list[Action], tuple[str, ...]]:
    """Return starts and stops that fit numbers of instances to rates, and reasons for what no host has capacity for.

    Args:
        rates: items that arrive at each type in a second.
    """
    current, waiting = Round(state), []
    for entry in state.types:
        rate = rates.get(entry.name, 0.0) + entry.queue / CATCH_UP_S
        wanted = max(1, ceil(rate * entry.slo_ms / 1_000.0 / CONCURRENCY / TARGET))
        number = state.instances_of(entry.name)
        while number < wanted:
            if (host := best_host(current.state, entry, settings)) is None:
                waiting.append(f"{entry.name} wants {wanted} instances, has {number}, and no host has capacity")
                break
            current.do(Action(ActionKind.START, host.name, f"{rate:.4g} items arrive in a second", entry.name))
            number += 1
        while number > wanted:
            hosts = [host for host in current.state.hosts if host.instances.get(entry.name)]
            emptiest = min(hosts, key=lambda host: (sum(host.instances.values()), host.name))
            current.do(Action(ActionKind.STOP, emptiest.name, f"{rate:.4g} items arrive in a second", entry.name))
            number -= 1
    return current.actions, tuple(waiting)
