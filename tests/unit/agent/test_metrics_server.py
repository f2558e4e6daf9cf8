"""The metrics port answers three pages, and a client can do no more than take a place for some seconds."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus

import pytest

from agiledart_agent.metrics import metrics_server
from agiledart_agent.metrics.metrics_server import MAX_CLIENTS, MAX_HEAD, MetricsServer, parse_head, response
from agiledart_kernel.errors import OperationFailed


class Port:
    """A server and what it refused."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        self.unready, self.body, self.host = "", b"some_metric 1\n", "127.0.0.1:9465"
        self.server = MetricsServer(self.render, lambda: self.unready, self.count, ["pi1.lan"])

    def render(self, accept: str) -> tuple[str, bytes]:
        return f"text/{accept or 'any'}", self.body

    def count(self, reason: str) -> None:
        self.refused[reason] += 1

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.server.address.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    async def send(self, data: bytes) -> bytes:
        """All that comes back until the server closes."""
        reader, writer = await self.connect()
        writer.write(data)
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        return answer

    async def get(self, path: str, method: str = "GET", headers: str = "") -> tuple[int, str, str]:
        """(status, headers, body)."""
        answer = (await self.send(f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\n{headers}\r\n".encode())).decode()
        head, _, body = answer.partition("\r\n\r\n")
        return int(head.split()[1]), head, body


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Port]:
    port = Port()
    await port.server.listen("127.0.0.1", 0)
    try:
        yield port
    finally:
        await port.server.close()


def run(test: Callable[[Port], Awaitable[None]]) -> Port:
    async def main() -> Port:
        async with serving() as port:
            await test(port)
            return port

    return asyncio.run(main())


def test_the_three_pages_are_served() -> None:
    async def test(port: Port) -> None:
        status, head, body = await port.get("/metrics?x=1", headers="accept: openmetrics\r\n")
        assert (status, body) == (200, "some_metric 1\n")
        assert "Content-Type: text/openmetrics" in head
        assert f"Content-Length: {len(body)}" in head
        assert await port.get("/livez") == (200, (await port.get("/livez"))[1], "alive\n")
        assert (await port.get("/readyz"))[::2] == (200, "ready\n")
        port.unready = "not in the ring yet"
        assert (await port.get("/readyz"))[::2] == (503, "not in the ring yet\n")
        assert (await port.get("/livez"))[0] == 200

    assert not run(test).refused


def test_head_has_no_body() -> None:
    async def test(port: Port) -> None:
        status, head, body = await port.get("/metrics", "HEAD")
        assert (status, body) == (200, "")
        assert "Content-Length: 14" in head

    run(test)


def test_a_browser_is_sent_to_the_page_and_others_start_nothing() -> None:
    async def test(port: Port) -> None:
        visits = []

        async def visit() -> str:
            visits.append(1)
            return "http://127.0.0.1:4711/" if len(visits) == 1 else ""

        port.server = MetricsServer(port.render, lambda: "", port.count, ["pi1.lan"], visit)
        await port.server.listen("127.0.0.1", 0)
        browser = "Accept: text/html,*/*\r\n"
        assert (await port.get("/"))[0] == 404  # a scrape
        assert (await port.get("/", "HEAD", browser))[0] == 404
        assert (await port.get("/", headers=f"{browser}Sec-Fetch-Site: cross-site\r\n"))[0] == 421
        port.host = "pi1.lan:9465"
        assert (await port.get("/", headers=browser))[0] == 421
        assert visits == []
        port.host = "localhost:9465"
        status, head, _ = await port.get("/", headers=f"{browser}Sec-Fetch-Site: none\r\n")
        assert (status, "Location: http://127.0.0.1:4711/" in head) == (307, True)
        assert (await port.get("/", headers=browser))[0] == 503
        await port.server.close()

    assert run(test).refused == {"path": 2, "host": 2}


def test_a_browser_that_waits_for_the_page_is_not_cut_for_others() -> None:
    async def test(port: Port) -> None:
        begun, page = asyncio.Event(), asyncio.Event()

        async def visit() -> str:
            begun.set()
            await page.wait()
            return "http://127.0.0.1:4711/"

        port.server = MetricsServer(port.render, lambda: "", port.count, (), visit)
        await port.server.listen("127.0.0.1", 0)
        browser = asyncio.ensure_future(port.get("/", headers="Accept: text/html\r\n"))
        await begun.wait()
        silent = [await port.connect() for _ in range(MAX_CLIENTS)]
        assert (await port.get("/livez"))[0] == 200
        page.set()
        assert (await browser)[0] == 307
        for _, writer in silent:
            writer.close()
        await port.server.close()

    assert run(test).refused["slow client"] >= 1


def test_nothing_else_is_served() -> None:
    async def test(port: Port) -> None:
        assert (await port.get("/"))[0] == 404
        assert (await port.get("/metrics/../etc/passwd"))[0] == 404
        status, head, _ = await port.get("/metrics", "POST")
        assert status == 405
        assert "Allow: GET, HEAD" in head

    assert run(test).refused == {"path": 2, "method": 1}


@pytest.mark.parametrize(
    "data",
    [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET /metrics\r\n\r\n", b"GET metrics HTTP/1.1\r\n\r\n", b"\r\n\r\n",
     b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n"],
)  # fmt: skip
def test_garbage_is_refused(data: bytes) -> None:
    async def test(port: Port) -> None:
        assert (await port.send(data)).startswith(b"HTTP/1.1 400 ")
        assert (await port.get("/livez"))[0] == 200

    assert run(test).refused == {"garbage": 1}


def test_an_endless_head_is_refused() -> None:
    async def test(port: Port) -> None:
        answer = await port.send(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (3 * MAX_HEAD))
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
        assert (await port.get("/livez"))[0] == 200

    assert run(test).refused == {"too large": 1}


def test_a_silent_client_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "HEAD_SECONDS", 0.02)

    async def test(port: Port) -> None:
        assert (await port.send(b"GET /metr")).startswith(b"HTTP/1.1 408 ")

    assert run(test).refused == {"slow client": 1}


def test_a_client_that_reads_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "BODY_SECONDS", 0.05)

    async def test(port: Port) -> None:
        port.body = b"x" * 50_000_000
        reader, writer = await port.connect()
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        got = 0
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(60):
                while not port.refused:
                    await reader.read(1)  # as slow as can be
                while data := await reader.read(1 << 20):
                    got += len(data)
        assert got < len(port.body)
        writer.close()

    assert run(test).refused == {"slow client": 1}


def test_of_excess_clients_the_oldest_that_asked_nothing_is_disconnected() -> None:
    async def test(port: Port) -> None:
        held = [await port.connect() for _ in range(MAX_CLIENTS)]
        for _, writer in held:
            writer.write(b"GET ")
        assert (await port.send(b"GET /livez HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert await held.pop(0)[0].read() == b""
        for reader, writer in held:
            writer.write(b"/livez HTTP/1.1\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
        assert (await port.get("/livez"))[0] == 200

    assert run(test).refused["slow client"] == 1


def test_a_client_that_disconnects_is_no_error() -> None:
    async def test(port: Port) -> None:
        _, writer = await port.connect()
        writer.close()
        await writer.wait_closed()
        assert (await port.get("/livez"))[0] == 200

    assert not run(test).refused


def test_a_port_in_use_is_reported_with_a_fix() -> None:
    async def test(port: Port) -> None:
        second = Port()
        number = int(port.server.address.rpartition(":")[2])
        with pytest.raises(OperationFailed, match=r"in use.*--metrics 127\.0\.0\.1:0"):
            await second.server.listen("127.0.0.1", number)
        assert second.server.address == ""
        await second.server.close()

    run(test)


def test_request_heads_are_parsed() -> None:
    assert parse_head(b"GET /a?b HTTP/1.1\r\nAccept: x\r\naccept: y\r\n\r\n") == ("GET", "/a", "x,y", "", "")
    assert parse_head(b"GET / HTTP/2.0\r\n\r\n") is None
    assert response(HTTPStatus.OK, "t", b"b").endswith(b"Connection: close\r\n\r\nb")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9465", 200), ("192.0.2.7", 200), ("[2001:db8::7]:9465", 200), ("localhost:9465", 200),
        ("pi1.lan:9465", 200), ("PI1.lan", 200),
        ("attacker.example", 421), ("127.0.0.1.attacker.example:9465", 421), ("localhost.attacker.example", 421),
        ("pi1", 421), ("x\r\nHost: localhost", 400),
    ],
)  # fmt: skip
def test_metrics_are_served_by_address_or_a_listed_name(host: str, status: int) -> None:
    """Else a page in a browser reads them, whose own name was made to point here."""

    async def test(port: Port) -> None:
        port.host = host
        found, _, body = await port.get("/metrics")
        assert found == status
        assert ("some_metric" in body) == (status == 200)
        assert (await port.get("/livez"))[0] == (400 if status == 400 else 200)

    port = run(test)
    assert port.refused == ({} if status == 200 else {"host": 1} if status == 421 else {"garbage": 2})
