"""Survey of possible hosts: loads of the nodes on the JOIN paths and around them."""

from collections.abc import Callable
from typing import NamedTuple

from agiledart_dataflow.plan.specification import FORMAT
from agiledart_kernel.instants import Duration
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.wire.formation_messages import MAX_ROUND_TRIPS, NodeLoad, RoundTrip, Survey
from agiledart_node.wire.lease_messages import HostLease

Loads = dict[NodeId, tuple[Peer, NodeLoad]]
"""Loads by node."""

MAX_NEIGHBOURS = 16
"""Members of its neighbourhood set that a node reports besides its leaf set."""

SPARE = 8
"""Nodes surveyed beyond two per instance, so that full ones can be skipped."""

MAX_OTHERS = 512
"""Nodes of other versions that are remembered."""

CLOCKS_AT_ONCE = 4
"""Leaf-set members whose clocks are compared with this node's in one round."""


class MachineUse(NamedTuple):
    """Use of this node's machine now: share of its processor time, and memory that it can still give. None: not measured."""

    busy_permille: int | None = None
    free_memory_mb: int | None = None


class Surveyor:
    """Asks for loads, and answers.

    Attributes:
        served: returns the number of applications that this node serves as scheduler; None: it is no scheduler.
        machine_use: returns the use of the machine; a driver with a real machine sets it.
        lease: returns the lease of this machine; None: no gate has leased it.
    """

    def __init__(self, context: NodeContext, hosting: ApplicationHost) -> None:
        self._context, self._hosting = context, hosting
        self.served: Callable[[], int | None] = lambda: None
        self.machine_use: Callable[[], MachineUse] = MachineUse
        self.lease: Callable[[], HostLease | None] = lambda: None
        self._compared = 0

    def load(self, message: Survey) -> NodeLoad:
        """Return this node's load."""
        config, overlay = self._context.config, self._context.overlay
        leaves: tuple[Peer, ...] = ()
        neighbours: tuple[Peer, ...] = ()
        if message.wants_candidates:
            leaves = self._context.nearest_of(overlay.leaf_set.members)
            others = tuple(peer for peer in overlay.neighbourhood if peer.node not in overlay.leaf_set)
            neighbours = self._context.nearest_of(others)[:MAX_NEIGHBOURS]
        use = self.machine_use()
        return NodeLoad(
            message.request,
            self._hosting.operators,
            self._hosting.applications,
            config.capacity,
            config.executors,
            bool(self._context.no_work_reason),
            leaves,
            neighbours,
            self.served(),
            config.confines,
            message.asked_ms,
            self._context.wall_ms,
            config.software,
            FORMAT,
            self._context.is_draining and not self._context.is_leaving,
            config.max_executors,
            config.cores,
            config.labels,
            config.speed_permille,
            use.busy_permille,
            use.free_memory_mb,
            overlay.coordinate,
            self._round_trips() if message.wants_round_trips else (),
            self.lease(),
            config.exposes_python,
        )

    def _round_trips(self) -> tuple[RoundTrip, ...]:
        """Return the shortest round trips that this node has measured."""
        overlay = self._context.overlay
        measured = ((overlay.rtt_ns(peer.node), peer.node) for peer in overlay.known_peers())
        known = sorted((rtt, node) for rtt, node in measured if rtt is not None)
        return tuple(RoundTrip(node, max(1, rtt // 1_000)) for rtt, node in known[:MAX_ROUND_TRIPS])

    def load_received(self, sender: Peer, load: NodeLoad) -> None:
        """Note the sender's clock, labels and form of specifications from a load."""
        self._context.labels.report(sender, load.labels)
        self._context.clocks.add_measurement(sender, load.asked_ms, load.wall_ms, self._context.wall_ms)
        if load.specification == FORMAT:
            self._context.incompatible_nodes.pop(sender.node, None)
        elif len(self._context.incompatible_nodes) < MAX_OTHERS:
            self._context.incompatible_nodes[sender.node] = True

    async def compare_clocks(self) -> None:
        """Ask some leaf-set members, in turn, for their clocks."""
        leaves = self._context.overlay.leaf_set.members
        self._compared += CLOCKS_AT_ONCE
        some = [leaves[(self._compared + number) % len(leaves)] for number in range(min(CLOCKS_AT_ONCE, len(leaves)))]
        await self.loads(some, self._context.config.report_timeout_ns)

    async def loads(
        self, peers: list[Peer], timeout: int, *, wants_candidates: bool = False, wants_round_trips: bool = False
    ) -> Loads:
        """Return the loads of these nodes; silent ones are missing."""
        asked_ms = self._context.wall_ms
        answers = await self._context.requests.ask_all(
            peers,
            lambda number, _: Survey(number, wants_candidates, asked_ms, wants_round_trips),
            NodeLoad,
            Duration(timeout),
        )
        return {peer.node: (peer, load) for peer, load in answers if load is not None}

    async def with_candidates(self, nodes: list[Peer], instances: int) -> Loads:
        """Return loads of these nodes, then of as many of their candidates as this number of instances may need."""
        config = self._context.config
        first = await self.loads(nodes[: config.max_survey], config.ask_timeout_ns, wants_candidates=True)
        return await self._widened(first, 2 * instances + SPARE + len(first))

    async def wider(self, known: Loads) -> Loads:
        """Return the same with all candidates, up to `max_survey`, because the nodes asked so far are full."""
        return await self._widened(known, self._context.config.max_survey)

    async def _widened(self, known: Loads, limit: int) -> Loads:
        config = self._context.config
        limit = min(config.max_survey, limit)
        more: dict[NodeId, Peer] = {}
        for pools in ([load.candidates for _, load in known.values()], [load.neighbours for _, load in known.values()]):
            for rank in range(max(map(len, pools), default=0)):
                for pool in pools:
                    if rank < len(pool) and pool[rank].node not in known and len(known) + len(more) < limit:
                        more.setdefault(pool[rank].node, pool[rank])
        return known | await self.loads(list(more.values()), config.report_timeout_ns)
