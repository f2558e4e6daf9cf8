"""Outgoing connections: candidates in turn, and a proxy, over real sockets of this machine."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from agiledart_transport import outgoing
from agiledart_transport.outgoing import CANDIDATE_SECONDS, ProxyError, first_opened, open_connection, plain_host


async def after(seconds: float, result: str) -> str:
    """A dial that answers at once, or never; a result that begins with "!" is an error."""
    if seconds:
        await asyncio.Event().wait()  # it never answers
    if result.startswith("!"):
        raise ConnectionRefusedError(result)
    return result


def play(*dials: tuple[float, str]) -> tuple[str, list[str], float]:
    """Opened and discarded connections, and the seconds that they took."""
    discarded: list[str] = []
    began = time.monotonic()
    opened = asyncio.run(first_opened([partial(after, *dial) for dial in dials], discarded.append))
    return opened, discarded, time.monotonic() - began


def test_the_first_candidate_is_used_when_it_answers_in_time() -> None:
    opened, discarded, seconds = play((0.0, "first"), (0.0, "second"))
    assert (opened, discarded) == ("first", [])
    assert seconds < CANDIDATE_SECONDS


def test_a_silent_candidate_costs_a_quarter_of_a_second() -> None:
    opened, discarded, seconds = play((30.0, "silent"), (0.0, "second"))
    assert (opened, discarded) == ("second", [])
    assert CANDIDATE_SECONDS <= seconds < 10 * CANDIDATE_SECONDS


def test_a_failed_candidate_costs_nothing_and_the_error_is_that_of_the_first() -> None:
    assert play((0.0, "!refused"), (0.0, "second"))[0] == "second"
    with pytest.raises(ConnectionRefusedError, match="!one"):
        play((0.0, "!one"), (0.0, "!two"))


def test_the_answering_address_of_both_families_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of ::1 and 127.0.0.1, where only IPv4 listens."""

    async def play() -> tuple[str, int]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]

            async def addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
                assert host == "both.example.org"
                return [(socket.AF_INET6, ("::1", port)), (socket.AF_INET, ("127.0.0.1", port))]

            monkeypatch.setattr(outgoing, "_addresses", addresses)
            with await open_connection("both.example.org", port) as connection:
                name = connection.getpeername()
                return str(name[0]), int(name[1]) - port

    assert asyncio.run(play()) == ("127.0.0.1", 0)


def test_a_refused_dial_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionRefusedError, match="Connection refused"):
        asyncio.run(open_connection("127.0.0.1", port))


def test_ipv4_addresses_of_a_socket_for_both_families_are_plain() -> None:
    assert plain_host("::ffff:192.0.2.7") == "192.0.2.7"
    assert plain_host("::ffff:1") == "::ffff:1"
    assert plain_host("2001:db8::1") == "2001:db8::1"


async def through_proxy(answer: bytes, use: Callable[[socket.socket], Awaitable[bytes]]) -> tuple[bytes, bytes]:
    """The request to the proxy, and the result of a connection to 11.0.0.7:9464 through it."""
    asked = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.extend(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        while data := await reader.read(1_000):
            writer.write(b"echo " + data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        with await open_connection("11.0.0.7", 9464, b"preface", proxy) as connection:
            return bytes(asked), await use(connection)


async def read(connection: socket.socket) -> bytes:
    return await asyncio.get_running_loop().sock_recv(connection, 100)


def test_a_proxy_is_asked_by_connect_and_bytes_follow_its_answer() -> None:
    asked, echoed = asyncio.run(through_proxy(b"HTTP/1.1 200 OK\r\n\r\n", read))
    assert asked == b"CONNECT 11.0.0.7:9464 HTTP/1.1\r\nHost: 11.0.0.7:9464\r\n\r\n"
    assert echoed == b"echo preface"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "wants a password"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "refuses 11.0.0.7:9464: 403 Forbidden"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "answers with no HTTP"),
    ],
)
def test_a_refusal_of_the_proxy_is_a_sentence(answer: bytes, text: str) -> None:
    with pytest.raises(ProxyError, match=text):
        asyncio.run(through_proxy(answer, read))


def test_a_proxy_that_does_not_answer_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ProxyError, match=f"the proxy 127.0.0.1:{port} does not answer"):
        asyncio.run(open_connection("11.0.0.7", 9464, proxy=f"127.0.0.1:{port}"))


def test_addresses_of_this_machine_and_network_are_dialled_past_the_proxy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(open_connection(*server.getsockname(), proxy="127.0.0.1:1")).close()
