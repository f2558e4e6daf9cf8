"""`share`: the owner of an application gives it to another key, or takes it back."""

import msgspec

from agiledart_kernel.grants import is_proper_key
from agiledart_kernel.permissions import Asker
from agiledart_node.asking.questions import Questions
from agiledart_node.desk.desk import CommandRefused, Desk
from agiledart_node.records.application import ApplicationRecord
from agiledart_node.records.deeds import MAX_DEED_BYTES, with_deed
from agiledart_node.records.order_checks import Orders
from agiledart_node.records.records import Records
from agiledart_node.wire.bodies import ShareBody
from agiledart_node.wire.commands import Share

MAX_SHARED = 32
"""Keys that one application may be shared with."""


class Sharing:
    """Changes whom an application is shared with."""

    def __init__(self, desk: Desk, records: Records, questions: Questions, orders: Orders) -> None:
        self._desk, self._records, self._questions, self._orders = desk, records, questions, orders

    async def share(self, request: int, command: Share, asker: Asker, signed: bytes) -> None:
        """Answers when the record says so. Raises CommandRefused."""
        asker, _ = self._orders.given(signed, command, asker, "")
        record = await self._questions.record(command.name, asker, "share")
        key = _key_of(command.key)

        def change(current: ApplicationRecord) -> ApplicationRecord | None:
            others = tuple(one for one in current.shared_keys if one != key)
            wanted = others if command.revoke else (*others, key)
            if len(wanted) > MAX_SHARED:
                raise CommandRefused(f"{command.name} is shared with {MAX_SHARED} keys already; take one back first.")
            deeds = with_deed(current.deeds, signed)
            if sum(map(len, deeds)) > MAX_DEED_BYTES:
                raise CommandRefused(f"{command.name} is shared as often as its record can hold; take one back first.")
            return msgspec.structs.replace(current, shared_keys=wanted, deeds=deeds)

        changed = await self._records.change(record.name, record.version, change)
        if changed is None:
            raise CommandRefused(f"{record.name} cannot be shared: the ring did not answer. Try again.")
        self._desk.reply(request, ShareBody(changed.name, changed.version, changed.owner, changed.shared))


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
