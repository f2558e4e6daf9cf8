"""The `forget` command removes an ended application from `list`; applications that ended long ago are removed automatically.

Sessions that brokers still keep for its sources are ended from the agent that removes it. The record stays, as small as possible:
the number of the last version must not be reused, because hosts remember what they closed. Any user may take the name from then on.
"""

from agiledart_kernel.instants import Duration
from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.hosting.application_watcher import ApplicationWatcher
from agiledart_node.hosting.source_sessions import sessions_of
from agiledart_node.records.application import ApplicationRecord, forgotten
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.records import Records
from agiledart_node.user_commands.status_queries import StatusQueries
from agiledart_node.wire.application_responses import ForgetResponse
from agiledart_node.wire.commands import Forget
from agiledart_node.wire.formation_messages import Acknowledged, ApplicationForgotten

MAX_AT_ONCE = 32
"""Old applications that one `list` removes; the next one removes more."""


class ApplicationRemoval:
    """Removes ended applications."""

    def __init__(
        self,
        context: NodeContext,
        records: Records,
        status_queries: StatusQueries,
        watching: ApplicationWatcher,
        verifier: CommandVerifier,
    ) -> None:
        self._context, self._records, self._status_queries, self._watching = context, records, status_queries, watching
        self._verifier = verifier
        self._is_forgetting = False

    async def forget(self, request: int, command: Forget, principal: Principal, signed: bytes) -> None:
        """Remove an application at a user's request. Raises CommandRefused."""
        name = command.name
        principal, _ = self._verifier.identify_requester(signed, command, principal, "")
        record = await self._watching.refresher.refreshed(await self._status_queries.record(name, principal, "forget"))
        if not record.is_final:
            raise CommandRefused(f"{name} is {record.state}. Stop it first: agiledart stop {name}")
        if not await self._forget(record):
            raise CommandRefused(f"{name} cannot be forgotten: the ring did not answer. Try again.")
        self._context.reply(request, ForgetResponse(name, record.version))

    def forget_old(self, old: list[ApplicationRecord]) -> None:
        """Remove applications that ended long ago."""
        if old and not self._is_forgetting and not self._context.requests.is_full:
            self._is_forgetting = True
            self._context.requests.begin(self._forget_old(old[:MAX_AT_ONCE]))

    async def _forget_old(self, old: list[ApplicationRecord]) -> None:
        try:
            for record in old:
                await self._forget(record)
        finally:
            self._is_forgetting = False

    async def _forget(self, record: ApplicationRecord) -> bool:
        def change(current: ApplicationRecord) -> ApplicationRecord | None:
            return forgotten(current) if current.is_final and not current.is_forgotten else None

        changed = await self._records.change(record.name, record.version, change)
        if changed is None or not changed.is_forgotten:
            return False
        if (request := sessions_of(record)) is not None:  # no host may have been left to end them
            self._context.emit(request)
        # Hosts keep it on their disks. One that does not answer now compares with the ring once it is back.
        await self._context.requests.ask_all(
            (*record.nodes, *record.guards),
            lambda number, _: ApplicationForgotten(number, record.name),
            Acknowledged,
            Duration(self._context.config.ask_timeout_ns),
        )
        await self._records.remove_name(record.name)
        _, latest = await self._records.application(record.name)
        if latest is not None and not latest.is_forgotten:  # submitted again meanwhile
            await self._records.add_name(record.name)
        return True
