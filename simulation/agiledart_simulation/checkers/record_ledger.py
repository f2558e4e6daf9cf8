"""Records against what was promised: a confirmed write is never lost while one of its replica nodes lives.

In a partitioned network each side has a root, and both confirm. Then less is promised, but not nothing: afterwards root and
replicas agree on one copy. Its version is no lower than any that was confirmed, and its value was written by some node as that
version.
"""

from collections.abc import Sequence

from agiledart_kernel.node_id import NodeId, ring_distance
from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_overlay.tables.virtual_nodes import on_distinct_hosts


class RecordLedger:
    """Writes that the root has confirmed, by key."""

    def __init__(self) -> None:
        self._confirmed: dict[NodeId, tuple[int, bytes]] = {}
        self._seen: dict[NodeId, int] = {}
        self._written: dict[NodeId, dict[int, dict[bytes, None]]] = {}
        self.is_single = True
        """True if every key had one root at a time, so that a confirmed value is the only one of its version."""

    def write(self, key: NodeId, version: int, value: bytes) -> None:
        """Note a requested write that would make this version."""
        self._written.setdefault(key, {}).setdefault(version, {})[value] = None

    def confirm(self, key: NodeId, version: int, value: bytes) -> None:
        """Note a write that was answered with ok."""
        if version > self._confirmed.get(key, (0, b""))[0]:
            self._confirmed[key] = (version, value)

    def learn(self, key: NodeId, version: int) -> None:
        """Note the version at the key that a conflict reported: the next writer expects that one."""
        self._seen[key] = max(version, self._seen.get(key, 0))

    def version(self, key: NodeId) -> int:
        """Return the version that a writer would expect."""
        return max(self._seen.get(key, 0), self._confirmed.get(key, (0, b""))[0])

    def held(self, machines: Sequence[OverlayMachine]) -> dict[NodeId, None]:
        """Return the keys of which some node has the confirmed value, or a later one."""
        return {
            record.key: None
            for machine in machines
            for record in machine.records
            if record.version >= self._confirmed.get(record.key, (0, b""))[0]
        }

    @property
    def keys(self) -> tuple[NodeId, ...]:
        """Return all keys with a confirmed write."""
        return tuple(self._confirmed)

    def violations(self, machines: Sequence[OverlayMachine], bits: int, replicas: int) -> list[str]:
        """Return keys whose root and replicas lack the confirmed version or disagree. Valid when the ring is quiet."""
        by_id = {machine.me.node: machine for machine in machines}
        violations = []
        for key in dict.fromkeys((*self._confirmed, *self._written)):
            ids = sorted(by_id, key=lambda node: (ring_distance(node, key, bits), node))
            others = [by_id[node].me for node in ids[1:]]
            copies = on_distinct_hosts(by_id[ids[0]].me.host, others, replicas) if ids else ()
            copies_by_value: dict[tuple[int, bytes], NodeId] = {}
            for replica_node in (*ids[:1], *(peer.node for peer in copies)):
                record = next((record for record in by_id[replica_node].records if record.key == key), None)
                version, value = (record.version, record.value) if record is not None else (0, b"")
                violations.extend(self._copy_violation(key, replica_node, version, value))
                copies_by_value.setdefault((version, value), replica_node)
            if len(copies_by_value) > 1:
                versions = ", ".join(
                    f"{node.short} version {version}" for (version, _), node in copies_by_value.items()
                )
                violations.append(f"record {key.short}: its replica nodes disagree: {versions}")
        return violations

    def _copy_violation(self, key: NodeId, replica_node: NodeId, version: int, value: bytes) -> list[str]:
        wanted, right = self._confirmed.get(key, (0, b""))
        head = f"record {key.short} version {wanted}: {replica_node.short} holds"
        if version < wanted:
            return [f"{head} {f'version {version}' if version else 'nothing'}"]
        if self.is_single and wanted and version == wanted and value != right:
            return [f"{head} another value"]
        if version and key in self._written and value not in self._written[key].get(version, {}):
            return [f"{head} version {version} with a value that no node wrote as that version"]
        return []
