"""The rest of sources: asked for where frames are unread, over at its time, and never for lone rows."""

import asyncio
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.batch_codec import BatchCodec
from agiledart_dataflow.data.position import covering
from agiledart_dataflow.runtime.source_instance import Polled
from agiledart_executor.channels.data_links import Acknowledger, DataPort
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.instances.running_instance import InputEnd, RunningInstance
from agiledart_executor.instances.source_rest import (
    FIRST_NS,
    LONGEST_NS,
    LOOK_FRAMES,
    MOST_UNITS,
    REST_NS,
    UNIT_NS,
    SourceRest,
)
from agiledart_kernel.frames import Acknowledgement, DataHeader, FrameKind
from agiledart_kernel.node_id import NodeId
from tests.unit.executor.host_clock import Clock

MS = 1_000_000


class Reading(NamedTuple):
    """A row."""

    number: int


def take(rest: SourceRest, now: int, *, unread: int, gap_ns: int = MS) -> int:
    """Take the frames of one look; return the time afterwards."""
    rest.frames, rest.unread = LOOK_FRAMES, unread
    now += LOOK_FRAMES * gap_ns
    rest.look(now)
    return now


def test_a_receiver_that_is_behind_asks_for_longer_and_longer_rests() -> None:
    rest = SourceRest()
    now, asked = 0, []
    for _ in range(8):
        now = take(rest, now, unread=0)  # frames of sources that rested
        now = take(rest, now, unread=LOOK_FRAMES // 4)
        left = (rest.units_left(now) + 1) * UNIT_NS
        asked.append(left)
        assert rest.next_read(now, 1, now - MS) == now + REST_NS
        now += left
        assert rest.next_read(now, 1, now - MS) == 0
    assert asked == [min(FIRST_NS << turn, LONGEST_NS) for turn in range(8)]
    assert rest.units_left(now) == 0


def test_a_receiver_that_takes_frames_one_by_one_asks_for_nothing() -> None:
    rest = SourceRest()
    now = take(rest, 0, unread=LOOK_FRAMES // 4 - 1)
    assert rest.next_read(now, 1, now - MS) == rest.units_left(now) == 0


def test_rare_bursts_ask_for_nothing() -> None:
    """Ten rows a second that come in pairs would gain nothing from a rest."""
    rest = SourceRest()
    now = take(rest, 0, unread=LOOK_FRAMES // 2, gap_ns=REST_NS)
    assert rest.units_left(now) == 0


def test_frames_of_resting_sources_do_not_prolong_the_rest() -> None:
    rest = SourceRest()
    now = take(rest, 0, unread=LOOK_FRAMES)
    before = rest.units_left(now)
    later = take(rest, now, unread=LOOK_FRAMES)
    assert rest.units_left(later) == before
    assert rest.units_left(now + FIRST_NS) == 0


def test_a_lone_row_does_not_rest_while_others_do() -> None:
    rest = SourceRest()
    rest.receive_request(4, 0)
    assert rest.next_read(9 * MS, 1, 9 * MS - REST_NS) == 0
    assert rest.next_read(9 * MS, 2, 9 * MS - REST_NS) == 9 * MS + REST_NS


def test_a_calm_receiver_asks_for_a_short_rest_again() -> None:
    rest, now = SourceRest(), 0
    for _ in range(3):
        now = take(rest, take(rest, now, unread=0), unread=LOOK_FRAMES) + LONGEST_NS
    for _ in range(4):
        now = take(rest, now, unread=0)
    assert rest.units_left(take(rest, now, unread=LOOK_FRAMES)) == FIRST_NS // UNIT_NS - 1


def test_a_request_between_two_executors_ends() -> None:
    """Each passes the other's request on, with 50 ms on the way."""
    first, second = SourceRest(), SourceRest()
    now = take(first, 0, unread=LOOK_FRAMES)
    for _ in range(20):
        now += 50 * MS
        second.receive_request(first.units_left(now - 50 * MS), now)
        now += 50 * MS
        first.receive_request(second.units_left(now - 50 * MS), now)
    assert first.next_read(now, 2, 0) == second.next_read(now, 2, 0) == 0


def test_no_request_is_longer_than_the_field_of_an_acknowledgement() -> None:
    rest = SourceRest()
    rest.receive_request(MOST_UNITS, 5)
    rest.receive_request(1, 5)
    assert rest.units_left(4) == MOST_UNITS
    assert rest.units_left(5) == MOST_UNITS - 1


class TricklingSource:
    """A source with rows that come one by one; each poll gives those that have come. It has a descriptor."""

    def __init__(self, clock: Clock, wait_ns: int | None = 5 * MS) -> None:
        self._clock, self._sent_ns, self._wait_ns = clock, clock.now, wait_ns
        self.polls: list[tuple[int, int]] = []
        self.finished = self.reads_on = False

    def poll(self, now_ns: int, wall_ns: int, max_rows: int) -> Polled:
        count = (now_ns - self._sent_ns) // MS
        self._sent_ns += count * MS
        self.polls.append((now_ns, count))
        if not count:
            return Polled(None, now_ns + 5 * MS, False, 77)
        until = None if self._wait_ns is None else now_ns + self._wait_ns
        return Polled(Batch([Reading(0)] * count, None, covering((now_ns, 1, 0, 0))), until, False, 77)

    def send(self, batch: Batch, emit: Any) -> None: ...


@pytest.mark.parametrize("wait_ns", [5 * MS, None], ids=["drained", "tries again"])
def test_a_source_reads_nothing_before_its_rest_ends(monkeypatch: pytest.MonkeyPatch, wait_ns: int | None) -> None:
    clock = Clock(monkeypatch)

    async def play() -> None:
        host = InstanceHost(lambda _: None, lambda _, text: pytest.fail(text))
        running = RunningInstance(0, 0, "readings")
        source = TricklingSource(clock, wait_ns)
        running.source = cast(Any, source)
        watched: list[int] = []
        monkeypatch.setattr(host._loop, "add_reader", lambda number, *_: watched.append(number), raising=False)
        monkeypatch.setattr(host._loop, "remove_reader", watched.remove, raising=False)
        host.running[0, 0], host.reading = running, True

        clock.now += MS
        host.wake_now(running)  # a lone row: sent at once, and the next one, too
        assert watched == [77]
        clock.now += MS
        host.wake_now(running)
        assert [count for _, count in source.polls if count] == [1, 1]

        host.rest.receive_request(4, clock.now)
        clock.now += MS
        host.wake_now(running)
        assert watched == []
        for _ in range(4):
            clock.now += MS
            host.wake_now(running)
        assert running.timer is not None
        clock.now += MS
        host.wake_now(running)
        assert [count for _, count in source.polls if count] == [1, 1, 1, 5]

        clock.now += 4 * UNIT_NS
        host.wake_now(running)
        assert watched == [77]
        running.timer.cancel()

    asyncio.run(play())


def test_a_source_without_new_rows_watches_its_input_while_others_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    async def play() -> None:
        host = InstanceHost(lambda _: None, lambda _, text: pytest.fail(text))
        running = RunningInstance(0, 0, "readings")
        running.source = cast(Any, TricklingSource(clock))
        watched: list[int] = []
        monkeypatch.setattr(host._loop, "add_reader", lambda number, *_: watched.append(number), raising=False)
        host.running[0, 0], host.reading = running, True
        host.rest.receive_request(4, clock.now)
        host.wake_now(running)
        assert watched == [77]
        assert running.rests_until_ns == 0
        assert running.timer is not None
        running.timer.cancel()

    asyncio.run(play())


def test_an_acknowledgement_asks_for_rest_after_frames_of_one_channel_in_one_read() -> None:
    rest, end, codec = SourceRest(), InputEnd(), BatchCodec(Reading)
    sent: list[bytes] = []
    peer = SimpleNamespace(agent_id=NodeId(1))
    link = cast(Any, SimpleNamespace(peer=peer, number=0, has_more=False, send=lambda kind, body: sent.append(body)))

    def receive(_: Any, edge: int, source: int, number: int, sequence: int, batch: Batch, **_more: Any) -> None:
        end.channel.accept(number, sequence, len(batch))

    host = SimpleNamespace(running={(1, 0): SimpleNamespace(name="", inputs={(0, 0): end})}, receive=receive)
    port = DataPort(
        1, 1, cast(Any, host), {0: codec}, lambda _: (0, 1, 1, 1), lambda *_: NodeId(1), lambda _: "", rest=rest
    )
    header = DataHeader(1, 1, 0, 0, 1, 0, 1, 0, 0, 0, rows=1, schema=0)
    for number in range(2 * LOOK_FRAMES):
        rest.reads += number % 2 == 0
        body = codec.encode(Batch([Reading(number)], [(4, 1)], (5, 1)))
        port.data(link, FrameKind.DATA, header._replace(frame=number, sequence=number).pack() + body)
    assert (rest.frames, rest.unread) == (2 * LOOK_FRAMES, LOOK_FRAMES)
    assert isinstance(end.acknowledge, Acknowledger)
    end.acknowledge(1, 0)  # the frames before the first look may have taken any time
    for _ in range(LOOK_FRAMES):
        rest.frames, rest.unread = rest.frames + 1, rest.unread + 1
    end.acknowledge(2, 0)
    assert [Acknowledgement.unpack(body).rest > 0 for body in sent] == [False, True]
