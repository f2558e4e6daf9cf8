"""`StopCoordinator`: the coordinator of an application stops it at a user's command, at once or when its sources have drained."""

from collections.abc import Awaitable, Callable

import msgspec

from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_kernel.instants import Duration
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import CommandRefused, NodeContext, NotAllowed
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.hosting.hosted_application import HostedApplication, Key
from agiledart_node.records.application import STOPPED, ApplicationRecord
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.records import Records
from agiledart_node.records.signed_entries import with_stop_request
from agiledart_node.wire.commands import Stop
from agiledart_node.wire.formation_messages import Acknowledged, Drain, RequestStop

NOT_COORDINATOR = "not here"
"""Reason for which a node that does not coordinate an application does not stop it."""

EndRun = Callable[[HostedApplication, str, Callable[[ApplicationRecord], str], bytes], Awaitable[None]]
"""Ends a run in a state, for a reason, with the signed command that asked for it."""


class StopCoordinator:
    """Stops under way of the applications that this node coordinates.

    Args:
        context, records, hosting, verifier: of this node.
        end_run: writes the end into the record and halts the hosts.
    """

    def __init__(
        self,
        context: NodeContext,
        records: Records,
        hosting: ApplicationHost,
        verifier: CommandVerifier,
        end_run: EndRun,
    ) -> None:
        self._context, self._records, self._hosting, self._verifier = context, records, hosting, verifier
        self._end_run = end_run
        # (run, whether it is cut) → whether the stop is certain
        self._stopping: dict[tuple[Key, bool], bool] = {}

    def is_stopping(self, key: Key) -> bool:
        """Report whether a stop of this run is under way."""
        return any((key, now) in self._stopping for now in (False, True))

    def ask_stop(self, sender: Peer, message: RequestStop) -> None:
        """Stop an application that this node coordinates, at a user's command."""
        hosted = self._hosting.table.get((message.application, message.version))
        if hosted is None or hosted.part.coordinator.node != self._context.me.node:
            self._context.send(sender, Acknowledged(message.request, NOT_COORDINATOR))
            return
        try:
            wanted = Stop(message.application, message.now)
            principal, by = self._verifier.identify_requester(
                message.signed_command, wanted, Principal(), message.submitter
            )
        except NotAllowed as refusal:
            self._context.drop(f"command: {refusal.reason}")
            self._context.send(sender, Acknowledged(message.request, refusal.text))
            return
        if hosted.is_closing or self._stopping.get((hosted.key, message.now)):
            self._context.send(sender, Acknowledged(message.request))
        elif (hosted.key, message.now) not in self._stopping:
            self._stopping[hosted.key, message.now] = False
            message = msgspec.structs.replace(message, submitter=by)
            self._context.requests.begin(self._stop(hosted, sender, message, principal))

    async def _stop(self, hosted: HostedApplication, sender: Peer, message: RequestStop, principal: Principal) -> None:
        try:
            refusal = (
                await self._objection(message, principal, hosted.part) if self._verifier.requires_signatures else ""
            )
            self._context.send(sender, Acknowledged(message.request, refusal))
            if refusal:
                return
            self._stopping[hosted.key, message.now] = True
            if message.now:
                self._hosting.stop_local(hosted)
                by = f"stopped by {message.submitter}" if message.submitter else "stopped by a user"
                await self._end_run(hosted, STOPPED, lambda _: by, message.signed_command)
                return
            record = await self._records.change(
                *hosted.key, lambda record: with_stop_request(record, message.signed_command), part=hosted.part
            )
            if record is not None:
                await self.drain(hosted.key, record)
        finally:
            del self._stopping[hosted.key, message.now]

    async def drain(self, key: tuple[str, int], record: ApplicationRecord) -> None:
        """End the sources of a run; hosts that miss the message find it in the record."""
        sources = {place.node for place in record.assignment if record.stages[place.stage].kind == "source"}
        peers = [record.nodes[position] for position in sorted(sources)]
        timeout = Duration(self._context.config.ask_timeout_ns)
        await self._context.requests.ask_all(peers, lambda number, _: Drain(number, *key), Acknowledged, timeout)

    async def _objection(self, message: RequestStop, principal: Principal, part: DeploymentPart) -> str:
        """Return why the signer must not stop the run, by the record: the sending agent is not trusted."""
        try:
            _, record = await self._records.application(message.application, part)
            self._verifier.check_by_part(principal, "stop", part, record)
            if record is not None:
                self._verifier.check_stop(message.signed_command, principal, record)
        except CommandRefused as refusal:
            self._context.drop(f"command: {refusal.reason if isinstance(refusal, NotAllowed) else 'no record'}")
            return refusal.text
        return "" if record is not None else f"No application {message.application!r}."
