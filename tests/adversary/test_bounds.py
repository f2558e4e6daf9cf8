"""Bounds that bind: callers that have proved nothing, executors that claim more than is theirs, relays that lead elsewhere."""

import asyncio
import contextlib
import http.client
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from agiledart_agent.circuits.relay_messages import AddressAnswer
from agiledart_agent.control import control_api
from agiledart_agent.control.control_api import CONTROL, COOKIE, ControlApi
from agiledart_agent.event_log.agent_log import MAX_REASONS, AgentLog
from agiledart_agent.executors.executor_listener import ExecutorListener
from agiledart_agent.executors.executor_process import ExecutorProcess
from agiledart_agent.executors.executor_watch import ExecutorWatch
from agiledart_connectors.http import push_reader
from agiledart_connectors.opening import open_source
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_executor.user_code.bounds import Bounds
from agiledart_executor.wire.agent_messages import DataPeerRefused, RequestCompleted
from agiledart_kernel.frames import FrameKind, FrameReader, frame
from agiledart_kernel.limits import MAX_FRAME_BYTES
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.permissions import Principal
from agiledart_node.wire.commands import ListApplications
from agiledart_node.wire.control_messages import ControlAnswer, ControlRequest
from tests.adversary.findings import probe, twin
from tests.unit.agent.test_metrics_server import Port, run
from tests.unit.agent.test_relay_service import Relay, play
from tests.unit.connectors.test_http import Source

SECONDS = 20.0

# ---- 9: the control socket


def at_socket(folder: Path, scenario: Callable[[Path], Awaitable[None]]) -> None:
    """Run a scenario with a control socket that answers each request with `yes`."""

    async def work() -> None:
        api = ControlApi(
            lambda number, _, __: api.answer(number, "yes"), lambda *_: None, Principal("admin"), lambda *_: None
        )
        await api.listen(folder / "control.sock")
        try:
            async with asyncio.timeout(60):
                await scenario(folder / "control.sock")
        finally:
            await api.close()

    asyncio.run(work())


async def answered(path: Path) -> bytes:
    """Ask as a command line does. Return the answer's document."""
    reader, writer = await asyncio.open_unix_connection(path)
    request = frame(FrameKind.CONTROL, CONTROL.encode(ControlRequest(1, ListApplications())))
    writer.write(frame(FrameKind.HELLO, path.with_name(COOKIE).read_bytes()) + request)
    frames = FrameReader(MAX_FRAME_BYTES)
    while (item := frames.next()) is None:
        data = await reader.read(1 << 16)
        if not data:
            return b""
        frames.feed(data)
    writer.close()
    answer = CONTROL.decode(item[1])
    assert isinstance(answer, ControlAnswer)
    return bytes(answer.body)


@probe(9)
def test_bytes_before_the_cookie_are_not_stored(tmp_path: Path) -> None:
    async def scenario(path: Path) -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(frame(FrameKind.CONTROL, b"x" * (1 << 20)))
        async with asyncio.timeout(SECONDS):
            with contextlib.suppress(ConnectionError):
                await writer.drain()
                assert await reader.read() == b"", "it hangs up before the frame is complete"
        assert await answered(path)

    at_socket(tmp_path, scenario)


@probe(9)
def test_a_part_of_a_frame_holds_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(path: Path) -> None:
        held = [await asyncio.open_unix_connection(path) for _ in range(control_api.MAX_CONTROL_CLIENTS)]
        for _, writer in held:
            writer.write(frame(FrameKind.HELLO, b"x" * 4_096)[:20])
        async with asyncio.timeout(SECONDS):
            assert await answered(path) == b'"yes"'
        for _, writer in held:
            writer.close()

    at_socket(tmp_path, scenario)


@twin(9)
def test_a_command_line_is_answered(tmp_path: Path) -> None:
    async def scenario(path: Path) -> None:
        assert await answered(path) == b'"yes"'

    at_socket(tmp_path, scenario)


# ---- 13, 15, 20: claims of an executor


class _Events:
    def __init__(self) -> None:
        self.refusals: list[tuple[str, str]] = []

    def refused(self, reason: str, remote: str) -> None:
        self.refusals.append((reason, remote))


def executor() -> ExecutorProcess:
    made = ExecutorProcess(
        "app", 1, 0, cast(Any, None), cast(Any, None), agent_address="192.0.2.7:9464", own_node=NodeId(7)
    )
    made.watch.wait_until(0.0)
    return made


def heard(made: ExecutorProcess, *messages: Any) -> _Events:
    events = _Events()

    async def work() -> None:
        listener = ExecutorListener(cast(Any, events))
        for message in messages:
            listener.take(made, message)

    asyncio.run(work())
    return events


@probe(15)
@pytest.mark.parametrize(
    "claim", ["203.0.113.9:22/0007", "[2001:db8::1]:22/0007", "evil.example:22", "x:0", "x:99999", "x", "@:²"]
)
def test_an_executor_names_no_host_but_its_agents(claim: str) -> None:
    made = executor()
    heard(made, RequestCompleted(1, claim))
    assert made.address in ("", f"192.0.2.7:22/{NodeId(7).hex}")


@twin(15)
def test_an_executor_names_its_port(tmp_path: Path) -> None:
    made = executor()
    heard(made, RequestCompleted(1, f"192.0.2.7:40123/{NodeId(7).hex}"))
    assert made.address == f"192.0.2.7:40123/{NodeId(7).hex}"


@probe(15)
def test_a_relay_is_no_open_proxy() -> None:
    """The target's agent names another host: the relay calls the target's own, where no process has that port."""

    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        third = await asyncio.start_server(lambda *_: reached.set(), "127.0.0.2", 0)
        reached = asyncio.Event()
        port = third.sockets[0].getsockname()[1]
        b.relay_service._address_of = lambda *_: f"127.0.0.2:{port}"
        booking, _, _ = await r.relay_service._onward(_request(b), b"key")
        assert (booking.host, booking.port) == ("127.0.0.1", port)
        assert not reached.is_set()
        third.close()

    play(scenario, "a", "r", "b")


def _request(target: Relay) -> Any:
    from agiledart_agent.circuits.relay_messages import RequestCircuit

    return RequestCircuit(1, target.node.node_id)


@twin(15)
def test_a_relay_connects_to_the_agent_of_the_target() -> None:
    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        booking, _, _ = await r.relay_service._onward(_request(b), b"key")
        assert f"{booking.host}:{booking.port}" == b.listener.address
        assert AddressAnswer(1, b.listener.address).address

    play(scenario, "a", "r", "b")


@probe(20)
def test_invented_reasons_are_counted_as_other() -> None:
    made = executor()
    events = heard(
        made, *(DataPeerRefused(f"invented {number} " + "x" * 10_000, "y" * 10_000) for number in range(500))
    )
    assert len({reason for reason, _ in events.refusals}) <= 20
    assert max(len(reason) + len(remote) for reason, remote in events.refusals) < 200
    assert events.refusals[-1][0] == "other"


@probe(20)
def test_an_agent_counts_a_bounded_number_of_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    log = AgentLog("json", "a1")
    for number in range(1_000):
        log.refused(f"reason {number}", "peer")
    assert len(log.refusals) <= MAX_REASONS + 1
    assert sum(log.refusals.values()) == 1_000


@twin(20)
def test_known_reasons_keep_their_names() -> None:
    events = heard(executor(), DataPeerRefused("role", "192.0.2.9:5"), DataPeerRefused("chain", "192.0.2.9:5"))
    assert events.refusals == [("role", "192.0.2.9:5"), ("chain", "192.0.2.9:5")]


@probe(13)
@pytest.mark.parametrize("claimed", [0, 1 << 40, 201])
def test_an_executor_does_not_raise_its_own_bound_of_memory(claimed: int) -> None:
    watch = ExecutorWatch()
    watch.bounds = Bounds(memory_bytes=200)
    watch.set_bounds(Bounds(memory_bytes=claimed))
    assert watch.bounds.memory_bytes == 200
    watch.close()


@twin(13)
def test_an_application_lowers_its_bound_and_sets_its_times() -> None:
    watch = ExecutorWatch()
    watch.bounds = Bounds(memory_bytes=200)
    watch.set_bounds(Bounds(limit_seconds=600.0, memory_bytes=100))
    assert (watch.bounds.memory_bytes, watch.bounds.limit_seconds) == (100, 600.0)
    watch.close()


# ---- 21: the http source


@pytest.fixture(autouse=True)
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "sensors").write_text("s3cret\n")
    (folder / "sensors").chmod(0o600)
    monkeypatch.setenv("AGILEDART_CREDENTIALS", str(folder))


@probe(21)
def test_large_headers_are_refused_before_they_are_read() -> None:
    with (
        Source("&credentials=sensors") as source,
        socket.create_connection(("127.0.0.1", source.reader.port)) as client,
    ):
        client.settimeout(SECONDS)
        client.sendall(b"POST /in HTTP/1.1\r\n")
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 90 * 60_000:
                client.sendall(b"X-A: " + b"x" * 60_000 + b"\r\n")
                sent += 60_000
            client.sendall(b"\r\n")
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = client.recv(100)
        assert sent < 90 * 60_000 or b" 431 " in answer
        assert b" 401 " not in answer, "all of it was read and stored before the token was looked at"


@probe(21)
def test_two_lengths_are_refused() -> None:
    body = b'{"room":"a","celsius":1}'
    with Source() as source, socket.create_connection(("127.0.0.1", source.reader.port)) as client:
        client.settimeout(SECONDS)
        head = f"POST /in HTTP/1.1\r\nContent-Length: {len(body)}\r\nContent-Length: 5\r\n\r\n"
        client.sendall(head.encode() + body)
        assert b" 400 " in client.recv(100)
        assert source.rows == []


@probe(21)
def test_idle_clients_keep_no_client_out() -> None:
    with Source("&credentials=sensors") as source, contextlib.ExitStack() as held:
        for _ in range(push_reader.MAX_CLIENTS):
            connected = socket.create_connection(("127.0.0.1", source.reader.port))
            held.enter_context(contextlib.closing(connected)).sendall(b"POST ")
        deadline = time.monotonic() + SECONDS
        status = 0
        while status != 202:
            assert time.monotonic() < deadline, "idle clients keep the one with credentials out"
            with contextlib.suppress(ConnectionError, http.client.HTTPException):
                status = source.post('{"room":"a","celsius":1}', Authorization="Bearer s3cret")[0]


@twin(21)
def test_a_client_with_credentials_posts_with_ordinary_headers() -> None:
    with Source("&credentials=sensors") as source:
        more = {f"X-{number}": "x" * 500 for number in range(20)}
        assert source.post('{"room":"a","celsius":1}', Authorization="Bearer s3cret", **more)[0] == 202


def test_the_source_is_the_one_that_applications_open() -> None:
    reader = open_source(parse_connector("http://:0/in?listen=1"), cast(Any, int))
    assert type(reader) is push_reader.PushReader
    reader.close()


# ---- 27: the metrics server


@probe(27)
def test_idle_clients_do_not_hang_up_on_a_probe() -> None:
    async def scenario(port: Port) -> None:
        held = [await port.connect() for _ in range(16)]
        assert (await port.get("/livez"))[0] == 200
        for _, writer in held:
            writer.close()

    run(scenario)


@twin(27)
def test_a_probe_is_answered() -> None:
    async def scenario(port: Port) -> None:
        assert (await port.get("/livez"))[0] == 200

    run(scenario)
