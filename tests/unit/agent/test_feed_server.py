"""The service `feed` without a network: permissions, a full disk, bounds of a connection, commands of users."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agiledart_agent.sink_logs.feed_server import ANSWERS, MAX_WAITING, REQUESTS, FeedServer
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.grants import NO_QUOTA
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_node.records.sink_directory import RegisterSink, SinkFound, SinkRecord
from agiledart_node.wire.commands import CreateFeed, RemoveFeed
from agiledart_node.wire.feed_messages import ChangeFeed, FeedInfo, ReadFeeds
from agiledart_sink_log.feed import Feed
from agiledart_sink_log.feed_protocol import (
    BatchPublished,
    DropBatch,
    FeedAnswer,
    FeedLocated,
    FeedRequest,
    LocateFeed,
    PublishBatch,
    RowsStaged,
    StagePart,
    StageRows,
)
from agiledart_transport.link import Link, LinkHandler

ME = Peer(NodeId(7), 1, "pi1", "127.0.0.1:9464")
OTHER = Peer(NodeId(8), 1, "pi2", "127.0.0.1:9465")
OWNER = b"o" * 32
SCHEMA = b'[{"name":"value","type":"int","nullable":true}]'


class FakeLink:
    """One writer's connection."""

    def __init__(self, role: str, scope: str, key: bytes) -> None:
        self.peer = SimpleNamespace(grant=SimpleNamespace(role=role, scope=scope, key=key, quota=NO_QUOTA))
        self.remote, self.answers, self.news = "somewhere:1", list[FeedAnswer](), asyncio.Event()
        self.handler: LinkHandler | None = None

    def send(self, kind: int, body: bytes) -> None:
        self.answers.append(ANSWERS.decode(body))
        self.news.set()

    async def drain(self) -> None:
        await asyncio.sleep(0)

    def close(self, reason: str) -> None: ...

    def send_request(self, request: FeedRequest) -> None:
        assert self.handler is not None
        self.handler.on_frame(cast(Link, self), FrameKind.CONTROL, REQUESTS.encode(request))

    async def ask(self, request: FeedRequest) -> Any:
        self.send_request(request)
        async with asyncio.timeout(10):
            while not (answers := [answer for answer in self.answers if answer.request == request.request]):
                self.news.clear()
                await self.news.wait()
        return answers[0]


class Bench:
    """A server over a folder; the ring knows `records`."""

    def __init__(self, root: Path) -> None:
        self.records: dict[str, SinkRecord] = {}
        self.refused: list[str] = []
        self.events: list[Event] = []
        self.server = FeedServer(
            root,
            lambda: ME,
            self.events.append,
            self._find,
            lambda: self.server.note_feeds(),
            lambda reason, _: self.refused.append(reason),
            lambda *about: None,
        )

    async def _find(self, name: str) -> SinkFound:
        return SinkFound(0, self.records.get(name))

    def connect(self, role: str = "writer", scope: str = "", key: bytes = OWNER) -> FakeLink:
        link = FakeLink(role, scope, key)
        link.handler = self.server.accept(cast(Link, link))
        return link

    def change(self, command: CreateFeed | RemoveFeed, role: str = "admin", key: bytes = OWNER) -> str:
        """Carry out a command and return the reason of its failure."""
        self.server.change(ChangeFeed(5, command, Principal(role, "", key)))
        (answer,) = [event for event in self.events if isinstance(event, Completed | Failed)]
        self.events.remove(answer)
        return answer.reason if isinstance(answer, Failed) else ""


def run(root: Path, scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        bench = Bench(root)
        try:
            await scenario(bench)
        finally:
            await bench.server.close()

    asyncio.run(whole())


def staged(number: int, feed: str = "usual", batch: int = 0) -> StageRows:
    return StageRows(number, feed, "q", batch, 0, 0, 0, SCHEMA, msgspec.msgpack.encode([[1], [2]]), 2)


def published(number: int, feed: str = "usual", batch: int = 0) -> PublishBatch:
    return PublishBatch(number, feed, "q", batch, SCHEMA, (StagePart(0, 0, 1, 2),))


def test_a_batch_is_staged_published_and_repeated(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        assert bench.change(CreateFeed("usual", "")) == ""
        (record,) = [event.record for event in bench.events if isinstance(event, RegisterSink)]
        assert (record.name, record.application, record.log_id, record.owner) == ("usual", "feed:usual", "", b"")
        link = bench.connect()
        assert await link.ask(LocateFeed(1, "usual")) == FeedLocated(1, "usual", ME.node, ME.name, ME.address)
        assert await link.ask(staged(2)) == RowsStaged(2)
        assert await link.ask(published(3)) == BatchPublished(3, 0, 2)
        assert await link.ask(published(4)) == BatchPublished(4, 0, 2, is_repeat=True)
        assert bench.server.rows_published == 2
        await link.ask(staged(5, batch=1))
        await link.ask(DropBatch(6, "usual", "q", 1))
        assert (await link.ask(published(7, batch=1))).reason == "lost stage"
        bench.server.read(ReadFeeds(9))
        (listed,) = [event.result for event in bench.events if isinstance(event, Completed)]
        (info,) = cast(tuple[FeedInfo, ...], listed)
        assert (info.name, info.rows, info.staged_bytes, info.published_ms > 0) == ("usual", 2, 0, True)

    run(tmp_path, scenario)


def test_a_full_disk_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def scenario(bench: Bench) -> None:
        bench.change(CreateFeed("usual", ""))
        link = bench.connect()
        await link.ask(staged(1))
        with monkeypatch.context() as disk:
            disk.setattr("agiledart_sink_log.partition_writer.PartitionWriter._put", full)
            answer = await link.ask(published(2))
            assert (answer.reason, answer.text) == (
                "full",
                "The disk of pi1 is full. Make room there, and the query goes on.",
            )
            disk.setattr("os.pwrite", full)
            assert (await link.ask(msgspec.structs.replace(staged(3), partition=1))).reason == "full"
        assert await link.ask(published(4)) == BatchPublished(4, 0, 2)

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("role", "scope", "key", "reason"),
    [
        ("writer", "feed:other", OWNER, "scope"),
        ("submitter", "", b"s" * 32, "owner"),
        ("submitter", "", OWNER, ""),
        ("writer", "feed:usual", b"s" * 32, ""),
    ],
)
def test_writers_are_refused_and_counted(tmp_path: Path, role: str, scope: str, key: bytes, reason: str) -> None:
    async def scenario(bench: Bench) -> None:
        assert bench.change(CreateFeed("usual", ""), "submitter") == ""
        answer = await bench.connect(role, scope, key).ask(staged(1))
        assert bench.refused == ([reason] if reason else [])
        if reason:
            assert answer.reason == "not allowed"
            assert "--role writer --scope feed:usual" in answer.text

    run(tmp_path, scenario)


def test_a_feed_is_located_by_its_record(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.records["usual"] = SinkRecord("usual", "feed:usual", 0, OTHER, 1, "", b"{}", 1)
        bench.records["trips"] = SinkRecord("trips", "taxi", 1, OTHER, 1, "x", b"{}", 1)
        link = bench.connect()
        assert await link.ask(LocateFeed(1, "usual")) == FeedLocated(1, "usual", OTHER.node, OTHER.name, OTHER.address)
        assert (await link.ask(staged(2))).reason == "elsewhere"
        for number, name, sentence in ((3, "trips", "log of an application"), (4, "none", "There is no feed none")):
            answer = await link.ask(LocateFeed(number, name))
            assert answer.reason == "unknown feed"
            assert sentence in answer.text

    run(tmp_path, scenario)


def test_too_many_requests_of_a_connection_are_refused(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.change(CreateFeed("usual", ""))
        link = bench.connect()
        for number in range(MAX_WAITING + 1):
            link.send_request(LocateFeed(number, "usual"))
        assert (await link.ask(LocateFeed(50, "usual"))).reason == "overloaded"

    run(tmp_path, scenario)


def test_commands_are_refused_with_a_reason(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        assert "cannot be the name" in bench.change(CreateFeed("../x", ""))
        assert "at most 59" in bench.change(CreateFeed("x" * 60, ""))
        assert bench.change(CreateFeed("usual", ""), "submitter") == ""
        assert "there is a feed usual here already (on pi1)" in bench.change(CreateFeed("usual", ""))
        assert "belongs to another key" in bench.change(RemoveFeed("usual", ""), "submitter", b"s" * 32)
        assert "there is no feed other" in bench.change(RemoveFeed("other", ""))
        assert bench.change(RemoveFeed("usual", ""), "submitter") == ""

    run(tmp_path, scenario)


def test_a_damaged_feed_is_named_and_hurts_no_other(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        for name in ("good", "bad"):
            assert bench.change(CreateFeed(name, "")) == ""
        (tmp_path / "feeds" / "bad" / "feed.json").write_text("{")
        again = Bench(tmp_path)
        (sentence,) = again.server.damaged()
        assert "the feed bad cannot be read" in sentence
        again.server.note_feeds()
        assert [event.record.name for event in again.events if isinstance(event, RegisterSink)] == ["good"]
        assert Feed(tmp_path, "good").name == "good"

    run(tmp_path, scenario)
