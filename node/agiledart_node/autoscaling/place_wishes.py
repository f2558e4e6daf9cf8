"""Wishes of hosts for places of their instances, at the coordinator of a run with `moves = mopa`.

A wish is valid until the next one of the same instance, until the instance runs elsewhere, or for two minutes.
Source: spec of placement §10, "MOPA among hosts".
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.autoscaling.autoscaler import coordinates
from agiledart_node.context.node_context import NodeContext
from agiledart_node.recovery.recovery_service import RecoveryService
from agiledart_node.recovery.register_bootstrap import copy_of
from agiledart_node.wire.mopa_messages import PlaceNoted, RequestPlace
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import RegisterValue

Copy = tuple[int, int]

VALID_NS: Final = 120 * SECOND


@dataclass(frozen=True, slots=True)
class _Wish:
    """Nodes that a host wishes for one of its instances, best first; and when it said so."""

    host: NodeId
    candidates: tuple[Peer, ...]
    at_ns: int


class PlaceWishes:
    """Wishes for the runs that this node coordinates.

    Args:
        is_wanted: returns whether the hosts of a run may wish.
    """

    def __init__(
        self, context: NodeContext, recovery_service: RecoveryService, is_wanted: Callable[[RunId], bool]
    ) -> None:
        self._context, self._recovery_service, self._is_wanted = context, recovery_service, is_wanted
        self._wishes: dict[RunId, dict[Copy, _Wish]] = {}

    def asked(self, sender: Peer, message: RequestPlace) -> None:
        """Note the wish of a host for an instance that it runs; answer it."""
        run = RunId(message.application, message.version)
        coordinator = self._recovery_service.machine.coordinators.get(run)
        copy = message.instance.stage, message.instance.index
        if coordinator is None or not coordinates(coordinator):
            answer = PlaceNoted(message.request, is_not_coordinator=True)
        elif _hosts(coordinator.value).get(copy) != sender.node:
            answer = PlaceNoted(message.request, "the sender does not run this instance")
        elif not self._is_wanted(run):
            answer = PlaceNoted(message.request, "its moves are not `mopa`")
        else:
            wish = _Wish(sender.node, message.candidates, self._context.now)
            self._wishes.setdefault(run, {})[copy] = wish
            answer = PlaceNoted(message.request)
        self._context.send(sender, answer)

    def keep(self, runs: Iterable[RunId]) -> None:
        """Drop the wishes for all other runs."""
        self._wishes = {run: self._wishes[run] for run in runs if run in self._wishes}

    def of(self, run: RunId, value: RegisterValue) -> Mapping[Copy, tuple[Peer, ...]]:
        """Return the valid wishes for a run: instance → nodes, best first."""
        hosts, since = _hosts(value), self._context.now - VALID_NS
        wishes = self._wishes.get(run, {})
        return {
            copy: wish.candidates
            for copy, wish in sorted(wishes.items())
            if wish.candidates and wish.at_ns >= since and hosts.get(copy) == wish.host
        }


def _hosts(value: RegisterValue) -> dict[Copy, NodeId]:
    return {copy_of(assignment.instance): assignment.host.node for assignment in value.plan.assignments}
