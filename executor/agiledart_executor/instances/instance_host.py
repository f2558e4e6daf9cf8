"""Host of the instances of one executor: decides which instance works now, sends its output and acknowledges its input.

Everything is counted per batch. An instance works when a batch came in or when one of its outputs is unblocked. It does not work
while an output is blocked. Its watermark still travels then, because watermarks need no credit.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from agiledart_dataflow.counts.key_sample import EVERY
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.runtime.program import Program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_dataflow.user_code.user_errors import NO_RECORD, user_code_error
from agiledart_executor.instances.epoch_barriers import EpochBarriers
from agiledart_executor.instances.generation_channels import GenerationChannels
from agiledart_executor.instances.running_instance import WORK_SLICE_NS, RunningInstance
from agiledart_executor.instances.source_rest import SourceRest
from agiledart_executor.instances.wake_ups import WakeUps
from agiledart_executor.user_code.forked_child import ForkedChild
from agiledart_kernel.errors import AgileDartError, RemoteProtocolError, RollBackNeeded
from agiledart_transport.link import Cork, Link

MAX_NESTED = 16
"""Deepest nesting of instances that work within each other's calls; each takes stack frames, which user code needs, too."""

SINK_LOOK_NS = 50_000_000
"""Nanoseconds until a sink that takes no rows now is tried again."""


def _ignore_handover(running: RunningInstance) -> None:
    """Ignore a hand-over: no stage changes its generation."""


def _failure_text(name: str, error: BaseException) -> str:
    """Return why an instance cannot go on, for users."""
    if isinstance(error, RollBackNeeded):
        return f"{name}: {error}"
    if isinstance(error, AgileDartError):
        return str(error)
    if isinstance(error, OSError):  # a sink's disk is full, a file went away
        where = f" ({error.filename})" if error.filename else ""
        return f"{name}: {error.strerror or error}{where}"
    return str(user_code_error(name, None, error, NO_RECORD))


class InstanceHost:
    """Host of all instances of one executor.

    Args:
        finished: called when an instance has delivered all of its output.
        instance_failed: called when an instance cannot go on, with a message for the user.

    Attributes:
        cork: of the links that carry its frames; frames of one round leave in one write.
        on_handed_over: called once with an instance whose generation has ended.
        channels: changes the channels of instances whose generation ends.
        barriers: sends barriers of epochs, and reports them.
        programs: the topology with the plans that barriers may bring, by their names.
        reading: True once the sources may read.
        rest: for how long sources let rows gather between two reads.
        forked: ends a child that user code has forked and that returns here.
        current: the instance that works at this moment; another thread watches it.
        calls: a number that changes with each call, for the same thread.
    """

    def __init__(
        self, finished: Callable[[RunningInstance], None], instance_failed: Callable[[RunningInstance, str], None]
    ) -> None:
        self._finished, self._instance_failed = finished, instance_failed
        self.on_handed_over: Callable[[RunningInstance], None] = _ignore_handover
        self.programs: dict[bytes, Program] = {}
        self._loop = asyncio.get_running_loop()
        self.running: dict[tuple[int, int], RunningInstance] = {}
        self._ready: deque[RunningInstance] = deque()
        self._run_scheduled = self._gathers = False
        self.cork = Cork()
        self.reading = False
        self.current: RunningInstance | None = None
        self.calls = self._nested = self._run_until_ns = 0
        self._nested_ns = 0  # time that the working instance has spent in nested instances
        self.channels = GenerationChannels(self.cork, self.wake, self.fail_change)
        self.barriers = EpochBarriers(self.running, self.programs, self.wake, self.channels.redirect_outputs)
        self.rest, self.forked = SourceRest(), ForkedChild()
        self._wake_ups = WakeUps(self._loop, self.wake_now, self.rest)

    def add(self, running: RunningInstance) -> None:
        """Add an instance whose outputs are connected; sources wait for `start_reading`."""
        running.take_outputs()
        running.resume_outputs()
        self.running[running.stage, running.index] = running
        if running.instance is not None:
            running.instance.on_barrier = partial(self.barriers.at_barrier, running)
            running.instance.waiting_output = running.waiting_output
            running.instance.on_save = self.barriers.note_saving
            running.instance.on_stop = partial(self.channels.acknowledge_all, running)
            running.instance.programs = self.programs
        elif running.source is not None:
            running.source.waiting_output = running.waiting_output
        if self.reading:
            self.wake(running)

    def start_reading(self) -> None:
        """Let the sources read."""
        self.reading = True
        for running in self.running.values():
            self.wake(running)

    def slice(self, running: RunningInstance, step: Callable[[], bool], until_ns: int) -> bool:
        """Let an instance take steps of work beside its rows, until a monotonic instant.

        Returns False when no work is left, or when a step has raised, which fails the instance.
        """
        caller = self.current
        self.current, self.calls = running, self.calls + 1
        try:
            while step():
                if time.monotonic_ns() >= until_ns:
                    return True
        except BaseException as error:  # noqa: BLE001  as in `_run`
            self._fail_with(running, error)
        finally:
            self.current = caller
        return False

    def end_input(self) -> None:
        """End the input of all sources here."""
        for running in self.running.values():
            if running.source is not None:
                running.source.drain()
                self.wake(running)

    def receive(
        self,
        running: RunningInstance,
        edge: int,
        source: int,
        number: int,
        first_row: int,
        batch: Batch,
        *,
        is_last: bool = False,
    ) -> None:
        """Take a frame for an instance; raises RemoteProtocolError when the frame is invalid.

        Args:
            running: the instance.
            edge, source: its channel.
            number, first_row: of the frame and of its first row, on its channel.
            batch: the decoded frame.
            is_last: no other frame has come behind it, so there is no gain in waiting for more rows.
        """
        end = running.inputs.get((edge, source))
        if end is None or running.instance is None:
            raise RemoteProtocolError("channel", f"no channel {edge} from {source} to {running.name}")
        count, barrier = len(batch.held), batch.barrier != 0
        needs_credit = barrier and not batch.overtakes
        end.channel.accept(number, first_row, count, barrier=needs_credit)
        if running.broken:
            return
        if running.keys is not None and not end.channel.frames % EVERY:
            running.keys.look(edge, batch.held)
        if end.waiting is not None:
            end.rows_or_watermark.append(count > 0 or needs_credit)
            end.waiting.append(batch)
            return
        # The usual case under low load: no other work waits, so the instance takes the frame without a queue.
        if is_last and not (self._ready or self._run_scheduled):
            cork = self.cork
            cork.held, self._run_until_ns = True, time.monotonic_ns() + WORK_SLICE_NS
            has_passed = self.pass_through(running, edge, source, batch)
            if has_passed and not running.broken:
                end.frames_taken += 1
                if end.channel.acknowledgement_due:
                    cork.flush()  # send the output first, so that its receiver does not wait for the acknowledgement
                    taken = running.instance.consumed(edge, source)  # includes batches of earlier rounds
                    end.taken(taken, finished=False, may_wait=running.may_wait())
            cork.release()
            if has_passed:
                return
        end.rows_or_watermark.append(count > 0 or needs_credit)
        if barrier:
            self.channels.offer_barrier(running, edge, source, batch)
        else:
            running.instance.offer(edge, source, batch)
        self.wake(running)

    def acknowledged(
        self, running: RunningInstance, edge: int, target: int, frames: int, watermarks: int, frame_rows: int = 0
    ) -> None:
        """Credit an output whose other end has taken frames; `frame_rows` is its limit of rows a frame, 0 for none."""
        end = running.outputs.get((edge, target))
        if end is None:
            raise RemoteProtocolError("channel", f"no channel {edge} from {running.name} to {target}")
        end.acknowledged(frames, watermarks, frame_rows)
        if running.changeover_pauses.watches:
            running.changeover_pauses.acknowledged(edge, target, end)
        if end.channel.has_more or running.ended or running.has_old:  # else the instance did not wait for it
            self.wake(running)

    def wake(self, running: RunningInstance) -> None:
        """Schedule an instance to work: in the present round, else at the end of `gather`, else in the loop's next iteration."""
        if running.queued or running.reported or running.broken:
            return
        running.queued = True
        self._ready.append(running)
        if not (self._gathers or self._run_scheduled):
            self._schedule_run()

    def wake_all(self) -> None:
        """Wake all instances, because a link that several of them share accepts frames again."""
        for running in self.running.values():
            self.wake(running)

    def wake_now(self, running: RunningInstance) -> None:
        """Let an instance work before this returns."""
        if not (running.queued or running.reported or running.broken):
            running.queued = True
            self._ready.append(running)
        self.run_woken()

    def gather(self, _link: Link | None = None) -> None:
        """Collect the instances that the next events wake, until `run_woken`, which must follow in the same callback.

        A link calls this before the frames of one read, and `run_woken` after them.
        """
        self._gathers = True
        self.rest.reads += 1

    def run_woken(self, _link: Link | None = None) -> None:
        """Run all woken instances, and those that they wake in turn; the frames that they send leave together.

        A frame passes from one socket to the next in one callback of the event loop, because each further iteration would cost a
        look at all sockets. After `WORK_SLICE_NS` the remaining instances wait for the loop's next iteration, and so do later ones.
        """
        ready = self._ready
        if self.current is not None:  # called by a working instance: the loop below goes on
            return
        self._gathers = False
        if self._run_scheduled or not ready:
            return
        self._gathers = self.cork.held = True
        now = time.monotonic_ns()
        self._run_until_ns = now + WORK_SLICE_NS
        try:
            while ready and now <= self._run_until_ns:
                running = ready.popleft()
                running.queued = False
                if not running.broken and running.has_begun:
                    self.current, self.calls = running, self.calls + 1
                    now = self._run(running, now)
                    self.current = None
        finally:
            self._gathers = False
            self.cork.release()
        if ready and not self._run_scheduled:
            self._schedule_run()

    def _schedule_run(self) -> None:
        self._run_scheduled = True
        self._loop.call_soon(self._scheduled_run)

    def _scheduled_run(self) -> None:
        self._run_scheduled = False
        self.run_woken()

    def _run(self, running: RunningInstance, began: int) -> int:
        """Run one instance; returns the time afterwards."""
        try:
            self._nested_ns = 0
            again = self._read(running, began) if running.source is not None else self._work(running, began)
            self.forked.end_child(running.name)
            now = time.monotonic_ns()
            running.busy_ns += now - began - self._nested_ns
            running.last_ns = now
            running.first_ns = running.first_ns or now
            if again:
                self.wake(running)
            elif running.ended and not running.reported and running.done:
                running.reported = True
                self._finished(running)
            return now
        except BaseException as error:  # noqa: BLE001  any error loses rows, and the instance must not go on without them
            self._fail_with(running, error)
        return time.monotonic_ns()

    def _fail_with(self, running: RunningInstance, error: BaseException) -> None:
        self.forked.end_child(running.name)
        fail = self.fail_change if isinstance(error, RollBackNeeded) else self.fail
        fail(running, _failure_text(running.name, error))

    def pass_through(self, running: RunningInstance, edge: int, source: int, batch: Batch) -> bool:
        """Run an idle instance on a batch at once, nested in the call of the instance that made it, or as it comes from a link.

        This does the work of `receive` and a separate run with a third of the calls, which are most of the cost of a lone tuple.

        Returns:
            False where the batch must be received instead: the instance has other work first, or needs smaller batches, or this
            round has been long, or too many instances are nested.
        """
        instance = running.instance
        count = len(batch.held)
        # Any check that fails leaves the batch to `receive`, which keeps the order of rows and the bounds of a round.
        if instance is None or not count or running.queued or running.broken or count > running.budget:
            return False
        if running.has_old:
            return False
        ends = running.outputs.values()
        for end in ends:
            if end.channel.rows_waiting:
                return False
        if running.sink_ready is not None and not running.sink_ready():
            return False
        began = time.monotonic_ns()
        if began > self._run_until_ns or self._nested >= MAX_NESTED:
            return False
        caller, outer_nested_ns = self.current, self._nested_ns
        self.current, self.calls, self._nested_ns, self._nested = running, self.calls + 1, 0, self._nested + 1
        own_ns = 0
        has_passed = True
        try:
            has_passed = instance.pass_through(edge, source, batch, running.emit)
            self.forked.end_child(running.name)
            if has_passed:
                if running.writer is not None:
                    running.writer.flush()
                for end in ends:
                    if end.channel.has_more:
                        end.flush()
        except BaseException as error:  # noqa: BLE001  as in `_run`
            self._fail_with(running, error)
        finally:
            # The caller's own busy time must not include this call.
            now = time.monotonic_ns()
            own_ns = now - began - self._nested_ns
            self.current, self._nested_ns, self._nested = caller, outer_nested_ns + now - began, self._nested - 1
        if has_passed:
            running.busy_ns += own_ns
            running.takes.rows += count
            running.takes.ns += now - began
            running.last_ns = now
            running.first_ns = running.first_ns or now
            if count >= running.budget or own_ns > WORK_SLICE_NS:
                running.adapt_budget(count, own_ns)
        return has_passed

    def _work(self, running: RunningInstance, began: int) -> bool:
        instance = running.instance
        assert instance is not None
        if running.barrier < running.wanted and instance.has_ended_inputs:
            self.barriers.begin_here(running, instance)
        more = running.blocked  # the flush below may unblock it, and then no event would wake it
        before = instance.queued_rows
        worked_ns = 0
        if more:
            instance.pass_barriers(running.emit)  # they overtake the rows for which an output has no credit
        else:
            more = instance.work(running.emit, min(running.budget, running.free_rows))
            self.forked.end_child(running.name)
            if self.cork.links and not self._ready:
                self.cork.flush()  # send the output first, so that its receiver does not wait for the book-keeping
            worked_ns = time.monotonic_ns() - began - self._nested_ns
            if running.writer is not None:
                running.writer.flush()
                if instance.finished and not running.by_epoch:
                    running.writer.close()
        for output in running.outputs.values():
            output.flush()
        rows = before - instance.queued_rows
        if worked_ns and (rows >= running.budget or worked_ns > WORK_SLICE_NS):
            running.adapt_budget(rows, worked_ns)
        running.takes.record_taken(rows, began, time.monotonic_ns(), more_waits=instance.has_released)
        if instance.change_passed:
            instance.change_passed = False
            self.channels.redirect_outputs(running)
        has_handed_over = instance.final_snapshot is not None
        running.ended = finished = instance.finished or has_handed_over
        for (edge, source), input_end in running.inputs.items():
            if (finished or input_end.channel.acknowledgement_due) and input_end.waiting is None:
                input_end.taken(instance.consumed(edge, source), finished=finished, may_wait=running.may_wait())
        if has_handed_over and not running.has_handed_over:
            running.has_handed_over = True
            self.on_handed_over(running)
        if running.leaving or running.has_old:
            self.channels.forget_old(running)
        if running.sink_ready is not None and instance.queued_rows and not running.sink_ready():
            self._wake_ups.wake_at(
                running, time.monotonic_ns() + SINK_LOOK_NS
            )  # no event tells when the sink takes rows again
            return False
        return more and not running.blocked

    def _read(self, running: RunningInstance, began: int) -> bool:
        source = running.source
        assert source is not None
        if running.barrier < running.wanted and self.reading:
            self.barriers.send_due(running, source)
        blocked = running.blocked
        again = blocked and self.reading and not source.finished  # as in `_work`
        if began < running.rests_until_ns and not source.finished:
            self._wake_ups.wake_at(running, running.rests_until_ns)
        elif self.reading and not source.finished and not blocked and not running.holds:
            limit = min(running.budget, running.free_rows)
            polled = source.poll(began, time.time_ns(), limit)
            if polled.batch is not None:
                source.send(polled.batch, running.emit)
                running.rows_read += len(polled.batch.held)
                if self.cork.links and not self._ready:
                    self.cork.flush()  # as in `_work`
            treated = 0 if polled.wait_until_ns is not None else limit
            took_ns = time.monotonic_ns() - began - self._nested_ns
            if treated or took_ns > WORK_SLICE_NS:
                running.adapt_budget(treated, took_ns)
            if polled.wait_until_ns is not None and not source.finished:
                self._wake_ups.wake_for_input(running, polled, polled.wait_until_ns, began)
            else:
                again = not source.finished
        for output in running.outputs.values():
            output.flush()
        if running.has_old:
            self.channels.forget_old(running)
        running.ended = source.finished
        blocked = running.blocked
        if running.watched is not None and (blocked or source.finished or running.holds):
            self._wake_ups.unwatch(running)  # else it would wake for input that it may not read
        if blocked and self.reading and source.reads_on and not running.holds:
            return self._read_on(running, source)
        return again and not blocked

    def _read_on(self, running: RunningInstance, source: SourceInstance) -> bool:
        """Let a source read rows that cannot be sent now; return True when it may read more at once."""
        wait_until_ns = source.take_in(time.monotonic_ns(), time.time_ns(), running.budget)
        if wait_until_ns is not None:
            self._wake_ups.wake_at(running, wait_until_ns)
        return wait_until_ns is None

    def close(self) -> None:
        """Close all instances."""
        for running in self.running.values():
            self._wake_ups.unwatch(running)
            with contextlib.suppress(AgileDartError, OSError):
                running.close()

    @property
    def has_sources(self) -> bool:
        """True when sources run here, so barriers begin here."""
        return any(running.source is not None for running in self.running.values())

    def fail_change(self, running: RunningInstance, message: str) -> None:
        """Fail an instance so that the run restarts from its last epoch: a change cannot go on, or a sink has lost its rows."""
        running.needs_restart = True
        self.fail(running, message)

    def fail(self, running: RunningInstance, message: str) -> None:
        """Fail an instance that cannot go on; do nothing when it has failed already."""
        if running.broken:
            return
        running.broken = True
        self._wake_ups.unwatch(running)
        if running.timer is not None:
            running.timer.cancel()
        self._instance_failed(running, message)
