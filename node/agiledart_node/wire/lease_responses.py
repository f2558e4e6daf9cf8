"""Responses of the control API about leases and gates."""

import msgspec

from agiledart_node.wire.lease_messages import HostLease


class HostLeaseRow(msgspec.Struct, frozen=True):
    """Lease of a leased node.

    Args:
        gate: gate that the node accepts; silent_s: seconds since that gate renewed the lease.
        entry: the lease in the gate's ledger, JSON; empty before the first renewal.
        is_empty: it runs nothing and takes no work; is_accepted: a gate has renewed it, so it may take work.
    """

    lease_id: str
    host_id: str
    gate: str
    silent_s: float
    entry: str
    is_empty: bool
    is_accepted: bool


class LeaseResponse(msgspec.Struct, frozen=True):
    """Response to a renewal: the lease as its node knows it now."""

    lease: HostLeaseRow


class GateRow(msgspec.Struct, frozen=True):
    """Last report of a gate.

    Args:
        agent: agent beside it; age_s: seconds since its last report; report: JSON, as the gate wrote it.
    """

    gate: str
    zone: str
    agent: str
    age_s: float
    report: str


class GateOrdersResponse(msgspec.Struct, frozen=True):
    """Response to a gate's report.

    Args:
        leads: the gate holds the slot `provisioner` of its zone, so it may open leases.
        gates: other gates that report.
        orders: of admins since its last report, the oldest first, as [order, host, admin].
    """

    leads: bool
    gates: list[str]
    orders: list[tuple[str, str, str]]


class GatesResponse(msgspec.Struct, frozen=True):
    """Response to `provision status` and to orders.

    Args:
        taken: gates that get the order.
        silent_nodes: agents that did not answer.
    """

    gates: list[GateRow]
    taken: list[str]
    silent_nodes: list[str]


def lease_row(lease: HostLease) -> HostLeaseRow:
    """Return a lease as users see it."""
    return HostLeaseRow(
        lease.lease_id, lease.host_id, lease.gate, lease.silent_ms / 1e3, lease.entry.decode("utf-8", "replace"),
        lease.is_empty, lease.is_accepted,
    )  # fmt: skip
