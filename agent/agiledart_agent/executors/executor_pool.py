"""Executor processes of this node: started, watched, bounded, ended with their agent.

One process serves one application (its grant names it), so a crash or an endless loop in one user's code affects no
other user. Small applications of one owner may share a process (`ExecutorSharing`). The agent and its executor share a
socket pair; when it closes, the executor ends. Output of user code goes to the agent's log store line by line.

    starting  spawned, Configure →        loading: it gets a longer timeout (`LAUNCH_SECONDS`) to import user code
    loading   Launched, Linked →          running: its instances work
    loading   silence for this timeout →  reported to the caller (LaunchError); the process continues
    running   Finished of each instance → idle, until the application ends or needs more instances
    running   InstanceFailure →           running: the node of the instance decides about the application
    running   over its bounds, silent →   killed, with its crash report as the reason
    any       end →                       ending: sinks are flushed, `ENDING_SECONDS`, then SIGKILL
    any       its end of the pair closes → gone: unfinished instances have failed, and the reason says how it ended
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from agiledart_agent.executors.bare_process import LaunchError
from agiledart_agent.executors.child_process import end_within
from agiledart_agent.executors.descendants import become_reaper
from agiledart_agent.executors.executor_listener import ExecutorEvents, ExecutorListener
from agiledart_agent.executors.executor_nursery import ExecutorNursery
from agiledart_agent.executors.executor_process import LAUNCH_SECONDS, ExecutorProcess, OwnProcessNeededError
from agiledart_agent.executors.executor_remains import ExecutorRemains
from agiledart_agent.executors.executor_sharing import NO_SHARING, ExecutorSharing, SharingBounds
from agiledart_agent.executors.run_messages import RunMessages
from agiledart_agent.executors.shared_program import SharedProgramProcess
from agiledart_agent.executors.standby_executors import StandbyExecutors
from agiledart_dataflow.plan.deployment import RestoreFrom, SnapshotChain
from agiledart_executor.wire.agent_messages import (
    Configure,
    InstanceFailure,
    InstanceName,
    Launch,
    LinkOutputs,
    OpenGenerationChannels,
    PreloadSnapshots,
)

ENDING_SECONDS = 2.0
"""Time for an executor to flush its sinks and end by itself."""

IDLE_SECONDS = 60.0
"""Time for which an executor without instances is kept: others may come soon."""


def _ignore(_text: str) -> None:
    pass


async def _start_at_once(_application: str, _version: int) -> None:
    pass


def _launching(
    part: bytes,
    names: tuple[InstanceName, ...],
    since: RestoreFrom | None,
    waits: bool,
    plan_name: bytes,
    has_own_port: bool,
    request: int,
) -> Launch:
    return Launch(request, part, names, since, waits, plan_name, has_own_port)


class ExecutorPool(RunMessages):
    """All executors of one agent.

    Args:
        events: callbacks.
        configuration: makes the first message for an executor of (application, version, number, its part in wire form).
        directory: working directory of the executors.
        forks: fork executors from a process that has imported the engine.
        sharing: bounds of processes that applications of one owner share.
        until_forgotten: waits until folders of an earlier start of (application, version) are deleted.
        warn: called with a text when that process cannot be used.
    """

    def __init__(
        self,
        events: ExecutorEvents,
        configuration: Callable[[str, int, int, bytes], Configure],
        directory: str,
        *,
        forks: bool = False,
        sharing: SharingBounds = NO_SHARING,
        until_forgotten: Callable[[str, int], Awaitable[None]] = _start_at_once,
        warn: Callable[[str], None] = _ignore,
    ) -> None:
        self._events, self._configuration, self._until_forgotten = events, configuration, until_forgotten
        self._listener = ExecutorListener(events)
        self._running: dict[tuple[str, int, int], ExecutorProcess] = {}
        self._starting: dict[tuple[str, int, int], asyncio.Task[ExecutorProcess]] = {}
        self._stopped_starts: set[asyncio.Task[ExecutorProcess]] = set()
        self._watchdog: asyncio.Task[None] | None = None
        self._ending: dict[int, ExecutorProcess] = {}
        self._nursery = ExecutorNursery(directory, forks, warn)
        self._sharing = ExecutorSharing(
            Path(directory),
            sharing,
            self._nursery.start,
            lambda application, line: events.printed(application, line),
            lambda process: self._remains.clear_up(process.pid, process.watch),
        )
        self._nursery_until = 0.0
        self._remains = ExecutorRemains(lambda: (e.process.pid for e in (*self.processes, *self._ending.values())))
        self.standbys = StandbyExecutors(
            lambda key, number, part: self._spawn(*key[:2], number, key[2], part, waits=True), self._end
        )

    @property
    def processes(self) -> tuple[ExecutorProcess, ...]:
        """Running executors, and those that wait for the next attempt of a run."""
        return (*self._running.values(), *self.standbys.processes)

    async def launch(
        self,
        application: str,
        version: int,
        number: int,
        slots: dict[int, list[InstanceName]],
        part: bytes,
        labels: Mapping[int, str] | None = None,
        since: RestoreFrom | None = None,
        *,
        plan_name: bytes = b"",
        waits: bool = False,
        by_epoch: bool = False,
        has_own_port: bool = False,
        plan: bytes = b"",
    ) -> dict[InstanceName, str]:
        """Start instances, by slot. Return the address at which each of them takes its data links.

        Args:
            by_epoch: results count only when their epoch is committed, so even a finished instance may still be lost.
            since: the checkpoint from which they continue; they are linked later.
            plan_name, waits: as of `Launch`.
            labels: names of the stages, by index, for messages.
            has_own_port: they listen, as hosts of an older version need it.
            plan: of the part, in wire form. Executors that were held ready for it start them.

        Raises:
            LaunchError: with a text for the user.
        """
        self._running |= {} if waits else self.standbys.claim((application, version), plan, slots, self._running)
        addresses = await asyncio.gather(
            *(
                self._launch_one(
                    (application, version, number),
                    slot,
                    labels or {},
                    partial(_launching, part, tuple(names), since, waits, plan_name, has_own_port),
                    by_epoch=by_epoch,
                )
                for slot, names in sorted(slots.items())
            ),
            return_exceptions=True,
        )
        # Every slot has finished before an error is raised, so no start goes on without an observer.
        for answer in addresses:
            if isinstance(answer, BaseException):
                raise answer
        return {
            name: address
            for address, (_, names) in zip(addresses, sorted(slots.items()), strict=True)
            for name in names
            if isinstance(address, str)
        }

    async def prepare(self, application: str, version: int, number: int, slots: Iterable[int], part: bytes) -> None:
        """Start executors and load user code before instances come. The start of the instances reports errors."""

        async def prepare_slot(slot: int) -> None:
            with contextlib.suppress(LaunchError):
                executor = await self._executor(application, version, number, slot, part)
                executor.requests += 1
                executor.loading += 1
                executor.send(Launch(executor.requests, part, ()))

        await asyncio.gather(*(prepare_slot(slot) for slot in slots))

    async def _launch_one(
        self,
        run: tuple[str, int, int],
        slot: int,
        labels: Mapping[int, str],
        message: Callable[[int], Launch],
        *,
        by_epoch: bool,
    ) -> str:
        launch = message(0)
        executor = await self._executor(*run, slot, launch.part)
        executor.idle_since = 0.0  # so it is not ended as idle while it waits
        if not executor.ending:
            await self._former_gone(*run[:2])
        if (
            self._running.get((*run[:2], slot)) is not executor and not executor.ending
        ):  # it died meanwhile, without instances
            executor = await self._executor(*run, slot, launch.part)
        if executor.ending:
            raise LaunchError(f"{run[0]} was stopped while it started")
        executor.idle_since, executor.by_epoch = 0.0, by_epoch
        executor.instances += launch.instances
        if launch.waits:
            executor.waiting.setdefault(launch.plan_name, []).extend(launch.instances)
        executor.labels |= {name.stage: labels.get(name.stage, "user code") for name in launch.instances}
        try:
            return await executor.ask(message)
        except LaunchError as error:
            if executor.shared is None or (
                not isinstance(error, OwnProcessNeededError) and executor.shared.end is None
            ):
                raise
            # The process ended through this application or another one, or it cannot share one: its own process tells.
            self._sharing.exclude(executor.application, str(error))
            if self._running.get((*run[:2], slot)) is executor:
                self._end(executor)
            return await self._launch_one(run, slot, labels, message, by_epoch=by_epoch)

    async def _former_gone(self, application: str, version: int) -> None:
        """Wait until former executors of the run are gone: they flush files that their successors are about to open."""
        while former := [e for e in self._ending.values() if (e.application, e.version) == (application, version)]:
            await former[0].gone.wait()

    async def link(self, application: str, version: int, addresses: tuple[tuple[InstanceName, str], ...]) -> None:
        """Connect restored instances to the next stages. Raises `LaunchError`."""
        executors = self._of(application, version)
        await asyncio.gather(*(executor.ask(lambda request: LinkOutputs(request, addresses)) for executor in executors))

    def addresses(self, application: str, version: int) -> dict[tuple[int, int], str]:
        """Return the addresses at which the instances of an application take data links, by (stage, index)."""
        return {
            (name.stage, name.index): executor.address
            for executor in self._of(application, version)
            for name in executor.instances
            if executor.address
        }

    async def open_generation(
        self,
        application: str,
        version: int,
        part: bytes,
        plan_name: bytes,
        addresses: tuple[tuple[InstanceName, str], ...],
    ) -> None:
        """Open channels for a pending plan. Raises `LaunchError`."""
        executors = self._of(application, version)
        await asyncio.gather(
            *(
                executor.ask(lambda request: OpenGenerationChannels(request, part, plan_name, addresses))
                for executor in executors
            )
        )

    async def preload_state(
        self, application: str, version: int, plan_name: bytes, elements: tuple[SnapshotChain, ...], seconds: float
    ) -> None:
        """Let instances that wait for a plan build committed state ahead. Raises `LaunchError`."""
        executors = [executor for executor in self._of(application, version) if plan_name in executor.waiting]
        await asyncio.gather(
            *(
                executor.ask(lambda request: PreloadSnapshots(request, plan_name, elements), seconds)
                for executor in executors
            )
        )

    async def _executor(self, application: str, version: int, number: int, slot: int, part: bytes) -> ExecutorProcess:
        key = (application, version, slot)
        if running := self._running.get(key):
            return running
        if key not in self._starting:
            self._starting[key] = asyncio.create_task(self._start(application, version, number, slot, part))
        return await asyncio.shield(self._starting[key])

    async def _start(self, application: str, version: int, number: int, slot: int, part: bytes) -> ExecutorProcess:
        """Start an executor; end it when its run was stopped meanwhile, and perhaps started anew in another one."""
        key = (application, version, slot)
        try:
            executor = await self._spawn(application, version, number, slot, part)
        finally:
            if is_wanted := self._starting.get(key) is asyncio.current_task():
                del self._starting[key]
        if is_wanted:
            self._running[key] = executor
        else:
            self._end(executor)
        return executor

    async def _spawn(
        self, application: str, version: int, number: int, slot: int, part: bytes, *, waits: bool = False
    ) -> ExecutorProcess:
        """Start an executor. `waits`: for the next attempt of its run, in a process of its own."""
        await self._until_forgotten(application, version)
        configuration = self._configuration(application, version, number, part)
        shared = None if waits else await self._sharing.attach(part, configuration)
        bare = shared or await self._nursery.start()
        reader, writer = await asyncio.open_unix_connection(sock=bare.pair)
        watch = bare.watch
        executor = ExecutorProcess(
            application, version, slot, bare.process, writer, watch=watch, secrets=configuration.secrets,
            agent_address=configuration.agent_address, own_node=configuration.node_id, handover=bare.handover,
            shared=bare.process if isinstance(bare.process, SharedProgramProcess) else None,
        )  # fmt: skip
        if executor.shared is None:
            watch.bounds = configuration.bounds
            watch.wait_until(asyncio.get_running_loop().time() + LAUNCH_SECONDS)
        executor.tasks = [
            asyncio.create_task(self._listen(executor, reader)),
            asyncio.create_task(self._listener.read_lines(executor, bare.stdout)),
        ]
        executor.send(configuration)
        if self._watchdog is None:
            self._watchdog = asyncio.create_task(self._watch())
        return executor

    async def _listen(self, executor: ExecutorProcess, reader: asyncio.StreamReader) -> None:
        """Take the executor's messages until it is gone, then report the end of its instances."""
        reason = ""
        try:
            reason = await self._listener.listen(executor, reader)
        finally:
            executor.writer.close()
            await self._gone(executor, reason)

    async def _gone(self, executor: ExecutorProcess, reason: str) -> None:
        """Reap an executor whose end of the pair closed, and report the failure of its instances."""
        if executor.handover is not None:
            executor.handover.close()
        key = (executor.application, executor.version, executor.slot)
        if self.standbys.forget(executor) or self._running.get(key) is executor:
            self._running = {place: running for place, running in self._running.items() if running is not executor}
            self._ending[id(executor)] = executor
        code = await self._ended(executor)
        ended, why = executor.end_texts(code, reason)
        for future in executor.launches.values():
            if not future.done():
                future.set_exception(LaunchError(f"the process of user code {ended} at its start"))
        if not executor.ending:
            self._lost(executor, why)
        self._check_application_ended(executor.application, executor.version)

    def _check_application_ended(self, application: str, version: int) -> None:
        others = (*self.processes, *self._ending.values())
        runs = [(executor.application, executor.version) for executor in others] + [key[:2] for key in self._starting]
        if (application, version) not in runs:
            self._events.application_ended(application, version)

    def _lost(self, executor: ExecutorProcess, why: str) -> None:
        """Report every unfinished instance of an executor as failed.

        With epochs the finished ones fail, too: this node does not know whether their results are committed, and a sink
        commits rows after its end.
        """
        for name in executor.instances:
            if executor.by_epoch or name not in executor.finished:
                self._events.broke(executor.application, executor.version, InstanceFailure(name, why, is_crash=True))

    async def _watch(self) -> None:
        """End executors that give no sign of life."""
        become_reaper()
        while True:
            await asyncio.sleep(1.0)
            self._remains.reap()
            now = asyncio.get_running_loop().time()
            await self._look_after_nursery(now)
            self._look_after_sharing(now)
            for executor in self.processes:
                if executor.ending:
                    continue
                if executor.idle_since and now - executor.idle_since > IDLE_SECONDS and not executor.loading:
                    self._end(executor)
                    continue
                if (call := executor.watch.pending_call) is not None and call.application in ("", executor.application):
                    call = replace(call, place=executor.secrets.hide(call.place))
                    self._events.call_pending(executor.application, executor.version, tuple(executor.instances), call)
                if executor.shared is not None:
                    continue  # its process is looked at once for all its programs
                # The import of a large library may take longer than any other single call of user code.
                complaint, is_over = executor.watch.look(now, LAUNCH_SECONDS if executor.loading else 0.0)
                if is_over:
                    self.end_for(executor, complaint)
                elif complaint:
                    self._events.printed(executor.application, f"warning: {executor.steps}: {complaint}")

    def end_for(self, executor: ExecutorProcess, complaint: str) -> None:
        """End an executor that has exceeded a bound; its instances have failed for this reason."""
        if executor.shared is not None:
            self._end(executor)
        else:
            executor.ending = True
            executor.process.kill()
        self._lost(executor, f"{executor.steps}: {complaint}")

    def _look_after_sharing(self, now: float) -> None:
        leaving = dict(self._sharing.look(now))
        for executor in self.processes:
            if executor.shared is not None and executor.shared in leaving and not executor.ending:
                self.end_for(executor, leaving[executor.shared])

    def announce_start(self) -> None:
        """Warm the nursery up, because instances of a run may start here soon."""
        self._nursery_until = asyncio.get_running_loop().time() + IDLE_SECONDS
        self._nursery.warm_up()

    async def _look_after_nursery(self, now: float) -> None:
        """End the nursery some time after the last executor."""
        if self.processes or self._starting:
            self._nursery_until = now + IDLE_SECONDS
            self._nursery.warm_up()  # it may have died; a restart after a loss should not wait for it
        elif now > self._nursery_until:
            await self._nursery.close()

    def stop(self, application: str, version: int) -> None:
        """End all executors of an application. They report nothing more."""
        for executor in self._of(application, version):
            self._end(executor)
        for key in [key for key in self._starting if key[:2] == (application, version)]:
            starting = self._starting.pop(key)  # its process is not known yet
            self._stopped_starts.add(starting)
            starting.add_done_callback(self._stopped_starts.discard)

    def _end(self, executor: ExecutorProcess) -> None:
        executor.ending = True
        executor.writer.close()
        # A restart of the same run meanwhile gets a new process, not this one.
        self._running = {key: running for key, running in self._running.items() if running is not executor}
        self.standbys.forget(executor)
        self._ending[id(executor)] = executor

    async def _ended(self, executor: ExecutorProcess) -> int:
        """Return the exit code of a process.

        A closed pair ends an executor by itself; one that is busy in user code is killed. Processes that user code
        started end with it.
        """
        process = executor.process
        try:
            return await end_within(process, ENDING_SECONDS)
        finally:
            if executor.shared is None:
                self._remains.clear_up(process.pid, executor.watch)
                executor.watch.close()
            self._ending.pop(id(executor), None)
            executor.gone.set()

    async def until_gone(self, application: str, version: int) -> None:
        """Wait until no process of this run is left here."""
        for process in (*self._running.values(), *self._ending.values()):
            if (process.application, process.version) == (application, version):
                await process.gone.wait()

    def _of(self, application: str, version: int) -> list[ExecutorProcess]:
        return [e for e in self._running.values() if (e.application, e.version) == (application, version)]

    async def close(self) -> None:
        """End all executors and wait for their end."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        for task in (*self._starting.values(), *self._stopped_starts):
            task.cancel()
        await self._nursery.close()
        for application, version in {(e.application, e.version): None for e in self.processes}:
            self.stop(application, version)
            self.standbys.release(application, version)
        tasks = [task for executor in self._ending.values() for task in executor.tasks]
        if tasks:
            # A process that user code detached may hold the other end of the output pipe: do not wait for it.
            _, pending = await asyncio.wait(tasks, timeout=ENDING_SECONDS + 1.0)
            for unread in pending:
                unread.cancel()
        await self._sharing.close()
