"""Faults as values: a schedule of faults is data, so it can be drawn from a seed, printed and replayed."""

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
    """A node processes its events only once in a period, so it is always late. 0: prompt again."""

    node: NodeId
    period_ns: int


class Drift(Fault, frozen=True, gc=False):
    """A node's clock runs at another speed from now on."""

    node: NodeId
    rate_ppb: int


class Partition(Fault, frozen=True, gc=False):
    """These nodes and all others receive nothing of each other; with `more` there are further sides."""

    nodes: tuple[NodeId, ...]
    more: tuple[tuple[NodeId, ...], ...] = ()


class Clog(Fault, frozen=True, gc=False):
    """One direction of one link loses everything."""

    source: NodeId
    target: NodeId


class Unclog(Fault, frozen=True, gc=False):
    """End of `Clog`."""

    source: NodeId
    target: NodeId


class Mute(Fault, frozen=True, gc=False):
    """All messages that a node sends are lost, though it receives everything."""

    node: NodeId


class Deafen(Fault, frozen=True, gc=False):
    """All messages to a node are lost, though it can send."""

    node: NodeId


class Restore(Fault, frozen=True, gc=False):
    """End of `Mute` and `Deafen`."""

    node: NodeId


class HoldMessages(Fault, frozen=True, gc=False):
    """Messages in one direction of one link wait for a while, then all of them arrive in order."""

    source: NodeId
    target: NodeId
    duration_ns: int


class Weather(Fault, frozen=True, gc=False):
    """New chances of losses, duplicates, disorder, bursts of losses and late messages."""

    loss: float
    duplicate: float
    reorder: float
    burst_start: float = 0.0
    spike: float = 0.0
    spike_ns: int = 0


class Heal(Fault, frozen=True, gc=False):
    """The network is whole and clean again; partitions that concern these nodes alone stay."""

    but: tuple[NodeId, ...] = ()


def apply(world: World[Any], fault: Fault) -> None:
    """Apply a fault now; nodes that are down stay so. A restarted node must be told to join: see `ring_nemesis`."""
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
    """Apply a fault to a node that stays alive."""
    if not world.nodes[fault.node].is_up:
        return
    if isinstance(fault, Pause):
        world.pause(fault.node, fault.duration_ns)
    elif isinstance(fault, Stutter):
        world.stutter(fault.node, fault.period_ns)
    else:
        world.set_rate(fault.node, fault.rate_ppb)
