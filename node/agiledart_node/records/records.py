"""Records on the ring: applications, the catalogue of their names, and the names of nodes."""

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
"""Longer than the overlay's own timeout."""

_AT_ONCE = 128
"""Records read at one time; the overlay permits somewhat more."""

Change = Callable[[ApplicationRecord], ApplicationRecord | None]


class Records:
    """Reads and writes records; each method is part of a pending request.

    Application records are verified when read: rights without a user's signature are removed. Writes start from the stored record,
    without entries that no user has signed.
    """

    def __init__(self, context: NodeContext, verifier: CommandVerifier) -> None:
        self._context, self._verifier = context, verifier
        self._adding: dict[NodeId, dict[str, list[int]]] = {}

    async def read(self, key: NodeId) -> RecordAnswer:
        """Read the value at a key."""
        number = self._context.requests.number()
        self._context.deliver_to_overlay(ReadRecord(number, key))
        return await self._answer(number)

    async def store(self, key: NodeId, expected: int, value: bytes) -> RecordAnswer:
        """Write a value if the version at the key is still the expected one; a conflict with an equal value counts as stored."""
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
        """Return (version of the record, record) of an application; (0, None) when there is none.

        Args:
            part: the requester's part of this run: then the part's command is used instead of the record's.

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
        """Return records of many applications, in the order of their names, and the number of unreadable ones."""
        readable, unreadable = [], 0
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
                    readable.append(self._verifier.without_unproven_rights(record))
        return readable, unreadable

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
        """Replace the last record by that of a new submission; False when another node was faster.

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
                f"{record.name} cannot be recorded: the ring did not answer ({answer.reason}). Try again."
            )
        return answer.ok

    async def change(
        self, name: str, version: int, change: Change, number: int = 0, part: DeploymentPart | None = None
    ) -> ApplicationRecord | None:
        """Change a record, and retry after conflicts for at most `record_deadline_ns`.

        Args:
            change: returns the next record from the stored one, or None to leave it unchanged.
            number: of the run that the record must be of; 0: of any run of this version.
            part: see `application`; the stored record then contains the part's command.

        Returns:
            The verified record as it is now; None when this run has none any more or the ring does not answer.
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
            # After a conflict the next read returns the other write at once; only a silent ring needs a pause.
            if answer.reason != "conflict":
                await self._context.requests.pause(_PAUSE)

    async def names(self) -> tuple[str, ...]:
        """Return the names of all applications that were ever submitted, sorted."""
        numbers = {self._context.requests.number(): key for key in CATALOGUE_KEYS}
        for number, key in numbers.items():
            self._context.deliver_to_overlay(ReadRecord(number, key))
        answers = await self._context.requests.answers(dict.fromkeys(numbers, None), _OVERLAY_TIMEOUT)
        all_names: list[str] = []
        for number in numbers:
            answer = answers.get(number)
            if not isinstance(answer, RecordAnswer) or (not answer.ok and answer.reason != "missing"):
                reason = answer.reason if isinstance(answer, RecordAnswer) else "timeout"
                raise CommandRefused(f"The list of applications cannot be read: the ring did not answer ({reason}).")
            all_names += self._names(answer.value) if answer.ok else ()
        return tuple(sorted(all_names))

    def _names(self, value: bytes) -> tuple[str, ...]:
        try:
            return NAMES_CODEC.decode(value)
        except RemoteProtocolError:
            self._context.drop("record form")
            return ()

    async def add_name(self, name: str) -> None:
        """Add a name to the catalogue; names that arrive during a write of their page are added by the next write.

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
        """Write a page until no name is left to add."""
        while names := self._adding[key]:
            self._adding[key] = {}
            refusal = await self._write_page(key, tuple(names))
            for name, numbers in names.items():
                for number in numbers:
                    self._context.requests.resolve(number, refusal.format(name=name))
        del self._adding[key]

    async def remove_name(self, name: str) -> None:
        """Remove a name from the catalogue. Without an answer of the ring it stays, and its record says that it is forgotten."""
        await self._write_page(catalogue_key(name), (), (name,))

    async def _write_page(self, key: NodeId, added: tuple[str, ...], removed: tuple[str, ...] = ()) -> str:
        """Add names to a page, or remove some; return the reason of a failure, with `{name}` in it."""
        deadline = self._context.now + self._context.config.record_deadline_ns
        while True:
            answer = await self.read(key)
            known = self._names(answer.value) if answer.ok else ()
            names = [name for name in sorted({*known, *added}) if name not in removed]
            if answer.ok and names == sorted(known):
                return ""
            if len(names) > MAX_NAMES:
                return f"There are {len(known):,} applications on this page of the list, which is the limit."
            if (answer.ok or answer.reason == "missing") and (
                await self.store(key, answer.version, NAMES_CODEC.encode(tuple(names)))
            ).ok:
                return ""
            if self._context.now >= deadline:
                return "{name} cannot be added to the list of applications: the ring did not answer."
            await self._context.requests.pause(Duration(20_000_000))

    async def register(self, me: Peer) -> None:
        """Register this node's name on the ring, so that other agents find it by its name."""
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
        """Return the node that last registered this name; it may be gone."""
        answer = await self.read(node_name_key(name))
        peer = self._peer(answer.value) if answer.ok else None
        return peer if peer is not None and peer.name == name else None

    def _peer(self, value: bytes) -> Peer | None:
        try:
            return PEER_CODEC.decode(value)
        except RemoteProtocolError:
            self._context.drop("record form")
            return None
