"""The service `sink_log` without a network: permissions, long polls, bounds, messages."""

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agiledart_agent.sink_logs import log_trimming, sink_log_server
from agiledart_agent.sink_logs.sink_log_server import ANSWERS, MAX_WAITING, REQUESTS, SinkLogServer
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.grants import NO_QUOTA
from agiledart_kernel.machine import Event
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.records.sink_directory import (
    FindSharers,
    FindSink,
    RegisterSink,
    SharersFound,
    SinkFound,
    SinkRecord,
)
from agiledart_sink_log.layout import logs_in, write_description
from agiledart_sink_log.log_reader import LogReader
from agiledart_sink_log.log_writer import LogOptions, LogWriter
from agiledart_sink_log.protocol import (
    Ends,
    EndsReply,
    Fetch,
    Fetched,
    Locate,
    Located,
    LogAnswer,
    LogRefused,
    LogRequest,
    PartitionEnds,
)
from agiledart_transport.link import Link, LinkHandler

FIELDS: list[dict[str, object]] = [{"name": "value", "type": "int", "nullable": False}]
ME = Peer(NodeId(7), 1, "pi1", "127.0.0.1:9464")


class FakeLink:
    """One reader's connection."""

    def __init__(self, scope: str = "", role: str = "reader", key: bytes = b"m" * 32) -> None:
        self.peer = SimpleNamespace(grant=SimpleNamespace(role=role, scope=scope, key=key, quota=NO_QUOTA))
        self.remote, self.unsent_bytes, self.closed = "somewhere:1", 0, ""
        self.got: list[LogAnswer] = []
        self.frames: list[bytes] = []
        self._news = asyncio.Event()
        self.handler: LinkHandler | None = None

    def send(self, kind: int, body: bytes) -> None:
        assert kind == FrameKind.CONTROL
        self.got.append(ANSWERS.decode(body))
        self._news.set()

    def send_parts(self, kind: int, parts: Sequence[bytes]) -> None:
        assert kind == FrameKind.DATA
        self.frames.append(b"".join(parts))

    async def drain(self) -> None:
        await asyncio.sleep(0)

    def close(self, reason: str) -> None:
        self.closed = reason

    def ask(self, request: LogRequest) -> None:
        assert self.handler is not None
        self.handler.on_frame(cast(Link, self), FrameKind.CONTROL, REQUESTS.encode(request))

    async def answer(self, number: int) -> Any:
        async with asyncio.timeout(10):
            while not (found := [one for one in self.got if one.request == number]):
                self._news.clear()
                await self._news.wait()
        (answer,) = found
        return answer


class Bench:
    """A server over a folder; the ring knows `records`."""

    def __init__(self, root: Path) -> None:
        self.records: dict[str, SinkRecord] = {}
        self.refused: list[str] = []
        self.noted: list[SinkRecord] = []
        self.noted_refusals: list[tuple[str, str]] = []
        self.shared: tuple[bytes, ...] = ()
        self.is_silent = False
        self.asked_sharers: list[tuple[str, bytes]] = []
        self.server = SinkLogServer(
            root,
            lambda: ME,
            self._feed,
            lambda reason, _: self.refused.append(reason),
            audit_refused=lambda principal, origin, log, reason, text: self.noted_refusals.append((log.name, reason)),
        )

    def _feed(self, event: Event) -> None:
        if isinstance(event, FindSink):
            self.server.registration.on_sink_found(SinkFound(event.request, self.records.get(event.name)))
        elif isinstance(event, RegisterSink):
            self.noted.append(event.record)
        elif isinstance(event, FindSharers):
            self.asked_sharers.append((event.application, event.owner))
            keys = () if self.is_silent else self.shared
            self.server.sharers_found(SharersFound(event.request, keys, not self.is_silent))

    def connect(self, **more: Any) -> FakeLink:
        link = FakeLink(**more)
        link.handler = self.server.accept(cast(Link, link))
        return link


def run(root: Path, scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        bench = Bench(root)
        try:
            await scenario(bench)
        finally:
            await bench.server.close()

    asyncio.run(whole())


def writer(root: Path, name: str = "x", partitions: int = 2, owner: bytes = b"") -> LogWriter:
    return LogWriter(root, name, LogOptions(partitions), "int", FIELDS, "app", 1, owner=owner)


def append(log: LogWriter, partition: int, values: list[int]) -> None:
    log.partitions[partition].append(msgspec.msgpack.encode([[value] for value in values]), len(values))


def test_a_start_registers_only_the_logs_of_its_application(tmp_path: Path) -> None:
    for name in ("x", "y", "z"):
        writer(tmp_path, name).close()
    (tmp_path / "sink-logs" / "broken").mkdir()
    (tmp_path / "sink-logs" / "broken" / "log.json").write_text("{")

    async def scenario(bench: Bench) -> None:
        bench.server.registration.note_logs_named(["y", "broken", "gone"])
        assert [(record.name, record.partitions) for record in bench.noted] == [("y", 2)]

    run(tmp_path, scenario)


def test_logs_are_listed_with_the_fields_readers_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer(tmp_path, "x").close()
    writer(tmp_path, "y", 3).close()
    (tmp_path / "sink-logs" / "broken").mkdir()
    (tmp_path / "sink-logs" / "broken" / "log.json").write_text("{")

    async def scenario(bench: Bench) -> None:
        bench.server.registration.note_logs()
        assert [(one.name, one.partitions, one.node) for one in bench.noted] == [("x", 2, ME), ("y", 3, ME)]
        assert msgspec.json.decode(bench.noted[0].schema) == {"text": "int", "fields": FIELDS}
        bench.records["x"] = bench.noted[0]
        link = bench.connect()
        link.ask(Locate(1, "x"))
        where = await link.answer(1)
        assert isinstance(where, Located)
        assert (where.node_id, where.address, where.partitions) == (ME.node, ME.address, 2)
        link.ask(Locate(2, "nothing"))
        assert (await link.answer(2)).reason == "unavailable"  # the ring may not have been notified yet
        monkeypatch.setattr(sink_log_server, "STARTUP_GRACE_SECONDS", 0.0)
        link.ask(Locate(3, "nothing"))
        assert (await link.answer(3)).reason == "unknown sink"

    run(tmp_path, scenario)


def test_end_offsets_and_rows_are_served(tmp_path: Path) -> None:
    log = writer(tmp_path)
    append(log, 0, [1, 2, 3])
    append(log, 1, [4])
    log.commit()

    async def scenario(bench: Bench) -> None:
        link = bench.connect()
        link.ask(Ends(1, "x"))
        ends = await link.answer(1)
        assert isinstance(ends, EndsReply)
        assert ends.is_open
        assert ends.partitions == (PartitionEnds(0, 0, 3, 3), PartitionEnds(1, 0, 1, 1))
        link.ask(Fetch(2, "x", 0, 1))
        got = await link.answer(2)
        assert isinstance(got, Fetched)
        ((offset, count, body),) = [(one.offset, one.rows, one.body) for one in got.batches]
        assert (offset, count, msgspec.msgpack.decode(body)) == (0, 3, [[1], [2], [3]])
        assert (got.next_offset, got.end) == (3, 3)
        link.ask(Fetch(3, "x", 2, 0))
        assert "has 2 partitions; there is no 2" in (await link.answer(3)).text
        link.ask(Fetch(4, "other", 0, 0))
        assert (await link.answer(4)).reason == "elsewhere"
        assert bench.server.answered == {"EndsReply": 1, "Fetched": 1, "unknown sink": 1, "elsewhere": 1}
        assert bench.server.rows_sent == 3

    run(tmp_path, scenario)
    log.close()


def test_a_long_poll_waits_for_news_and_no_longer(tmp_path: Path) -> None:
    log = writer(tmp_path)
    append(log, 0, [1])
    log.commit()

    async def scenario(bench: Bench) -> None:
        link, other = bench.connect(), bench.connect()
        link.ask(Ends(1, "x", 10_000, {0: 1, 1: 0}))
        other.ask(Fetch(2, "x", 1, 0, wait_ms=10_000))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not link.got
        assert not other.got
        append(log, 1, [2])
        log.commit()
        began = time.monotonic()
        assert (await link.answer(1)).partitions[1].committed == 1
        assert len((await other.answer(2)).batches) == 1
        assert time.monotonic() - began < 2.0
        link.ask(Ends(3, "x", 50, {0: 1, 1: 1}))  # no news: the same ends after 50 ms
        assert [one.committed for one in (await link.answer(3)).partitions] == [1, 1]
        link.ask(Fetch(4, "x", 1, 1, wait_ms=50))
        nothing = await link.answer(4)
        assert (nothing.batches, nothing.next_offset) == ((), 1)

    run(tmp_path, scenario)
    log.close()


@pytest.mark.parametrize(
    ("scope", "role", "allowed"),
    [
        ("", "reader", True),
        ("sink:x", "reader", True),
        ("app:app", "reader", True),
        ("sink:xy", "reader", False),
        ("app:x", "submitter", False),
        ("app:else", "reader", False),
        ("", "submitter", True),  # it is older than owners are
    ],
)
def test_the_scope_of_a_grant_is_enforced(tmp_path: Path, scope: str, role: str, allowed: bool) -> None:
    writer(tmp_path).close()

    async def scenario(bench: Bench) -> None:
        bench.server.registration.note_logs()
        bench.records["x"] = bench.noted[0]
        link = bench.connect(scope=scope, role=role)
        requests: tuple[LogRequest, ...] = (Locate(1, "x"), Ends(2, "x"), Fetch(3, "x", 0, 0))
        for request in requests:
            link.ask(request)
            answer = await link.answer(request.request)
            assert (isinstance(answer, LogRefused) and answer.reason == "not allowed") != allowed
        assert bench.refused == ([] if allowed else ["scope"] * 3)
        assert bench.noted_refusals == ([] if allowed else [("x", "scope")] * 3)

    run(tmp_path, scenario)


OWNER, FRIEND, STRANGER = b"o" * 32, b"f" * 32, b"s" * 32


def test_a_log_is_readable_by_its_owner_and_users_with_a_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agiledart_agent.sink_logs.log_read_authoriser.CACHE_SECONDS", 3_600.0)
    writer(tmp_path, owner=OWNER).close()
    requests: tuple[LogRequest, ...] = (Locate(1, "x"), Ends(2, "x"), Fetch(3, "x", 0, 0))

    async def scenario(bench: Bench) -> None:
        bench.server.registration.note_logs()
        bench.records["x"] = bench.noted[0]
        assert bench.noted[0].owner == OWNER
        bench.shared = (FRIEND,)
        for role, key, may in (
            ("submitter", OWNER, True),
            ("submitter", FRIEND, True),
            ("submitter", STRANGER, False),
            ("reader", STRANGER, True),
            ("admin", STRANGER, True),
            ("executor", OWNER, False),
        ):
            bench.refused.clear()
            link = bench.connect(role=role, key=key)
            for request in requests:
                link.ask(request)
                answer = await link.answer(request.request)
                assert (isinstance(answer, LogRefused) and answer.reason == "not allowed") != may, (role, key)
            assert bench.refused == ([] if may else ["role" if role == "executor" else "owner"] * 3)
        assert bench.asked_sharers == [("app", OWNER)]  # the ring is asked once, however often they come
        link = bench.connect(role="submitter", key=STRANGER)
        link.ask(Fetch(1, "x", 0, 0))
        text = (await link.answer(1)).text
        assert text.startswith(f"The log x belongs to the key {OWNER.hex()[:16]}…, not to you: you may not read it.")
        assert f"agiledart share app {STRANGER.hex()} " in text
        assert text.endswith("agiledart token create --role reader --scope sink:x")

    run(tmp_path, scenario)


def test_without_an_answer_of_the_ring_no_reader_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agiledart_agent.sink_logs.log_read_authoriser.CACHE_SECONDS", 0.0)
    writer(tmp_path, owner=OWNER).close()

    async def scenario(bench: Bench) -> None:
        friend = bench.connect(role="submitter", key=FRIEND)
        bench.is_silent = True
        friend.ask(Ends(1, "x"))
        answer = await friend.answer(1)
        assert (answer.reason, bench.refused) == ("unavailable", [])  # it may have been shared with him
        assert answer.text.endswith("the ring does not answer whether app was shared with you. Try again.")
        bench.is_silent, bench.shared = False, (FRIEND,)
        friend.ask(Ends(2, "x"))
        assert isinstance(await friend.answer(2), EndsReply)
        bench.is_silent = True
        friend.ask(Ends(3, "x"))
        assert isinstance(await friend.answer(3), EndsReply)  # the ring's last answer stays valid
        stranger = bench.connect(role="submitter", key=STRANGER)
        stranger.ask(Ends(4, "x"))
        assert (await stranger.answer(4)).reason == "unavailable"
        monkeypatch.setattr("agiledart_agent.sink_logs.log_read_authoriser.SILENT_SECONDS", 0.0)
        friend.ask(Ends(5, "x"))
        assert (await friend.answer(5)).reason == "unavailable"  # for some minutes only
        assert bench.refused == []

    run(tmp_path, scenario)


def test_a_user_with_an_applications_scope_learns_no_log_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_log_server, "STARTUP_GRACE_SECONDS", 0.0)
    writer(tmp_path, owner=OWNER).close()

    async def scenario(bench: Bench) -> None:
        bench.server.registration.note_logs()
        bench.records["x"] = bench.noted[0]
        link = bench.connect(scope="app:else", role="submitter")
        link.ask(Locate(1, "x"))
        link.ask(Locate(2, "y"))
        there, nowhere = await link.answer(1), await link.answer(2)
        assert there.reason == nowhere.reason == "not allowed"
        assert there.text.replace(" x", " y").replace(":x", ":y") == nowhere.text
        assert "may use app:else only, and else has no log x." in there.text

    run(tmp_path, scenario)


def test_user_files_in_a_log_neither_stop_nor_redirect_the_agent(tmp_path: Path) -> None:
    """It can write there: links to others' rows, pipes without a writer, a description that is endless or invalid."""
    log = writer(tmp_path, "theirs", 1, owner=OWNER)
    append(log, 0, [1, 2, 3])
    log.close()
    mine = tmp_path / "sink-logs" / "mine"
    writer(tmp_path, "mine", 1, owner=STRANGER).close()

    async def asked(bench: Bench, request: LogRequest) -> LogAnswer:
        link = bench.connect(role="submitter", key=STRANGER)
        link.ask(request)
        return cast(LogAnswer, await link.answer(request.request))

    def emptied() -> None:
        for path in (mine / "log.json", mine / "log.json.good"):
            path.unlink(missing_ok=True)

    async def scenario(bench: Bench) -> None:
        shutil.rmtree(mine / "0")
        (mine / "0").symlink_to(tmp_path / "sink-logs" / "theirs" / "0")
        answer = await asked(bench, Fetch(1, "mine", 0, 0))
        assert isinstance(answer, Fetched)
        assert not answer.batches
        ends = await asked(bench, Ends(1, "mine"))
        assert isinstance(ends, EndsReply)
        assert ends.partitions == (PartitionEnds(0, 0, 0, 0),)
        for name in ("log.json", "log.json.good"):  # its owner is the other's, too: then so is its owner
            (mine / name).unlink()
            (mine / name).symlink_to(tmp_path / "sink-logs" / "theirs" / name)
        answer = await asked(bench, Fetch(2, "mine", 0, 0))
        assert isinstance(answer, LogRefused)
        emptied()
        os.mkfifo(mine / "log.json")
        bench.server.registration.note_logs()
        assert [one.name for one in bench.noted] == ["theirs"]
        emptied()
        (mine / "log.json").touch()
        os.truncate(mine / "log.json", 1 << 40)
        bench.noted.clear()
        bench.server.registration.note_logs()
        assert [one.name for one in bench.noted] == ["theirs"]

    run(tmp_path, scenario)


def test_a_link_does_not_make_the_agent_trim_another_owners_rows(tmp_path: Path) -> None:
    log = writer(tmp_path, "theirs", 1, owner=OWNER)
    append(log, 0, [1, 2, 3])
    log.close()
    mine = writer(tmp_path, "mine", 1, owner=STRANGER)
    mine.close()
    shutil.rmtree(mine.directory / "0")
    (mine.directory / "0").symlink_to(log.directory / "0")
    found = msgspec.structs.replace(mine.description, max_bytes=1, max_age_ms=1)
    write_description(mine.directory, found)
    log_trimming.trim_all(tmp_path, time.time_ns() + 10**12)
    assert sum(one.rows for one in LogReader(log.directory).fetch(0, 0, 10, 1_000)[0]) == 3
    mine.directory.joinpath("log.json.good").unlink()
    for partitions in (0, 65, 10**9, -1):
        (mine.directory / "log.json").write_bytes(
            msgspec.json.encode(msgspec.structs.replace(found, partitions=partitions))
        )
        assert [one.name for _, one in logs_in(tmp_path)] == ["theirs"]


def test_excess_requests_are_refused_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer(tmp_path).close()
    monkeypatch.setattr(sink_log_server, "MAX_READERS", 2)

    async def scenario(bench: Bench) -> None:
        link, slow = bench.connect(), bench.connect()
        for number in range(MAX_WAITING + 3):
            link.ask(Ends(number, "x", 20, {0: 5, 1: 5}))
        busy = [one for one in link.got if isinstance(one, LogRefused)]
        assert [one.reason for one in busy] == ["overloaded"] * 3
        await link.answer(MAX_WAITING - 1)
        slow.unsent_bytes = sink_log_server.MAX_UNSENT_BYTES + 1
        slow.ask(Fetch(1, "x", 0, 0))
        assert (await slow.answer(1)).reason == "overloaded"
        third = bench.connect()
        await asyncio.sleep(0)
        assert third.closed == "full"
        assert bench.refused == ["too many readers"]
        assert bench.server.readers == 2
        assert link.handler is not None
        link.handler.on_closed(cast(Link, link), "lost")
        assert bench.server.readers == 1
        assert slow.handler is not None
        with pytest.raises(RemoteProtocolError):
            slow.handler.on_frame(cast(Link, slow), FrameKind.CONTROL, b"\x00")

    run(tmp_path, scenario)


def test_a_restarted_log_is_served_from_its_new_start(tmp_path: Path) -> None:
    log = writer(tmp_path)
    append(log, 0, [1, 2])
    log.close()

    async def scenario(bench: Bench) -> None:
        link = bench.connect()
        link.ask(Fetch(1, "x", 0, 0))
        first = await link.answer(1)
        (tmp_path / "sink-logs" / "x").rename(tmp_path / "sink-logs" / "gone")
        link.ask(Fetch(2, "x", 0, 0))
        assert (await link.answer(2)).reason == "elsewhere"
        again = writer(tmp_path)
        append(again, 0, [9])
        again.close()
        link.ask(Fetch(3, "x", 0, 0))
        second = await link.answer(3)
        assert second.log_id != first.log_id
        assert msgspec.msgpack.decode(second.batches[0].body) == [[9]]

    run(tmp_path, scenario)


def test_a_log_without_a_writer_is_trimmed_by_its_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = writer(tmp_path, partitions=1)
    append(log, 0, [1, 2, 3])
    log.close()
    week = log.description.max_age_ms * 1_000_000
    monkeypatch.setattr(
        "agiledart_agent.sink_logs.log_trimming.time.time_ns",
        lambda: log.description.opened_ms * 1_000_000 + 2 * week,
    )

    async def scenario(bench: Bench) -> None:
        trimming = asyncio.create_task(
            log_trimming.trim_forever(tmp_path, bench.server.open_logs.threads, lambda _: None)
        )
        link = bench.connect()
        number = 0
        async with asyncio.timeout(10):
            while True:
                number += 1
                link.ask(Ends(number, "x"))
                if (await link.answer(number)).partitions[0].first == 3:
                    break
        trimming.cancel()
        link.ask(Fetch(number + 1, "x", 0, 0, 10, 1_000))
        assert (await link.answer(number + 1)).reason == "trimmed"

    run(tmp_path, scenario)
