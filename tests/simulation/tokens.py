"""A mesh whose nodes count the uses of tokens, and keys that come by them: they ask node after node until one answers."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.registering.token_uses import TokenUses, decoded_uses, uses_key
from agiledart_node.wire.effects import KeyDecision
from agiledart_node.wire.events import KeyPresented
from tests.simulation.mesh import WALL_MS, Mesh

NOW = WALL_MS // 1_000
HOUR = 3_600
TOKEN = sha256(b"a token").digest()


def key_number(number: int) -> bytes:
    """The key of a newcomer."""
    return sha256(b"key %d" % number).digest()


class Tokens(Mesh):
    """Newcomers ask in rotation, and again after `ANSWER_TIMEOUT` without an answer or when the answer is unknown.

    Attributes:
        verdicts: by key, the last answer.
    """

    ANSWER_TIMEOUT = 3 * SECOND

    def __init__(self, seed: int, count: int, **more: Any) -> None:
        super().__init__(seed, count, **more)
        self.verdicts: dict[bytes, KeyDecision] = {}
        self.known: dict[NodeId, dict[bytes, dict[bytes, int]]] = {}
        self._asked: dict[int, tuple[NodeId, KeyPresented]] = {}
        self._draws = RandomStream(seed, "newcomers")
        self._last = 0
        self.on_member: Callable[[bytes, NodeId], None] = lambda key, at: None

    def _on_effect(self, peer: Peer, effect: Any) -> None:
        if not isinstance(effect, KeyDecision):
            super()._on_effect(peer, effect)
            return
        at, met = self._asked[effect.request]
        assert at == peer.node
        before = self.verdicts.get(met.key)
        if before is not None and not before.reason and effect.reason == "unregistered":
            return  # it had asked another node, too
        self.verdicts[met.key] = effect
        if not effect.reason:
            self.known.setdefault(at, {}).setdefault(met.token, {})[met.key] = effect.wall_seconds
            if before is None or before.reason:
                self.on_member(met.key, at)

    def meet(self, key: bytes, at: NodeId, token: bytes = TOKEN, **more: Any) -> int:
        """A node meets a key once; the number of its question."""
        self._last += 1
        known = tuple(self.known.get(at, {}).get(token, {}).items())
        fields: dict[str, Any] = {"allowed": 900, "join_before": NOW + HOUR, "known": known} | more
        met = KeyPresented(self._last, token, key, **fields)
        self._asked[self._last] = at, met
        self.world.inject(at, met)
        return self._last

    def come(self, key: bytes, gates: list[NodeId], until: int, **more: Any) -> None:
        """A key tries gate after gate until one knows whether it may."""
        verdict = self.verdicts.get(key)
        if (verdict is not None and verdict.reason != "unregistered") or self.world.now >= until:
            return
        self.meet(key, self._draws.choice([gate for gate in gates if self.world.nodes[gate].is_up]), **more)
        self.world.call(self.ANSWER_TIMEOUT, lambda: self.come(key, gates, until, **more))

    def crowd(self, count: int, gates: list[NodeId], seconds: int, within_ns: int = 5 * SECOND, **more: Any) -> None:
        """So many keys, all within a short time, each at some gate."""
        until = self.world.now + seconds * SECOND
        for number in range(count):
            key = key_number(number)
            self.world.call(
                int(self._draws.uniform() * within_ns), lambda key=key: self.come(key, gates, until, **more)
            )

    def once(self, key: bytes, at: str, token: bytes = TOKEN, **more: Any) -> KeyDecision:
        """The answer of one node."""
        self.verdicts.pop(key, None)
        self.meet(key, self.node(at), token, **more)
        assert self.world.run_until(lambda: key in self.verdicts, 20 * SECOND, MILLISECOND)
        return self.verdicts[key]

    def members(self) -> list[bytes]:
        """Keys that were let in."""
        return sorted(key for key, verdict in self.verdicts.items() if not verdict.reason)

    def copies(self, token: bytes = TOKEN) -> dict[NodeId, TokenUses]:
        """The copies of a token's record that live nodes hold."""
        found = {}
        for node in self.world.live:
            for record in node.machine.overlay.records:
                uses = decoded_uses(token, record.value) if record.key == uses_key(token) else None
                if uses is not None:
                    found[node.peer.node] = uses
        return found
