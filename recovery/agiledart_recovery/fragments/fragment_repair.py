"""Repair of fragments between epochs, on the owner's side: a lost fragment of a committed snapshot gets a new replica node.

| what happens | what follows |
|---|---|
| a replica node is gone, or was never found | its snapshot's missing fragments go to other hosts, one snapshot at a time |
| a replica node reports its fragments, and lacks one | the same; it was damaged there, or its disk is a new one |
| a replica node has acknowledged | the coordinator is notified until the register names it |
| no candidate is left, or all refuse | the fragment stays missing until a node comes, and is then tried again |

The snapshot lies whole on the owner's disk, so nothing is fetched. The awkward case: a repair in attempt ℓ of a snapshot from
an older one. A replica node checks the owner's attempt, not the snapshot's, which the register names.
"""

from collections.abc import Callable, Mapping

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.fragments.placement import replacements
from agiledart_recovery.limits import MAX_REPLACED_FRAGMENTS
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire.effects import FragmentKey, SendFragment
from agiledart_recovery.wire.messages import FragmentsReplaced
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId
from agiledart_recovery.wire.observations import FragmentReplaced
from agiledart_recovery.wire.register_value import InstanceSnapshot, ReplacedFragment

_NO_NODE = NodeId(0)
SnapshotKey = tuple[InstanceId, CheckpointId]
FragmentPlace = tuple[InstanceId, CheckpointId, int]


class FragmentRepair:
    """Repair of the fragments of one host's own snapshots.

    Args:
        report: sends replaced fragments to the coordinator, if one is known.
    """

    def __init__(self, context: RecoveryContext, run: RunId, report: Callable[[FragmentsReplaced], None]) -> None:
        self._context, self._run, self._report = context, run, report
        self._attempt = 0
        self._snapshots: dict[SnapshotKey, InstanceSnapshot] = {}
        self._damaged: dict[FragmentPlace, NodeId] = {}
        self._made: dict[FragmentPlace, NodeId] = {}
        self._refused: dict[NodeId, Instant] = {}
        self._sending: dict[FragmentPlace, NodeId] = {}
        self._is_timed = False

    def forget(self) -> None:
        """Drop all repairs: another attempt begins, or the run ends."""
        self._snapshots, self._damaged, self._made, self._sending = {}, {}, {}, {}

    def update(self, attempt: int, snapshots: Mapping[SnapshotKey, InstanceSnapshot]) -> None:
        """Take the register's entries for the snapshots that this host has made."""
        self._attempt, self._snapshots = (
            attempt,
            {key: snapshot for key, snapshot in snapshots.items() if snapshot.replica_nodes},
        )
        self._made = {place: node for place, node in self._made.items() if self._is_news(place, node)}
        self._damaged = {place: node for place, node in self._damaged.items() if self._registered_node(place) == node}
        self.look()

    def _registered_node(self, place: FragmentPlace) -> NodeId:
        """Return the replica node of a fragment, according to the register."""
        snapshot = self._snapshots.get(place[:2])
        return (
            snapshot.replica_nodes[place[2]]
            if snapshot is not None and place[2] < len(snapshot.replica_nodes)
            else _NO_NODE
        )

    def _is_news(self, place: FragmentPlace, node: NodeId) -> bool:
        return place[:2] in self._snapshots and self._registered_node(place) != node

    @property
    def lacking(self) -> int:
        """Return the number of fragments that no node has, as far as is known."""
        return sum(len(self._gone(snapshot_key)) for snapshot_key in self._snapshots)

    def _replica_nodes(self, snapshot_key: SnapshotKey) -> list[NodeId]:
        return [
            self._made.get((*snapshot_key, index), replica_node)
            for index, replica_node in enumerate(self._snapshots[snapshot_key].replica_nodes)
        ]

    def _gone(self, snapshot_key: SnapshotKey) -> dict[int, NodeId]:
        """Return the fragments to be replaced: index → previous replica node."""
        return {
            index: replica_node
            for index, replica_node in enumerate(self._replica_nodes(snapshot_key))
            if not replica_node
            or replica_node == self._context.me.node
            or not self._context.can_reach(replica_node)
            or self._damaged.get((*snapshot_key, index)) == replica_node
        }

    # ---- what happens

    def instances(self, node: NodeId) -> tuple[InstanceId, ...]:
        """Return the instances of which a node has fragments from here."""
        return tuple(
            dict.fromkeys(
                snapshot_key[0] for snapshot_key in self._snapshots if node in self._replica_nodes(snapshot_key)
            )
        )

    def on_holds(self, replica_node: NodeId, instance: InstanceId, held: tuple[tuple[CheckpointId, int], ...]) -> None:
        """Note which fragments of an instance a replica node has."""
        there = dict.fromkeys(held)
        for snapshot_key in self._snapshots:
            for index, node in enumerate(self._replica_nodes(snapshot_key)):
                place = (*snapshot_key, index)
                if snapshot_key[0] != instance or node != replica_node or place in self._sending:
                    continue
                if (snapshot_key[1], index) in there:
                    self._damaged.pop(place, None)
                else:
                    self._damaged[place] = replica_node
        self.look()

    def look(self) -> None:
        """Begin to repair the next snapshot that lacks fragments, unless a repair is running."""
        if self._sending:
            return
        for snapshot_key, snapshot in self._snapshots.items():
            new_nodes = self._others(snapshot_key)
            if new_nodes:
                self._sending = {(*snapshot_key, index): node for index, node in new_nodes.items()}
                for index, node in new_nodes.items():
                    self._send(snapshot_key, snapshot, index, node)
                return

    def _others(self, snapshot_key: SnapshotKey) -> dict[int, NodeId]:
        """Return new replica nodes for the lost fragments of a snapshot."""
        context, gone = self._context, self._gone(snapshot_key)
        if not gone:
            return {}
        replica_nodes = [
            _NO_NODE if index in gone else replica_node
            for index, replica_node in enumerate(self._replica_nodes(snapshot_key))
        ]
        timeout_ns = context.config.state_timeout_ns
        self._refused = {node: at for node, at in self._refused.items() if context.now - at < timeout_ns}
        candidates = [
            peer for peer in context.candidates if context.can_reach(peer.node) and peer.node not in self._refused
        ]
        new_nodes = replacements(context.me, replica_nodes, tuple(gone.values()), candidates)
        return new_nodes or replacements(
            context.me, replica_nodes, (), candidates
        )  # a node that had it damaged is better than none

    def _send(self, snapshot_key: SnapshotKey, snapshot: InstanceSnapshot, index: int, replica_node: NodeId) -> None:
        key, attempt = FragmentKey(self._run, *snapshot_key, index), self._attempt
        self._context.ask(
            self._run,
            lambda request: SendFragment(request, replica_node, key, snapshot, attempt),
            lambda _, reason: self._answered((*snapshot_key, index), replica_node, attempt, reason),
        )

    def _answered(self, place: FragmentPlace, replica_node: NodeId, attempt: int, reason: str) -> None:
        if attempt != self._attempt or self._sending.get(place) != replica_node:
            return
        del self._sending[place]
        if reason:
            self._refused[replica_node] = self._context.now
        elif place[:2] in self._snapshots:
            self._damaged.pop(place, None)
            self._made[place] = replica_node
            self._context.observe(FragmentReplaced(self._run, place[0]))
        if not self._sending:
            self._report_replaced()
            self.look()

    def _report_replaced(self) -> None:
        """Report replaced fragments to the coordinator, and again while the register does not name them."""
        made = tuple(
            ReplacedFragment(*place, replica_node)
            for place, replica_node in self._made.items()
            if self._is_news(place, replica_node)
        )
        if made:
            self._report(FragmentsReplaced(self._run, self._attempt, made[:MAX_REPLACED_FRAGMENTS]))
            if not self._is_timed:
                self._is_timed = True
                self._context.set_timer((self._run, "remade"), self._context.config.silence_ns)

    def on_timer(self) -> None:
        """Report again: the register does not name the new nodes yet, or no coordinator was known."""
        self._is_timed = False
        self._report_replaced()
        self.look()
