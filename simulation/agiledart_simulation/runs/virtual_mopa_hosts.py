"""Hosts with the part of MOPA that agents have, in the scenario `placing`: messages with delays and losses between them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, Protocol, cast

from agiledart_kernel.coordinates import Coordinate
from agiledart_kernel.instants import MILLISECOND, SECOND, Duration, Instant
from agiledart_kernel.machine import CancelTimer, Message, Send, SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.autoscaling.mopa_hosting import TIMER, MopaHosting
from agiledart_node.context.config import NodeConfig
from agiledart_node.context.pending_requests import PendingRequests
from agiledart_node.hosting.hosted_application import report_copy
from agiledart_node.live_placement.move_controller import MOPA
from agiledart_node.wire.mopa_messages import InstancePosition, QueryNearest, RequestPlace
from agiledart_placement.latency_space.points import Point
from agiledart_recovery.wire.names import RunId
from agiledart_simulation.runs.placed_run import PlacedRun

LOSS: Final = 0.02
_RESEND_NS: Final = 400 * MILLISECOND
_US_PER_MS: Final = 2_000
"""Round-trip microseconds for a millisecond of one-way delay."""


class MopaWorldView(Protocol):
    """Interface of the world around the hosts."""

    now: int
    delays: dict[tuple[int, int], float]
    """(greater, lesser number of a node) → one-way delay in ms."""

    @property
    def nodes(self) -> Sequence[Any]:
        """Nodes by number."""
        ...

    def at(self, when: int, call: Callable[[], object]) -> None:
        """Schedule an action at an instant."""

    def wished(self, sender: Peer, message: RequestPlace) -> None:
        """Deliver a wish to the coordinator of all runs."""


class _Host:
    """One host: its requests, its timers, and the part under test."""

    def __init__(self, hosts: "VirtualMopaHosts", me: Peer, seed: int) -> None:
        self.me = me
        self.timers: dict[object, int] = {}
        self.requests = requests = PendingRequests(RandomStream(seed, "requests", me.name), Duration(_RESEND_NS), 64)

        class MopaHostContext(SimpleNamespace):
            @property
            def now(self) -> int:
                return hosts.world.now

        overlay = SimpleNamespace(
            coordinate=hosts.coordinates[me.node],
            coordinate_of=hosts.coordinates.get,
            known_peers=lambda: tuple(p for p in hosts.peers.values() if p != me and not hosts.is_dead(p.node)),
        )
        context = MopaHostContext(
            config=NodeConfig(placement_moves=MOPA),
            requests=requests,
            me=me,
            overlay=overlay,
            emit=requests.effects.append,
            send=lambda to, message: requests.effects.append(Send(to, message)),
        )

        class MopaHostedRuns:
            @property
            def table(self) -> Mapping[tuple[str, int], Any]:
                return hosts.hosted(me)

        participants = SimpleNamespace(get=lambda run: SimpleNamespace(value=hosts.runs[run].value))
        recovery = SimpleNamespace(machine=SimpleNamespace(participants=participants))
        self.part = MopaHosting(
            cast("Any", context), cast("Any", MopaHostedRuns()), cast("Any", recovery), RandomStream(seed, me.name)
        )


class VirtualMopaHosts:
    """All hosts.

    Args:
        points: of the nodes, in ms of one-way delay.
    """

    def __init__(
        self, world: MopaWorldView, seed: int, points: Sequence[Point], runs: Mapping[RunId, PlacedRun]
    ) -> None:
        self.world, self.runs = world, runs
        peers: list[Peer] = [node.peer for node in world.nodes]
        self.peers = {peer.node: peer for peer in peers}
        self._numbers = {peer.node: number for number, peer in enumerate(peers)}
        self.coordinates = {
            peer.node: Coordinate(round(x * _US_PER_MS), round(y * _US_PER_MS), round(z * _US_PER_MS), error=100_000)
            for peer, (x, y, z) in zip(peers, points, strict=True)
        }
        self._random = RandomStream(seed, "mopa-hosts")
        self._hosts = {peer.node: _Host(self, peer, seed) for peer in peers}
        self.messages = 0

    def is_dead(self, node: NodeId) -> bool:
        """Return whether a node is dead."""
        return bool(self.world.nodes[self._numbers[node]].is_dead)

    def delay_ms(self, a: NodeId, b: NodeId) -> float:
        """Return a one-way delay."""
        first, second = self._numbers[a], self._numbers[b]
        return self.world.delays.get((max(first, second), min(first, second)), 0.0)

    def patrol(self) -> None:
        """Let all hosts look for runs, now and every ten seconds."""
        self.world.at(self.world.now + 10 * SECOND, self.patrol)
        for host in self._hosts.values():
            if not self.is_dead(host.me.node):
                host.requests.now = Instant(self.world.now)
                host.part.look()
                self._handle(host)

    def hosted(self, peer: Peer) -> dict[tuple[str, int], Any]:
        """Return the runs of a host, as `ApplicationHost.table` has them."""
        table: dict[tuple[str, int], Any] = {}
        for run, placed in self.runs.items():
            mine = placed.value.plan.at(peer.node)
            if not mine or placed.recovers_until:
                continue
            places = {(int(a.instance.stage), a.instance.index): a.host for a in placed.value.plan.assignments}
            reports = {report_copy(key): report for key, report in placed.reports_of(peer).items()}
            part = SimpleNamespace(
                by_epoch=True, signed_command=b"", plan=placed.value.plan.body, places=partial(dict, places)
            )
            table[run.app, run.version] = SimpleNamespace(
                instances={(int(a.instance.stage), a.instance.index): 0 for a in mine},
                is_flowing=True,
                is_closing=False,
                part=part,
                reports=reports,
            )
        return table

    def deliver(self, sender: Peer, to: Peer, message: Message) -> None:
        """Deliver a message to a host."""
        host = self._hosts.get(to.node)
        if host is None or self.is_dead(to.node):
            return
        host.requests.now = Instant(self.world.now)
        if isinstance(message, InstancePosition):
            host.part.position_received(sender, message)
        elif isinstance(message, QueryNearest):
            host.part.nearest(sender, message)
        else:
            host.requests.reply_received(sender, cast("Any", message).request, message)
        self._handle(host)

    def _handle(self, host: _Host) -> None:
        while host.requests.effects:
            effects: Sequence[Any] = list(host.requests.effects)
            host.requests.effects[:] = []
            for effect in effects:
                if isinstance(effect, SetTimer):
                    host.timers[effect.name] = effect.at
                    self.world.at(effect.at, partial(self._timer, host, effect.name, effect.at))
                elif isinstance(effect, CancelTimer):
                    host.timers.pop(effect.name, None)
                elif isinstance(effect, Send):
                    self._send(host, effect)

    def _send(self, host: _Host, effect: Send) -> None:
        self.messages += 1
        if self._random.uniform() < LOSS or self.is_dead(host.me.node):
            return
        if isinstance(effect.message, RequestPlace):
            when = self.world.now + 20 * MILLISECOND
            self.world.at(when, partial(self.world.wished, host.me, effect.message))
            return
        delay = self.delay_ms(host.me.node, effect.to.node)
        self.world.at(
            self.world.now + int(delay * MILLISECOND), partial(self.deliver, host.me, effect.to, effect.message)
        )

    def _timer(self, host: _Host, name: object, at: int) -> None:
        if host.timers.get(name) != at:
            return
        del host.timers[name]
        host.requests.now = Instant(self.world.now)
        if name == TIMER:
            host.part.on_timer()
        else:
            host.requests.timer(cast("tuple[str, str, int]", name))
        self._handle(host)


def drawn_point(seed: int, peer: Peer) -> Point:
    """Return the place of a node, in ms of one-way delay."""
    draw = RandomStream(seed, "placing-point", peer.name)
    return draw.between(0, 40), draw.between(0, 40), draw.between(0, 40)
