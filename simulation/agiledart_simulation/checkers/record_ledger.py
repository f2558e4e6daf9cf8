"""Records against what was promised: a write that was confirmed is never lost while one of its holders lives.

In a cut network each side has a root, and both confirm. Then less is promised, but not nothing: afterwards root and replicas agree
on one copy, of a version no lower than any that was confirmed, and what it says was written by somebody as that version.
"""

from collections.abc import Sequence

from agiledart_kernel.node_id import NodeId, ring_distance
from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_overlay.tables.virtual_nodes import on_distinct_hosts


class RecordLedger:
    """What the root has confirmed, by key."""

    def __init__(self) -> None:
        self._confirmed: dict[NodeId, tuple[int, bytes]] = {}
        self._seen: dict[NodeId, int] = {}
        self._written: dict[NodeId, dict[int, dict[bytes, None]]] = {}
        self.is_single = True
        """Whether every key had one root at a time, so that a confirmed value is the only one of its version."""

    def write(self, key: NodeId, version: int, value: bytes) -> None:
        """Somebody asks for a write that would make this version."""
        self._written.setdefault(key, {}).setdefault(version, {})[value] = None

    def confirm(self, key: NodeId, version: int, value: bytes) -> None:
        """A write was answered with ok."""
        if version > self._confirmed.get(key, (0, b""))[0]:
            self._confirmed[key] = (version, value)

    def learn(self, key: NodeId, version: int) -> None:
        """A conflict told the version now at the key: the next writer expects that one."""
        self._seen[key] = max(version, self._seen.get(key, 0))

    def version(self, key: NodeId) -> int:
        """The version that a writer would expect."""
        return max(self._seen.get(key, 0), self._confirmed.get(key, (0, b""))[0])

    def held(self, machines: Sequence[OverlayMachine]) -> dict[NodeId, None]:
        """Keys of which somebody has what was confirmed, or something later."""
        return {
            record.key: None
            for machine in machines
            for record in machine.records
            if record.version >= self._confirmed.get(record.key, (0, b""))[0]
        }

    @property
    def keys(self) -> tuple[NodeId, ...]:
        """All keys with a confirmed write."""
        return tuple(self._confirmed)

    def violations(self, machines: Sequence[OverlayMachine], bits: int, replicas: int) -> list[str]:
        """Root and replicas of each key hold the confirmed version, or a later one, all the same. Holds when the ring is quiet."""
        by_id = {machine.me.node: machine for machine in machines}
        found = []
        for key in dict.fromkeys((*self._confirmed, *self._written)):
            ids = sorted(by_id, key=lambda node: (ring_distance(node, key, bits), node))
            others = [by_id[node].me for node in ids[1:]]
            copies = on_distinct_hosts(by_id[ids[0]].me.host, others, replicas) if ids else ()
            kept: dict[tuple[int, bytes], NodeId] = {}
            for replica_node in (*ids[:1], *(peer.node for peer in copies)):
                record = next((record for record in by_id[replica_node].records if record.key == key), None)
                version, value = (record.version, record.value) if record is not None else (0, b"")
                found.extend(self._copy_violation(key, replica_node, version, value))
                kept.setdefault((version, value), replica_node)
            if len(kept) > 1:
                said = ", ".join(f"{node.short} version {version}" for (version, _), node in kept.items())
                found.append(f"record {key.short}: its holders disagree: {said}")
        return found

    def _copy_violation(self, key: NodeId, replica_node: NodeId, version: int, value: bytes) -> list[str]:
        wanted, right = self._confirmed.get(key, (0, b""))
        head = f"record {key.short} version {wanted}: {replica_node.short} holds"
        if version < wanted:
            return [f"{head} {f'version {version}' if version else 'nothing'}"]
        if self.is_single and wanted and version == wanted and value != right:
            return [f"{head} another value"]
        if version and key in self._written and value not in self._written[key].get(version, {}):
            return [f"{head} version {version} with a value that nobody wrote as that"]
        return []
