"""J3 through three bare processes (uvloop, TLS and MessagePack, no engine): the cost of such a pipeline on this machine.

    python -m benchmarks.engines.others.bare_node PORT WARM_SECONDS                    starts the three
    python -m benchmarks.engines.others.bare_node PORT WARM_SECONDS ROLE BASE FOLDER   is one of them

A frame has the rows of one read of a socket: four bytes of length, then rows. A process whose output is full stops reading.
Frames are not numbered, checked or acknowledged, peers need no admission, and the pipeline ends with its input.
"""

import asyncio
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from benchmarks.engines.jobs import (
    FARE,
    RATIO,
    TS,
    ZONE,
    Derived,
    Latencies,
    ZoneAggregate,
    derive,
    keep,
    parse,
    print_result,
)
from benchmarks.engines.others.nodes import ROLES, Result

_LENGTH = struct.Struct(">I")
_HIGH_BYTES = 1 << 20
_TIMEOUT_SECONDS = 30.0
_PAUSE_SECONDS = 0.02

Rows = list[Any]


class OutputProtocol(asyncio.Protocol):
    """Connection to the next process; it reports `full` and `room` to the reader of the input."""

    def __init__(self) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._transport: Any = None
        self.full: Callable[[], None] = _nothing
        self.on_resumed: Callable[[], None] = _nothing
        self.gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=_HIGH_BYTES)

    def send(self, rows: Rows) -> None:
        """Send one frame."""
        body = self._encode(rows)
        self._transport.write(_LENGTH.pack(len(body)) + body)

    def end(self) -> None:
        """Close the output; no frame will follow."""
        self._transport.close()

    def pause_writing(self) -> None:
        self.full()

    def resume_writing(self) -> None:
        self.on_resumed()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()


class InputProtocol(asyncio.Protocol):
    """Reader of the input, which pauses while the output is full."""

    def __init__(
        self, take: Callable[[bytes], bytes], output: OutputProtocol | None, ended: Callable[[], None]
    ) -> None:
        self._take, self._output, self._ended = take, output, ended
        self._rest = b""

    def connection_made(self, transport: Any) -> None:
        if self._output is not None:
            self._output.full, self._output.on_resumed = transport.pause_reading, transport.resume_reading

    def data_received(self, data: bytes) -> None:
        self._rest = self._take(self._rest + data if self._rest else data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._output is not None:
            self._output.full = self._output.on_resumed = _nothing
            self._output.end()
        self._ended()


def _nothing() -> None:
    pass


def from_lines(output: OutputProtocol) -> Callable[[bytes], bytes]:
    """Turn bytes of lines into derived rows; return the incomplete last line."""

    def take(data: bytes) -> bytes:
        *lines, rest = data.split(b"\n")
        rows: list[Derived] = []
        for line in lines:
            trip = parse(line.decode())
            if keep(trip):
                rows.append(derive(trip))
        if rows:
            output.send(rows)
        return rest

    return take


def from_frames(row_type: Any, work: Callable[[Rows], None]) -> Callable[[bytes], bytes]:
    """Turn bytes of frames into rows, all whole frames at once; return the incomplete last frame."""
    decode = msgspec.msgpack.Decoder(list[row_type]).decode

    def take(data: bytes) -> bytes:
        view, begin, rows = memoryview(data), 0, []
        while len(data) - begin >= _LENGTH.size:
            end = begin + _LENGTH.size + _LENGTH.unpack_from(data, begin)[0]
            if end > len(data):
                break
            rows += decode(view[begin + _LENGTH.size : end])
            begin = end
        if rows:
            work(rows)
        return data[begin:]

    return take


def aggregating(output: OutputProtocol) -> Callable[[Rows], None]:
    """Turn each derived row into one result."""
    following = ZoneAggregate().next

    def work(rows: Rows) -> None:
        output.send([following(row[ZONE], row[TS], row[FARE], row[RATIO]) for row in rows])

    return work


def recording(latencies: Latencies) -> Callable[[Rows], None]:
    """Record the latencies of results."""

    def work(rows: Rows) -> None:
        for row in rows:
            latencies.now(row[1])

    return work


def _context(folder: Path, *, server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if server:
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    else:
        context.check_hostname = False
        context.load_verify_locations(folder / "certificate.pem")
    return context


async def _connected(make: Callable[[], Any], port: int, context: ssl.SSLContext | None) -> Any:
    loop = asyncio.get_running_loop()
    until = loop.time() + _TIMEOUT_SECONDS
    while True:
        try:
            _, protocol = await loop.create_connection(make, "127.0.0.1", port, ssl=context)
        except OSError:
            if loop.time() > until:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return protocol


async def node(role: str, port: int, warm: float, base: int, folder: Path) -> None:
    """Run one of the three processes."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    index = ROLES.index(role)
    latencies = Latencies(warm)
    output: OutputProtocol | None = None
    if role != "sink":
        output = await _connected(OutputProtocol, base + index + 1, _context(folder, server=False))
    if role == "source" and output is not None:
        take = from_lines(output)
        await _connected(lambda: InputProtocol(take, output, ended.set), port, None)
        await ended.wait()
    else:
        take = (
            from_frames(Result, recording(latencies)) if output is None else from_frames(Derived, aggregating(output))
        )
        context = _context(folder, server=True)
        server = await loop.create_server(
            lambda: InputProtocol(take, output, ended.set), "127.0.0.1", base + index, ssl=context
        )
        await ended.wait()
        server.close()
    if output is None:
        print_result(**latencies.result())
    else:
        await output.gone.wait()  # the last frames must leave before the process ends


def make_certificate(folder: Path) -> None:
    """Write a key and a self-signed certificate for the run."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bare")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def three(port: str, warm: str) -> int:
    """Start the three, the sink first."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        base = min(free.getsockname()[1], 60_000)
    with tempfile.TemporaryDirectory() as folder:
        make_certificate(Path(folder))
        command = [sys.executable, "-m", "benchmarks.engines.others.bare_node", port, warm]
        processes = [subprocess.Popen([*command, role, str(base), folder]) for role in reversed(ROLES)]
        return max(process.wait() for process in processes)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(three(*sys.argv[1:]))
    uvloop.run(node(sys.argv[3], int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[4]), Path(sys.argv[5])))
