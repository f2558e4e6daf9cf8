"""Registration of this node's logs with the ring, and the search for the node that has a log."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.machine import Completed, Event
from agiledart_kernel.peer import Peer
from agiledart_node.records.sink_directory import FindSink, RegisterSink, SinkFound, SinkRecord
from agiledart_node.wire.log_list_messages import LogName, ReadLogNames
from agiledart_sink_log.layout import Description, log_directory, logs_in, read_description

FIND_SECONDS: Final = 15.0
NOTE_SECONDS: Final = 30.0


class LogRegistration:
    """Tells the ring which logs are here, and finds logs by name.

    Args:
        root: the state directory, above `sink-logs`.
        me: returns this node as others reach it.
        feed: takes events for the node.
        proof_of: (log, owner) → the owner's signed command, which proves the ownership.
    """

    def __init__(
        self, root: Path, me: Callable[[], Peer], feed: Callable[[Event], None], proof_of: Callable[[str, bytes], bytes]
    ) -> None:
        self._root, self._me, self._feed, self._proof_of = root, me, feed, proof_of
        self._finding: dict[int, asyncio.Future[SinkFound]] = {}
        self._number = 0

    def note_logs(self) -> None:
        """Register every log here with the ring, as far as the ring does not know it."""
        for _, log in logs_in(self._root):
            self._note(log)

    def note_logs_named(self, names: Iterable[str]) -> None:
        """Register these logs, as far as they are here: a start of an application must not read the logs of all others."""
        for name in names:
            with contextlib.suppress(OperationFailed, OSError):  # a damaged one is reported when it is read
                log = read_description(log_directory(self._root, name))
                if log is not None and log.name == name:
                    self._note(log)

    def _note(self, log: Description) -> None:
        self._feed(RegisterSink(_record_of(log, self._me(), self._proof_of)))

    async def announce_forever(self, also: Callable[[], None] = lambda: None) -> None:
        """Register the logs again and again: the ring forgets when all nodes of a neighbourhood end at once.

        Args:
            also: registers what has no log yet.
        """
        while True:
            self.note_logs()
            also()
            await asyncio.sleep(NOTE_SECONDS)

    def read_names(self, effect: ReadLogNames) -> None:
        """Report the names of the logs here to the node."""
        names = tuple(LogName(log.name, log.application, bytes.fromhex(log.owner)) for _, log in logs_in(self._root))
        self._feed(Completed(effect.request, names))

    def on_sink_found(self, effect: SinkFound) -> None:
        """Take the node's answer to `FindSink`."""
        if (future := self._finding.pop(effect.request, None)) is not None and not future.done():
            future.set_result(effect)

    async def find(self, name: str) -> SinkFound:
        """Look up a log on the ring."""
        self._number += 1
        number = self._number
        answer: asyncio.Future[SinkFound] = asyncio.get_running_loop().create_future()
        self._finding[number] = answer
        self._feed(FindSink(number, name))
        try:
            return await asyncio.wait_for(answer, FIND_SECONDS)
        except TimeoutError:
            return SinkFound(number, None, "timeout")
        finally:
            self._finding.pop(number, None)


def _record_of(log: Description, node: Peer, proof_of: Callable[[str, bytes], bytes]) -> SinkRecord:
    """Return the record of a log on this node for the ring."""
    owner = bytes.fromhex(log.owner)
    return SinkRecord(
        log.name,
        log.application,
        log.version,
        node,
        log.opened_ms,
        log.log_id,
        log.schema_json(),
        log.partitions,
        owner,
        proof_of(log.name, owner) if owner else b"",
    )
