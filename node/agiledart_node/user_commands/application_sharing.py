"""`share`: the owner of an application gives it to another key, or takes it back."""

import msgspec

from agiledart_kernel.grants import is_proper_key
from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.records.application import ApplicationRecord
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.records import Records
from agiledart_node.records.signed_entries import MAX_SIGNED_ENTRY_BYTES, with_signed_entry
from agiledart_node.user_commands.status_queries import StatusQueries
from agiledart_node.wire.commands import ShareApplication
from agiledart_node.wire.responses import ShareResponse

MAX_SHARED = 32
"""Keys that one application may be shared with."""


class ApplicationSharing:
    """Changes whom an application is shared with."""

    def __init__(
        self, context: NodeContext, records: Records, status_queries: StatusQueries, verifier: CommandVerifier
    ) -> None:
        self._context, self._records, self._status_queries, self._verifier = context, records, status_queries, verifier

    async def share(self, request: int, command: ShareApplication, principal: Principal, signed: bytes) -> None:
        """Answers when the record says so. Raises CommandRefused."""
        principal, _ = self._verifier.given(signed, command, principal, "")
        record = await self._status_queries.record(command.name, principal, "share")
        key = _key_of(command.key)

        def change(current: ApplicationRecord) -> ApplicationRecord | None:
            others = tuple(one for one in current.shared_keys if one != key)
            wanted = others if command.revoke else (*others, key)
            if len(wanted) > MAX_SHARED:
                raise CommandRefused(f"{command.name} is shared with {MAX_SHARED} keys already; take one back first.")
            signed_entries = with_signed_entry(current.signed_entries, signed)
            if sum(map(len, signed_entries)) > MAX_SIGNED_ENTRY_BYTES:
                raise CommandRefused(f"{command.name} is shared as often as its record can hold; take one back first.")
            return msgspec.structs.replace(current, shared_keys=wanted, signed_entries=signed_entries)

        changed = await self._records.change(record.name, record.version, change)
        if changed is None:
            raise CommandRefused(f"{record.name} cannot be shared: the ring did not answer. Try again.")
        self._context.reply(request, ShareResponse(changed.name, changed.version, changed.owner, changed.shared))


def _key_of(text: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if not is_proper_key(key):
        raise CommandRefused(
            f"{text!r} is no key: it has 64 hex digits, as a refusal to the other user shows it, or `status` as owner.",
            2,
        )
    return key
