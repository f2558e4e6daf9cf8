"""Executor service of an agent: starts executors with credentials of their own, verifies peers for them, and reports their state.

The agent itself never runs user code.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from agiledart_agent.circuits.agent_links import AgentLinks
from agiledart_agent.driver import Driver
from agiledart_agent.event_log.agent_log import AgentLog, PrintedLines
from agiledart_agent.executors.bare_process import LaunchError
from agiledart_agent.executors.code_check import check_in_subprocess
from agiledart_agent.executors.disk_watch import watch_disk
from agiledart_agent.executors.ended_sessions import end_sessions
from agiledart_agent.executors.ended_sink_files import publish_ended_files
from agiledart_agent.executors.executor_credentials import ExecutorCredentials
from agiledart_agent.executors.executor_listener import ExecutorEvents
from agiledart_agent.executors.executor_pairs import ExecutorPairs
from agiledart_agent.executors.executor_pool import ExecutorPool
from agiledart_agent.executors.executor_process import ExecutorProcess
from agiledart_agent.executors.feed_fetches import FeedFetches
from agiledart_agent.executors.log_ownership_proofs import LogOwnershipProofs
from agiledart_agent.executors.log_write_checks import add_owner, log_write_refusal_text
from agiledart_agent.executors.planner_process import PlannerProcess
from agiledart_agent.executors.protected_paths import protected_paths, root_refusal
from agiledart_agent.executors.quotas import Quotas, sharing_bounds, user_code_bounds
from agiledart_agent.executors.relay_search import RelaySearch
from agiledart_agent.executors.secret_store import SecretStore
from agiledart_agent.executors.standby_executors import instances_by_slot
from agiledart_agent.executors.taps import FORGET_SECONDS, Taps
from agiledart_agent.executors.work_owners import WorkOwners
from agiledart_agent.identity.identity import Identity
from agiledart_agent.metrics.agent_metrics import AgentMetrics
from agiledart_agent.run_store import RunStore
from agiledart_agent.settings import AgentSettings
from agiledart_connectors.credentials import ProvisionedSecrets
from agiledart_connectors.mqtt.broker_session import EndedSession, SessionRequest
from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_executor.user_code.application_folders import logs_here
from agiledart_executor.user_code.crash_report import PendingCall
from agiledart_executor.wire.agent_messages import (
    AcknowledgeCheckpoint,
    BeginEpoch,
    CodeCheckRequest,
    CodeCheckResult,
    DeclineCheckpoint,
    InstanceFailure,
    InstanceName,
    PreviousStateStored,
)
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.errors import AgileDartError, OperationFailed
from agiledart_kernel.frames import Hello
from agiledart_kernel.grants import Grant
from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_kernel.signed_commands import parse_signed_command
from agiledart_node.wire.effects import (
    CheckCode,
    CommitEpochRows,
    CommitLogs,
    ConnectLocalGeneration,
    DrainLocalSources,
    DropLocalGeneration,
    EndSourceSessions,
    HandOverState,
    HoldLocalStandby,
    InjectBarriers,
    LinkInstances,
    PreloadFromDisk,
    PrepareExecutors,
    PrepareLocalGeneration,
    ReadLogs,
    ReadTap,
    ReleaseLocalStandby,
    StartInstances,
    StartLocalSources,
    StopInstances,
    SyncSourceLogs,
)
from agiledart_node.wire.events import (
    InstanceFailed,
    InstanceFinished,
    InstancePrepared,
    InstanceReported,
    InstanceUnprepared,
    UserCallPending,
)
from agiledart_node.wire.formation_messages import ConnectorChecked, HostChecked, LogLine
from agiledart_node.wire.secret_messages import KeepSecret, ReadSecrets
from agiledart_transport.local_peer_verifier import LocalPeerVerifier

_PLAN: Codec[StagePlan] = Codec(StagePlan)
MAX_BROKEN = 256
_StartEffect = StartInstances | PrepareLocalGeneration


class ExecutorService:
    """The executors of one agent.

    Args:
        verifier: of strangers at an executor's data port; an executor has no cryptography library.
        admit: raises `Refused` unless a key that joined by a token is registered.
        feed: takes events for the node.
        links: links of this agent, for relays of executors.
        feed_fetches: rows of feeds, for executors.
        note_logs: called with names of logs when instances have started: a sink may just have begun them.
        ownership_proofs: owners of such logs.
        count_snapshot: called for each snapshot that an instance has saved: bytes, and nanoseconds for which rows
            waited, in all and at once.
        runs: folders of the runs.
    """

    def __init__(
        self,
        settings: AgentSettings,
        identity: Identity,
        log: AgentLog,
        metrics: AgentMetrics,
        verifier: LocalPeerVerifier,
        admit: Callable[[Grant, Hello], Awaitable[None]],
        feed: Callable[[Event], None],
        links: AgentLinks,
        feed_fetches: FeedFetches,
        note_logs: Callable[[Iterable[str]], None],
        ownership_proofs: LogOwnershipProofs,
        count_snapshot: Callable[[int, int, int], None],
        runs: RunStore,
    ) -> None:
        self._settings, self._identity, self._log, self._metrics = settings, identity, log, metrics
        self._feed, self._links, self._feed_fetches = feed, links, feed_fetches
        self._relay_search = RelaySearch(links)
        self._note_logs, self._ownership_proofs = note_logs, ownership_proofs
        self._count_snapshot, self._runs = count_snapshot, runs
        self._secrets = SecretStore(settings.state_dir, identity.key)
        self._work_owners = WorkOwners(settings.state_dir)
        self._quotas = Quotas(settings, user_code_bounds(settings).memory_bytes)
        self._printed = PrintedLines()
        self._credentials = ExecutorCredentials(settings, identity, self._secrets, verifier, admit, self._printed.add)
        self._broken: dict[str, tuple[int, str]] = {}  # last reported failure of each application that failed here
        # why the latest snapshots of these instances failed
        self._unsaved: dict[tuple[str, int, InstanceName], str] = {}
        self._taps, self._planner = Taps(), PlannerProcess(str(settings.state_dir))
        self._tasks: set[asyncio.Task[None]] = set()
        self._starts: dict[object, tuple[str, int]] = {}  # run of each start, until it is stopped
        self._pool: ExecutorPool | None = None

    @property
    def processes(self) -> tuple[ExecutorProcess, ...]:
        """Running executors."""
        return self._pool.processes if self._pool is not None else ()

    def open(self, driver: Driver, listen_host: str, agent_address: Callable[[], str]) -> None:
        """Register the effects that concern executors.

        Args:
            listen_host: host on which executors listen that have ports of their own.
            agent_address: returns HOST:PORT at which others dial this agent.
        """
        pool = self._pool = ExecutorPool(
            ExecutorEvents(
                reported=lambda app, version, name, report: self._reported(
                    InstanceReported(app, version, name.stage, name.index, report)
                ),
                finished=lambda app, version, name, report: self._reported(
                    InstanceFinished(app, version, name.stage, name.index, report)
                ),
                call_pending=self._call_pending,
                broke=self._instance_broke,
                printed=self._printed.add,
                refused=self._log.refused,
                verify_peer=lambda asked, app, answer: self._spawn(self._credentials.verify_peer(asked, app, answer)),
                sampled=self._taps.add,
                prepared=self._prepared,
                rows_requested=lambda asked, app, answer: self._spawn(
                    self._feed_fetches.fetch(asked, self._credentials.owner_of(app), answer)
                ),
                relays_requested=lambda asked, app, answer: self._spawn(self._relay_search.find(asked, app, answer)),
                application_ended=self._runs.sweep,
                pair_requested=ExecutorPairs(lambda: self.processes, self._credentials.certificate_of).open,
            ),
            lambda app, version, number, part: self._credentials.configure(
                app, version, number, part, listen_host, agent_address()
            ),
            str(self._settings.state_dir),
            forks=self._settings.fork_executors,
            sharing=sharing_bounds(self._settings),
            until_forgotten=self._runs.until_forgotten,
            warn=lambda text: self._log.warning("executor.nursery", f"  {text}"),
        )
        self._spawn(watch_disk(self._quotas, pool))
        driver.on(PrepareExecutors, lambda e: self._begin_to_start(pool, e))
        driver.on(StartInstances, lambda e: self._begin_to_start(pool, e))
        driver.on(HoldLocalStandby, lambda e: self._spawn(self._answer(e.request, self._hold_standby(pool, e))))
        driver.on(ReleaseLocalStandby, lambda e: pool.standbys.release(e.application, e.version))
        driver.on(StartLocalSources, lambda e: pool.start_sources(e.application, e.version))
        driver.on(DrainLocalSources, lambda e: pool.drain_sources(e.application, e.version))
        driver.on(LinkInstances, lambda e: self._spawn(self._link_instances(pool, e)))
        driver.on(InjectBarriers, self._pass_barrier)
        driver.on(PrepareLocalGeneration, lambda e: self._begin_to_start(pool, e))
        driver.on(ConnectLocalGeneration, lambda e: self._spawn(self._open_generation(pool, e)))
        driver.on(HandOverState, lambda e: self._hand_over_state(pool, e))
        driver.on(PreloadFromDisk, lambda e: self._spawn(self._preload_state(pool, e)))
        driver.on(DropLocalGeneration, lambda e: pool.drop_generation(e.application, e.version, e.plan_name))
        driver.on(CommitEpochRows, lambda e: pool.commit_epoch(e.application, e.version, e.epoch))
        driver.on(CommitLogs, lambda e: self._spawn(self._commit_logs(pool, e)))
        driver.on(SyncSourceLogs, lambda e: self._spawn(self._sync_logs(pool, e)))
        self._planner.register(driver, self._spawn)
        driver.on(CheckCode, lambda e: self._spawn(self._check_code(e)))
        driver.on(StopInstances, lambda e: self._stop_instances(pool, e))
        driver.on(EndSourceSessions, lambda e: self._spawn(self._end_sessions(pool, e)))
        driver.on(ReadLogs, self._read_logs)
        driver.on(KeepSecret, self._keep_secret)
        driver.on(ReadSecrets, lambda e: self._feed(Completed(e.request, self._secrets.known())))
        driver.on(ReadTap, lambda e: self._read_tap(pool, e))

    async def _end_sessions(self, pool: ExecutorPool, effect: EndSourceSessions) -> None:
        """End the sessions of a run's sources at their brokers, once no process here uses them."""
        application, version = effect.application, effect.version
        sessions = tuple(
            EndedSession(session.connector, self._identity.network, application, session.step, session.index)
            for session in effect.sessions
        )
        await pool.until_gone(application, version)
        secrets = self._secrets.provisioned(application, effect.signed_command)
        for text in await end_sessions(self._settings, SessionRequest(sessions, secrets)):
            self._log.warning("source.session_left", text, application=application, version=version)

    def _pass_barrier(self, effect: InjectBarriers) -> None:
        begin = BeginEpoch(effect.epoch, effect.before, effect.after, effect.holds)
        if self._pool is not None:
            self._pool.begin_epoch((effect.application, effect.version), begin)

    async def close(self) -> None:
        """End all executors."""
        self._feed_fetches.close()
        await self._planner.close()
        if self._pool is not None:
            await self._pool.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: int, work: Awaitable[None]) -> None:
        """Report to the node that the work for a request was completed, or why it failed."""
        try:
            await work
        except (LaunchError, AgileDartError, OSError) as error:
            self._fail(request, error)
        else:
            self._feed(Completed(request, None))

    def _fail(self, request: int, error: Exception) -> None:
        self._feed(Failed(request, f"{error} (on {self._settings.name})"))

    def renew(self, ending_by: float = math.inf) -> None:
        """Renew the credentials of executors that expire by then."""
        self._credentials.renew(self.processes, ending_by)

    # ---- instances

    async def _prepare(self, pool: ExecutorPool, effect: PrepareExecutors, start: object) -> None:
        self._identity.touch_network()
        part, refusal = await self._ownership_proofs.add_log_owners(add_owner(effect.part))
        refusal = refusal or (await self._refusal(part, effect.slots))[0]
        if self._starts.pop(start, None) is None or refusal:  # stopped: the run's next plan may have other folders here
            return
        # The start, which comes next, meets an error again and reports it.
        with contextlib.suppress(LaunchError, AgileDartError, OSError):
            await pool.prepare(part.application, part.version, part.number, effect.slots, encode(part))

    def _begin_to_start(self, pool: ExecutorPool, effect: PrepareExecutors | _StartEffect) -> None:
        self._starts[start := object()] = (effect.part.application, effect.part.version)
        if isinstance(effect, PrepareExecutors):
            self._spawn(self._prepare(pool, effect, start))
        else:
            self._spawn(self._start_instances(pool, effect, start))

    async def _start_instances(self, pool: ExecutorPool, effect: _StartEffect, start: object) -> None:
        part, unowned = await self._ownership_proofs.add_log_owners(add_owner(effect.part))
        stages = _PLAN.decode(part.plan).stages
        labels = {stage.index: stage.name for stage in stages}
        self._metrics.applications.started(part.application)
        slots = instances_by_slot(part)
        reason, refusal = ("owner", unowned) if unowned else await self._refusal(part, slots)
        if self._starts.pop(start, None) is None:  # the run was stopped before a process of it existed
            self._feed(Failed(effect.request, f"{part.application} was stopped while it started"))
            return
        if reason:
            self._log.refused(reason, part.application)
            self._feed(Failed(effect.request, refusal))
            return
        try:
            waits = isinstance(effect, PrepareLocalGeneration)
            since = None if isinstance(effect, PrepareLocalGeneration) else effect.since
            about = (part.application, part.version, part.number)
            addresses = await pool.launch(
                *about,
                slots,
                encode(part),
                labels,
                since,
                plan_name=effect.plan_name,
                waits=waits,
                by_epoch=part.by_epoch,
                plan=part.plan,
                has_own_port=not self._links.know_tickets(peer.node for peer in part.nodes),
            )
        except (LaunchError, AgileDartError, OSError) as error:
            self._fail(effect.request, error)
            return
        await asyncio.to_thread(self._ownership_proofs.keep, part)
        logs = logs_here(part, self._identity.node_id)
        self._note_logs((*logs.of_users, *logs.of_latencies))
        known = pool.addresses(part.application, part.version) if waits else {}
        fresh = {(name.stage, name.index): address for name, address in addresses.items()}
        self._feed(Completed(effect.request, known | fresh))

    async def _hold_standby(self, pool: ExecutorPool, effect: HoldLocalStandby) -> None:
        """Hold executors ready. Raises `LaunchError`, `OperationFailed`."""
        part, unowned = await self._ownership_proofs.add_log_owners(add_owner(effect.part))
        if refusal := unowned or (await self._refusal(part, instances_by_slot(part)))[1]:
            raise OperationFailed(refusal)
        await pool.standbys.hold(part, effect)

    async def _refusal(self, part: DeploymentPart, slots: Iterable[int]) -> tuple[str, str]:
        """Return (reason, sentence) of a refusal to start these executors; both empty: they may start."""
        root, home = self._settings.state_dir, self._identity.node_id
        if text := root_refusal(self._settings):
            return "root", f"{self._settings.name}: {text}."
        if text := await asyncio.to_thread(log_write_refusal_text, part, home, root):
            return "owner", text
        about = (part.application, part.version, part.signed_command, tuple(slots), self.processes)
        if text := await asyncio.to_thread(self._quotas.refusal, *about):
            return "quota", f"{text}."
        is_used = any(executor.application == part.application for executor in self.processes)
        claim = partial(self._work_owners.claim, part.application, part.owner, is_used=is_used)
        text = await asyncio.to_thread(claim)
        return ("owner", f"{text[:1].upper()}{text[1:]}.") if text else ("", "")

    async def _check_code(self, effect: CheckCode) -> None:
        if effect.stages and self._pool is not None:
            self._pool.announce_start()
        if text := root_refusal(self._settings):
            self._feed(Completed(effect.request, HostChecked(0, f"{self._settings.name}: {text}.")))
            return
        closed = protected_paths(self._settings)
        secrets = ProvisionedSecrets()
        if effect.signed_command:
            secrets = self._secrets.provisioned(
                parse_signed_command(effect.signed_command).terms.application, effect.signed_command
            )
        wanted = CodeCheckRequest(
            effect.plan, effect.bundle, effect.stages, user_code_bounds(self._settings).memory_bytes, closed, secrets
        )
        result = await check_in_subprocess(wanted, str(self._settings.state_dir))
        hidden = [
            msgspec.structs.replace(connector, text=secrets.hide(connector.text)) for connector in result.connectors
        ]
        result = CodeCheckResult(secrets.hide(result.refusal), tuple(hidden))
        checked = tuple(ConnectorChecked(*msgspec.structs.astuple(connector)) for connector in result.connectors)
        self._feed(Completed(effect.request, HostChecked(0, result.refusal, checked)))

    async def _link_instances(self, pool: ExecutorPool, effect: LinkInstances) -> None:
        addresses = tuple((InstanceName(row.stage, row.index), row.address) for row in effect.addresses)
        await self._answer(effect.request, pool.link(effect.application, effect.version, addresses))

    @staticmethod
    def _hand_over_state(pool: ExecutorPool, effect: HandOverState) -> None:
        origin = InstanceName(effect.stage, effect.index, effect.generation)
        stored = PreviousStateStored(effect.epoch, origin, effect.plan_name, effect.digest, effect.before)
        pool.hand_over(effect.application, effect.version, stored)

    async def _preload_state(self, pool: ExecutorPool, effect: PreloadFromDisk) -> None:
        about = (effect.application, effect.version, effect.plan_name, effect.snapshots)
        await self._answer(effect.request, pool.preload_state(*about, effect.timeout_ns / SECOND))

    async def _open_generation(self, pool: ExecutorPool, effect: ConnectLocalGeneration) -> None:
        # the owners are known since the plan was prepared
        part, _ = await self._ownership_proofs.add_log_owners(effect.part)
        addresses = tuple((InstanceName(row.stage, row.index), row.address) for row in effect.addresses)
        about = (part.application, part.version, encode(part), effect.plan_name)
        await self._answer(effect.request, pool.open_generation(*about, addresses))

    async def _sync_logs(self, pool: ExecutorPool, effect: SyncSourceLogs) -> None:
        await self._answer(effect.request, pool.sync_logs(effect.application, effect.version))

    async def _commit_logs(self, pool: ExecutorPool, effect: CommitLogs) -> None:
        await self._answer(effect.request, self._commit_ended(pool, effect))

    async def _commit_ended(self, pool: ExecutorPool, effect: CommitLogs) -> None:
        """Commit the logs of a finished run: its living processes do it, and this agent does the rest."""
        key = (effect.application, effect.version)
        pool.commit_epoch(*key, effect.epoch)
        await pool.sync_logs(*key)  # the answer comes behind the commit
        for text in await publish_ended_files(self._settings, effect):
            self._log.warning("sink.commit_failed", text, application=effect.application, version=effect.version)

    def _prepared(self, application: str, version: int, answer: AcknowledgeCheckpoint | DeclineCheckpoint) -> None:
        name = answer.instance
        self._note_unsaved((application, version, name), answer.reason if isinstance(answer, DeclineCheckpoint) else "")
        if isinstance(answer, DeclineCheckpoint):
            self._feed(InstanceUnprepared(application, version, name.stage, name.index, answer.epoch, answer.reason))
            return
        if not answer.content:
            self._count_snapshot(answer.size, answer.pause_ns, answer.longest_ns)
        self._feed(
            InstancePrepared(
                application,
                version,
                name.stage,
                name.index,
                answer.epoch,
                answer.digest,
                answer.size,
                answer.ends,
                answer.ended,
                name.generation,
                answer.after,
                answer.caught_up,
                answer.changeover_pauses,
                answer.onto,
                answer.longest_ns,
                answer.content,
            )
        )

    def _note_unsaved(self, copy: tuple[str, int, InstanceName], reason: str) -> None:
        """Log once that an instance cannot be saved, and once that it can be again: each epoch tries anew."""
        before, (application, version, name) = self._unsaved.pop(copy, ""), copy
        if reason:
            self._unsaved[copy] = reason
            if len(self._unsaved) > MAX_BROKEN:
                del self._unsaved[next(iter(self._unsaved))]
        if reason == before:
            return
        where = f"instance {name.index} of stage {name.stage} of {application}"
        if reason:
            text = f"{where} cannot be saved, so no epoch is committed until it can be: {reason}"
            self._log.warning("instance.snapshot_failed", text, application=application, version=version)
        else:
            self._log.info(
                "instance.snapshot_recovered", f"{where} can be saved again", application=application, version=version
            )

    def _stop_instances(self, pool: ExecutorPool, effect: StopInstances) -> None:
        stopped = (effect.application, effect.version)
        self._starts = {start: run for start, run in self._starts.items() if run != stopped}
        self._unsaved = {copy: reason for copy, reason in self._unsaved.items() if copy[:2] != stopped}
        pool.stop(effect.application, effect.version)
        self._metrics.applications.ended(effect.application, effect.version)

    def _reported(self, event: InstanceReported | InstanceFinished) -> None:
        self._metrics.applications.reported(event.application, event.version, event.stage, event.index, event.report)
        self._feed(event)

    def _call_pending(
        self, application: str, version: int, instances: tuple[InstanceName, ...], call: PendingCall
    ) -> None:
        copies = tuple((name.stage, name.index) for name in instances)
        self._feed(UserCallPending(application, version, copies, call.step, call.place, call.seconds))

    def _instance_broke(self, application: str, version: int, broke: InstanceFailure) -> None:
        where = broke.instance
        message = f"{broke.message} (on {self._settings.name})"
        is_logged = self._broken.get(application) == (
            version,
            message,
        )  # a process that ends takes all its instances with it
        if not (broke.is_consequence or is_logged):
            self._broken.pop(application, None)
            self._broken[application] = version, message
            if len(self._broken) > MAX_BROKEN:
                del self._broken[next(iter(self._broken))]
            self._printed.add(application, message)
            text = f"{application} fails here: {message.partition(chr(10))[0]}"
            self._log.warning("application.failed", text, application=application, version=version)
            self._metrics.applications.failed(application)
        self._feed(
            InstanceFailed(
                application, version, where.stage, where.index, message, broke.is_consequence, broke.is_crash
            )
        )

    def _keep_secret(self, effect: KeepSecret) -> None:
        try:
            self._secrets.keep(effect.known, effect.sealed)
        except (OperationFailed, OSError) as error:
            self._fail(effect.request, error)
        else:
            self._feed(Completed(effect.request, None))

    # ---- taps and logs for users

    def _read_tap(self, pool: ExecutorPool, effect: ReadTap) -> None:
        rows = self._taps.read((effect.application, effect.version, effect.step), effect.after)
        if not rows.refused:
            pool.open_tap(effect.application, effect.version, effect.step)
        self._feed(Completed(effect.request, rows))
        asyncio.get_running_loop().call_later(FORGET_SECONDS + 1.0, self._taps.forget_old)

    def _read_logs(self, effect: ReadLogs) -> None:
        lines = self._printed.after(effect.application, effect.after, effect.limit)
        self._feed(
            Completed(effect.request, tuple(LogLine(number, int(at * 1000), "", text) for number, at, text in lines))
        )
