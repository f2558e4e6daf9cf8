"""Records of ended applications on the disks of their hosts and guards: the ring has them in memory only, and power may fail.

A node keeps the final record of each application in which it took part, with its reason and its figures, until the application is
submitted again or the time of `ended_ms` has passed. About once a minute, soon after it has joined, and when an agent says that the
application is forgotten, it compares each with the ring. It writes a record again that the ring has lost. A forgotten one stays, as
forgotten, so that no other host brings it back. Writes are compare-and-set, so hosts do not disturb each other.
"""

from typing import Final

from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.instants import SECOND, Duration
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.hosting.hosted_application import HostedApplication
from agiledart_node.records.application import RECORD_CODEC, ApplicationRecord, forgotten
from agiledart_node.records.records import Records
from agiledart_node.wire.effects import KeepEndedRecords
from agiledart_node.wire.events import EndedRecordsFound
from agiledart_node.wire.formation_messages import Acknowledged, ApplicationForgotten

MAX_RECORDS: Final = 256
MAX_BYTES: Final = 8 << 20
"""Most records of ended applications on one disk, and their bytes; the newest are kept."""

COMPARE_NS: Final = Duration(60 * SECOND)
FIRST_NS: Final = Duration(2 * SECOND)
"""Time after the end of an application until its record is read: its last figures are written behind its state."""


class EndedRecords:
    """Final records that this node keeps, and their comparison with the ring."""

    def __init__(self, context: NodeContext, records: Records) -> None:
        self._context, self._records = context, records
        self._kept: dict[str, ApplicationRecord] = {}
        self._is_comparing = False
        self._next_at = 0

    def load(self, event: EndedRecordsFound) -> None:
        """Take the records that an earlier process of this node has kept."""
        for content in event.records[:MAX_RECORDS]:
            try:
                record = RECORD_CODEC.decode(content)
            except RemoteProtocolError:
                self._context.drop("stored record")
                continue
            if record.is_final and record.is_consistent():
                self._kept[record.name] = record

    def closed(self, hosted: HostedApplication) -> None:
        """Keep the record of an application that has ended here, once its figures are in it."""
        if self._context.config.ended_ms and not self._context.requests.is_full:
            self._context.requests.begin(self._keep_soon(hosted.part.application))

    def on_forgotten(self, sender: Peer, message: ApplicationForgotten) -> None:
        """Compare a record with the ring at once, because power may fail before the next comparison."""
        if not self._context.requests.is_full:
            self._context.requests.begin(self._forget(sender, message))

    async def _forget(self, sender: Peer, message: ApplicationForgotten) -> None:
        await self._compare_and_write(message.application)
        self._context.send(sender, Acknowledged(message.request))

    def patrol(self) -> None:
        """Compare with the ring when it is time; called at each patrol of a node that has joined."""
        if self._kept and self._context.now >= self._next_at and not self._is_comparing:
            if self._context.requests.is_full:
                return
            self._is_comparing = True
            self._context.requests.begin(self._compare())

    async def _keep_soon(self, name: str) -> None:
        await self._context.requests.pause(FIRST_NS)
        await self._compare_and_write(name)

    async def _compare_and_write(self, name: str) -> None:
        before = self._kept.get(name)
        await self._compare_with_ring(name)
        if self._kept.get(name) != before:
            self._write()

    async def _compare(self) -> None:
        try:
            before = dict(self._kept)
            self._drop_old()
            for name in tuple(self._kept):
                await self._compare_with_ring(name)
            if self._kept != before:
                self._write()
        finally:
            self._is_comparing = False
            self._next_at = self._context.now + COMPARE_NS

    async def _compare_with_ring(self, name: str) -> None:
        """Bring this node's copy and the ring's record of one application together."""
        mine = self._kept.get(name)
        try:
            revision, current = await self._records.application(name)
            if current is None:
                if mine is not None and await self._records.create(revision, mine) and not mine.is_forgotten:
                    await self._records.add_name(name)
            elif mine is not None and mine.version > current.version:  # another host had an older one only
                await self._records.create(revision, mine)
            elif not current.is_final:
                self._kept.pop(name, None)  # it was submitted again
            elif (
                mine is not None
                and mine.is_forgotten
                and (mine.version, mine.number) == (current.version, current.number)
            ):
                await self._records.change(
                    name, current.version, lambda record: None if record.is_forgotten else forgotten(record)
                )
            else:
                self._kept[name] = current
        except OperationFailed:
            return  # the ring does not answer; the next comparison tries again

    def _drop_old(self) -> None:
        oldest_ms = self._context.wall_ms - self._context.config.ended_ms
        if self._context.wall_ms:
            self._kept = {name: record for name, record in self._kept.items() if record.changed_ms >= oldest_ms}

    def _write(self) -> None:
        """Let the newest records go to the disk."""
        newest = sorted(self._kept.values(), key=lambda record: (-record.changed_ms, record.name))
        contents: list[bytes] = []
        fitting: dict[str, ApplicationRecord] = {}
        size = 0
        for record in newest[:MAX_RECORDS]:
            content = RECORD_CODEC.encode(record)
            if (size := size + len(content)) > MAX_BYTES:
                break
            contents.append(content)
            fitting[record.name] = record
        self._kept = fitting
        self._context.emit(KeepEndedRecords(tuple(contents)))
