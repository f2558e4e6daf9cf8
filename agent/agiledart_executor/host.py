"""Drives the instances of one executor: who may work now, what goes out, what is acknowledged.

Everything is counted per batch. An instance works when a batch came in or when one of its outputs got room again; it
does not work while an output is blocked, and what it has promised (the mark) still travels then, because punctuations
need no credit.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from agiledart_dataflow.batch import Batch
from agiledart_dataflow.channels import ReceivingChannel, SendingChannel
from agiledart_dataflow.connectors import SinkWriter
from agiledart_dataflow.instance import WORK_BUDGET, Instance
from agiledart_dataflow.source_instance import SourceInstance
from agiledart_dataflow.user_errors import NO_RECORD, user_code_error
from agiledart_executor.latency_log import LatencyLog
from agiledart_kernel.errors import AgileDartError, RemoteProtocolError

TURN_SECONDS = 0.005
"""How long instances may work before sockets are looked at again."""

WATCHED_SECONDS = 0.25
"""How long a source is left alone whose reader says itself when it has something: it may still have to notice silence."""

SOURCE_ROWS = 750
"""Rows that a source reads in one go at most."""


class Output(Protocol):
    """Carries frames of one channel to wherever its target runs."""

    def __call__(self, batch: Batch, first_row: int, channel: SendingChannel) -> None:
        """Send one frame."""
        ...


@dataclass(eq=False)
class OutputEnd:
    """Upstream end of a channel and its way out; `ready` says whether that takes a frame now."""

    channel: SendingChannel
    deliver: Output
    ready: Callable[[], bool] = lambda: True

    def flush(self) -> None:
        """Send all that may go now."""
        channel = self.channel
        while self.ready():
            first_row = channel.rows_sent
            batch = channel.next_frame()
            if batch is None:
                return
            self.deliver(batch, first_row, channel)


@dataclass(eq=False)
class InputEnd:
    """Downstream end of a channel: what came, what the operator has taken of it, whom to tell."""

    acknowledge: Callable[[int, int], None] | None = None
    channel: ReceivingChannel = field(default_factory=ReceivingChannel)
    rows_or_mark: deque[bool] = field(default_factory=deque)
    batches_taken: int = 0
    frames_taken: int = 0

    def taken(self, batches: int, *, finished: bool) -> None:
        """The operator has now taken so many batches in all, punctuations among them; at its end all is
        acknowledged.
        """
        while self.batches_taken < batches:
            self.batches_taken += 1
            self.frames_taken += self.rows_or_mark.popleft()
        if self.acknowledge is not None and (due := self.channel.due(self.frames_taken, all_of_it=finished)):
            self.acknowledge(*due)


@dataclass(eq=False)
class Running:
    """One instance with its channels."""

    stage: int
    index: int
    name: str
    outputs: dict[tuple[int, int], OutputEnd] = field(default_factory=dict)
    inputs: dict[tuple[int, int], InputEnd] = field(default_factory=dict)
    instance: Instance | None = None
    source: SourceInstance | None = None
    writer: SinkWriter | None = None
    latencies: LatencyLog | None = None
    queued: bool = False
    reported: bool = False
    broken: bool = False
    timer: asyncio.TimerHandle | None = None
    watched: int | None = None
    budget: int = 1
    busy_ns: int = 0
    first_ms: int = 0
    last_ms: int = 0

    @property
    def done(self) -> bool:
        """At the end of its input, and all of its output delivered."""
        finished = self.instance.finished if self.instance is not None else bool(self.source and self.source.finished)
        return finished and all(end.channel.idle for end in self.outputs.values())

    @property
    def blocked(self) -> bool:
        """An output has no room."""
        return any(end.channel.blocked for end in self.outputs.values())

    def pace(self, rows: int, seconds: float) -> None:
        """Learn from a call that treated so many rows how many the next may: a step of 20 ms a row is slow, not stuck,
        so nobody may have to wait for thousands of rows of it. Begins with one row and doubles.
        """
        if seconds > 4 * TURN_SECONDS:
            self.budget = max(1, min(self.budget, rows) // 2)
        elif rows >= self.budget and seconds < TURN_SECONDS:
            self.budget = min(2 * self.budget, SOURCE_ROWS if self.source is not None else WORK_BUDGET)

    def release_marks(self) -> None:
        """Send what outputs have promised and kept to themselves because nobody minds it: for the figures downstream."""
        for end in self.outputs.values():
            if not end.channel.rows_waiting:  # else it goes with them
                end.channel.release_mark()
                end.flush()

    def report(self) -> dict[str, object]:
        """Figures as plain data: `statistics` in its wire form, and what only the host knows."""
        part = self.instance if self.instance is not None else self.source
        assert part is not None
        return {
            "statistics": msgspec.to_builtins(part.statistics()),
            "busy_ns": self.busy_ns,
            "queued_rows": self.instance.queued_rows if self.instance is not None else 0,
            "waiting_rows": sum(end.channel.rows_waiting for end in self.outputs.values()),
            "blocked": self.blocked,
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
            **({} if self.latencies is None else {"latency_samples": self.latencies.figures()}),
        }

    def close(self) -> None:
        """Give back files and connections; what a sink was given is in its file then."""
        try:
            if self.writer is not None:
                self.writer.close()
            if self.source is not None:
                self.source.close()
        finally:
            if self.latencies is not None:
                self.latencies.close()


class InstanceHost:
    """All instances of one executor.

    Args:
        finished: told when an instance has delivered everything.
        broke: told when an instance cannot go on, with a message for the user.

    Attributes:
        current, calls: the instance that works at this moment, and how often any has: another thread watches them.
    """

    def __init__(self, finished: Callable[[Running], None], broke: Callable[[Running, str], None]) -> None:
        self._finished, self._broke = finished, broke
        self._loop = asyncio.get_running_loop()
        self.running: dict[tuple[int, int], Running] = {}
        self._ready: deque[Running] = deque()
        self._turn_due = False
        self.reading = False
        self.current: Running | None = None
        self.calls = 0

    def add(self, running: Running) -> None:
        """Take an instance; sources wait for `start_reading`."""
        self.running[running.stage, running.index] = running
        if self.reading:
            self.wake(running)

    def start_reading(self) -> None:
        """Let the sources read."""
        self.reading = True
        for running in self.running.values():
            self.wake(running)

    def end_input(self) -> None:
        """Let the sources end here."""
        for running in self.running.values():
            if running.source is not None:
                running.source.drain()
                self.wake(running)

    def receive(self, running: Running, edge: int, source: int, first_row: int, batch: Batch) -> None:
        """A frame for an instance came in; raises RemoteProtocolError when it cannot be right."""
        end = running.inputs.get((edge, source))
        if end is None or running.instance is None:
            raise RemoteProtocolError("channel", f"no channel {edge} from {source} to {running.name}")
        end.channel.accept(first_row, len(batch), barrier=bool(batch.barrier))
        if running.broken:
            return
        end.rows_or_mark.append(batch.goes_in_order)
        running.instance.offer(edge, source, batch)
        self.wake(running)

    def acknowledged(self, running: Running, edge: int, target: int, frames: int, marks: int) -> None:
        """The other end of an output has taken frames."""
        end = running.outputs.get((edge, target))
        if end is None:
            raise RemoteProtocolError("channel", f"no channel {edge} from {running.name} to {target}")
        end.channel.acknowledge(frames, marks)
        self.wake(running)

    def wake(self, running: Running) -> None:
        """Let an instance look whether it can work."""
        if running.queued or running.reported or running.broken:
            return
        running.queued = True
        self._ready.append(running)
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def wake_all(self) -> None:
        """Let all instances look: a link that several of them share takes frames again."""
        for running in self.running.values():
            self.wake(running)

    def _turn(self) -> None:
        self._turn_due = False
        end = time.perf_counter() + TURN_SECONDS
        while self._ready:
            running = self._ready.popleft()
            running.queued = False
            if not running.broken:
                self.current, self.calls = running, self.calls + 1
                self._run(running)
                self.current = None
            if time.perf_counter() > end:
                break
        if self._ready and not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _run(self, running: Running) -> None:
        began = time.perf_counter_ns()
        try:
            again = self._read(running) if running.source is not None else self._work(running)
            running.busy_ns += time.perf_counter_ns() - began
            running.last_ms = time.time_ns() // 1_000_000
            running.first_ms = running.first_ms or running.last_ms
            if not again and not running.reported and running.done:
                running.reported = True
                self._finished(running)
        except AgileDartError as error:
            self.fail(running, str(error))
            return
        except OSError as error:  # a sink's disk is full, a file went away
            where = f" ({error.filename})" if error.filename else ""
            self.fail(running, f"{running.name}: {error.strerror or error}{where}")
            return
        except BaseException as error:  # noqa: BLE001  whatever it was, rows are lost with it: never go on without them
            self.fail(running, str(user_code_error(running.name, None, error, NO_RECORD)))
            return
        if again:
            self.wake(running)

    def _emitter(self, running: Running) -> Callable[[int, int, Batch], None]:
        outputs = running.outputs

        def emit(edge: int, target: int, batch: Batch) -> None:
            outputs[edge, target].channel.put(batch)

        return emit

    def _work(self, running: Running) -> bool:
        instance = running.instance
        assert instance is not None
        more = running.blocked  # the flush below may make room, and then nobody else would wake it
        if not running.blocked:
            before, began = instance.queued_rows, time.perf_counter()
            more = instance.work(self._emitter(running), running.budget)
            running.pace(before - instance.queued_rows, time.perf_counter() - began)
            if running.writer is not None:
                running.writer.flush()
                if instance.finished:
                    running.writer.close()
        for (edge, source), input_end in running.inputs.items():
            input_end.taken(instance.consumed(edge, source), finished=instance.finished)
        for output in running.outputs.values():
            output.flush()
        return more and not running.blocked

    def _read(self, running: Running) -> bool:
        source = running.source
        assert source is not None
        if running.timer is not None:
            running.timer.cancel()
            running.timer = None
        again = running.blocked and self.reading and not source.finished  # as in `_work`
        if self.reading and not source.finished and not running.blocked:
            now = time.monotonic_ns()
            polled = source.poll(now, time.time_ns(), running.budget)
            if polled.batch is not None:
                source.send(polled.batch, self._emitter(running))
            treated = 0 if polled.wait_until_ns is not None else running.budget
            running.pace(treated, (time.monotonic_ns() - now) / 1e9)
            if polled.wait_until_ns is not None and not source.finished:
                delay = max(0.0, (polled.wait_until_ns - now) / 1e9)
                if polled.wait_for is not None and self._watch(running, polled.wait_for):
                    delay = max(delay, WATCHED_SECONDS)
                running.timer = self._loop.call_later(delay, self.wake, running)
            else:
                again = not source.finished
        for output in running.outputs.values():
            output.flush()
        if running.watched is not None and (running.blocked or source.finished):
            self._unwatch(running)  # or it would wake for what it may not read
        if running.blocked and self.reading and source.reads_on:
            return self._read_on(running, source)
        return again and not running.blocked

    def _read_on(self, running: Running, source: SourceInstance) -> bool:
        """Let a source take rows in that cannot be sent now."""
        now = time.monotonic_ns()
        wait_until_ns = source.take_in(now, time.time_ns(), running.budget)
        if running.timer is not None:
            running.timer.cancel()
            running.timer = None
        if wait_until_ns is not None:
            running.timer = self._loop.call_later(max(0.0, (wait_until_ns - now) / 1e9), self.wake, running)
        return wait_until_ns is None

    def _watch(self, running: Running, descriptor: int) -> bool:
        """Wake a source when its reader has something; False for what cannot be waited for (a file)."""
        if running.watched == descriptor:
            return True
        self._unwatch(running)
        try:
            self._loop.add_reader(descriptor, self.wake, running)
        except (OSError, ValueError):
            return False
        running.watched = descriptor
        return True

    def _unwatch(self, running: Running) -> None:
        if running.watched is not None:
            self._loop.remove_reader(running.watched)
            running.watched = None

    def close(self) -> None:
        """Give back what all instances hold."""
        for running in self.running.values():
            self._unwatch(running)
            with contextlib.suppress(AgileDartError, OSError):
                running.close()

    def fail(self, running: Running, message: str) -> None:
        """An instance cannot go on; nothing when it has failed already."""
        if running.broken:
            return
        running.broken = True
        self._unwatch(running)
        if running.timer is not None:
            running.timer.cancel()
        self._broke(running, message)
