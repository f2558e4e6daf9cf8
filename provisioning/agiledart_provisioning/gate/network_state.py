"""State of the network as policies read it: nodes as hosts, stages that the policy scales as types, all else as one type."""

from collections.abc import Mapping, Sequence
from math import inf

from agiledart_kernel.instants import SECOND
from agiledart_provisioning.gate.gate_messages import NodeSeen, StageSeen
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.lease_entry import LeaseEntry, LeaseState
from agiledart_provisioning.state import Host, MachineOffer, OperatorType, ProvisioningState

INSTANCE = OperatorType("instance", 1.0, 1.0, 0.0, 1.0, duration_ms=1e9, queue=1.0)
"""An instance of any other stage: nodes count instances, not shares. By its duration and queue no policy starts or ends it."""


def network_state(
    nodes: Sequence[NodeSeen],
    waiting: tuple[str, ...],
    leases: Sequence[LeaseEntry],
    settings: GateSettings,
    now: int,
    stages: Sequence[StageSeen] = (),
    scalings: Mapping[str, int] | None = None,
) -> ProvisioningState:
    """Return the state of all nodes; a leased host has the name of its lease.

    Only joined hosts have an end of their paid time. `scalings`: changes of a stage by this gate so far.
    """
    done = scalings or {}
    types = tuple(
        OperatorType(
            stage.name, 1.0, 1.0, 0.0, stage.slo_ms, stage.duration_ms, stage.durations_ms, stage.queue, done.get(stage.name, 0)
        )
        for stage in stages
    )  # fmt: skip
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
                _instances(node, stages),
                busy=node.busy,
            )
        )
    price, capacity = settings.price / 1e6, float(settings.capacity)
    hosts += [
        Host(entry.lease_id, capacity, capacity, price, entry.paid_until_ns / SECOND, is_running=False)
        for entry in leases
        if entry.state in (LeaseState.ASKED, LeaseState.STARTING)
    ]
    offer = MachineOffer(capacity, capacity, price)
    return ProvisioningState(now / SECOND, settings.btu_ns / SECOND, (INSTANCE, *types), tuple(hosts), offer, waiting)


def _instances(node: NodeSeen, stages: Sequence[StageSeen]) -> dict[str, int]:
    """Return type → instances on a node."""
    own = {stage.name: stage.instances[node.node] for stage in stages if stage.instances.get(node.node)}
    others = max(0, node.instances - sum(own.values()))
    return {**({INSTANCE.name: others} if others else {}), **own}
