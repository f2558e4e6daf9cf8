"""What can go wrong, as values: a schedule of faults is data, so it can be drawn from a seed, printed and replayed."""

from typing import Any

import msgspec

from agiledart_kernel.node_id import NodeId
from agiledart_simulation.network import NetworkConfig
from agiledart_simulation.world import World


class Fault(msgspec.Struct, frozen=True, gc=False):
    """Something that happens to the world."""


class Crash(Fault, frozen=True, gc=False):
    """Processes are killed, or their machines lose power (`silent`)."""

    nodes: tuple[NodeId, ...]
    silent: bool = False


class Pause(Fault, frozen=True, gc=False):
    """A node does nothing for a while: a stopped process, a long garbage collection, a moved virtual machine."""

    node: NodeId
    duration_ns: int


class Partition(Fault, frozen=True, gc=False):
    """These nodes and all others hear nothing of each other."""

    nodes: tuple[NodeId, ...]


class Clog(Fault, frozen=True, gc=False):
    """One direction of one link loses everything."""

    source: NodeId
    target: NodeId


class Weather(Fault, frozen=True, gc=False):
    """Losses, doubles and disorder change."""

    loss: float
    duplicate: float
    reorder: float


class Heal(Fault, frozen=True, gc=False):
    """The network is whole and clean again."""


def apply(world: World[Any], fault: Fault) -> None:
    """Let a fault happen now; nodes that are down stay so. Restarts need the node's machine to be told to join: see `runner`."""
    if isinstance(fault, Crash):
        for node in fault.nodes:
            if world.nodes[node].is_up:
                world.crash(node, silent=fault.silent)
    elif isinstance(fault, Pause):
        if world.nodes[fault.node].is_up:
            world.pause(fault.node, fault.duration_ns)
    elif isinstance(fault, Partition):
        world.network.partition(fault.nodes)
    elif isinstance(fault, Clog):
        world.network.clog(fault.source, fault.target)
    elif isinstance(fault, Weather):
        old = world.network.config
        world.network.config = NetworkConfig(
            old.base_ns, old.span_ns, old.jitter_ns, fault.loss, fault.duplicate, fault.reorder, old.reorder_ns
        )
    elif isinstance(fault, Heal):
        world.network.heal()
        apply(world, Weather(0.0, 0.0, 0.0))
    else:
        raise TypeError(type(fault).__name__)
