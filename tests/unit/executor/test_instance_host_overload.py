"""The host of a source whose outputs are blocked: a push source is read all the same, and nothing is lost that need not be."""

import asyncio
import socket
from pathlib import Path
from typing import NamedTuple

import pytest

from agiledart import Overload, Topology, null
from agiledart_connectors.opening import open_source
from agiledart_dataflow.counts.statistics import SourceCounts
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.plan.connectors import connector
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.channels import SendingChannel
from agiledart_dataflow.runtime.program import compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.instances.running_instance import OutputEnd, RunningInstance
from agiledart_executor.spool.intake_opening import open_intake

LINES = 40_000


class Row(NamedTuple):
    """A line of the sender."""

    at: int
    text: str


class Stage:
    """One source in a host; its frames are acknowledged only when the test says so."""

    def __init__(self, port: int, overload: Overload, directory: Path) -> None:
        made = Topology("live")
        given = connector("tcp", f"127.0.0.1:{port}")
        made.source("rows", given, rows=Row, event_time=lambda row: row.at, overload=overload).sink("out", null())
        program = compile_program(made, plan_stages(made.specification()))
        self.ended = asyncio.Event()
        self.broken: list[str] = []
        self.sent: list[int] = []
        self.host = InstanceHost(lambda running: self.ended.set(), lambda running, message: self.broken.append(message))
        self.running = RunningInstance(0, 0, "rows")
        reader = open_source(given, Row)
        self.source = SourceInstance(program, 0, reader, open_intake(program.steps(0)[0], directory))
        self.running.source = self.source
        self.running.outputs[0, 0] = OutputEnd(SendingChannel(2), self._deliver)
        self.acknowledges = False
        self.host.add(self.running)
        self.host.start_reading()

    def _deliver(self, batch: Batch, first_row: int, channel: SendingChannel) -> None:
        self.sent += [row.at for row in batch.rows]
        if self.acknowledges:
            asyncio.get_running_loop().call_soon(self.acknowledge)

    def acknowledge(self) -> None:
        """All that was sent has arrived."""
        channel = self.running.outputs[0, 0].channel
        self.host.acknowledged(self.running, 0, 0, channel.frames_sent, channel.watermarks_sent)

    @property
    def counts(self) -> SourceCounts:
        """The source's account, which must be balanced."""
        counts = self.source.statistics().source
        assert counts is not None
        kept = counts.records + counts.waiting + counts.spooled + sum(counts.shed.values())
        assert counts.lines == kept + counts.late + sum(counts.malformed.values())
        return counts

    async def until(self, lines: int) -> None:
        """Wait until it has read so many."""
        async with asyncio.timeout(20):
            while self.counts.lines < lines and not self.broken:  # noqa: ASYNC110 it counts without a notification
                await asyncio.sleep(0)
        assert not self.broken


async def pushed(overload: Overload, directory: Path) -> Stage:
    """A sender that never waits sends all of its lines before anything is acknowledged; then everything drains."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        stage = Stage(door.getsockname()[1], overload, directory)
        loop = asyncio.get_running_loop()
        door.setblocking(False)
        peer, _ = await loop.sock_accept(door)
        peer.setblocking(False)
        with peer:
            text = "".join(f"{number},{'x' * 30}\n" for number in range(LINES))
            await asyncio.wait_for(loop.sock_sendall(peer, text.encode()), 20)
    await stage.until(LINES)
    assert stage.running.blocked
    assert len(stage.sent) < 10_000
    blocked = stage.counts
    assert blocked.waiting <= 500 + 750
    stage.acknowledges = True
    stage.acknowledge()
    await asyncio.wait_for(stage.ended.wait(), 20)
    assert stage.counts.waiting == stage.counts.spooled == 0
    assert stage.sent == sorted(set(stage.sent))
    stage.host.close()
    return stage


@pytest.mark.parametrize("policy", ["spool", "shed_oldest", "shed_sample"])
def test_a_shedding_sender_never_has_to_wait(policy: str, tmp_path: Path) -> None:
    stage = asyncio.run(pushed(Overload(policy, rows=500), tmp_path))
    counts = stage.counts
    assert counts.lines == LINES
    assert len(stage.sent) == counts.records == LINES - sum(counts.shed.values())
    if policy == "spool":
        assert counts.spooled_ever > 20_000
        assert stage.sent == list(range(LINES))
    else:
        assert list(counts.shed) == [policy.removeprefix("shed_")]
    if policy == "shed_oldest":
        assert stage.sent[-500:] == list(range(LINES - 500, LINES))
