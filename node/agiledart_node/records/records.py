"""Records on the ring: applications, the catalogue of their names, and which node has a name."""

from collections.abc import Callable

import msgspec

from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import Duration, Instant
from agiledart_kernel.limits import MAX_RECORD_BYTES
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.records.application import (
    CATALOGUE_KEYS,
    MAX_NAMES,
    NAMES_CODEC,
    PEER_CODEC,
    RECORD_CODEC,
    ApplicationRecord,
    application_key,
    catalogue_key,
    node_name_key,
)
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.signed_entries import with_command_of_part
from agiledart_overlay.wire.effects import RecordAnswer
from agiledart_overlay.wire.events import ReadRecord, StoreRecord

_PAUSE = Duration(200_000_000)
_OVERLAY_TIMEOUT = Duration(60_000_000_000)
"""Longer than the overlay takes to answer `timeout` by itself."""

_AT_ONCE = 128
"""Records read at one time; the overlay takes some more."""

Change = Callable[[ApplicationRecord], ApplicationRecord | None]


class Records:
    """Reads and writes records; each method is part of a conversation.

    What is read of applications is judged: rights that no user has signed are not in it. What is changed is what was written,
    without deeds that nobody has signed.
    """

    def __init__(self, context: NodeContext, verifier: CommandVerifier) -> None:
        self._context, self._verifier = context, verifier
        self._adding: dict[NodeId, dict[str, list[int]]] = {}

    async def read(self, key: NodeId) -> RecordAnswer:
        """What lies at a key."""
        number = self._context.requests.number()
        self._context.deliver_to_overlay(ReadRecord(number, key))
        return await self._answer(number)

    async def store(self, key: NodeId, expected: int, value: bytes) -> RecordAnswer:
        """Write if the version at the key is still the expected one; a conflict with our own value counts as stored."""
        number = self._context.requests.number()
        self._context.deliver_to_overlay(StoreRecord(number, key, expected, value))
        answer = await self._answer(number)
        if not answer.ok and answer.reason == "conflict" and answer.value == value:
            return msgspec.structs.replace(answer, ok=True, reason="")
        return answer

    async def _answer(self, number: int) -> RecordAnswer:
        answers = await self._context.requests.answers({number: None}, _OVERLAY_TIMEOUT)
        answer = answers.get(number)
        if isinstance(answer, RecordAnswer):
            return answer
        return RecordAnswer(number, ok=False, version=0, value=b"", reason="timeout")

    async def application(self, name: str, part: DeploymentPart | None = None) -> tuple[int, ApplicationRecord | None]:
        """(version of the record, record) of an application; (0, None) when there is none.

        Args:
            part: of the run of which who asks has one: then its order counts, not the one that the record of that run names.

        Raises:
            CommandRefused: the ring does not answer.
        """
        revision, record = await self._written(name)
        return revision, None if record is None else self._verifier.without_unproven_rights(
            with_command_of_part(record, part)
        )

    async def _written(self, name: str) -> tuple[int, ApplicationRecord | None]:
        answer = await self.read(application_key(name))
        if answer.ok:
            return answer.version, self._decoded(name, answer.value)
        if answer.reason == "missing":
            return 0, None
        raise CommandRefused(
            f"The record of {name} cannot be read: the ring did not answer ({answer.reason}). "
            "Try again in some seconds."
        )

    async def applications(self, names: tuple[str, ...]) -> tuple[list[ApplicationRecord], int]:
        """Records of many applications, in the order of their names, and how many could not be read."""
        found, unreadable = [], 0
        for start in range(0, len(names), _AT_ONCE):
            numbers = {self._context.requests.number(): name for name in names[start : start + _AT_ONCE]}
            for number, name in numbers.items():
                self._context.deliver_to_overlay(ReadRecord(number, application_key(name)))
            answers = await self._context.requests.answers(dict.fromkeys(numbers, None), _OVERLAY_TIMEOUT)
            for number, name in numbers.items():
                answer = answers.get(number)
                if not isinstance(answer, RecordAnswer) or (not answer.ok and answer.reason != "missing"):
                    unreadable += 1
                elif answer.ok and (record := self._decoded(name, answer.value)) is not None:
                    found.append(self._verifier.without_unproven_rights(record))
        return found, unreadable

    def _decoded(self, name: str, value: bytes) -> ApplicationRecord | None:
        try:
            record = RECORD_CODEC.decode(value)
        except RemoteProtocolError:
            self._context.drop("record form")
            return None
        if record.name != name or not record.is_consistent():
            self._context.drop("record content")
            return None
        return record

    async def create(self, revision: int, record: ApplicationRecord) -> bool:
        """Put the record of a new submission in place of the last one; False when somebody else was faster.

        Raises:
            CommandRefused: the ring does not answer, or the record is too large.
        """
        value = RECORD_CODEC.encode(record)
        if len(value) > MAX_RECORD_BYTES:
            raise CommandRefused(
                f"{record.name} is too large: its record has {len(value):,} bytes, at most {MAX_RECORD_BYTES:,}."
            )
        answer = await self.store(application_key(record.name), revision, value)
        if not answer.ok and answer.reason != "conflict":
            raise CommandRefused(
                f"{record.name} cannot be noted: the ring did not answer ({answer.reason}). Try again."
            )
        return answer.ok

    async def change(
        self, name: str, version: int, change: Change, number: int = 0, part: DeploymentPart | None = None
    ) -> ApplicationRecord | None:
        """Change a record until it sticks, for `record_deadline_ns` at the longest.

        Args:
            change: gives the next record from the written one, or None to leave it as it is.
            number: of the run that the record must be of; 0: of any run of this version.
            part: see `application`; what is written then names the part's order.

        Returns:
            The record as it is now, judged; None when this run has none any more or the ring does not answer.
        """
        deadline = self._context.now + self._context.config.record_deadline_ns
        while True:
            try:
                revision, record = await self._written(name)
            except CommandRefused:
                if self._context.now >= deadline:
                    return None
                await self._context.requests.pause(_PAUSE)
                continue
            if record is None or record.version != version or number not in (0, record.number):
                return None
            record = self._verifier.without_forged_entries_of(with_command_of_part(record, part))
            changed = change(record)
            if changed is None:
                return self._verifier.without_unproven_rights(record)
            answer = await self.store(application_key(name), revision, RECORD_CODEC.encode(changed))
            if answer.ok:
                return self._verifier.without_unproven_rights(changed)
            if self._context.now >= deadline:
                return None
            if answer.reason != "conflict":
                await self._context.requests.pause(_PAUSE)

    async def names(self) -> tuple[str, ...]:
        """Names of all applications that were ever submitted, sorted."""
        numbers = {self._context.requests.number(): key for key in CATALOGUE_KEYS}
        for number, key in numbers.items():
            self._context.deliver_to_overlay(ReadRecord(number, key))
        answers = await self._context.requests.answers(dict.fromkeys(numbers, None), _OVERLAY_TIMEOUT)
        found: list[str] = []
        for number in numbers:
            answer = answers.get(number)
            if not isinstance(answer, RecordAnswer) or (not answer.ok and answer.reason != "missing"):
                reason = answer.reason if isinstance(answer, RecordAnswer) else "timeout"
                raise CommandRefused(f"The list of applications cannot be read: the ring did not answer ({reason}).")
            found += self._names(answer.value) if answer.ok else ()
        return tuple(sorted(found))

    def _names(self, value: bytes) -> tuple[str, ...]:
        try:
            return NAMES_CODEC.decode(value)
        except RemoteProtocolError:
            self._context.drop("record form")
            return ()

    async def add_name(self, name: str) -> None:
        """Put a name into the catalogue; names that come while a page is being written go with the next write of it.

        Raises:
            CommandRefused: the page is full or cannot be written.
        """
        key, number = catalogue_key(name), self._context.requests.number()
        waiting = self._adding.get(key)
        if waiting is None:
            self._adding[key] = {name: [number]}
            self._context.requests.begin(self._write_names(key))
        else:
            waiting.setdefault(name, []).append(number)
        answers = await self._context.requests.answers(
            {number: None}, Duration(2 * self._context.config.record_deadline_ns)
        )
        refusal = answers.get(number, f"{name} cannot be added to the list of applications: the ring did not answer.")
        if refusal:
            raise CommandRefused(str(refusal))

    async def _write_names(self, key: NodeId) -> None:
        """Write a page until nothing is left to be added."""
        while names := self._adding[key]:
            self._adding[key] = {}
            refusal = await self._write_page(key, tuple(names))
            for name, numbers in names.items():
                for number in numbers:
                    self._context.requests.answered(number, refusal.format(name=name))
        del self._adding[key]

    async def remove_name(self, name: str) -> None:
        """Take a name out of the catalogue. When the ring does not answer it stays, and its record says that it is nobody's."""
        await self._write_page(catalogue_key(name), (), (name,))

    async def _write_page(self, key: NodeId, added: tuple[str, ...], removed: tuple[str, ...] = ()) -> str:
        """Add names to a page, or remove some; returns why not, with `{name}` in it."""
        deadline = self._context.now + self._context.config.record_deadline_ns
        while True:
            answer = await self.read(key)
            known = self._names(answer.value) if answer.ok else ()
            names = [name for name in sorted({*known, *added}) if name not in removed]
            if answer.ok and names == sorted(known):
                return ""
            if len(names) > MAX_NAMES:
                return (
                    f"There are {len(known):,} applications on this page of the list already; no more names are kept."
                )
            if (answer.ok or answer.reason == "missing") and (
                await self.store(key, answer.version, NAMES_CODEC.encode(tuple(names)))
            ).ok:
                return ""
            if self._context.now >= deadline:
                return "{name} cannot be added to the list of applications: the ring did not answer."
            await self._context.requests.pause(Duration(20_000_000))

    async def register(self, me: Peer) -> None:
        """Note on the ring that this node has its name, so that agents that never met it find it."""
        deadline = Instant(self._context.now + self._context.config.record_deadline_ns)
        while me.name and self._context.now < deadline:
            answer = await self.read(node_name_key(me.name))
            if answer.ok and self._peer(answer.value) == me:
                return
            if answer.ok or answer.reason == "missing":
                stored = await self.store(node_name_key(me.name), answer.version, PEER_CODEC.encode(me))
                if stored.ok:
                    return
            await self._context.requests.pause(_PAUSE)

    async def node_named(self, name: str) -> Peer | None:
        """The node that last registered this name; it may be gone."""
        answer = await self.read(node_name_key(name))
        peer = self._peer(answer.value) if answer.ok else None
        return peer if peer is not None and peer.name == name else None

    def _peer(self, value: bytes) -> Peer | None:
        try:
            return PEER_CODEC.decode(value)
        except RemoteProtocolError:
            self._context.drop("record form")
            return None
