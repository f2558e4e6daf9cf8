"""What can go wrong, as values: a schedule of faults is data, so it can be drawn from a seed, printed and replayed."""

from dataclasses import replace
from typing import Any

import msgspec

from agiledart_kernel.node_id import NodeId
from agiledart_simulation.world.world import World


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


class Stutter(Fault, frozen=True, gc=False):
    """A node looks at its events only once in so long: it is always late. 0: prompt again."""

    node: NodeId
    period_ns: int


class Drift(Fault, frozen=True, gc=False):
    """A node's clock runs at another speed from now on."""

    node: NodeId
    rate_ppb: int


class Partition(Fault, frozen=True, gc=False):
    """These nodes and all others hear nothing of each other; with `more` there are further sides."""

    nodes: tuple[NodeId, ...]
    more: tuple[tuple[NodeId, ...], ...] = ()


class Clog(Fault, frozen=True, gc=False):
    """One direction of one link loses everything."""

    source: NodeId
    target: NodeId


class Unclog(Fault, frozen=True, gc=False):
    """The end of `Clog`."""

    source: NodeId
    target: NodeId


class Mute(Fault, frozen=True, gc=False):
    """Nothing that a node sends arrives, though it hears everything."""

    node: NodeId


class Deafen(Fault, frozen=True, gc=False):
    """Nothing arrives at a node, though it can send."""

    node: NodeId


class Restore(Fault, frozen=True, gc=False):
    """The end of `Mute` and `Deafen`."""

    node: NodeId


class HoldMessages(Fault, frozen=True, gc=False):
    """What is sent in one direction of one link waits for so long, then all of it arrives in order."""

    source: NodeId
    target: NodeId
    duration_ns: int


class Weather(Fault, frozen=True, gc=False):
    """Losses, doubles, disorder, bursts of losses and late messages change."""

    loss: float
    duplicate: float
    reorder: float
    burst_start: float = 0.0
    spike: float = 0.0
    spike_ns: int = 0


class Heal(Fault, frozen=True, gc=False):
    """The network is whole and clean again; cuts that concern these nodes alone stay."""

    but: tuple[NodeId, ...] = ()


def apply(world: World[Any], fault: Fault) -> None:
    """Let a fault happen now; nodes that are down stay so. Restarts need the node's machine to be told to join: see `hostile`."""
    network = world.network
    if isinstance(fault, Crash):
        for node in fault.nodes:
            if world.nodes[node].is_up:
                world.crash(node, silent=fault.silent)
    elif isinstance(fault, Pause | Stutter | Drift):
        _hinder(world, fault)
    elif isinstance(fault, Partition):
        network.partition(fault.nodes, *fault.more)
    elif isinstance(fault, Clog):
        network.clog(fault.source, fault.target)
    elif isinstance(fault, Unclog):
        network.unclog(fault.source, fault.target)
    elif isinstance(fault, Mute):
        network.mute(fault.node)
    elif isinstance(fault, Deafen):
        network.deafen(fault.node)
    elif isinstance(fault, Restore):
        network.restore(fault.node)
    elif isinstance(fault, HoldMessages):
        network.hold(fault.source, fault.target, world.now + fault.duration_ns)
    elif isinstance(fault, Weather):
        network.config = replace(
            network.config,
            loss=fault.loss,
            duplicate=fault.duplicate,
            reorder=fault.reorder,
            burst_start=fault.burst_start,
            spike=fault.spike,
            spike_ns=fault.spike_ns,
        )
    elif isinstance(fault, Heal):
        world.heal(fault.but)
        apply(world, Weather(0.0, 0.0, 0.0))
    else:
        raise TypeError(type(fault).__name__)


def _hinder(world: World[Any], fault: Pause | Stutter | Drift) -> None:
    """Faults of a node that goes on living."""
    if not world.nodes[fault.node].is_up:
        return
    if isinstance(fault, Pause):
        world.pause(fault.node, fault.duration_ns)
    elif isinstance(fault, Stutter):
        world.stutter(fault.node, fault.period_ns)
    else:
        world.set_rate(fault.node, fault.rate_ppb)
