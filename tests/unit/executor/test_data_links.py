"""The way out of a channel heeds the link that it shares with others."""

from typing import Any, NamedTuple, cast

from agiledart_dataflow.batch import Batch
from agiledart_dataflow.batch_codec import BatchCodec
from agiledart_dataflow.channels import SendingChannel
from agiledart_executor.data_links import Sender
from agiledart_executor.running import OutputEnd
from agiledart_kernel.frames import DataHeader
from agiledart_kernel.limits import MAX_BATCH_BYTES


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


def test_a_batch_of_large_rows_waits_for_a_link_that_does_not_take_more():
    link = FakeLink(room=3)
    header = DataHeader(1, 1, 0, 0, 0, 0, 0, 0, 0, 0)
    sender = Sender(cast(Any, link), header, BatchCodec(Row), "grow")
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
    end.channel.acknowledge(10, end.channel.marks_sent)
    assert end.channel.idle
