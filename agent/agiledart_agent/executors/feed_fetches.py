"""Rows of feeds for the sources of this node's executors, fetched from the feed's node as this agent.

An executor has a grant for its application only, and no cryptography library to verify the feed's node. So its agent asks, after
it has looked up on the ring whether the application's owner may read the feed. Threads wait for rows: a request of a source waits
up to `WAIT_MS` at the feed's node. With more sources than `THREADS` on one node rows come later, not fewer.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from threading import local
from typing import Any, Final

import msgspec

from agiledart_agent.identity.identity import Identity
from agiledart_executor.wire.agent_messages import FeedFetched, FetchFeed
from agiledart_kernel.permissions import FEED_PREFIX, FeedOwnership, feed_read_refusal
from agiledart_node.records.sink_directory import SinkFound
from agiledart_sink_log.client import SinkLogClient, SinkLogError
from agiledart_sink_log.protocol import TRIMMED
from agiledart_transport.agent_connection import ClientIdentity

THREADS: Final = 8
WAIT_MS: Final = 1_000
TIMEOUT_SECONDS: Final = 5.0
"""Time of retries while the feed's node is away, after which the source gets no rows and asks again."""

CHECKED_SECONDS: Final = 60.0
"""Time for which the permission to read a feed is not looked up again."""

MAX_CHECKED: Final = 1_024


class FeedFetches:
    """Fetches rows of feeds.

    Args:
        address: returns this agent's own address.
        find: looks up a log or feed on the ring.
    """

    def __init__(
        self,
        identity: Identity,
        address: Callable[[], str],
        find: Callable[[str], Coroutine[Any, Any, SinkFound]],
    ) -> None:
        self._identity, self._address, self._find = identity, address, find
        self._threads: ThreadPoolExecutor | None = None
        self._clients = local()
        self._checked: dict[tuple[str, bytes], float] = {}

    async def fetch(self, asked: FetchFeed, owner: bytes, answer: Callable[[FeedFetched], None]) -> None:
        """Answer the request of a source.

        Args:
            owner: key that the application belongs to.
        """
        refusal = await self._refusal(asked.feed, owner)
        if refusal is not None:
            answer(msgspec.structs.replace(refusal, request=asked.request))
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, "feed-fetch")
        loop = asyncio.get_running_loop()
        answer(await loop.run_in_executor(self._threads, self._fetched, asked, self._address()))

    async def _refusal(self, feed: str, owner: bytes) -> FeedFetched | None:
        """Return why the application cannot read the feed, now or ever; None: it can."""
        now = asyncio.get_running_loop().time()
        if now < self._checked.get((feed, owner), 0.0):
            return None
        looked_up = await self._find(feed)
        record = looked_up.record
        if record is None:
            await asyncio.sleep(WAIT_MS / 1_000)  # else the source would ask again at once
            why = f"the ring did not answer ({looked_up.reason})" if looked_up.reason else "it was not created yet"
            return FeedFetched(0, away=f"the feed {feed} cannot be read: {why}")
        if record.application != f"{FEED_PREFIX}{feed}":
            return FeedFetched(0, refused=f"{feed} is the log of an application, not a feed")
        if feed_read_refusal(owner, FeedOwnership(feed, record.owner)):
            text = (
                f"the feed {feed} belongs to the key {record.owner.hex()[:16]}…: applications of other owners may not read it. "
                "A feed that an admin creates is open to all"
            )
            return FeedFetched(0, refused=text)
        self._checked.pop((feed, owner), None)
        self._checked[feed, owner] = now + CHECKED_SECONDS
        if len(self._checked) > MAX_CHECKED:
            del self._checked[next(iter(self._checked))]
        return None

    # ---- in threads

    def _fetched(self, asked: FetchFeed, address: str) -> FeedFetched:
        client = self._client(address)
        try:
            located = client.locate(asked.feed)
            fetched = client.fetch(asked.feed, 0, asked.offset, wait_ms=WAIT_MS)
        except SinkLogError as error:
            if error.reason == TRIMMED:
                return FeedFetched(asked.request, located.log_id, _fields(located.schema), first=error.first_kept)
            return FeedFetched(asked.request, away=str(error))
        return FeedFetched(asked.request, fetched.log_id, _fields(located.schema), fetched.batches)

    def _client(self, address: str) -> SinkLogClient:
        """Return this thread's client."""
        identity = self._identity
        own = ClientIdentity(identity.network, identity.key.private_bytes_raw(), identity.chain, identity.token)
        known: tuple[str, ClientIdentity, SinkLogClient] | None = vars(self._clients).get("client")
        if known is not None and known[:2] == (address, own):
            return known[2]
        if known is not None:
            known[2].close()
        client = SinkLogClient([address], own, TIMEOUT_SECONDS)
        vars(self._clients)["client"] = (address, own, client)
        return client

    def close(self) -> None:
        """Take no more requests."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _fields(schema: bytes) -> bytes:
    """Return the fields of a log's schema, as JSON."""
    return msgspec.json.encode(msgspec.json.decode(schema)["fields"])
