"""Digest of a run: equal digests mean equal runs, event for event, payloads included."""

from hashlib import blake2b

from agiledart_kernel.codec import encode
from agiledart_kernel.node_id import NodeId


class Trace:
    """Hash of every event of a world.

    Args:
        keep: number of last lines that are kept readable, for a failing test to print.
        payloads: include the content of events; without it, only instant, nodes and kind, at a quarter of the cost.
    """

    def __init__(self, keep: int = 0, *, payloads: bool = True) -> None:
        self._hash = blake2b(digest_size=8)
        self._keep = keep
        self._payloads = payloads
        self.events = 0
        self.tail: list[str] = []

    def add(self, at: int, node: NodeId, source: NodeId | None, kind: str, payload: object) -> None:
        """Add one event: instant, node, sender, kind, content."""
        self.events += 1
        raw = encode(payload) if self._payloads and payload is not None else b""
        head = f"{at} {node:x} {source or 0:x} {kind} {len(raw)} "
        self._hash.update(head.encode() + raw)
        if self._keep:
            self.tail.append(f"{head}{payload!r}")
            if len(self.tail) > 2 * self._keep:
                del self.tail[: self._keep]

    @property
    def digest(self) -> str:
        """Return the digest as 16 hex digits."""
        return self._hash.hexdigest()
