"""Attacks that wear a node down: many links of one key, users in the places of agents, long questions, frames that never end."""

import asyncio
import contextlib

import pytest

from agiledart_kernel.frames import FRAME_HEADER, FrameKind
from agiledart_kernel.limits import MAX_LINKS_OF_KEY, MAX_READERS_FRAME_BYTES
from agiledart_transport import unfinished_frames
from agiledart_transport.connecting import Link, RefusedByPeer, parse_address
from agiledart_transport.listener import ListenerLimits
from agiledart_transport.unfinished_frames import UnfinishedFrames
from tests.conformance.conftest import Run
from tests.conformance.mesh import NET, Node, agent, settled


def user(role: str, name: str = "") -> Node:
    return Node(*NET.holder(role, name))  # type: ignore[arg-type]


def begin_frame(link: Link, size: int, sent: int) -> None:
    """Announce a frame, send a part of it."""
    assert link._transport is not None
    link._transport.write(FRAME_HEADER.pack(size, FrameKind.CONTROL) + bytes(sent))


def test_one_key_has_a_bounded_number_of_links_to_a_service(run: Run) -> None:
    async def scenario() -> None:
        a, reader = agent("a"), user("reader")
        listener = await a.serve()
        links = [await reader.dial(listener, "control") for _ in range(MAX_LINKS_OF_KEY)]
        with pytest.raises(RefusedByPeer, match="too many links"):
            await reader.dial(listener, "control")
        # Each service counts by itself. Spark's workers, which have one key, share a log.
        links += [await reader.dial(listener, "sink_log") for _ in range(MAX_LINKS_OF_KEY + 1)]
        links.append(await user("reader", "another").dial(listener, "control"))
        links[0].close()
        await links[0].gone
        await settled(lambda: listener.links == len(links) - 1)
        links[0] = await reader.dial(listener, "control")
        for link in links:
            link.close()
            await link.gone
        await settled(lambda: listener.links == 0)
        assert not listener._by_key
        await listener.close()

    run(scenario())


def test_users_do_not_take_the_slots_of_agents(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await a.serve(limits=ListenerLimits(links=4, reserved_for_agents=1))
        links = [await user("reader", f"r{n}").dial(listener, "control") for n in range(3)]
        with pytest.raises(RefusedByPeer, match="full"):
            await user("admin").dial(listener, "control")
        links.append(await b.dial(listener))
        for link in links:
            link.close()
            await link.gone
        await listener.close()

    run(scenario())


@pytest.mark.parametrize(("role", "taken"), [("reader", False), ("submitter", True), ("admin", True)])
def test_only_a_submitter_may_send_a_long_frame(run: Run, role: str, taken: bool) -> None:
    async def scenario() -> None:
        a, b = agent("a"), user(role)
        listener = await a.serve()
        link = await b.dial(listener, "control")
        link.send(FrameKind.CONTROL, bytes(MAX_READERS_FRAME_BYTES))
        link.send(FrameKind.CONTROL, bytes(MAX_READERS_FRAME_BYTES + 1))
        if taken:
            await a.until(lambda: len(a.frames) == 2)
            link.close()
        else:
            await a.until(lambda: bool(a.ended))
            assert len(a.frames) == 1
            assert a.ended[0][0] == "oversize"
        await link.gone
        await listener.close()

    run(scenario())


def test_the_key_that_holds_most_unfinished_bytes_is_disconnected(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        ledger = UnfinishedFrames(max_bytes=300_000)
        monkeypatch.setitem(unfinished_frames._ledgers, asyncio.get_running_loop(), ledger)
        a, honest, greedy = agent("a"), user("submitter", "honest"), user("submitter", "greedy")
        listener = await a.serve()
        slow = await honest.dial(listener, "control")
        begin_frame(slow, 120_000, 90_000)
        await settled(lambda: ledger.total == 90_005)
        links = [await greedy.dial(listener, "control") for _ in range(3)]
        for link in links:
            begin_frame(link, 200_000, 80_000)
        await a.until(lambda: len(a.ended) == 1)
        assert a.ended[0] == ("unfinished", "a frame did not arrive completely")
        assert ledger.total <= 300_000
        assert slow._transport is not None
        slow._transport.write(bytes(30_000))  # the rest of the honest one's
        await a.until(lambda: len(a.frames) == 1)
        assert a.frames[0] == (FrameKind.CONTROL, bytes(120_000))
        for link in (slow, *links):
            link.close()
            await link.gone
        await settled(lambda: ledger.total == 0)
        await listener.close()

    run(scenario())


def test_a_frame_that_takes_too_long_ends_its_link(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        ledger = UnfinishedFrames(max_seconds=0.2)
        monkeypatch.setitem(unfinished_frames._ledgers, asyncio.get_running_loop(), ledger)
        a, b, c = agent("a"), agent("b"), agent("c")
        listener = await a.serve()
        link, other = await b.dial(listener), await c.dial(listener)
        begin_frame(link, 1_000, 10)
        other.send(FrameKind.CONTROL, b"whole")
        await a.until(lambda: bool(a.ended))
        assert a.ended[0][0] == "unfinished"
        assert a.frames == [(FrameKind.CONTROL, b"whole")]
        assert not other.closed
        other.close()
        await other.gone
        await settled(lambda: ledger.total == 0)
        await listener.close()

    run(scenario())


def test_time_does_not_count_while_reading_is_paused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        ledger = UnfinishedFrames(max_seconds=0.2)
        monkeypatch.setitem(unfinished_frames._ledgers, asyncio.get_running_loop(), ledger)
        a, b = agent("a"), agent("b")
        a.on_frame = lambda link, kind, body: link.pause_reading() if body == b"stop" else None
        listener = await a.serve()
        link = await b.dial(listener)
        link.send(FrameKind.CONTROL, b"stop")
        link.flush()
        begin_frame(link, 1_000, 10)
        await a.until(lambda: len(a.frames) == 1)
        assert ledger.total == 0
        assert link._transport is not None
        link._transport.write(bytes(990))
        a.accepted[0].resume_reading()
        await a.until(lambda: len(a.frames) == 2)
        link.close()
        await link.gone
        await listener.close()

    run(scenario())


@pytest.mark.parametrize("says", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "a byte", "a part"])
def test_unknown_nodes_that_hold_connections_keep_no_newcomer_out(run: Run, says: bytes) -> None:
    """Two hundred, all from the newcomer's own address, each coming back as soon as it was closed."""

    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await a.serve(timeout=5.0)
        host, port = parse_address(listener.address)

        async def stranger() -> None:
            while True:
                try:
                    reader, writer = await asyncio.open_connection(host, port)
                except OSError:
                    continue
                with contextlib.suppress(OSError), contextlib.closing(writer):
                    writer.write(says)
                    await reader.read()

        strangers = [asyncio.create_task(stranger()) for _ in range(200)]
        await a.until(lambda: a.refused["crowded"] > 100)
        for _ in range(3):
            link = await b.dial(listener, timeout=5.0)
            link.close()
            await link.gone
        for one in strangers:
            one.cancel()
        await asyncio.gather(*strangers, return_exceptions=True)
        await settled(lambda: listener.unverified == 0)
        await listener.close()

    run(scenario())


def test_an_honest_crowd_from_one_address_is_admitted_one_after_another(run: Run) -> None:
    async def scenario() -> None:
        a = agent("a")
        listener = await a.serve()
        crowd = [agent(f"m{n}") for n in range(40)]
        links = await asyncio.gather(*(one.dial(listener) for one in crowd))
        assert listener.links == 40
        assert not a.refused
        for link in links:
            link.close()
            await link.gone
        await listener.close()

    run(scenario())
