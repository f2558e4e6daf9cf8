"""The way out of a channel heeds the link that it shares with others; the receiving end verifies whose frames it takes."""

import asyncio
import itertools
from threading import Event
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from agiledart_connectors.codecs.columns_import import PROCESS_IMPORT, ColumnsImport
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.batch_codec import BatchCodec
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.runtime.channels import SendingChannel
from agiledart_executor.channels.data_links import ChannelSender, DataPort, LinkEnd, take_acknowledgement
from agiledart_executor.instances.running_instance import InputEnd, OutputEnd
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.frames import DATA_HEADER_BYTES, Acknowledgement, DataHeader, FrameKind
from agiledart_kernel.limits import KEPT_BYTES, MAX_BATCH_BYTES, MAX_DATA_FRAME_BYTES, REORDER_FRAMES
from agiledart_kernel.node_id import NodeId
from agiledart_transport.link import DeferFrame


class Row(NamedTuple):
    """One field, as large as a test wants."""

    text: str


class FakeLink:
    """Takes a number of frames, then no more for a while."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.sent: list[bytes] = []

    @property
    def writable(self) -> bool:
        return self.room > 0

    def send(self, kind: int, body: bytes) -> None:
        self.room -= 1
        self.sent.append(body)


def test_a_batch_of_large_rows_waits_for_a_link_that_accepts_no_more() -> None:
    link = FakeLink(room=3)
    header = DataHeader(1, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0)
    sender = ChannelSender(cast(Any, link), header, BatchCodec(Row), "grow")
    end = OutputEnd(SendingChannel(), sender, sender.ready)
    rows = [Row("x" * 2 * MAX_BATCH_BYTES) for _ in range(10)]
    end.channel.put(Batch(rows, [(n, 1) for n in range(10)], (9, 1)))
    end.channel.put(Batch([], [], (20, 1)))
    end.flush()
    assert len(link.sent) == 3
    assert not end.channel.idle
    link.room = 100
    end.flush()
    headers = [DataHeader.unpack(body) for body in link.sent]
    assert [one.sequence for one in headers if one.rows] == list(range(10))
    assert end.channel.frames_sent == 10
    end.channel.acknowledge(10, end.channel.watermarks_sent)
    assert end.channel.idle


def test_one_large_row_does_not_keep_frames_small() -> None:
    link = FakeLink(room=1_000)
    sender = ChannelSender(cast(Any, link), DataHeader(1, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0), BatchCodec(Row), "grow")
    end = LinkEnd(sender, lazy_watermarks=False)
    sent = 0
    for text, count in (("x" * MAX_BATCH_BYTES, 1), *[("x", 1)] * 3, ("x", 600), ("x", 600)):
        rows = [Row(text)] * count
        positions = [(n, 1) for n in range(sent, sent + count)]
        end.channel.put(Batch(rows, positions, positions[-1]))
        sent += count
        end.flush()
        end.channel.acknowledge(end.channel.frames_sent, 0)
    end.flush()
    assert [DataHeader.unpack(body).rows for body in link.sent] == [1, 1, 1, 1, 600, 600]


UPSTREAM, OTHER = NodeId(1), NodeId(2)
LIFE = 1


def a_port(columns: ColumnsImport = PROCESS_IMPORT) -> tuple[DataPort, list[int]]:
    """The way in to one instance of edge 0, whose source instance 0 runs at UPSTREAM; sequences that came through."""
    taken: list[int] = []
    end = InputEnd()
    running = SimpleNamespace(name="shrink", inputs={(0, 0): end})

    def receive(_: Any, edge: int, source: int, number: int, sequence: int, batch: Batch, **_more: Any) -> None:
        end.channel.accept(number, sequence, len(batch))
        taken.append(sequence)

    host = SimpleNamespace(running={(1, 0): running}, receive=receive)
    nodes = {(0, 0): UPSTREAM}
    port = DataPort(
        1,
        LIFE,
        cast(Any, host),
        {0: BatchCodec(Row)},
        lambda edge: (0, 1, 1, 1),
        lambda edge, index: nodes.get((edge, index), NodeId(0)),
        lambda edge: "grow",
        columns,
    )
    return port, taken


_numbers = itertools.count()


def a_link(node: NodeId) -> Any:
    return SimpleNamespace(
        peer=SimpleNamespace(agent_id=node),
        has_more=False,
        number=next(_numbers),
        sent=[],
        send=lambda kind, body: None,
        close=lambda reason: None,
    )


def a_frame(**changes: int) -> bytes:
    header = DataHeader(1, 1, 0, 0, 1, 0, 1, 0, 0, 0, rows=1, schema=0)._replace(**changes)
    return header.pack() + BatchCodec(Row).encode(Batch([Row("x")], [(4, 1)], (5, 1)))


@pytest.mark.parametrize("changes", [{"application": 2}, {"edge": 1}, {"source": 1}, {"target": 1}], ids=str)
def test_frames_of_an_unknown_channel_are_refused_after_valid_ones_too(changes: dict[str, int]) -> None:
    port, taken = a_port()
    link = a_link(UPSTREAM)
    port.data(link, FrameKind.DATA, a_frame())
    with pytest.raises(RemoteProtocolError, match="channel"):
        port.data(link, FrameKind.DATA, a_frame(**changes))
    assert taken == [0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attempt": 0}, "attempt"),
        ({"attempt": 2}, "attempt"),
        ({"source_generation": 2}, "generation"),
        ({"target_generation": 0}, "generation"),
    ],
)
def test_frames_of_another_attempt_or_generation_are_always_refused(changes: dict[str, int], reason: str) -> None:
    port, taken = a_port()
    link = a_link(UPSTREAM)
    with pytest.raises(RemoteProtocolError, match=reason):
        port.data(link, FrameKind.DATA, a_frame(**changes))
    port.data(link, FrameKind.DATA, a_frame())
    with pytest.raises(RemoteProtocolError, match=reason):
        port.data(link, FrameKind.DATA, a_frame(**changes))
    assert taken == [0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"application": 2}, "attempt"),
        ({"attempt": 2}, "attempt"),
        ({"source_generation": 2}, "generation"),
        ({"target_generation": 2}, "generation"),
        ({"edge": 7}, "channel"),
        ({"source": 3}, "channel"),
    ],
)
def test_acknowledgements_of_another_attempt_or_generation_are_ignored(changes: dict[str, int], reason: str) -> None:
    counted: list[tuple[int, ...]] = []
    grow = SimpleNamespace(outputs={(0, 0): None})
    host = SimpleNamespace(running={(0, 0): grow}, acknowledged=lambda _, *told: counted.append(told))

    def ends(edge: int) -> tuple[int, int, int, int]:
        if edge:
            raise RemoteProtocolError("channel", f"no edge {edge}")
        return 0, 1, 1, 1

    good = Acknowledgement(1, LIFE, 0, 0, 1, 0, 1, frame_rows=40, frames=5, watermarks=2)
    with pytest.raises(RemoteProtocolError) as refused:
        take_acknowledgement(cast(Any, host), 1, LIFE, ends, FrameKind.ACK, good._replace(**changes).pack())
    assert refused.value.reason == reason
    take_acknowledgement(cast(Any, host), 1, LIFE, ends, FrameKind.ACK, good.pack())
    assert counted == [(0, 0, 5, 2, 40)]


def test_frames_beyond_the_window_are_refused_and_discarded() -> None:
    port, taken = a_port()
    link = a_link(UPSTREAM)
    port.data(link, FrameKind.DATA, a_frame(frame=REORDER_FRAMES - 1, sequence=REORDER_FRAMES - 1))
    for number in (REORDER_FRAMES, 1 << 40, (1 << 64) - 1):
        with pytest.raises(RemoteProtocolError) as refused:
            port.data(link, FrameKind.DATA, a_frame(frame=number))
        assert refused.value.reason == "window"
    assert taken == []
    (incoming,) = port._verified.values()
    assert list(incoming.end.early.frames) == [REORDER_FRAMES - 1]


def test_large_out_of_order_frames_do_not_fill_memory() -> None:
    port, _ = a_port()
    link = a_link(UPSTREAM)
    rest = bytes(MAX_DATA_FRAME_BYTES - DATA_HEADER_BYTES)
    fitting = KEPT_BYTES // MAX_DATA_FRAME_BYTES
    for number in range(1, fitting + 1):
        port.data(link, FrameKind.DATA, a_frame(frame=number)[:DATA_HEADER_BYTES] + rest)
    with pytest.raises(RemoteProtocolError, match="window"):
        port.data(link, FrameKind.DATA, a_frame(frame=fitting + 1)[:DATA_HEADER_BYTES] + rest)


def test_an_acknowledgement_of_unsent_frames_frees_nothing() -> None:
    link = FakeLink(room=1)
    sender = ChannelSender(cast(Any, link), DataHeader(1, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0), BatchCodec(Row), "grow")
    end = LinkEnd(sender, lazy_watermarks=False)
    end.channel.acknowledge(0, 0, 10)
    rows = [Row("x" * 2 * MAX_BATCH_BYTES) for _ in range(3)]
    end.channel.put(Batch(rows, [(n, 1) for n in range(3)], (2, 1)))
    end.flush()
    assert len(link.sent) == 1
    for frames in (2, 3, 4, 1 << 63):
        with pytest.raises(RemoteProtocolError, match="acknowledg"):
            end.acknowledged(frames, 0)
    link.room = 10
    assert end.ready is not None
    end.ready()
    assert [DataHeader.unpack(body).frame for body in link.sent] == [0, 1, 2]


def test_the_older_of_two_links_does_not_regain_the_acknowledgements() -> None:
    """Frames still on it may arrive when the sender has moved to the other."""
    port, taken = a_port()
    told: list[str] = []
    older, newer = a_link(UPSTREAM), a_link(UPSTREAM)
    older.send = lambda kind, body: told.append("older")
    newer.send = lambda kind, body: told.append("newer")
    older.close = told.append
    port.data(older, FrameKind.DATA, a_frame())
    port.data(newer, FrameKind.DATA, a_frame())
    port.data(older, FrameKind.DATA, a_frame())
    assert taken == [0]
    assert told == ["stalled", "newer", "newer"]


def test_another_node_cannot_feed_a_verified_channel() -> None:
    port, taken = a_port()
    port.data(a_link(UPSTREAM), FrameKind.DATA, a_frame())
    with pytest.raises(RemoteProtocolError, match="does not run there"):
        port.data(a_link(OTHER), FrameKind.DATA, a_frame(sequence=1))
    assert taken == [0]


def test_per_channel_state_is_bounded_by_the_number_of_channels() -> None:
    """A peer may come over ever new links."""
    port, taken = a_port()
    for number in range(50):
        port.data(a_link(UPSTREAM), FrameKind.DATA, a_frame(frame=number, sequence=number))
    assert taken == list(range(50))
    assert len(port._incoming_channels) == 1


def test_a_link_with_columns_is_not_read_until_columns_can_be_decoded() -> None:
    gate = Event()
    frame = DataHeader(1, 1, 0, 0, 1, 0, 1, 0, frame=1, sequence=1, rows=2, schema=0).pack() + BatchCodec(Row).encode(
        Batch(Columns.from_rows([Row("x"), Row("y")], Row), [(4, 1, 0, 0), (5, 1, 0, 1)], (5, 1, 0, 1))
    )

    async def scenario() -> None:
        port, taken = a_port(ColumnsImport(gate.wait))
        reads_on = asyncio.Event()
        link = a_link(UPSTREAM)
        link.resume_reading = reads_on.set
        port.data(link, FrameKind.DATA, a_frame())  # rows need nothing
        with pytest.raises(DeferFrame):
            port.data(link, FrameKind.DATA, frame)
        assert taken == [0]
        assert not reads_on.is_set()
        gate.set()
        await reads_on.wait()
        port.data(link, FrameKind.DATA, frame)
        assert taken == [0, 1]

    asyncio.run(scenario())


def test_an_import_that_outlives_its_loop_reports_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    gate, ended = Event(), Event()
    imports = ColumnsImport(gate.wait)

    async def scenario() -> None:
        port, _ = a_port(imports)
        link = a_link(UPSTREAM)
        link.pause_reading = link.resume_reading = lambda: None
        frame = Batch(Columns.from_rows([Row("x")], Row), [(4, 1, 0, 0)], (5, 1))
        with pytest.raises(DeferFrame):
            port.data(link, FrameKind.DATA, a_frame()[:DATA_HEADER_BYTES] + BatchCodec(Row).encode(frame))

    asyncio.run(scenario())
    imports.call_when_done(ended.set)  # behind what the port wants
    gate.set()
    assert ended.wait(10)
    assert capfd.readouterr().err == ""
