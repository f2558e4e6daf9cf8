"""A replica node's side: which fragments it stores for other nodes.

A node stores fragments of hosts of the run. Where it votes on the run or hosts a part, the register names the hosts; otherwise
the
application's record on the ring does. The record follows the register, so a host that has just taken over may have to wait a
little.
To fetch a fragment a node must name the hash of its snapshot, which only nodes that know the register know; fragments are
encrypted.
"""

from agiledart_kernel.instants import MILLISECOND, SECOND, Duration, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.records.records import Records
from agiledart_node.wire.fragment_effects import FragmentDecision, FragmentOffered
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import RegisterValue

KNOWN_NS = 5 * SECOND
"""Time for which the hosts named by a record are trusted without reading it again."""

TRIES = 4
PAUSE_NS = 400 * MILLISECOND
"""Number of reads of a record that does not name the sender yet, and the pause between two reads."""


class FragmentAdmission:
    """Decides about fragments that peers offer."""

    def __init__(self, context: NodeContext, records: Records, machine: RecoveryMachine) -> None:
        self._context, self._records, self._machine = context, records, machine
        self._hosts: dict[RunId, tuple[Instant, dict[NodeId, None]]] = {}

    def offered(self, event: FragmentOffered) -> None:
        """Accept or refuse a fragment that a peer offers."""
        refusal = self._machine.fragment_store.refusal(event.key, event.attempt)
        if refusal:
            kind = "old attempt" if "attempt" in refusal else "full"
            self._context.emit(FragmentDecision(event.request, kind, refusal))
        elif self._knows(event.key.run, event.sender.node):
            self._context.emit(FragmentDecision(event.request))
        elif self._context.requests.is_full:
            self._context.emit(FragmentDecision(event.request, "full", f"{self._context.me.name} is busy"))
        else:
            self._context.requests.begin(self._look(event))

    def _knows(self, run: RunId, sender: NodeId) -> bool:
        if any(sender in value.plan.hosts for value in self._values(run)):
            return True
        known = self._hosts.get(run)
        return known is not None and self._context.now - known[0] < KNOWN_NS and sender in known[1]

    def _values(self, run: RunId) -> list[RegisterValue]:
        part, coordinator = self._machine.participants.get(run), self._machine.coordinators.get(run)
        known = (part.value if part is not None else None, coordinator.proposer.value if coordinator else None)
        return [value for value in known if value is not None]

    async def _look(self, event: FragmentOffered) -> None:
        run, refusal = event.key.run, ("unknown run", f"nothing is known of {event.key.run.app} here")
        for try_number in range(TRIES):
            if try_number:
                await self._context.requests.pause(Duration(PAUSE_NS))
            try:
                _, record = await self._records.application(run.app)
            except CommandRefused:
                continue
            if record is None or record.version != run.version or record.is_final:
                continue
            if event.attempt < record.attempt:
                refusal = ("old attempt", f"attempt {event.attempt} is over, the current one is {record.attempt}")
                break
            hosts = {peer.node: None for peer in record.hosts()}
            if len(self._hosts) >= self._context.config.max_hosted:
                self._hosts.clear()
            self._hosts[run] = (self._context.now, hosts)
            if event.sender.node in hosts:
                refusal = ("", "")
                break
            name = event.sender.name or event.sender.node.short
            refusal = ("not a host", f"{name} hosts nothing of {run.app}")
        self._context.emit(FragmentDecision(event.request, *refusal))
