"""Requirements on every link, on every loop: two ends that know each other, frames, pressure, ends."""

import asyncio

import pytest

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.frames import HEADER_BYTES, FrameKind
from agiledart_kernel.limits import MAX_DATA_FRAME_BYTES
from agiledart_transport.certificates import make_credentials
from agiledart_transport.connecting import Link, format_address, parse_address
from agiledart_transport.link import HIGH_WATER_BYTES, MAX_UNSENT_BYTES, Cork, DeferFrame, LinkHandler
from agiledart_transport.tls_contexts import load_credentials
from tests.conformance.conftest import Run
from tests.conformance.mesh import NET, NOW, Node, agent
from tests.keys import HOUR, key_of, public_of

CONTROL, DATA = FrameKind.CONTROL, FrameKind.DATA


async def pair(a: Node, b: Node, service: str = "overlay") -> tuple[Link, Link]:
    """A link from `b` to `a`, both ends."""
    listener = await a.serve()
    link = await b.dial(listener, service)
    await a.until(lambda: bool(a.accepted))
    await listener.close()  # the link stays
    return a.accepted[0], link


def test_both_ends_know_their_peer(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        at_a, at_b = await pair(a, b)
        assert (at_a.peer.node_id, at_b.peer.node_id) == (b.node_id, a.node_id)
        assert at_a.peer.public_key == public_of("b")
        assert at_a.peer.grant.role == at_b.peer.grant.role == "agent"
        assert at_a.peer.as_peer().incarnation_key == (b.node_id, 7)
        assert at_b.peer.as_peer().zone == "attic"
        assert (at_a.service, at_b.service) == ("overlay", "overlay")
        assert (at_a.dialled, at_b.dialled) == (False, True)
        assert "b" in repr(at_a)
        at_b.close()
        await at_a.gone

    run(scenario())


def test_executors_of_one_application_know_each_others_agents(run: Run) -> None:
    async def scenario() -> None:
        a = Node("worker a", NET.executor("worker a", "pi1"), services=("data",))
        b = Node("worker b", NET.executor("worker b", "pi2"))
        at_a, at_b = await pair(a, b, "data")
        assert at_a.peer.agent_id == agent("pi2").node_id
        assert at_b.peer.agent_id == agent("pi1").node_id
        at_a.close()
        await at_b.gone

    run(scenario())


def test_frames_arrive_in_order_both_ways(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        at_a, at_b = await pair(a, b)
        sent = [(CONTROL if n % 3 else DATA, b"%d" % n * (n % 50)) for n in range(2_000)]
        for kind, body in sent:
            at_b.send(kind, body)
            at_a.send(kind, body[::-1])
        await a.until(lambda: len(a.frames) == 2_000)
        await b.until(lambda: len(b.frames) == 2_000)
        assert a.frames == sent
        assert b.frames == [(kind, body[::-1]) for kind, body in sent]
        assert at_a.frames_in == at_b.frames_out == 2_000
        assert at_a.bytes_in == at_b.bytes_out == sum(5 + len(body) for _, body in sent)
        at_a.close()
        await at_b.gone

    run(scenario())


def test_the_largest_frames_arrive(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        at_a, at_b = await pair(a, b)
        bodies = [bytes([n]) * MAX_DATA_FRAME_BYTES for n in range(3)]
        for body in bodies:
            at_b.send(DATA, body)
        await a.until(lambda: len(a.frames) == 3)
        assert a.frames == [(DATA, body) for body in bodies]
        with pytest.raises(ValueError, match="at most"):
            at_b.send(DATA, bytes(MAX_DATA_FRAME_BYTES + 1))
        at_a.close()
        await at_b.gone

    run(scenario())


def test_small_frames_of_one_loop_iteration_leave_in_one_write(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        at_a, at_b = await pair(a, b)
        writes: list[bytes] = []
        transport = at_b._transport

        class Counting:
            def write(self, data: bytes) -> None:
                writes.append(data)

            def get_write_buffer_size(self) -> int:
                return 0

        at_b._transport = Counting()  # type: ignore[assignment]
        for n in range(100):
            at_b.send(CONTROL, b"%d" % n)
        await asyncio.sleep(0)
        at_b._transport = transport
        assert len(writes) == 1
        at_b.close()
        await at_a.gone

    run(scenario())


def test_a_cork_writes_on_release_and_not_an_iteration_later(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        at_a, at_b = await pair(a, b)
        cork = at_b.cork = Cork()
        before = at_b.unsent_bytes
        cork.held = True
        at_b.send(CONTROL, b"one")
        at_b.send(CONTROL, b"two")
        assert at_b._unsent
        cork.release()
        assert not at_b._unsent
        at_b.send(CONTROL, b"three")  # no caller holds it: it leaves by itself
        await a.until(lambda: len(a.frames) == 3)
        assert before == 0
        assert [body for _, body in a.frames] == [b"one", b"two", b"three"]
        at_b.close()
        await at_a.gone

    run(scenario())


def test_the_owner_is_notified_when_the_frames_of_one_read_begin_and_end(run: Run) -> None:
    async def scenario() -> None:
        heard: list[str] = []
        a, b = agent("a"), agent("b")
        at_a, at_b = await pair(a, b)

        def take(link: Link, kind: int, body: bytes) -> None:
            heard.append(body.decode())
            if body == b"wrong":
                raise RemoteProtocolError("form", "nonsense")

        at_a._handler = LinkHandler(
            take,
            lambda *_: heard.append("closed"),
            before=lambda _: heard.append("["),
            after=lambda _: heard.append("]"),
        )
        for body in (b"one", b"two", b"wrong", b"never"):
            at_b.send(CONTROL, body)
        await at_a.gone
        await asyncio.sleep(0)
        assert heard == ["[", "one", "two", "wrong", "]", "closed"]

    run(scenario())


def test_a_reader_that_pauses_stalls_the_sender_and_loses_nothing(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        at_a, at_b = await pair(a, b)
        at_a.pause_reading()
        body, sent = bytes(100_000), 0
        while at_b.writable:
            at_b.send(DATA, body)
            sent += 1
            await asyncio.sleep(0)
            assert sent < 1_000, "pressure never reached the sender"
        assert at_b.unsent_bytes >= HIGH_WATER_BYTES
        waiting = asyncio.ensure_future(at_b.drain())
        await asyncio.sleep(0.02)
        assert not waiting.done()
        assert len(a.frames) <= 20  # frames of one read
        at_a.resume_reading()
        await waiting
        await a.until(lambda: len(a.frames) == sent)
        assert b.writable_again == 1
        at_a.close()
        await at_b.gone

    run(scenario())


def test_a_handler_may_pause_between_two_frames(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        at_a, at_b = await pair(a, b)
        a.on_frame = lambda link, kind, body: link.pause_reading()
        for n in range(5):
            at_b.send(CONTROL, b"%d" % n)
        for n in range(5):
            await a.until(lambda n=n: len(a.frames) == n + 1)
            await asyncio.sleep(0.005)
            assert len(a.frames) == n + 1
            at_a.resume_reading()
        assert [body for _, body in a.frames] == [b"0", b"1", b"2", b"3", b"4"]
        at_b.close()
        await at_a.gone

    run(scenario())


def test_a_link_answers_probes_by_itself_whatever_its_owner_does(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await a.serve()
        echoes: asyncio.Queue[bytes] = asyncio.Queue()
        link = await b.dial(listener, on_echo=lambda _, body: echoes.put_nowait(body))
        for body in (b"", b"7", b"0123456789abcdef"):
            link.send(FrameKind.PROBE, body)
            assert await echoes.get() == body
        assert a.frames == []
        link.close()
        await link.gone
        await listener.close()

    run(scenario())


def test_a_peer_that_never_reads_is_cut_off(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        at_a, at_b = await pair(a, b)
        at_a.pause_reading()
        body = bytes(MAX_DATA_FRAME_BYTES)
        for _ in range(2 * MAX_UNSENT_BYTES // len(body)):
            at_b.send(DATA, body)
        await b.until(lambda: bool(b.ended))
        assert b.ended[0][0] == "slow"
        at_a.resume_reading()
        await a.until(lambda: bool(a.ended))

    run(scenario())


def test_a_close_gives_its_reason_after_everything_was_sent(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        at_a, at_b = await pair(a, b)
        for n in range(50):
            at_b.send(CONTROL, b"%d" % n)
        at_b.close("leaving")
        assert at_b.closed
        at_b.send(CONTROL, b"too late")
        await a.until(lambda: bool(a.ended))
        await b.until(lambda: bool(b.ended))
        assert len(a.frames) == 50
        assert (a.ended, b.ended) == ([("peer closed", "leaving")], [("leaving", "")])
        with pytest.raises(ConnectionError):
            await at_a.drain()

    run(scenario())


def test_a_peer_that_vanishes_is_detected(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        _, at_b = await pair(a, b)
        at_b.abort("done")
        await a.until(lambda: bool(a.ended))
        assert a.ended[0][0] == "lost"

    run(scenario())


def test_frames_sent_before_a_peer_left_reach_a_paused_owner(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        at_a, at_b = await pair(a, b)
        a.on_frame = lambda link, kind, body: link.pause_reading()
        for n in range(5):
            at_b.send(CONTROL, b"%d" % n)
        at_b.close("leaving")
        await b.until(lambda: bool(b.ended))
        while not a.ended:
            await asyncio.sleep(0.001)
            at_a.resume_reading()
        assert [body for _, body in a.frames] == [b"0", b"1", b"2", b"3", b"4"]
        assert a.ended == [("peer closed", "leaving")]

    run(scenario())


def test_a_frame_that_is_not_accepted_comes_again_first_even_after_the_loss(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        at_a, at_b = await pair(a, b)
        taken: list[bytes] = []
        refused: list[bytes] = []

        def every_second_time(link: Link, kind: int, body: bytes) -> None:
            if body not in refused:
                refused.append(body)
                raise DeferFrame
            taken.append(body)

        a.on_frame = every_second_time
        bodies = [b"%d" % n for n in range(5)]
        for body in bodies:
            at_b.send(CONTROL, body)
        at_b.close("leaving")
        await b.until(lambda: bool(b.ended))
        for n in range(5):
            await a.until(lambda n=n: len(refused) == n + 1)
            assert (taken, at_a.frames_in) == (bodies[:n], n)
            assert not a.ended
            at_a.resume_reading()
        await a.until(lambda: bool(a.ended))
        assert taken == bodies
        sizes = [1, 1, 1, 1, 1, len("leaving")]
        assert (at_a.frames_in, at_a.bytes_in) == (6, sum(HEADER_BYTES + size for size in sizes))
        assert a.ended == [("peer closed", "leaving")]

    run(scenario())


@pytest.mark.parametrize("turns", range(5))
def test_arrived_frames_are_accepted_whenever_reading_resumes_beside_the_loss(run: Run, turns: int) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        at_a, at_b = await pair(a, b)
        taken: list[bytes] = []

        def second_time(link: Link, kind: int, body: bytes) -> None:
            taken.append(body)
            if len(taken) == 1:
                raise DeferFrame

        a.on_frame = second_time
        for body in (b"1", b"2", b"3"):
            at_b.send(CONTROL, body)
        await a.until(lambda: bool(taken))
        assert at_a._transport is not None
        at_a._transport.abort()  # as when the system finds the connection broken
        for _ in range(turns):
            await asyncio.sleep(0)
        at_a.resume_reading()
        await a.until(lambda: bool(a.ended))
        assert taken == [b"1", b"1", b"2", b"3"]
        assert a.ended == [("lost", "")]

    run(scenario())


def test_an_owner_may_abandon_a_link_whose_peer_left_first(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        at_a, at_b = await pair(a, b)
        at_a.pause_reading()
        at_b.send(CONTROL, b"never read")
        at_b.close()
        await b.until(lambda: bool(b.ended))
        at_a.close("done")
        await a.until(lambda: bool(a.ended))
        assert [reason for reason, _ in a.ended] == ["done"]

    run(scenario())


def test_a_frame_that_breaks_the_owners_protocol_closes_the_link(run: Run) -> None:
    async def scenario() -> None:
        def refuse(link: Link, kind: int, body: bytes) -> None:
            raise RemoteProtocolError("form", "no such message")

        a, b = agent("a", on_frame=refuse), agent("b")
        _, at_b = await pair(a, b)
        at_b.send(CONTROL, b"?")
        at_b.send(CONTROL, b"not delivered any more")
        await a.until(lambda: bool(a.ended))
        await b.until(lambda: bool(b.ended))
        assert a.ended == [("form", "form: no such message")]
        assert b.ended == [("peer closed", "form")]
        assert len(a.frames) == 1

    run(scenario())


def test_an_exception_in_the_owners_handler_closes_its_link_and_is_reported(run: Run) -> None:
    async def scenario() -> None:
        def fail(link: Link, kind: int, body: bytes) -> None:
            raise KeyError("our bug")

        reported: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        a, b = agent("a", on_frame=fail), agent("b")
        _, at_b = await pair(a, b)
        at_b.send(CONTROL, b"!")
        await b.until(lambda: bool(b.ended))
        await a.until(lambda: bool(a.ended))
        assert b.ended == [("peer closed", "internal")]
        assert a.ended[0][0] == "internal"
        assert isinstance(reported[0]["exception"], KeyError)

    run(scenario())


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\xff\xff\xff\xff\x01", "oversize"),
        ((MAX_DATA_FRAME_BYTES + 1).to_bytes(4, "big") + b"\x02", "oversize"),
        (b"\0\0\0\0\x09", "kind"),
        (b"\0\0\0\x01\0\x80", "unexpected frame"),
    ],
)
def test_a_member_that_sends_malformed_frames_is_closed_with_the_reason(run: Run, raw: bytes, reason: str) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        _, at_b = await pair(a, b)
        assert at_b._transport is not None
        at_b._transport.write(raw)
        await a.until(lambda: bool(a.ended))
        await b.until(lambda: bool(b.ended))
        assert a.ended[0][0] == reason
        assert b.ended == [("peer closed", reason)]

    run(scenario())


def test_a_truncated_frame_is_distinguished_from_a_clean_end(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        at_a, at_b = await pair(a, b)
        assert at_b._transport is not None
        at_b._transport.write(b"\0\0\0\x09\x01half")
        at_b._transport.close()
        await at_a.gone
        assert a.ended[0][0] == "truncated"

    run(scenario())


def test_a_link_closes_when_the_peers_grant_ends(run: Run) -> None:
    """A4 of the admission spec: not before the grant's last second is over, and then at once, on both sides in words."""

    async def scenario() -> None:
        # By this clock the last second of the grant of `b` begins now.
        loop = asyncio.get_running_loop()
        begin, end = loop.time(), NOW + HOUR

        def clock() -> float:
            return end + loop.time() - begin

        a = Node("a", NET.member("a"), wall_seconds=clock)
        b = Node("b", NET.member("b", until=HOUR), wall_seconds=clock)
        await pair(a, b)
        await a.until(lambda: bool(a.ended))
        await b.until(lambda: bool(b.ended))
        assert a.ended[0] == ("expired", "")
        assert b.ended[0] == ("peer closed", "expired")
        assert clock() >= end + 1

    run(scenario())


def test_a_leaf_is_renewed_in_place(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        at_a, at_b = await pair(a, b)
        before = at_b.certificate
        load_credentials(a.server, make_credentials(key_of("a"), NET.network, NOW))
        _, again = await pair(a, b)
        assert again.certificate != before
        assert again.peer.node_id == at_b.peer.node_id
        for link in (at_b, again):
            assert not link.closed
            link.close()
        await a.until(lambda: len(a.ended) == 2)
        assert at_a.closed

    run(scenario())


@pytest.mark.parametrize(
    ("text", "parts"),
    [("192.0.2.1:9464", ("192.0.2.1", 9464)), ("[::1]:80", ("::1", 80)), ("pi1.local:0", ("pi1.local", 0))],
)
def test_addresses_are_parsed(text: str, parts: tuple[str, int]) -> None:
    assert parse_address(text) == parts
    assert format_address(*parts) == text


@pytest.mark.parametrize("text", ["", "pi1", "pi1:", "pi1:x", "pi1:70000", "pi1:-1", "pi1:१"])
def test_other_texts_are_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address(text)
