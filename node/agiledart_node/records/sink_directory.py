"""Locations of sink logs: one record on the ring for each, at the key of the sink's name, written by the node with its files.

The awkward case: two nodes have a log of one name, because a later run placed the sink elsewhere. Readers find the log that was
opened last; the other node does not overwrite the record, even after a restart.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import Duration
from agiledart_kernel.limits import MAX_RECORD_BYTES
from agiledart_kernel.machine import Effect, Event
from agiledart_kernel.name_patterns import LogWriterName
from agiledart_kernel.node_id import NodeId, key_of_name
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.record_kind import RecordKind
from agiledart_node.records.records import Records

_PAUSE = Duration(200_000_000)


class SinkRecord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Location of a sink's log.

    Args:
        application, version: the run that wrote it last.
        node: the node with the files.
        opened_ms: wall time at which a writer opened it last; decides between two logs of one name.
        log_id, schema, partitions: as in `agiledart_sink_log.protocol.Located`.
        owner: the key that it belongs to; empty for logs of releases without owners.
        ownership_proof: the owner's signed command to submit the application that began it.
    """

    name: str
    application: LogWriterName
    version: int
    node: Peer
    opened_ms: int
    log_id: str
    schema: bytes
    partitions: int
    owner: Annotated[bytes, msgspec.Meta(max_length=32)] = b""
    ownership_proof: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""


SINK_CODEC: Codec[SinkRecord] = Codec(SinkRecord, MAX_RECORD_BYTES)


class RegisterSink(Event, frozen=True, gc=False):
    """This node has the files of a log and registers it on the ring. The event may come any number of times."""

    record: SinkRecord


class FindSink(Event, frozen=True, gc=False):
    """Request for the location of a log. Answered by exactly one `SinkFound` with the same number (the driver's own)."""

    request: int
    name: str


class SinkFound(Effect, frozen=True, gc=False):
    """The record of a log, its node as known now; None: there is none, or with a `reason`: the ring did not answer.

    Args:
        is_signed: a signature proves its owner; otherwise only the node with the log knows the owner.
    """

    request: int
    record: SinkRecord | None
    reason: str = ""
    is_signed: bool = False


class FindSharers(Event, frozen=True, gc=False):
    """Request for the keys with which an application's owner shares it. Answered by exactly one `SharersFound` with this number."""

    request: int
    application: str
    owner: bytes


class SharersFound(Effect, frozen=True, gc=False):
    """Keys with which it is shared; none when it belongs to another key by now or is forgotten.

    Args:
        is_known: the ring has answered.
    """

    request: int
    keys: tuple[bytes, ...] = ()
    is_known: bool = True


def sink_key(name: str) -> NodeId:
    """Return the key of the record of a sink's log."""
    return key_of_name("sink", name)


class SinkDirectory:
    """Registers the logs of this node and finds those of others."""

    def __init__(self, context: NodeContext, records: Records, verifier: CommandVerifier) -> None:
        self._context, self._records, self._verifier = context, records, verifier
        self._registering: set[str] = set()

    def note(self, event: RegisterSink) -> None:
        """Start to register a log on the ring, unless that is in progress."""
        name = event.record.name
        if name not in self._registering and not self._context.requests.is_full:
            self._registering.add(name)
            self._context.requests.begin(self._note(event.record))

    async def _note(self, record: SinkRecord) -> None:
        try:
            deadline = self._context.now + self._context.config.record_deadline_ns
            while self._context.now < deadline:
                answer = await self._records.read(sink_key(record.name))
                there = self._decoded(record.name, answer.value) if answer.ok else None
                if there == record or (there is not None and _is_newer(there, record)):
                    return
                if answer.ok or answer.reason == "missing":
                    value = SINK_CODEC.encode(record)
                    if (await self._records.store(sink_key(record.name), answer.version, value)).ok:
                        return
                await self._context.requests.pause(_PAUSE)
        finally:
            self._registering.discard(record.name)

    def find(self, event: FindSink) -> None:
        """Answer with `SinkFound`."""
        if self._context.requests.is_full:
            self._context.emit(SinkFound(event.request, None, "busy"))
        else:
            self._context.requests.begin(self._find(event))

    async def _find(self, event: FindSink) -> None:
        answer = await self._records.read(sink_key(event.name))
        record = self._decoded(event.name, answer.value) if answer.ok else None
        reason = "" if answer.ok or answer.reason == "missing" else answer.reason
        if record is not None:
            record = msgspec.structs.replace(record, node=self._as_known(record.node))
        self._context.emit(SinkFound(event.request, record, reason, record is not None and self._is_signed(record)))

    def _is_signed(self, record: SinkRecord) -> bool:
        ownership_proof = (
            self._verifier.verify_unless_banned(record.ownership_proof) if record.ownership_proof else None
        )
        return ownership_proof is not None and (
            ownership_proof.signed_command.terms.verb,
            ownership_proof.grant.key,
        ) == ("submit", record.owner)

    def find_sharers(self, event: FindSharers) -> None:
        """Answer with `SharersFound`."""
        if self._context.requests.is_full:
            self._context.emit(SharersFound(event.request, is_known=False))
        else:
            self._context.requests.begin(self._find_sharers(event))

    async def _find_sharers(self, event: FindSharers) -> None:
        try:
            _, record = await self._records.application(event.application)
        except CommandRefused:
            self._context.emit(SharersFound(event.request, is_known=False))
            return
        is_owned = record is not None and not record.is_forgotten and record.owner_key == event.owner
        self._context.emit(SharersFound(event.request, record.shared_keys if record is not None and is_owned else ()))

    def _as_known(self, registered: Peer) -> Peer:
        """Return the same node in its latest known incarnation: it may have restarted under another address."""
        for peer in self._context.known():
            if peer.node == registered.node and peer.incarnation > registered.incarnation:
                return peer
        return registered

    def _decoded(self, name: str, value: bytes) -> SinkRecord | None:
        try:
            record = SINK_CODEC.decode(value)
        except RemoteProtocolError:
            self._context.drop("record form")
            return None
        if record.name != name:
            self._context.drop("record content")
            return None
        return record


def _is_newer(there: SinkRecord, mine: SinkRecord) -> bool:
    """Return whether the stored record stays because it was opened later.

    On one node the incarnation decides first, because its clock may have gone back.
    """
    if there.node.node == mine.node.node:
        return (there.node.incarnation, there.opened_ms) > (mine.node.incarnation, mine.opened_ms)
    return there.opened_ms > mine.opened_ms


SINKS = RecordKind(
    SINK_CODEC,
    lambda record, key: sink_key(record.name) == key,
    lambda earlier, later: earlier if _is_newer(earlier, later) else later,
)
