"""Fragments of a host's committed snapshots: replica nodes learn which are still needed, and lost ones are replaced.

A replica node that misses a message receives the next one. One that comes back may be another process than before, so it is
asked which fragments it has.
"""

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.fragments.fragment_repair import FragmentRepair
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import InstanceId, RunId
from agiledart_recovery.wire.register_value import RegisterValue, RunState


class CommittedFragments:
    """Fragments of one host's committed snapshots, of one run."""

    def __init__(self, context: RecoveryContext, run: RunId, repair: FragmentRepair) -> None:
        self._context, self._run, self._repair = context, run, repair
        self._replica_nodes: dict[InstanceId, dict[NodeId, None]] = {}

    def notify_replica_nodes(self, value: RegisterValue) -> None:
        """Send replica nodes of this host's snapshots what is still needed. One that misses it receives the next one."""
        needed = value.needed
        mine = [assignment.instance for assignment in value.plan.at(self._context.me.node)]
        for instance in dict.fromkeys((*mine, *self._replica_nodes)):
            snapshots = {at: snapshot for (owner, at), snapshot in needed.items() if owner == instance}
            now = {
                replica_node: None
                for snapshot in snapshots.values()
                for replica_node in snapshot.replica_nodes
                if replica_node
            }
            is_over = value.state is not RunState.RUNNING
            message = wire.NeededFragments(
                self._run, value.attempt, instance, value.committed, tuple(snapshots), is_over
            )
            for replica_node in {**self._replica_nodes.get(instance, {}), **now}:
                self._context.send(Peer(replica_node), message)
            self._replica_nodes[instance] = now
            if not now and instance not in mine:
                del self._replica_nodes[instance]

    def update_repair(self, attempt: int, value: RegisterValue) -> None:
        """Update the repair with the committed snapshots of this host, some of whose fragments may be lost."""
        if value.state is not RunState.RUNNING:
            return
        mine = {
            assignment.instance: None for assignment in value.plan.at(self._context.me.node) if not assignment.is_pinned
        }
        snapshots = {
            (saved.instance, snapshot.checkpoint): snapshot
            for saved in value.saved
            if saved.instance in mine
            for snapshot in saved.chain
        }
        self._repair.update(attempt, snapshots)

    def ask_held(self, replica_node: Peer, value: RegisterValue) -> None:
        """Ask a replica node which fragments it still has: it may be another process than before."""
        for instance in self._repair.instances(replica_node.node):
            needed = tuple(at for owner, at in value.needed if owner == instance)
            message = wire.NeededFragments(self._run, value.attempt, instance, value.committed, needed, asks=True)
            self._context.send(replica_node, message)
        self._repair.look()
