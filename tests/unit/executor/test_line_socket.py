"""The source `tcp:`: lines of one or many connections, cut anywhere, and how it ends."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from agiledart import Topology, collect, tcp
from agiledart_connectors.memory import MemoryWriter
from agiledart_connectors.opening import open_source
from agiledart_connectors.tcp.line_socket import LineSocketReader
from agiledart_dataflow.plan.connectors import Connector, Reading
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.channels import SendingChannel
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.program import compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.instances.running_instance import InputEnd, OutputEnd, RunningInstance
from agiledart_kernel.errors import ConfigurationError, OperationFailed


class Pair(NamedTuple):
    """A row."""

    at: int
    word: str


def server() -> socket.socket:
    door = socket.create_server(("127.0.0.1", 0))
    door.settimeout(5)
    return door


def reader_of(door: socket.socket, **options: Any) -> tuple[LineSocketReader, socket.socket]:
    """A reader that has connected to a server, and the server's end."""
    reader = open_source(tcp("127.0.0.1", door.getsockname()[1], **options), Pair)
    assert isinstance(reader, LineSocketReader)
    reader.read(10, 0)
    peer, _ = door.accept()
    return reader, peer


def until(
    reader: LineSocketReader, done: Callable[[list[Any], Reading], bool]
) -> tuple[list[Any], dict[str, int], bool]:
    rows: list[Any] = []
    malformed: dict[str, int] = {}
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        reading = reader.read(1_000, 0)
        rows += reading.rows
        for reason, count in reading.malformed.items():
            malformed[reason] = malformed.get(reason, 0) + count
        if done(rows, reading):
            return rows, malformed, reading.exhausted
    raise AssertionError(f"only {rows}")


def test_lines_cut_anywhere_are_reassembled() -> None:
    with server() as door:
        reader, peer = reader_of(door)
        text = "".join(f"{n},word {n}\r\n" for n in range(50)) + "no number,x\n50,last"
        for start in range(0, len(text), 7):
            peer.sendall(text[start : start + 7].encode())
        peer.close()
        rows, malformed, exhausted = until(reader, lambda rows, reading: reading.exhausted)
        assert rows == [*(Pair(n, f"word {n}") for n in range(50)), Pair(50, "last")]
        assert (malformed, exhausted) == ({"number": 1}, True)
        reader.close()


def test_no_more_rows_are_read_than_asked_for_and_nothing_while_lines_wait() -> None:
    with server() as door:
        reader, peer = reader_of(door)
        peer.sendall(b"".join(b"%d,x\n" % n for n in range(9)))
        seen: list[Pair] = []
        while len(seen) < 9:
            rows = reader.read(2, 0).rows
            assert len(rows) <= 2
            seen += rows
        assert [row.at for row in seen] == list(range(9))
        peer.close()
        reader.close()


def test_a_listening_source_accepts_several_clients_and_ends_with_the_last() -> None:
    door = socket.create_server(("127.0.0.1", 0))
    port = door.getsockname()[1]
    door.close()
    reader = open_source(tcp("", port, listen=True), Pair)
    assert isinstance(reader, LineSocketReader)
    assert not reader.read(1, 0).exhausted
    peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
    for number, peer in enumerate(peers):
        peer.sendall(b"%d,a\n%d,b\n" % (number, number))
    rows, _, _ = until(reader, lambda rows, reading: len(rows) == 6)
    assert sorted(rows) == [Pair(n, word) for n in range(3) for word in "ab"]
    for peer in peers:
        peer.close()
    assert until(reader, lambda rows, reading: reading.exhausted)[0] == []
    reader.close()


def test_with_reconnect_a_broken_connection_does_not_end_the_source() -> None:
    now = [0.0]
    with server() as door:
        connector = tcp("127.0.0.1", door.getsockname()[1], reconnect=True)
        reader = LineSocketReader(connector, Pair, clock=lambda: now[0])
        reader.read(10, 0)
        first, _ = door.accept()
        first.sendall(b"1,a\n")
        until(reader, lambda rows, reading: bool(rows))
        first.close()
        until(reader, lambda rows, reading: reader.fileno() is None)
        now[0] += 1.0
        assert not reader.read(10, 0).exhausted
        second, _ = door.accept()
        second.sendall(b"2,b\n")
        assert until(reader, lambda rows, reading: bool(rows))[0] == [Pair(2, "b")]
        second.close()
        reader.close()


def test_an_invalid_or_silent_address_is_reported() -> None:
    with pytest.raises(ConfigurationError, match="tcp:HOST:PORT"):
        open_source(Connector("tcp", "nowhere"), Pair)
    with server() as door:
        port = door.getsockname()[1]
    now = [0.0]
    reader = LineSocketReader(tcp("127.0.0.1", port), Pair, clock=lambda: now[0])
    reader.read(1, 0)
    now[0] = 31.0
    with pytest.raises(OperationFailed, match="cannot connect: connection refused"):
        until(reader, lambda rows, reading: False)
    reader.close()


def test_an_executor_waits_for_the_socket_instead_of_polling() -> None:
    async def play() -> tuple[float, list[Any]]:
        with server() as door:
            made = Topology("t")
            connector = tcp("127.0.0.1", door.getsockname()[1])
            made.source("in", connector, rows=Pair, event_time=lambda row: row.at).sink("out", collect)
            program = compile_program(made, plan_stages(made.specification()))
            done = asyncio.Event()
            host = InstanceHost(lambda running: done.set() if running.stage == 1 else None, lambda running, text: None)
            reader = open_source(connector, Pair)
            source = RunningInstance(0, 0, "in", source=SourceInstance(program, 0, reader))
            writer = MemoryWriter(Connector("collect", payload=[]), Pair)
            sink = RunningInstance(1, 0, "out", instance=Instance(program, 1, 0, writer), writer=writer)
            sink.inputs[0, 0] = InputEnd(lambda frames, watermarks: host.acknowledged(source, 0, 0, frames, watermarks))
            source.outputs[0, 0] = OutputEnd(
                SendingChannel(),
                lambda batch, first, channel: host.receive(sink, 0, 0, channel.last_number, first, batch),
            )
            host.add(source)
            host.add(sink)
            host.start_reading()
            async with asyncio.timeout(60):
                while source.watched is None or source.timer is None:  # noqa: ASYNC110 the host sends no notification
                    await asyncio.sleep(0)
            pause = source.timer.when() - asyncio.get_running_loop().time()
            peer, _ = door.accept()
            peer.sendall(b"1,a\n2,b\n")
            peer.close()
            await asyncio.wait_for(done.wait(), 60)
            host.close()
            assert writer.rows is not None
            return pause, writer.rows

    pause, rows = asyncio.run(play())
    assert rows == [Pair(1, "a"), Pair(2, "b")]
    assert pause > 0.1  # it is not asked again every few milliseconds


def test_a_slow_stream_needs_no_numpy() -> None:
    """An executor on a small board reads a few lines a second."""
    code = (
        "import sys; from typing import NamedTuple; from agiledart_connectors.codecs.csv_columns_reader import ColumnParser\n"
        "class Row(NamedTuple):\n    at: int\n    word: str\n"
        "assert ColumnParser(Row).parse(b'1,a\\n' * 50, 0) is None; print(*(m for m in ('numpy', 'pyarrow') if m in sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
