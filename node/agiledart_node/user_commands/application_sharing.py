"""The `share` command: the owner of an application shares it with another key, or revokes that."""

import msgspec

from agiledart_kernel.grants import is_proper_key
from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.records.application import ApplicationRecord
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.records import Records
from agiledart_node.records.signed_entries import MAX_SIGNED_ENTRY_BYTES, with_signed_entry
from agiledart_node.user_commands.status_queries import StatusQueries
from agiledart_node.wire.application_responses import ShareResponse
from agiledart_node.wire.commands import ShareApplication

MAX_SHARED = 32
"""Keys that one application may be shared with."""


class ApplicationSharing:
    """Changes the keys with which an application is shared."""

    def __init__(
        self, context: NodeContext, records: Records, status_queries: StatusQueries, verifier: CommandVerifier
    ) -> None:
        self._context, self._records, self._status_queries, self._verifier = context, records, status_queries, verifier

    async def share(self, request: int, command: ShareApplication, principal: Principal, signed: bytes) -> None:
        """Share an application, or revoke it, and answer when the record is written. Raises CommandRefused."""
        principal, _ = self._verifier.identify_requester(signed, command, principal, "")
        record = await self._status_queries.record(command.name, principal, "share")
        key = _key_of(command.key)

        def change(current: ApplicationRecord) -> ApplicationRecord | None:
            others = tuple(shared_key for shared_key in current.shared_keys if shared_key != key)
            shared_keys = others if command.revoke else (*others, key)
            if len(shared_keys) > MAX_SHARED:
                raise CommandRefused(f"{command.name} is shared with {MAX_SHARED} keys already; revoke one first.")
            signed_entries = with_signed_entry(current.signed_entries, signed)
            if sum(map(len, signed_entries)) > MAX_SIGNED_ENTRY_BYTES:
                raise CommandRefused(f"{command.name} is shared as often as its record can hold; revoke one first.")
            return msgspec.structs.replace(current, shared_keys=shared_keys, signed_entries=signed_entries)

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
            f"invalid key {text!r}: use its 64 hex digits, as a refusal shows them to the other user, or `status` as owner.",
            2,
        )
    return key
