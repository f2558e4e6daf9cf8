"""A broker that is killed, restarted or cut off, at each quality of service, with and without a session: losses and repeats.

`pytest -m soak -s` prints the rows of the table in docs/reference/mqtt-losses.md.
"""

import contextlib
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_connectors.opening import open_source
from agiledart_connectors.source_origin import SourceOrigin
from agiledart_dataflow.plan.connectors import parse_connector
from tests.broker import Broker, needs_broker
from tests.ports import lasting_port

paho = pytest.importorskip("paho.mqtt.client", reason="no paho-mqtt here: pip install 'agiledart[mqtt]'")

pytestmark = [needs_broker, pytest.mark.soak]

COUNT = 3_000
PER_SECOND = 300
CUT_SECONDS = 60.0
QUIET_SECONDS = 20.0
"""Time without a message after which those that are missing are lost."""

ORIGIN = SourceOrigin(b"net", "table", "readings")


class Cable:
    """A TCP path to a broker that can be cut: nothing passes, no connection ends, as behind a dead switch."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.is_cut = False
        self._server = socket.create_server(("127.0.0.1", lasting_port()))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError), near, socket.create_connection(("127.0.0.1", self._target)) as far:
            while True:
                ready, _, _ = select.select([near, far], [], [], 0.1)
                if self.is_cut:
                    continue
                for end, other in ((near, far), (far, near)):
                    if end in ready:
                        data = end.recv(1 << 16)
                        if not data:
                            return
                        other.sendall(data)

    def close(self) -> None:
        self._server.close()


@contextlib.contextmanager
def publisher(port: int, qos: int) -> Iterator[Any]:
    """A client that keeps what the broker has not taken, and sends it again."""
    client: Any = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="publisher", clean_session=False)
    client.max_queued_messages_set(0)
    client.reconnect_delay_set(1, 1)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


def outcome(broker: Broker, fault: str, qos: int, *, session: bool) -> tuple[int, int, list[str]]:
    """Return how many of the messages were lost, how many came again, and the notes of the reader."""
    cable = Cable(broker.port)
    options = f"qos={qos}&format=text" + ("" if session else "&session=none")
    reader: Any = open_source(parse_connector(f"mqtt://127.0.0.1:{cable.port}/n?{options}"), str, origin=ORIGIN)
    rows: Counter[str] = Counter()
    notes: list[str] = []

    def read() -> int:
        reading = reader.read(500, 0)
        rows.update(reading.rows)
        notes.extend(reading.notes)
        return len(reading.rows)

    try:
        with publisher(broker.port, qos) as client:
            while not rows:  # it has subscribed
                client.publish("n", "probe", qos=1)
                select.select([reader.fileno()], [], [], 0.1)
                read()
            begin, sent, due = time.monotonic(), 0, [("begin", 3.0), ("end", 3.0 + CUT_SECONDS)]
            while sent < COUNT or due:
                now = time.monotonic() - begin
                while sent < min(COUNT, int(now * PER_SECOND * 10 / (CUT_SECONDS + 6))):
                    client.publish("n", f"{sent}", qos=qos)
                    sent += 1
                if due and now >= due[0][1]:
                    happen(broker, cable, fault, due.pop(0)[0])
                select.select([reader.fileno()], [], [], 0.02)
                read()
            quiet_since = time.monotonic()
            while len(rows) <= COUNT and time.monotonic() - quiet_since < QUIET_SECONDS:
                select.select([reader.fileno()], [], [], 0.1)
                if read():
                    quiet_since = time.monotonic()
    finally:
        reader.close()
        cable.close()
    numbers = [rows[f"{number}"] for number in range(COUNT)]
    return numbers.count(0), sum(number - 1 for number in numbers if number > 1), notes


def happen(broker: Broker, cable: Cable, fault: str, what: str) -> None:
    """Begin or end a fault; one of the broker's process ends as soon as it has begun."""
    if fault == "cut off":
        cable.is_cut = what == "begin"
    elif what == "begin":
        broker.kill() if fault == "killed" else broker.stop()
        broker.start()


@pytest.mark.parametrize("session", [True, False], ids=["session", "none"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("fault", ["killed", "restarted", "cut off"])
def test_losses_are_those_of_the_table(tmp_path: Path, fault: str, qos: int, session: bool) -> None:
    with Broker(tmp_path, "allow_anonymous true", "autosave_interval 1", "max_inflight_messages 0") as broker:
        lost, repeated, notes = outcome(broker, fault, qos, session=session)
    print(f"\n| {fault} | {qos} | {'yes' if session and qos else 'no'} | {lost:,} | {repeated:,} |")
    if qos and session and fault != "killed":
        assert lost == 0
    if qos and not session:
        assert not lost or any("messages of that time are lost (no session)" in note for note in notes)
