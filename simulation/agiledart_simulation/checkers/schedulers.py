"""Schedulers against the truth: one for every so many applications (sc_1), one holder of each scheduler slot (sc_2).

Source: the project's overlay specification §9, last lines, and §11 (after a partition).
"""

from collections.abc import Iterable

from agiledart_node.node import Node


def holders(nodes: Iterable[Node]) -> dict[tuple[str, int], list[Node]]:
    """Return the nodes that hold a scheduler slot, by (domain, index), sorted."""
    holders_by_slot: dict[tuple[str, int], list[Node]] = {}
    for node in nodes:
        scheduler_slot = node.schedulers.role.scheduler_slot
        if scheduler_slot is not None:
            holders_by_slot.setdefault((scheduler_slot.domain, scheduler_slot.index), []).append(node)
    return dict(sorted(holders_by_slot.items()))


def schedulers_of(nodes: Iterable[Node]) -> dict[str, list[int]]:
    """Return how many applications each scheduler serves, by domain and index."""
    served: dict[str, list[int]] = {}
    for (domain, _), there in holders(nodes).items():
        served.setdefault(domain, []).extend(len(node.schedulers.role.served) for node in there)
    return served


def scheduler_slot_violations(nodes: Iterable[Node]) -> list[str]:
    """Return violations of sc_2: no scheduler slot has two holders. Valid outside partitions, and soon after one."""
    violations = []
    for (domain, index), there in holders(nodes).items():
        if len(there) > 1:
            names = ", ".join(node.me.name or node.me.node.short for node in there)
            violations.append(f"sc_2: scheduler slot {index} of {domain or 'the only zone'} is held by {names}")
    return violations


def service_violations(nodes: Iterable[Node]) -> list[str]:
    """Return applications that are not served by exactly the scheduler that their coordinator renews. Valid when quiet."""
    by_incarnation = {node.me.incarnation_key: node for node in nodes}
    serving: dict[tuple[str, int], list[Node]] = {}
    for node in by_incarnation.values():
        for slot in node.schedulers.role.served:
            serving.setdefault(slot, []).append(node)
    violations = []
    for node in by_incarnation.values():
        for key, scheduler in node.schedulers.scheduler_renewals.schedulers.items():
            there = [other.me.incarnation_key for other in serving.get(key, [])]
            if there != [scheduler.incarnation_key]:
                names = ", ".join(other.me.name for other in serving.get(key, [])) or "no scheduler"
                violations.append(f"service: {key[0]} is renewed at {scheduler.name}, but served by {names}")
    return violations
