"""Release of a host at the end of its paid time: which instances end, which migrate, and whether that is possible.

Source: [Hochreiner 2017] §4.3.
"""

from math import floor

from agiledart_provisioning.actions import Action, ActionKind, Round
from agiledart_provisioning.provisioning_settings import ProvisioningSettings
from agiledart_provisioning.state import Host, ProvisioningState
from agiledart_provisioning.utilities import INFEASIBLE, best_host, down_utility


def release_or_extend(
    current: Round, host_name: str, settings: ProvisioningSettings, *, ends_instances: bool = True
) -> None:
    """Add the actions that empty and release a host, or the one that extends its lease by one billing time unit.

    `ends_instances`: whether instances may end with the host; otherwise all migrate.
    """
    state = current.state
    if sum(1 for host in state.hosts if host.is_running) <= 1:
        current.do(Action(ActionKind.EXTEND, host_name, "it is the last host"))
        return
    plan, obstacle = release_plan(state, state.host_named(host_name), settings, ends_instances=ends_instances)
    if plan is None:
        current.do(Action(ActionKind.EXTEND, host_name, obstacle))
        return
    for action in plan:
        current.do(action)


def release_plan(
    state: ProvisioningState, host: Host, settings: ProvisioningSettings, *, ends_instances: bool = True
) -> tuple[list[Action] | None, str]:
    """Return the actions that empty and release a host, or None with the reason why it must stay.

    A type with a positive utility of scaling down ends some instances: at most `release_share` of all, at least one, never the
    last. The others migrate to other running hosts, whose capacity is counted down.

    Departs: 20 % is rounded down, but to at least one; otherwise types with fewer than five instances could never shrink.
    """
    plan, draft = [], state
    to_migrate: list[str] = []
    for name, number in sorted(host.instances.items()):
        entry = state.type_named(name)
        every = state.instances_of(name)
        utility = down_utility(state, entry, settings) if ends_instances else INFEASIBLE
        ended = min(number, max(1, floor(settings.release_share * every)), every - 1) if utility > 0.0 else 0
        for _ in range(ended):
            why = f"{host.name} is released; the utility of scaling {name} down is {utility:.6g}"
            plan.append(Action(ActionKind.STOP, host.name, why, name))
            draft = draft.with_instances(host.name, name, -1)
        to_migrate += [name] * (number - ended)
    for name in to_migrate:
        target = best_host(draft, state.type_named(name), settings, excluded=host.name)
        if target is None:
            return None, f"no other host has capacity for its {name}"
        plan.append(Action(ActionKind.MIGRATE, target.name, f"{host.name} is released", name, host.name))
        draft = draft.with_instances(target.name, name, 1).with_instances(host.name, name, -1)
    left = max(0.0, host.paid_until_s - state.now_s)
    plan.append(Action(ActionKind.RELEASE, host.name, f"its paid time ends in {left:g} s, and it is not needed"))
    return plan, ""


def hosts_in_window(state: ProvisioningState, settings: ProvisioningSettings) -> list[str]:
    """Return the running hosts whose paid time ends within the window, those that end first before the others."""
    window = settings.window(state.btu_s)
    ending = [host for host in state.hosts if host.is_running and host.paid_until_s - state.now_s <= window]
    return [host.name for host in sorted(ending, key=lambda host: (host.paid_until_s, host.name))]


def release_hosts_in_window(current: Round, settings: ProvisioningSettings) -> None:
    """Treat each host in its window, one after the other; each decision sees the state that the one before it left."""
    for name in hosts_in_window(current.state, settings):
        release_or_extend(current, name, settings)
