"""State of the network as the policy `hosts` reads it: nodes as hosts, and their instances as instances of one type."""

from collections.abc import Sequence
from math import inf

from agiledart_kernel.instants import SECOND
from agiledart_provisioning.gate.gate_messages import NodeSeen
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.lease_entry import LeaseEntry, LeaseState
from agiledart_provisioning.state import Host, MachineOffer, OperatorType, ProvisioningState

INSTANCE = OperatorType("instance", 1.0, 1.0, 0.0, 1.0)
"""An instance of any stage: nodes count instances, not shares."""


def network_state(
    nodes: Sequence[NodeSeen], waiting: tuple[str, ...], leases: Sequence[LeaseEntry], settings: GateSettings, now: int
) -> ProvisioningState:
    """Return the state of all nodes; a leased host has the name of its lease.

    Only joined hosts have an end of their paid time.
    """
    by_lease = {entry.lease_id: entry for entry in leases}
    hosts = []
    for node in nodes:
        entry = by_lease.get(node.lease_id)
        if entry is not None and entry.state in (LeaseState.DRAINING, LeaseState.RELEASING):
            continue  # it takes no instance and is being emptied already
        is_leased = entry is not None and entry.state is LeaseState.JOINED
        end = entry.paid_until_ns / SECOND if entry is not None and is_leased else inf
        hosts.append(
            Host(
                node.lease_id if is_leased else node.node,
                float(node.capacity),
                float(node.capacity),
                settings.price / 1e6,
                end,
                frozenset((INSTANCE.name,)),
                {INSTANCE.name: node.instances} if node.instances else {},
                busy=node.busy,
            )
        )
    price = settings.price / 1e6
    hosts += [
        Host(entry.lease_id, 0.0, 0.0, price, entry.paid_until_ns / SECOND, is_running=False)
        for entry in leases
        if entry.state in (LeaseState.ASKED, LeaseState.STARTING)
    ]
    offer = MachineOffer(float(settings.capacity), float(settings.capacity), settings.price / 1e6)
    return ProvisioningState(now / SECOND, settings.btu_ns / SECOND, (INSTANCE,), tuple(hosts), offer, waiting)
