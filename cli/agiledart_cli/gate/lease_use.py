"""Use of leased machines by applications: seconds of instances for each lease, by which its cost is shared."""

from collections.abc import Iterable, Mapping

from agiledart_provisioning.gate.lease_entry import LeaseEntry

UNUSED = "unused"
"""Name for the cost of leases on which no instance has run."""

OTHER = "other applications"
MAX_NAMES = 64
"""Applications of one lease that are counted by name."""

Use = dict[str, dict[str, float]]
"""Lease → application → seconds of instances."""


class LeaseUse:
    """Seconds of instances for each lease and application."""

    def __init__(self, use: Use) -> None:
        self.use = use

    def add(
        self, lease_of_node: Mapping[str, str], placements: Mapping[str, Mapping[str, list[str]]], seconds: float
    ) -> None:
        """Count a time in which instances ran as placed.

        Args:
            lease_of_node: node → its lease.
            placements: application → stage → nodes of its instances.
        """
        for application, stages in placements.items():
            for node in (node for nodes in stages.values() for node in nodes):
                if lease := lease_of_node.get(node):
                    by_name = self.use.setdefault(lease, {})
                    name = application if application in by_name or len(by_name) < MAX_NAMES else OTHER
                    by_name[name] = by_name.get(name, 0.0) + seconds

    def costs(self, entries: Iterable[LeaseEntry]) -> dict[str, float]:
        """Return application → its share of what the leases have cost, the largest first; in the currency of the offers."""
        costs: dict[str, float] = {}
        for entry in entries:
            by_name = self.use.get(entry.lease_id) or {UNUSED: 1.0}
            total = sum(by_name.values())
            for name, seconds in by_name.items():
                costs[name] = costs.get(name, 0.0) + entry.cost / 1e6 * seconds / total
        shown = {name: round(cost, 6) for name, cost in costs.items() if cost > 0}
        return dict(sorted(shown.items(), key=lambda item: (-item[1], item[0])))
