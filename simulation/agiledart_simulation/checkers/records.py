"""Records against what was promised: a write that was confirmed is never lost while one of its holders lives."""

from collections.abc import Sequence

from agiledart_kernel.node_id import NodeId, ring_distance
from agiledart_overlay.machine import OverlayMachine
from agiledart_overlay.virtual_nodes import on_distinct_hosts


class RecordLedger:
    """What the root has confirmed, by key."""

    def __init__(self) -> None:
        self._confirmed: dict[NodeId, tuple[int, bytes]] = {}
        self._seen: dict[NodeId, int] = {}

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
        """Root and replicas of each key hold the confirmed version, or a later one. Holds when the ring is quiet."""
        by_id = {machine.me.node: machine for machine in machines}
        found = []
        for key, (version, value) in self._confirmed.items():
            ids = sorted(by_id, key=lambda node: (ring_distance(node, key, bits), node))
            others = [by_id[node].me for node in ids[1:]]
            copies = on_distinct_hosts(by_id[ids[0]].me.host, others, replicas) if ids else ()
            for holder in (*ids[:1], *(peer.node for peer in copies)):
                record = next((record for record in by_id[holder].records if record.key == key), None)
                if record is None or record.version < version:
                    have = "nothing" if record is None else f"version {record.version}"
                    found.append(f"record {key.short} version {version}: {holder.short} holds {have}")
                elif record.version == version and record.value != value:
                    found.append(f"record {key.short} version {version}: {holder.short} holds another value")
        return found
