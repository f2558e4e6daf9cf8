"""A relay sees ciphertext and can only break a circuit: flipped, dropped, repeated or cut bytes are never taken for a row."""

import asyncio
from collections.abc import Callable

import pytest

from agiledart_kernel.frames import FrameKind
from tests.unit.agent.test_relay_service import Relay, play, until

ROW = b"a row that no relay may read: "
FRAMES, AT_BYTE = 200, 40_000


def flips(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def drops(data: bytes, at: int) -> bytes:
    return data[:at] + data[at + 100 :]


def repeats(data: bytes, at: int) -> bytes:
    return data[:at] + data[:at] + data[at:]


def inserts(data: bytes, at: int) -> bytes:
    return data[:at] + bytes(500) + data[at:]


def cuts(data: bytes, at: int) -> None:
    return None


Tamper = Callable[[bytes, int], bytes | None]


class Tampering:
    """Stands where a relay stands, keeps what passes to the far end, and alters it once, behind so many bytes."""

    def __init__(self, tamper: Tamper | None) -> None:
        self._tamper = tamper
        self.seen = bytearray()
        self.has_tampered = False
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, host: str, port: int) -> int:
        """Lead callers to a relay; returns the port to call."""

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection(host, port)
            try:
                await asyncio.gather(self._outward(reader, far_writer), self._pump(far_reader, writer))
            except ConnectionError:
                pass  # one end has hung up, and so do both
            finally:
                writer.close()
                far_writer.close()

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._tasks.append(asyncio.create_task(pass_on(reader, writer)))

        self._server = await asyncio.start_server(begin, "127.0.0.1", 0)
        place: tuple[str, int] = self._server.sockets[0].getsockname()
        return place[1]

    async def _outward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(10_000):
            before = len(self.seen)
            self.seen += data
            if self._tamper is not None and not self.has_tampered and before + len(data) > AT_BYTE:
                self.has_tampered = True
                altered = self._tamper(data, max(0, AT_BYTE - before))
                if altered is None:
                    break
                data = altered
            writer.write(data)
        writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(10_000):
            writer.write(data)
        writer.close()

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.mark.parametrize("tamper", [None, flips, drops, repeats, inserts, cuts])
def test_a_relay_that_tampers_ends_the_circuit_and_changes_no_frame(tamper: Tamper | None) -> None:
    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        between = Tampering(tamper)
        via = await a.relay_service.circuit(b.node.node_id)
        via = via._replace(port=await between.open(via.host, via.port), host="127.0.0.1")
        link = await a.connect("192.0.2.1:1", via=via, expect=b.node.node_id)
        sent = [ROW + b"%05d" % number + b"." * 400 for number in range(FRAMES)]
        for frame in sent:
            link.send(FrameKind.CONTROL, frame)
        if tamper is None:
            await until(lambda: b.came.qsize() == FRAMES)
            link.close()
        else:
            await link.gone
        await until(lambda: not r.relay_service.circuits)

        taken = [b.came.get_nowait() for _ in range(b.came.qsize())]
        assert taken == sent[: len(taken)]
        assert between.has_tampered == (tamper is not None)
        assert len(taken) == FRAMES if tamper is None else len(taken) < FRAMES
        assert len(between.seen) > AT_BYTE
        assert not any(word in between.seen for word in (ROW, ROW[:8], b"....", b"00042"))
        await between.close()

    play(scenario, "a", "r", "b")
