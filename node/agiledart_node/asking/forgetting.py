"""`forget`: an application that has ended goes from `list`; those that ended long ago go by themselves.

Its record stays, as small as it can be: the number of the last version must not be given again, because hosts remember what they
closed. The name is free for anybody from then on.
"""

from agiledart_kernel.permissions import Asker
from agiledart_node.asking.questions import Questions
from agiledart_node.desk.desk import CommandRefused, Desk
from agiledart_node.hosting.watching import Watching
from agiledart_node.records.application import ApplicationRecord, forgotten
from agiledart_node.records.records import Records
from agiledart_node.wire.bodies import ForgetBody

MAX_AT_ONCE = 32
"""Old applications that one `list` lets go; the next one takes more."""


class Forgetting:
    """Lets applications go."""

    def __init__(self, desk: Desk, records: Records, questions: Questions, watching: Watching) -> None:
        self._desk, self._records, self._questions, self._watching = desk, records, questions, watching
        self._is_tidying = False

    async def forget(self, request: int, name: str, asker: Asker) -> None:
        """At a user's wish. Raises CommandRefused."""
        record = await self._watching.freshened(await self._questions.record(name, asker, "forget"))
        if not record.is_final:
            raise CommandRefused(f"{name} is {record.state}. Stop it first: agiledart stop {name}")
        if not await self._let_go(record):
            raise CommandRefused(f"{name} cannot be forgotten: the ring did not answer. Try again.")
        self._desk.reply(request, ForgetBody(name, record.version))

    def tidy(self, old: list[ApplicationRecord]) -> None:
        """Let go of applications that nobody needs in `list` any more."""
        if old and not self._is_tidying and not self._desk.talks.is_full:
            self._is_tidying = True
            self._desk.talks.begin(self._tidy(old[:MAX_AT_ONCE]))

    async def _tidy(self, old: list[ApplicationRecord]) -> None:
        try:
            for record in old:
                await self._let_go(record)
        finally:
            self._is_tidying = False

    async def _let_go(self, record: ApplicationRecord) -> bool:
        def change(current: ApplicationRecord) -> ApplicationRecord | None:
            return forgotten(current) if current.is_final and not current.is_forgotten else None

        changed = await self._records.change(record.name, record.version, change)
        if changed is None or not changed.is_forgotten:
            return False
        await self._records.remove_name(record.name)
        _, now = await self._records.application(record.name)
        if now is not None and not now.is_forgotten:  # submitted again meanwhile
            await self._records.add_name(record.name)
        return True
