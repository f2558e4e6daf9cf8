"""Ledger of look-ups: each one is delivered, in progress, or reported lost; and which node it was delivered to.

Source: rt_1 to rt_3 of the project's reliability notes, section 5.
"""

from collections.abc import Iterable
from itertools import pairwise

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId, ring_distance, shared_prefix
from agiledart_kernel.peer import Peer
from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_overlay.wire.effects import Delivered, Forwarding

_LOOKUP_PREFIX = b"look-up "


class LookupLedger:
    """Look-ups that were sent into the ring, and their outcomes.

    Args:
        id_bits, digit_bits: of the ring.
    """

    def __init__(self, id_bits: int, digit_bits: int) -> None:
        self._bits, self._digit_bits = id_bits, digit_bits
        self._sent: list[tuple[NodeId, Instant]] = []
        self._delivered: list[list[NodeId]] = []
        self._taken: dict[int, None] = {}
        """Look-ups that their source has accepted. The others were dropped, or died with the source before it looked at them.
        """
        self.violations: list[str] = []
        self._lost_with_node = 0

    def send(self, key: NodeId, now: Instant) -> bytes:
        """Note a look-up that is being sent; return the payload that it must carry."""
        self._sent.append((key, now))
        self._delivered.append([])
        return _LOOKUP_PREFIX + str(len(self._sent) - 1).encode()

    def on_effect(self, peer: Peer, effect: Effect) -> None:
        """Check an effect: a look-up that is forwarded or delivered."""
        if not isinstance(effect, Delivered | Forwarding) or not effect.payload.startswith(_LOOKUP_PREFIX):
            return
        number = int(effect.payload[len(_LOOKUP_PREFIX) :])
        self._taken[number] = None
        if isinstance(effect, Forwarding):
            return
        self._delivered[number].append(peer.node)
        nodes = [visited.node for visited in effect.path]
        if len(dict.fromkeys(nodes)) < len(nodes):
            self.violations.append(f"rt_1: look-up {number} visited a node twice: {[node.short for node in nodes]}")
        elif self._strays(effect.key, nodes):
            self.violations.append(f"rt_1: look-up {number} took a hop that brought it no nearer")

    def _strays(self, key: NodeId, nodes: list[NodeId]) -> bool:
        bits, digit_bits = self._bits, self._digit_bits
        return any(
            shared_prefix(there, key, bits, digit_bits) <= shared_prefix(here, key, bits, digit_bits)
            and (ring_distance(there, key, bits), there) >= (ring_distance(here, key, bits), here)
            for here, there in pairwise(nodes)
        )

    def on_crash(self, machine: OverlayMachine) -> None:
        """Note that a node is about to die with all look-ups that it had accepted."""
        self._lost_with_node += machine.hops_pending + _reported(machine)

    @property
    def sent(self) -> int:
        """Return the number of look-ups sent."""
        return len(self._sent)

    @property
    def delivered(self) -> int:
        """Return the number of look-ups that arrived at some node."""
        return sum(1 for nodes in self._delivered if nodes)

    @property
    def duplicates(self) -> int:
        """Return the number of deliveries beyond the first of each look-up."""
        return sum(len(nodes) - 1 for nodes in self._delivered if nodes)

    def missing(self) -> list[int]:
        """Return the numbers of look-ups that were accepted and have not arrived."""
        return [number for number in self._taken if not self._delivered[number]]

    def balance_violations(self, machines: Iterable[OverlayMachine]) -> list[str]:
        """Return violations of rt_3: every loss is reported. `machines` are live; call it when nothing was sent for a while."""
        known = list(machines)
        excuses = self._lost_with_node + sum(machine.hops_pending + _reported(machine) for machine in known)
        missing = self.missing()
        if len(missing) <= excuses:
            return []
        return [f"rt_3: {len(missing)} of {self.sent} look-ups are missing, and only {excuses} losses were reported"]

    def outcome(self, number: int) -> list[NodeId]:
        """Return the nodes that received this look-up."""
        return self._delivered[number]


def _reported(machine: OverlayMachine) -> int:
    """Return the number of losses that a node has reported."""
    dropped = machine.statistics().dropped
    return sum(count for reason, count in dropped if reason.startswith(("route", "hop")))
