"""What an agent has to do with executors: starts them with papers of their own, judges for them, and tells node and metrics how
they are. The agent itself never runs user code.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from agiledart_agent.driver import Driver
from agiledart_agent.executors.closed_files import closed_to_users
from agiledart_agent.executors.code_check import checked_apart
from agiledart_agent.executors.executor_pool import ExecutorEvents, ExecutorPool, ExecutorProcess, LaunchError
from agiledart_agent.executors.taps import FORGET_SECONDS, Taps
from agiledart_agent.identity.identity import Identity, make_executor_pass
from agiledart_agent.logs import AgentLog, PrintedLines
from agiledart_agent.metrics.metrics import AgentMetrics
from agiledart_agent.settings import AgentSettings
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_executor.messages import (
    AskWay,
    CheckWanted,
    Configure,
    InstanceBroke,
    InstanceName,
    JudgePeer,
    Prepared,
    Unprepared,
    Verdict,
    Way,
)
from agiledart_executor.user_code.bounds import MB, Bounds, default_memory
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.errors import AgileDartError, RemoteProtocolError
from agiledart_kernel.frames import decode_hello
from agiledart_kernel.grants import Grant
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_node.wire.effects import (
    CheckCode,
    CountEpoch,
    DrainSources,
    LinkInstances,
    PassBarrier,
    PrepareExecutors,
    ReadLogs,
    ReadTap,
    StartInstances,
    StartSources,
    StopInstances,
)
from agiledart_node.wire.events import (
    InstanceFailed,
    InstanceFinished,
    InstancePrepared,
    InstanceReported,
    InstanceUnprepared,
)
from agiledart_node.wire.formation_messages import ConnectorChecked, HostChecked, LogLine
from agiledart_transport.circuits import Via
from agiledart_transport.local_judge import LocalJudge

_PLAN: Codec[StagePlan] = Codec(StagePlan)
EXECUTOR_GRANT_HOURS = 24 * 30


class ExecutorDesk:
    """The executors of one agent.

    Args:
        judge: of strangers at an executor's data port; an executor has no cryptography library.
        feed: takes events for the node.
        circuit: a way to an executor of another agent by others; raises OSError.
        note_logs: called when instances have been started: a sink may just have begun a log.
        snapped: told of each element that an instance has saved: bytes, and nanoseconds for which rows waited.
    """

    def __init__(
        self,
        settings: AgentSettings,
        identity: Identity,
        log: AgentLog,
        metrics: AgentMetrics,
        judge: LocalJudge,
        feed: Callable[[Event], None],
        circuit: Callable[[NodeId, str, NodeId], Awaitable[Via]],
        note_logs: Callable[[], None],
        snapped: Callable[[int, int], None],
    ) -> None:
        self._settings, self._identity, self._log, self._metrics = settings, identity, log, metrics
        self._judge, self._feed, self._circuit = judge, feed, circuit
        self._note_logs, self._snapped = note_logs, snapped
        self._printed = PrintedLines()
        self._taps = Taps()
        self._grants: dict[str, Grant] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pool: ExecutorPool | None = None

    @property
    def processes(self) -> tuple[ExecutorProcess, ...]:
        """What runs now."""
        return self._pool.processes if self._pool is not None else ()

    def place_of(self, application: str, executor: NodeId) -> str:
        """HOST:PORT of an executor of this application by its own id; empty: there is none here."""
        for process in self.processes:
            address, _, node = process.address.partition("/")
            if process.application == application and node == executor.hex:
                return address
        return ""

    def open(self, driver: Driver, listen_host: str, advertised: str) -> None:
        """Be ready for what the node wants of executors.

        Args:
            listen_host: where executors take data links; `advertised` is what others dial.
        """
        pool = self._pool = ExecutorPool(
            ExecutorEvents(
                reported=lambda app, version, name, report: self._reported(
                    InstanceReported(app, version, name.stage, name.index, report)
                ),
                finished=lambda app, version, name, report: self._reported(
                    InstanceFinished(app, version, name.stage, name.index, report)
                ),
                broke=self._instance_broke,
                printed=self._printed.add,
                refused=self._log.refused,
                judge=self._judge_for_executor,
                sampled=self._taps.add,
                prepared=self._prepared,
                way_asked=lambda asked, app, answer: self._spawn(self._find_way(asked, app, answer)),
            ),
            lambda app, version, number: self._configure(app, version, number, listen_host, advertised),
            str(self._settings.state_dir),
        )
        driver.on(PrepareExecutors, lambda e: self._spawn(self._prepare(pool, e)))
        driver.on(StartInstances, lambda e: self._spawn(self._start_instances(pool, e)))
        driver.on(StartSources, lambda e: pool.start_sources(e.application, e.version))
        driver.on(DrainSources, lambda e: pool.drain_sources(e.application, e.version))
        driver.on(LinkInstances, lambda e: self._spawn(self._link_instances(pool, e)))
        driver.on(PassBarrier, lambda e: pool.begin_epoch(e.application, e.version, e.epoch))
        driver.on(CountEpoch, lambda e: pool.commit_epoch(e.application, e.version, e.epoch))
        driver.on(CheckCode, lambda e: self._spawn(self._check_code(e)))
        driver.on(StopInstances, lambda e: self._stop_instances(pool, e))
        driver.on(ReadLogs, self._read_logs)
        driver.on(ReadTap, lambda e: self._read_tap(pool, e))

    async def close(self) -> None:
        """End all executors."""
        if self._pool is not None:
            await self._pool.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- instances

    async def _prepare(self, pool: ExecutorPool, effect: PrepareExecutors) -> None:
        self._identity.touch_network()
        part = effect.part
        await pool.prepare(part.application, part.version, part.number, effect.slots, encode(part))

    async def _start_instances(self, pool: ExecutorPool, effect: StartInstances) -> None:
        part = effect.part
        labels = {stage.index: stage.name for stage in _PLAN.decode(part.plan).stages}
        self._metrics.applications.started(part.application)
        slots: dict[int, list[InstanceName]] = {}
        for placed in part.instances:
            slots.setdefault(placed.executor, []).append(InstanceName(placed.stage, placed.index))
        try:
            addresses = await pool.launch(
                part.application, part.version, part.number, slots, encode(part), labels, effect.since
            )
        except (LaunchError, AgileDartError, OSError) as error:
            self._feed(Failed(effect.request, f"{error} (on {self._settings.name})"))
            return
        self._note_logs()
        self._feed(
            Completed(effect.request, {(name.stage, name.index): address for name, address in addresses.items()})
        )

    async def _check_code(self, effect: CheckCode) -> None:
        closed = closed_to_users(self._settings)
        wanted = CheckWanted(effect.plan, effect.bundle, effect.stages, self._bounds().memory_bytes, closed)
        found = await checked_apart(wanted, str(self._settings.state_dir))
        told = HostChecked(
            0, found.refusal, tuple(ConnectorChecked(*msgspec.structs.astuple(one)) for one in found.connectors)
        )
        self._feed(Completed(effect.request, told))

    async def _link_instances(self, pool: ExecutorPool, effect: LinkInstances) -> None:
        addresses = tuple((InstanceName(one.stage, one.index), one.address) for one in effect.addresses)
        try:
            await pool.link(effect.application, effect.version, addresses)
        except (LaunchError, AgileDartError, OSError) as error:
            self._feed(Failed(effect.request, f"{error} (on {self._settings.name})"))
            return
        self._feed(Completed(effect.request, None))

    def _prepared(self, application: str, version: int, told: Prepared | Unprepared) -> None:
        name = told.instance
        if isinstance(told, Unprepared):
            self._feed(InstanceUnprepared(application, version, name.stage, name.index, told.epoch, told.reason))
            return
        self._snapped(told.size, told.pause_ns)
        self._feed(
            InstancePrepared(
                application, version, name.stage, name.index, told.epoch, told.digest, told.size, told.ends, told.ended
            )
        )

    def _stop_instances(self, pool: ExecutorPool, effect: StopInstances) -> None:
        pool.stop(effect.application, effect.version)
        self._metrics.applications.ended(effect.application, effect.version)

    def _reported(self, event: InstanceReported | InstanceFinished) -> None:
        self._metrics.applications.reported(event.application, event.version, event.stage, event.index, event.report)
        self._feed(event)

    def _instance_broke(self, application: str, version: int, broke: InstanceBroke) -> None:
        where = broke.instance
        message = f"{broke.message} (on {self._settings.name})"
        if not broke.is_consequence:
            self._printed.add(application, message)
            text = f"{application} fails here: {message.partition(chr(10))[0]}"
            self._log.warning("application.failed", text, application=application, version=version)
            self._metrics.applications.failed(application)
        self._feed(
            InstanceFailed(
                application, version, where.stage, where.index, message, broke.is_consequence, broke.is_crash
            )
        )

    # ---- papers

    def _configure(self, application: str, version: int, number: int, host: str, advertised: str) -> Configure:
        """Papers of a new executor: a key of its own, a grant for one application, a certificate. Never the node's
        key.
        """
        papers = make_executor_pass(self._identity, application, EXECUTOR_GRANT_HOURS)
        self._grants[application] = papers.grant
        return Configure(
            application=application,
            version=version,
            number=number,
            credentials=papers.credentials,
            chain=papers.chain,
            node_id=papers.node_id,
            incarnation=self._identity.incarnation,
            node_name=self._settings.name,
            host=host,
            advertised=advertised,
            latency_log_bytes=self._settings.latency_log_bytes,
            latency_log_days=self._settings.latency_log_days,
            bounds=self._bounds(),
            home=self._identity.node_id,
            closed=closed_to_users(self._settings),
            path_patience=self._settings.path_patience,
        )

    def _bounds(self) -> Bounds:
        return Bounds(
            warning_seconds=self._settings.stuck_warning,
            limit_seconds=self._settings.stuck_limit,
            memory_bytes=self._settings.executor_memory_mb * MB or default_memory(),
        )

    def _judge_for_executor(self, asked: JudgePeer, application: str) -> Verdict:
        try:
            hello = decode_hello(asked.hello)
            own = self._grants[application]
            peer = self._judge.verify(asked.certificate, hello, asked.service, serves=asked.serves, own=own)
        except RemoteProtocolError as error:
            return Verdict(asked.request, refused=error.reason)
        return Verdict(asked.request, peer=encode(peer))

    async def _find_way(self, asked: AskWay, application: str, answer: Callable[[Way], None]) -> None:
        try:
            via = await self._circuit(asked.agent, application, asked.executor)
        except OSError as error:
            answer(Way(asked.request, refused=str(error)))
        else:
            answer(Way(asked.request, *via))

    # ---- what users look at

    def _read_tap(self, pool: ExecutorPool, effect: ReadTap) -> None:
        told = self._taps.read((effect.application, effect.version, effect.step), effect.after)
        if not told.refused:
            pool.open_tap(effect.application, effect.version, effect.step)
        self._feed(Completed(effect.request, told))
        asyncio.get_running_loop().call_later(FORGET_SECONDS + 1.0, self._taps.forget_old)

    def _read_logs(self, effect: ReadLogs) -> None:
        lines = self._printed.after(effect.application, effect.after, effect.limit)
        self._feed(
            Completed(effect.request, tuple(LogLine(number, int(at * 1000), "", text) for number, at, text in lines))
        )
