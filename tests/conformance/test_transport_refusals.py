"""Refused callers and the reasons, and that a refusal costs the acceptor nothing permanent.

Each stranger here goes as far as it can by itself: plain TCP, TLS without or with a leaf of the network, a HELLO.
"""

import asyncio
import socket
import ssl
from dataclasses import replace

import msgspec
import pytest

from agiledart_kernel.errors import Refused, RemoteProtocolError
from agiledart_kernel.frames import (
    PROTOCOL_MAX,
    SPLIT_KEY_PROTOCOL,
    FrameKind,
    FrameReader,
    Hello,
    decode_hello,
    encode_hello,
    frame,
)
from agiledart_kernel.grants import ROLES, Role
from agiledart_kernel.limits import MAX_FRAME_BYTES, MAX_HELLO_BYTES
from agiledart_kernel.services import ROLES_BY_SERVICE
from agiledart_transport import certificates
from agiledart_transport.connecting import NoHello, RefusedByPeer, for_service, parse_address
from agiledart_transport.link import LINK_REASONS
from agiledart_transport.listener import Listener, ListenerLimits
from agiledart_transport.tls_contexts import client_context
from tests.conformance.conftest import Run
from tests.conformance.mesh import NET, NOW, Node, agent, settled
from tests.keys import HOUR, Authority, key_of, public_of

OTHER = Authority("another authority", now=NOW)


async def call(
    listener: Listener, raw: bytes, context: ssl.SSLContext | None = None, *, hang_up: bool = False
) -> bytes:
    """Send bytes as a stranger; return the acceptor's answer until it closes. A broken connection answers nothing."""
    host, port = parse_address(listener.address)
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="" if context else None)
        try:
            writer.write(raw)
            if hang_up and writer.can_write_eof():
                writer.write_eof()
            elif hang_up:
                await writer.drain()
                writer.close()
            return await reader.read()
        finally:
            writer.close()
    except OSError:
        return b""


async def no_trace(node: Node, listener: Listener, reason: str, times: int = 1) -> None:
    """The refusal was counted, reached no handler, and holds no place."""
    await node.until(lambda: sum(node.refused.values()) >= times)
    assert dict(node.refused) == {reason: times}
    assert reason in LINK_REASONS
    assert (node.accepted, node.frames, node.ended, listener.links) == ([], [], [], 0)
    await settled(lambda: listener.unverified == 0)
    await listener.close()


# ------------------------------------------------------------------------------------------------ before there is a HELLO


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nHost: pi1\r\n\r\n",
        bytes(2_000),
        b"\x16\x03\x01\xff\xff" + b"\xaa" * 70_000,
        b"SSH-2.0-x\r\n",
    ],
    ids=["http", "zeros", "no client hello", "ssh"],
)
def test_a_connection_without_tls_is_refused(run: Run, raw: bytes) -> None:
    async def scenario() -> None:
        a = agent("a")
        listener = await a.serve()
        await call(listener, raw)
        await no_trace(a, listener, "tls")

    run(scenario())


def test_a_caller_that_leaves_before_tls_is_refused(run: Run) -> None:
    async def scenario() -> None:
        a = agent("a")
        listener = await a.serve()
        await call(listener, b"\x16\x03\x01", hang_up=True)
        await no_trace(a, listener, "tls")

    run(scenario())


def test_tls_without_a_certificate_is_refused(run: Run) -> None:
    async def scenario() -> None:
        a = agent("a")
        listener = await a.serve()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        await call(listener, frame(0, encode_hello(a.hello)), context)
        await no_trace(a, listener, "tls")

    run(scenario())


def test_a_leaf_of_another_network_is_refused_by_both_ends(run: Run) -> None:
    async def scenario() -> None:
        a = agent("a")
        stranger = Node("b", OTHER.member("b"), network=OTHER.network)
        listener = await a.serve()
        stranger.client.verify_mode = ssl.CERT_NONE  # a dialler that accepts any peer
        await call(listener, frame(0, encode_hello(stranger.hello)), stranger.client)
        await no_trace(a, listener, "tls")
        listener = await a.serve()
        with pytest.raises(Refused) as refusal:
            await Node("b", OTHER.member("b"), network=OTHER.network).dial(listener)
        assert refusal.value.reason == "tls"
        await no_trace(a, listener, "tls", times=2)

    run(scenario())


def test_tls_1_2_is_refused(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await a.serve()
        b.client.minimum_version = ssl.TLSVersion.TLSv1_2
        b.client.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((Refused, ConnectionResetError)):
            await b.dial(listener)
        await no_trace(a, listener, "tls")

    run(scenario())


@pytest.mark.parametrize("tls", [False, True])
def test_a_slow_caller_blocks_nothing_for_long(run: Run, tls: bool) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await a.serve(timeout=1.0 if tls else 0.3)
        loop = asyncio.get_running_loop()
        begin = loop.time()
        host, port = parse_address(listener.address)
        _, writer = await asyncio.open_connection(
            host, port, ssl=b.client if tls else None, server_hostname="" if tls else None
        )
        drip = frame(0, encode_hello(b.hello)) if tls else b"\x16\x03\x01\x02\x00\x01"
        for byte in drip:  # one byte now and then: each alone comes in time
            writer.write(bytes([byte]))
            await asyncio.sleep(0.05)
            if a.refused:
                break
        await no_trace(a, listener, "timeout")
        assert loop.time() - begin < 5
        writer.close()

    run(scenario())


# --------------------------------------------------------------------------------------------------------- the HELLO itself


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\xff\xff\xff\xff\0", "oversize"),
        ((MAX_HELLO_BYTES + 1).to_bytes(4, "big") + b"\0", "oversize"),
        ((MAX_HELLO_BYTES + 1).to_bytes(4, "big") + b"\x01", "oversize"),
        (b"\0\0\0\0\x77", "kind"),
        (frame(FrameKind.CONTROL, b"hello?"), "unexpected frame"),
        (frame(FrameKind.HELLO, b"\xc1" * 300), "form"),
        (frame(FrameKind.HELLO, b""), "form"),
    ],
    ids=["4 GB", "hello", "control", "kind", "control first", "garbage", "empty"],
)
def test_a_bad_first_frame_is_refused(run: Run, raw: bytes, reason: str) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await a.serve()
        answer = await call(listener, raw, b.client)
        assert answer == frame(FrameKind.CLOSE, reason.encode())
        await no_trace(a, listener, reason)

    run(scenario())


def test_a_truncated_hello_is_refused(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await a.serve()
        await call(listener, frame(0, encode_hello(b.hello))[:100], b.client, hang_up=True)
        await no_trace(a, listener, "truncated")

    run(scenario())


def test_frames_sent_with_the_hello_wait_until_it_is_accepted(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await a.serve()
        mine = msgspec.structs.replace(b.hello, service="overlay")
        raw = frame(0, encode_hello(mine)) + frame(FrameKind.CONTROL, b"early") + frame(FrameKind.CLOSE, b"done")
        answer = await call(listener, raw, b.client)
        await a.until(lambda: bool(a.ended))
        assert a.frames == [(FrameKind.CONTROL, b"early")]
        frames = FrameReader(MAX_FRAME_BYTES)
        frames.feed(answer)
        first = frames.next()
        assert first is not None
        hello = decode_hello(first[1])
        assert hello.seen, "it says how it sees the caller"
        assert msgspec.structs.replace(hello, seen="") == for_service(a.hello, "overlay")
        await listener.close()

    run(scenario())


# ------------------------------------------------------------------------------------------------------------- identities


def forged_leaf(holder: str, victim: str) -> ssl.SSLContext:
    """A leaf of our network that names the victim's key, signed by the holder's: a thief can make it."""
    honest = certificates.public_bytes
    try:
        certificates.public_bytes = lambda key: public_of(victim)
        return client_context(certificates.make_credentials(key_of(holder), NET.network, NOW))
    finally:
        certificates.public_bytes = honest


STRANGERS: dict[str, tuple[str, Node, ssl.SSLContext | None]] = {
    "no chain": ("length", Node("b", ()), None),
    "a forged peer id": ("certificate", agent("b"), forged_leaf("thief", "b")),
    "a stolen chain": ("another key", Node("thief", NET.member("b")), None),
    "an expired grant": ("expired", Node("b", NET.member("b", until=-1)), None),
    "a grant of tomorrow": (
        "not yet valid", Node("b", NET.link("authority", (), "b", "act", "agent", since=HOUR, until=2 * HOUR)), None),
    "another network's chain in our leaf": ("another network", Node("b", OTHER.member("b")), None),
    "a chain that it signed itself": (
        "signature", Node("b", NET.link("b", (), "b", "act", "agent")), None),
    "a member made by a member": (
        "policy", Node("b", NET.link("pi", NET.member("pi"), "b", "act", "agent")), None),
    "the token itself": (
        "an invitation is not a member", Node("t", NET.link("authority", (), "t", "invite", "agent")), None),
    "an agent of one application": ("scope", Node("b", NET.member("b", scope="app:taxi")), None),
}  # fmt: skip


@pytest.mark.parametrize("case", STRANGERS)
def test_an_unknown_node_is_refused_with_the_reason(run: Run, case: str) -> None:
    reason, stranger, context = STRANGERS[case]

    async def scenario() -> None:
        a, b = agent("a"), replace(stranger)
        listener = await a.serve()
        with pytest.raises(RefusedByPeer) as refusal:
            await b.dial(listener, context=context)
        assert refusal.value.reason == reason
        assert b.frames == []
        assert b.ended == []
        await no_trace(a, listener, reason)

    run(scenario())


@pytest.mark.parametrize("service", ROLES_BY_SERVICE)
def test_every_role_is_checked_at_every_service_over_the_wire(run: Run, service: str) -> None:
    """Oracle A5 of the admission spec: exactly the table."""

    async def scenario() -> None:
        a = agent("a")
        listener = await a.serve()

        async def is_admitted(role: Role) -> bool:
            name, chain = NET.holder(role)
            try:
                link = await Node(name, chain).dial(listener, service)
            except RefusedByPeer as refusal:
                assert refusal.reason == "role"  # noqa: PT017  any other outcome fails the comparison below
                return False
            link.close()
            await link.gone
            return True

        admitted = [role for role in ROLES if await is_admitted(role)]
        assert tuple(sorted(admitted)) == tuple(sorted(ROLES_BY_SERVICE[service]))
        assert a.refused["role"] == len(ROLES) - len(admitted)
        await listener.close()

    run(scenario())


def test_a_banned_key_is_refused(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        a.verifier.banned = {public_of("b")}
        listener = await a.serve()
        with pytest.raises(RefusedByPeer, match="banned"):
            await b.dial(listener)
        await no_trace(a, listener, "banned")

    run(scenario())


def test_a_service_that_is_not_offered_is_refused(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a", services=("data",)), agent("b")
        listener = await a.serve()
        for service in ("overlay", "teapot"):
            with pytest.raises(RefusedByPeer, match="service"):
                await b.dial(listener, service)
        await no_trace(a, listener, "service", times=2)

    run(scenario())


def test_a_future_protocol_is_refused(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await a.serve()
        with pytest.raises(RefusedByPeer, match="protocol"):
            await b.dial(listener, hello=Hello(PROTOCOL_MAX + 1, 9, chain=b.chain))
        await no_trace(a, listener, "protocol")

    run(scenario())


@pytest.mark.parametrize("service", ["overlay", "fragments"])
def test_an_agent_that_reads_registers_otherwise_enters_no_ring(run: Run, service: str) -> None:
    """Before protocol 5 a register held the key of its run, not its digest."""

    async def scenario() -> None:
        a, b = agent("a", services=(service,)), agent("b")
        listener = await a.serve()
        answer = await call(listener, hello_of_earlier_build(b, service), b.client)
        words = b"protocol: update AgileDart on old one (0.1.0), it speaks protocol 4, a 5"
        assert answer == frame(FrameKind.CLOSE, words)
        await no_trace(a, listener, "protocol")

    run(scenario())


def test_a_user_with_an_earlier_build_is_served(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a", services=("sink_log",)), agent("b")
        listener = await a.serve()
        raw = hello_of_earlier_build(b, "sink_log") + frame(FrameKind.CLOSE, b"done")
        assert (await call(listener, raw, b.client))[4] == FrameKind.HELLO
        await listener.close()

    run(scenario())


def hello_of_earlier_build(node: Node, service: str) -> bytes:
    """Return the first frame of an agent of the last build that stored keys in registers."""
    hello = Hello(1, SPLIT_KEY_PROTOCOL - 1, service=service, chain=node.chain, name="old one", software="0.1.0")
    return frame(FrameKind.HELLO, encode_hello(hello))


# --------------------------------------------------------------------------------------------------------- the dialler's side


def test_a_dialler_gives_up_when_another_peer_answers(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await a.serve()
        with pytest.raises(Refused) as refusal:
            await b.dial(listener, expect=agent("c").node_id)
        assert refusal.value.reason == "another peer"
        await a.until(lambda: bool(a.ended))
        assert a.ended == [("peer closed", "another peer")]
        await listener.close()

    run(scenario())


@pytest.mark.parametrize("role", ["reader", "executor", "admin"])
def test_a_dialler_refuses_an_acceptor_whose_role_may_not_answer(run: Run, role: Role) -> None:
    async def scenario() -> None:
        name, chain = NET.holder(role)
        a, b = Node(name, chain), agent("b")
        listener = await a.serve()
        with pytest.raises(Refused) as refusal:
            await b.dial(listener)
        assert refusal.value.reason == "role"
        await listener.close()

    run(scenario())


def test_a_dialler_reports_plainly_that_no_peer_is_listening(run: Run) -> None:
    async def scenario() -> None:
        b = agent("b")
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{unused.getsockname()[1]}"
            with pytest.raises(OSError):
                await b.dial(address)
            unused.listen(1)  # the system accepts, no process answers
            with pytest.raises(NoHello, match="did not answer within"):
                await b.dial(address, timeout=0.2)
        with pytest.raises(ValueError, match="HOST:PORT"):
            await b.dial("nowhere")

    run(scenario())


def test_a_dialler_that_meets_no_tls_or_malformed_bytes_gives_up(run: Run) -> None:
    async def scenario() -> None:
        b, liar = agent("b"), agent("liar")
        host = "127.0.0.1"

        async def answer(raw: bytes, context: ssl.SSLContext | None) -> str:
            async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(raw)
                try:
                    await reader.read(100_000)
                finally:
                    writer.close()

            server = await asyncio.start_server(serve_one, host, 0, ssl=context)
            port = server.sockets[0].getsockname()[1]
            try:
                await b.dial(f"{host}:{port}")
            except RemoteProtocolError as error:
                return error.reason
            except OSError as error:
                return type(error).__name__
            finally:
                server.close()
            return "accepted"

        assert await answer(b"HTTP/1.1 400 Bad Request\r\n\r\n", None) == "tls"
        assert await answer(frame(0, b"\xc1"), liar.server) == "form"
        assert await answer(b"\xff" * 9, liar.server) == "kind"
        assert await answer(frame(4, b"made up\x1b[31m"), liar.server) == "peer closed"
        assert await answer(frame(4, b"expired"), liar.server) == "expired"
        assert await answer(frame(0, encode_hello(liar.hello)), liar.server) == "service"
        assert await answer(b"", liar.server) == "ConnectionResetError"
        assert b.frames == []
        assert b.ended == []

    run(scenario())


# ------------------------------------------------------------------------------------------------------------------ limits


def test_the_first_of_too_many_silent_callers_is_disconnected(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await a.serve(limits=ListenerLimits(pending=3), timeout=2.0)
        host, port = parse_address(listener.address)
        idle = [await asyncio.open_connection(host, port) for _ in range(3)]
        await settled(lambda: listener.unverified == 3)
        idle.append(await asyncio.open_connection(host, port))
        assert await idle[0][0].read() == b""  # the one that has been silent longest gives way
        await settled(lambda: dict(a.refused) == {"crowded": 1} and listener.unverified == 3)
        await a.until(lambda: a.refused["timeout"] == 3)
        await settled(lambda: listener.unverified == 0)
        link = await b.dial(listener)  # and then there is room again
        link.close()
        await link.gone
        for _, writer in idle:
            writer.close()
        await listener.close()

    run(scenario())


def test_more_links_than_allowed_are_closed_at_once(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")
        listener = await a.serve(limits=ListenerLimits(links=1, reserved_for_agents=0))
        first = await b.dial(listener)
        with pytest.raises(OSError):
            await b.dial(listener)
        assert dict(a.refused) == {"full": 1}
        first.close()
        await a.until(lambda: len(a.ended) == 1)
        second = await b.dial(listener)
        second.close()
        await second.gone
        await listener.close()

    run(scenario())


def test_the_owner_may_refuse_a_link(run: Run) -> None:
    async def scenario() -> None:
        a, b = agent("a"), agent("b")

        def refuse(link: object) -> None:
            raise Refused("full", "one link per node")

        a._take = refuse  # type: ignore[assignment,method-assign]
        listener = await a.serve()
        with pytest.raises(RefusedByPeer, match="full"):
            await b.dial(listener)
        await no_trace(a, listener, "full")

    run(scenario())


def test_a_port_is_taken_once(run: Run) -> None:
    async def scenario() -> None:
        a = agent("a")
        listener = await a.serve()
        host, port = parse_address(listener.address)
        from agiledart_transport.listener import serve

        with pytest.raises(OSError):
            await serve(
                host, port, context=a.server, hello=lambda peer: a.hello, verifier=a.verifier, services=(),
                on_link=a._take, on_refused=a._refuse,
            )  # fmt: skip
        await listener.close()

    run(scenario())


def test_an_internal_error_during_verification_costs_one_caller_and_is_reported(run: Run) -> None:
    async def scenario() -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))
        a, b = agent("a"), agent("b")

        def fail(link: object) -> None:
            raise KeyError("our bug")

        a._take = fail  # type: ignore[assignment,method-assign]
        listener = await a.serve()
        with pytest.raises(RefusedByPeer, match="internal"):
            await b.dial(listener)
        await no_trace(a, listener, "internal")
        assert isinstance(reported[0], KeyError)

    run(scenario())
