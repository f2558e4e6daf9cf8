"""Logs of one agent: the servers of sink logs and of feeds, and what both need of the agent."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from agiledart_agent.driver import Driver
from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.sink_logs.feed_server import FeedServer
from agiledart_agent.sink_logs.log_trimming import trim_forever
from agiledart_agent.sink_logs.sink_log_server import NoteRefused, RelayTo, SinkLogServer
from agiledart_kernel.machine import Event
from agiledart_kernel.peer import Peer
from agiledart_node.records.sink_directory import SharersFound, SinkFound
from agiledart_node.wire.feed_messages import ChangeFeed, ReadFeeds
from agiledart_node.wire.log_list_messages import LogsFound, ReadLogNames
from agiledart_sink_log.layout import damaged_in, ownerless_in
from agiledart_transport.link import Link, LinkHandler


class LogServices:
    """Servers of logs and feeds of one agent; arguments as of `SinkLogServer`.

    Attributes:
        sink_logs: serves the logs of sinks, and the logs of feeds.
        feeds: takes the rows of feeds.
    """

    def __init__(
        self,
        root: Path,
        me: Callable[[], Peer],
        feed: Callable[[Event], None],
        log: AgentLog,
        audit_refused: NoteRefused,
        proof_of: Callable[[str, bytes], bytes],
        relay_to: RelayTo,
    ) -> None:
        self._root, self._log = root, log
        self.sink_logs = SinkLogServer(
            root,
            me,
            feed,
            log.refused,
            self._warn,
            audit_refused,
            proof_of,
            relay_to,
        )
        self.feeds = FeedServer(
            root, me, feed, self.sink_logs.registration.find, self.note_logs, log.refused, audit_refused, relay_to
        )

    def _warn(self, text: str) -> None:
        self._log.warning("sink_log.trim_failed", text)

    def note_logs(self) -> None:
        """Register the logs and feeds of this node with the ring."""
        self.sink_logs.registration.note_logs()
        self.feeds.note_feeds()

    def accepting(self) -> dict[str, Callable[[Link], LinkHandler]]:
        """Return the services, by name, with the functions that accept their links."""
        return {"sink_log": self.sink_logs.accept, "feed": self.feeds.accept}

    def register(self, driver: Driver) -> None:
        """Have the driver hand effects about logs to the servers."""
        driver.on(SinkFound, self.sink_logs.registration.on_sink_found)
        driver.on(LogsFound, self.sink_logs.logs_found)
        driver.on(ReadLogNames, self.sink_logs.registration.read_names)
        driver.on(SharersFound, self.sink_logs.sharers_found)
        driver.on(ChangeFeed, self.feeds.change)
        driver.on(ReadFeeds, self.feeds.read)

    def open(self, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        """Warn of damage, and begin the work that is done again and again."""
        for text in damaged_in(self._root):
            self._log.warning("sink_log.damaged", text)
        for text in self.feeds.damaged():
            self._log.warning("feed.damaged", text)
        for text in ownerless_in(self._root):
            self._log.warning("sink_log.ownerless", text)
        spawn(self.sink_logs.registration.announce_forever(self.feeds.note_feeds))
        spawn(trim_forever(self._root, self.sink_logs.open_logs.threads, self._warn))
        spawn(self.sink_logs.columns.rewrite_forever())
        spawn(self.feeds.expire_forever())

    def links(self) -> tuple[Link, ...]:
        """Return the links of readers and writers."""
        return (*self.sink_logs.links(), *self.feeds.links())

    async def close(self) -> None:
        """Close the links of all readers and writers."""
        await self.feeds.close()
        await self.sink_logs.close()
