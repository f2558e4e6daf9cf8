"""Links over socket pairs: the same HELLO, verification and frames as over TLS."""

import socket

import pytest

from agiledart_kernel.errors import Refused
from agiledart_kernel.frames import FrameKind
from agiledart_transport.certificates import leaf_of, make_credentials
from agiledart_transport.connecting import Link, RefusedByPeer, connect
from agiledart_transport.link import kind_of
from agiledart_transport.listener import Listener, ListenerLimits
from agiledart_transport.socket_pair import PairEnd
from tests.conformance.conftest import Run
from tests.conformance.mesh import NET, NOW, Node, agent, settled
from tests.keys import key_of


def leaf(node: Node) -> bytes:
    return leaf_of(make_credentials(key_of(node.name), node.network, NOW))


async def pair_up(caller: Node, target: Node, listener: Listener, *, expected: Node | None = None) -> Link:
    """Hand both ends over, as an agent does, and open the link."""
    near, far = socket.socketpair()
    for end in (near, far):
        end.setblocking(False)
    listener.take_pair(PairEnd(far, leaf(caller)))
    return await connect(
        "127.0.0.1:1", service="data", context=None, hello=caller.hello, verifier=caller.verifier,
        expect=(expected or target).node_id, on_frame=caller._frame, on_closed=caller._closed,
        pair=PairEnd(near, leaf(target)), on_echo=lambda link, body: caller.frames.append((FrameKind.ECHO, body)),
    )  # fmt: skip


def test_frames_pass_and_each_end_knows_the_other(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await b.serve()
        link = await pair_up(a, b, listener)
        assert (link.peer.node_id, kind_of(link), link.remote) == (b.node_id, "local", "")
        await b.until(lambda: bool(b.accepted))
        (accepted,) = b.accepted
        assert (accepted.peer.node_id, kind_of(accepted), accepted.peer.hello.seen) == (a.node_id, "local", "")
        large = bytes(3 << 20)
        link.send(FrameKind.DATA, large)
        link.send(FrameKind.PROBE, b"12345678")
        await b.until(lambda: b.frames == [(FrameKind.DATA, large)])
        accepted.send(FrameKind.ACK, b"thanks")
        await a.until(lambda: a.frames == [(FrameKind.ECHO, b"12345678"), (FrameKind.ACK, b"thanks")])
        link.close()
        await b.until(lambda: bool(b.ended))
        assert b.ended == [("peer closed", "done")]
        await settled(lambda: listener.links == 0)
        await listener.close()

    run(scenario())


def test_the_end_of_a_process_ends_the_link(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await b.serve()
        link = await pair_up(a, b, listener)
        await b.until(lambda: bool(b.accepted))
        link.abort("lost")  # the system closes the socket of a killed process as this does
        await b.until(lambda: bool(b.ended))
        assert b.ended[0][0] == "lost"
        await listener.close()

    run(scenario())


def test_the_caller_refuses_another_executor_than_it_asked_for(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await b.serve()
        with pytest.raises(Refused, match="another peer"):
            await pair_up(a, b, listener, expected=agent("c"))
        await listener.close()

    run(scenario())


def test_a_chain_of_another_key_than_the_certificate_is_refused(run: Run) -> None:
    async def scenario() -> None:
        b = agent("b")
        listener = await b.serve()
        liar = Node("c", NET.member("a"))  # its certificate is of the key `c`, its chain of the key `a`
        with pytest.raises(RefusedByPeer):
            await pair_up(liar, b, listener)
        await b.until(lambda: b.refused.total() == 1)
        assert listener.links == 0
        await listener.close()

    run(scenario())


def test_a_listener_that_is_full_takes_no_pair(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await b.serve(limits=ListenerLimits(links=0))
        with pytest.raises(OSError, match="closed"):
            await pair_up(a, b, listener)
        assert b.refused == {"full": 1}
        await listener.close()

    run(scenario())


def test_a_receiver_that_does_not_read_is_no_slow_link(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await b.serve()
        link = await pair_up(a, b, listener)
        await b.until(lambda: bool(b.accepted))
        link.send(FrameKind.DATA, b"1")
        link.flush()
        await settled(lambda: link.unsent_bytes == 0)
        free = link.progress()
        assert (free.acknowledged, free.queued, free.held_us) == (link.bytes_out, 0, 0)
        b.accepted[0].pause_reading()
        for _ in range(4):
            link.send(FrameKind.DATA, bytes(1 << 20))
        held = link.progress()
        assert held.queued > 1 << 20
        assert held.held_us > 0
        assert link.progress().held_us >= held.held_us
        link.abort("done")
        await listener.close()

    run(scenario())
