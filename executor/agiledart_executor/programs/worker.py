"""The executor process: runs user code of one application beside its agent, in a process of its own.

    python -m agiledart_executor.programs.worker FD REPORT_FD HANDOVER_FD

FD is one end of a socket pair to the agent; REPORT_FD is the writing end of a pipe for the crash report. HANDOVER_FD is one
end of a pair over which the agent hands over connections of other executors. The first message
holds the executor's identity; then instances are launched, linked and run. The process ends when the pair closes. It imports
neither the overlay nor cryptography nor a metrics library, because it must stay small.
"""

import asyncio
import os
import signal
import socket
import sys
import traceback
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from functools import partial

import msgspec

from agiledart_dataflow.plan.deployment import REGISTER_BYTES, REGISTER_BYTES_EACH, DeploymentPart
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_dataflow.runtime.program import compile_program
from agiledart_executor.channels.data_links import DataPort, EdgeEnds, take_acknowledgement
from agiledart_executor.checkpointing.instance_checkpointer import InstanceCheckpointer
from agiledart_executor.checkpointing.instance_restorer import read_of_stage
from agiledart_executor.handover.standby_instances import StandbyInstances
from agiledart_executor.handover.upcoming_generations import UpcomingGenerations, by_channel_number, nodes_of
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.instances.latency_log import LatencyKeeping, LatencyLog
from agiledart_executor.instances.running_instance import InputEnd, RunningInstance
from agiledart_executor.process import short_time_slices
from agiledart_executor.programs.accepted_links import AcceptedLinks
from agiledart_executor.programs.agent_feed_requests import AgentFeedRequests
from agiledart_executor.programs.instance_reporter import InstanceReporter
from agiledart_executor.programs.launchable import Launchable, make_ready
from agiledart_executor.programs.output_opener import OutputOpener
from agiledart_executor.programs.report_texts import bounded_text, describe_error, log_texts
from agiledart_executor.programs.shared_programs import SharedProgram, SharedPrograms
from agiledart_executor.programs.surroundings import OwnProcess, OwnProcessNeeded, Surroundings
from agiledart_executor.routes.agent_peer_verifier import AgentPeerVerifier
from agiledart_executor.routes.data_route import DataRoute
from agiledart_executor.routes.data_routes import DataRoutes
from agiledart_executor.snapshots.snapshot_file import run_folder
from agiledart_executor.user_code.crash_report import EXIT_BOUND, CrashReporter
from agiledart_executor.user_code.watchdog import UserCall
from agiledart_executor.wire.agent_messages import (
    AgentMessage,
    BeginEpoch,
    CodeLoading,
    Configure,
    CredentialsRenewed,
    DropPendingPlan,
    EndInput,
    ExecutorMessage,
    FeedFetched,
    Finished,
    ForceSourceLogs,
    InstanceFailure,
    InstanceHandedOver,
    InstanceName,
    Launch,
    LinkOutputs,
    NotifyEpochCommitted,
    OpenGenerationChannels,
    OpenTap,
    PairRefused,
    PeerVerdict,
    PreloadSnapshots,
    PrepareStandby,
    PreviousStateStored,
    RelaysFound,
    RequestCompleted,
    RequestFailed,
    ShareProcess,
    StartReading,
    UserBoundsSet,
)
from agiledart_executor.wire.handed_connections import CONNECTION, MAX_PACKET, HandedPair
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError, RollBackNeeded
from agiledart_kernel.frames import FrameKind, FrameReader, Hello, frame
from agiledart_kernel.grants import decode_link
from agiledart_kernel.limits import MAX_FRAME_BYTES
from agiledart_kernel.node_id import NodeId
from agiledart_transport.event_loop import run_on_uvloop
from agiledart_transport.link import Link

_PART: Codec[DeploymentPart] = Codec(DeploymentPart)
_PLAN: Codec[StagePlan] = Codec(StagePlan)
_HANDED_PAIR: Codec[HandedPair] = Codec(HandedPair)


def _register_bytes(part: DeploymentPart) -> int:
    """Return the size up to which the run's register holds the snapshot of an instance; 0: it holds none."""
    if not part.saves_less:
        return 0
    return min(REGISTER_BYTES_EACH, REGISTER_BYTES // max(1, len(part.assignment)))


EpochMessage = (
    BeginEpoch
    | NotifyEpochCommitted
    | ForceSourceLogs
    | OpenGenerationChannels
    | DropPendingPlan
    | PreviousStateStored
    | PreloadSnapshots
)
"""Messages about an epoch, or about a change that its barrier carries."""


class Worker:
    """Executor of one application: dispatches the agent's messages to the instances, links and checkpoints of this process.

    Args:
        writer: to the agent.
        configuration: the agent's first message.
        surroundings: the process that runs it.

    Attributes:
        reporter: reports the instances to the agent.
        accepted_links: takes connections of other executors; pairs: takes ends that were asked for.
    """

    def __init__(self, writer: asyncio.StreamWriter, configuration: Configure, surroundings: Surroundings) -> None:
        self._writer, self._configuration, self._surroundings = writer, configuration, surroundings
        self.reporter = InstanceReporter(
            lambda: self._host.running.values(),
            self.send,
            lambda running, text: self._host.fail(running, text),
            lambda: self._routes.look(),
            surroundings.has_heartbeat,
        )
        self._host = InstanceHost(self._finished, self.reporter.instance_failed)
        self._verifier, self._feeds = AgentPeerVerifier(self.send), AgentFeedRequests(self.send)
        self._hello = Hello(
            service="data",
            chain=configuration.chain,
            incarnation=configuration.incarnation,
            name=configuration.node_name,
        )
        self._routes = DataRoutes(
            configuration, self._hello, self._verifier, self._host, self.send, self._acknowledged, self._route_abandoned
        )
        self.pairs = self._routes.pairs
        self.accepted_links = AcceptedLinks(configuration, lambda: self._hello, self._verifier, self._host, self.send)
        self._code: Launchable | None = None
        self._plan: StagePlan | None = None
        self._run: tuple[int, int] | None = None  # number of the application, attempt of its plan
        self._nodes: dict[tuple[int, int], NodeId] = {}
        self._outputs = OutputOpener(self._host, self._routes, self._nodes)
        self._tasks: set[asyncio.Task[None]] = set()
        self._launching = asyncio.Lock()
        self._checkpointer: InstanceCheckpointer | None = None
        self._upcoming_generations = UpcomingGenerations(self._host, self._host.fail_change)
        self._standbys = StandbyInstances()
        self._unlinked: list[tuple[DeploymentPart, RunningInstance]] = []  # downstream first
        self._plan_name = b""
        self._building = self._is_confined = False
        surroundings.watch(self._busy_with)

    # ---- the agent

    def send(self, message: ExecutorMessage) -> None:
        """Queue a message to the agent."""
        _send(self._writer, message)

    def take(self, message: AgentMessage) -> None:
        """Handle a message from the agent."""
        match message:
            case Launch():
                self._answer(message.request, self._launch(message))
            case LinkOutputs():
                self._answer(message.request, self._link_all(message))
            case StartReading():
                self._host.start_reading()
            case EndInput():
                self._host.end_input()
            case PrepareStandby():
                self._answer(message.request, self._prepare_standby(message))
            case PeerVerdict():
                self._verifier.receive_answer(message)
            case RelaysFound() | PairRefused():
                self._routes.receive_answer(message)
            case FeedFetched():
                self._feeds.receive_answer(message)
            case OpenTap():
                self.reporter.open_tap(self._code, message.step)
            case CredentialsRenewed():
                self._renewed(message)
            case Configure() | ShareProcess():
                raise RemoteProtocolError("form", "configured twice")
            case _:
                self._receive_epoch_message(message)

    def _renewed(self, message: CredentialsRenewed) -> None:
        self._hello = msgspec.structs.replace(self._hello, chain=message.chain)
        self.accepted_links.renewed(message.credentials)
        self._routes.renewed(self._hello, message.credentials)

    def _receive_epoch_message(self, message: EpochMessage) -> None:
        """Handle a message about an epoch, or about a change that an epoch's barrier carries."""
        match message:
            case BeginEpoch():
                self._begin_epoch(message)
            case NotifyEpochCommitted():
                self._commit(message.epoch)
            case ForceSourceLogs():
                self._sync_logs(message.request)
            case OpenGenerationChannels():
                self._answer(message.request, self._open_generation(message))
            case DropPendingPlan():
                self._upcoming_generations.drop(message.plan_name)
            case PreviousStateStored():
                if self._checkpointer is not None:
                    self._spawn(
                        self._upcoming_generations.receive_previous_state(message, self._checkpointer.restorer.read)
                    )
            case PreloadSnapshots():
                self._answer(message.request, self._preload_state(message))

    def _begin_epoch(self, begin: BeginEpoch) -> None:
        """Let the sources send a barrier; ignore one whose plan before it is not ours, or whose plan behind it is unknown."""
        if begin.after:
            follows_another = begin.before != self._plan_name and self._host.has_sources
            if follows_another or begin.after not in self._host.programs:
                return
            self._plan_name = begin.after
        self._host.barriers.begin_epoch(begin.epoch, begin.after, holds=begin.holds)

    def _commit(self, epoch: int) -> None:
        for running in self._host.running.values():
            if self._checkpointer is not None and not running.broken:
                try:
                    self._checkpointer.commit(running, epoch)
                except RollBackNeeded as error:
                    self._host.fail_change(running, f"{running.name}: {error}")
                except OperationFailed as error:
                    self._host.fail(running, f"{running.name}: {error}")

    def _sync_logs(self, request: int) -> None:
        def answer(reason: str) -> None:
            self.send(RequestFailed(request, reason) if reason else RequestCompleted(request, ""))

        answer("") if self._checkpointer is None else self._checkpointer.source_logs.sync_logs(answer)

    def _busy_with(self) -> UserCall | None:
        """Return the user code that runs just now, for the watchdog's thread; None when none runs."""
        if self._building:
            return UserCall("the builder", -1)
        running = self._host.current
        return None if running is None else UserCall(running.name, self._host.calls)

    def close(self) -> None:
        """Stop the watchdog, checkpoints and routes; sinks flush the rows that they were given to their files."""
        self._surroundings.close()
        if self._checkpointer is not None:
            self._checkpointer.close()
        self._routes.close()
        self._host.close()

    async def leave(self) -> None:
        """Release after `close` what ends with a process, in a process that goes on."""
        for running in self._host.running.values():
            running.broken = True
            if running.timer is not None:
                running.timer.cancel()
        await self.accepted_links.close()
        self._routes.disconnect()

    def _answer(self, request: int, work: Coroutine[None, None, str]) -> None:
        """Answer a request of the agent with the result of the work for it, or with the reason why it failed."""

        async def answered() -> None:
            try:
                result = await work
            except BaseException as error:  # noqa: BLE001  a builder may raise anything; without an answer its user would wait
                self.send(_failed(request, error))
            else:
                self.send(RequestCompleted(request, result))

        self._spawn(answered())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Fail every local instance after a task died of an internal bug; otherwise the agent would wait forever."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log_texts(["".join(traceback.format_exception(error))])
            for running in tuple(self._host.running.values()):
                self._host.fail_change(running, f"{running.name}: its executor cannot go on: {error!r}")

    def _finished(self, running: RunningInstance) -> None:
        if self._checkpointer is not None and not running.has_handed_over:
            self._checkpointer.at_end(running)
        if running.instance is not None:
            log_texts(running.instance.reports.take() + running.instance.reports.rest())
            if running.sink.notices is not None:
                log_texts([f"{running.name}: {note}" for note in running.sink.notices.take_notices()])
        if running.has_handed_over:
            del self._host.running[running.stage, running.index]
            self.send(InstanceHandedOver(running.instance_name))
            return
        if running.source is not None:
            log_texts(running.source.take_messages(at_end=True))
        if running.latencies is not None:
            self._spawn(self._finish(running, running.latencies))
        else:
            self.send(Finished(running.instance_name, running.report()))

    async def _finish(self, running: RunningInstance, latencies: LatencyLog) -> None:
        await latencies.ended()
        self.send(Finished(running.instance_name, running.report()))

    # ---- launching

    async def _launch(self, launch: Launch) -> str:
        """Make instances ready; return the address of this executor."""
        async with self._launching:
            await self._make_ready(_PART.decode(launch.part), launch)
            return await self.accepted_links.open(has_own_port=launch.has_own_port)

    async def _make_ready(self, part: DeploymentPart, launch: Launch) -> None:
        # The first launch loads the code; later ones add instances to it, or instances of the next generation.
        if self._code is None:
            self._code = self._loaded(part)
        if self._run is None:
            self._code = self._bound(self._code, part, launch.plan_name)
        if part.by_epoch and self._checkpointer is None:
            configuration = self._configuration
            folder = run_folder(self._surroundings.root, configuration.application, configuration.version)
            self._checkpointer = InstanceCheckpointer(
                folder, part.number, part.attempt, self._code.steps, self.send, _register_bytes(part)
            )
            self._host.barriers.on_barrier = self._checkpointer.at_barrier
            self._checkpointer.on_failure, self._checkpointer.slice = self._host.fail, self._host.slice
            self._checkpointer.on_rollback_needed = self._host.fail_change
            self._checkpointer.slices.calls = lambda: self._host.calls
        if launch.waits:
            await self._prepare_waiting_instances(part, launch)
            return
        addresses = by_channel_number(self._code.plan, part.known_addresses())
        since = launch.since
        for name in sorted(
            launch.instances, key=_by_stage, reverse=True
        ):  # downstream first, because a channel needs its target
            stage, index = name.stage, name.index
            keep = None
            if since is not None and self._checkpointer is not None and self._code.plan.stages[stage].kind == "sink":
                keep = self._checkpointer.restorer.kept(stage, index, since)
            standby = self._standbys.take(name, since)
            running = (
                standby.running
                if standby is not None
                else await self._code.open_instance(
                    stage, index, by_epoch=part.by_epoch, restores=since is not None, keep=keep
                )
            )
            if self._checkpointer is not None:
                self._checkpointer.source_logs.keep_log(running)
                if running.source is not None:
                    self._checkpointer.records.keep_file_fingerprint(running, running.source.file)
                if since is None:
                    self._checkpointer.opened(running)
                elif standby is not None and standby.last is not None:
                    self._checkpointer.restorer.resume(running, standby.last, since.epoch)
                else:
                    self._checkpointer.restorer.restore(running, since)
            for channel in self._code.plan.inputs(stage, index):
                running.inputs[channel] = InputEnd()
            # Targets of a restored instance are restored elsewhere at the same time, so their addresses follow in `LinkOutputs`.
            if since is None:
                await self._join(part, running, addresses)
            else:
                self._unlinked.append((part, running))

    async def _prepare_standby(self, message: PrepareStandby) -> str:
        """Load the code, and build the state of instances that this process may take over."""
        part = _PART.decode(message.part)
        async with self._launching:
            code = self._code = self._code or self._loaded(part)
            folder = run_folder(self._surroundings.root, part.application, part.version)
            read = partial(read_of_stage, folder, part.number, code.steps)
            await self._standbys.build(self._code, read, message)
        return ""

    def _bound(self, code: Launchable, part: DeploymentPart, plan_name: bytes) -> Launchable:
        """Return the code for the attempt that runs here; a standby has loaded it in an earlier one."""
        code = replace(code, attempt=part.attempt, log_owners=part.log_owners)
        self._plan, self._plan_name, self._run = code.plan, plan_name, (part.number, part.attempt)
        self._nodes.update(nodes_of(code.plan, part))
        self.accepted_links.port = DataPort(
            part.number,
            part.attempt,
            self._host,
            code.codecs,
            self._ends,
            lambda edge, index: self._nodes.get((self._edge(edge)[0], index), NodeId(0)),
            lambda edge: self._stage_name(self._edge(edge)[0]),
            rest=self._host.rest,
        )
        self._surroundings.loaded()
        return code

    def _loaded(self, part: DeploymentPart) -> Launchable:
        """Load the user code and set its bounds; the process confines itself before that."""
        configuration = self._configuration
        if not self._is_confined:
            self._surroundings.confine(part)
            self._is_confined = True
            self._host.forked.watch()
        keeping = LatencyKeeping(configuration.latency_log_bytes, configuration.latency_log_days * 86_400_000)
        self._building = True
        try:
            network = decode_link(configuration.chain[0]).network if configuration.chain else b""
            if mark := self._surroundings.mark_of(part.bundle):
                self.send(CodeLoading(mark))
            code = make_ready(part, keeping, network, self._feeds, self._surroundings.run)
        finally:
            self._building = False
            self._host.forked.end_child(configuration.application)
        self.send(UserBoundsSet(self._surroundings.take_limits(code.program.topology.limits)))
        return code

    async def _join(
        self, part: DeploymentPart, running: RunningInstance, addresses: Mapping[tuple[int, int], str]
    ) -> None:
        assert self._code is not None
        for route in self._code.plan.outgoing(running.stage):
            for target in self._code.plan.targets(route.index, running.index):
                address = addresses.get((route.target, target))
                out = await self._outputs.open(self._code, part, running, (route.index, target), address)
                running.outputs[route.index, target] = out
        self._host.add(running)

    async def _prepare_waiting_instances(self, part: DeploymentPart, launch: Launch) -> None:
        """Make instances of the next generation, from the code that is loaded already."""
        code = self._code_of(part, launch.plan_name)
        for name in sorted(launch.instances, key=_by_stage, reverse=True):
            running = await code.open_instance(name.stage, name.index, by_epoch=part.by_epoch)
            if self._checkpointer is not None:
                running.save_increments()
            self._upcoming_generations.wait(launch.plan_name, running)

    def _code_of(self, part: DeploymentPart, plan_name: bytes) -> Launchable:
        """Return the loaded user code joined with another plan."""
        assert self._code is not None
        program = self._code.program
        if self._code.plan != (plan := _PLAN.decode(part.plan)):
            program = compile_program(program.topology, plan)
        program = self._upcoming_generations.plan(plan_name, program)
        return replace(self._code, program=program, plan=program.plan)

    async def _open_generation(self, message: OpenGenerationChannels) -> str:
        async with self._launching:
            assert self._code is not None  # the first launch has loaded it
            part = _PART.decode(message.part)
            plan = self._code_of(part, message.plan_name).plan
            addresses = by_channel_number(plan, {(n.stage, n.index): address for n, address in message.addresses})
            self._nodes.update(nodes_of(plan, part))
            self._upcoming_generations.open_inputs(message.plan_name)
            for running, edge, target in self._upcoming_generations.missing_outputs(message.plan_name):
                address = addresses.get((plan.edges[edge].target, target))
                running.outputs[edge, target] = await self._outputs.open(
                    self._code, part, running, (edge, target), address
                )
                self._upcoming_generations.opened(message.plan_name, running, (edge, target))
            self._upcoming_generations.ready(message.plan_name)
        return ""

    async def _preload_state(self, message: PreloadSnapshots) -> str:
        if (checkpointer := self._checkpointer) is not None:
            await self._upcoming_generations.preload_state(message, checkpointer.restorer.read)
        return ""

    async def _link_all(self, link: LinkOutputs) -> str:
        assert self._plan is not None
        addresses = by_channel_number(
            self._plan, {(name.stage, name.index): address for name, address in link.addresses}
        )
        async with self._launching:
            for part, running in self._unlinked:
                await self._join(part, running, addresses)
            self._unlinked.clear()
        return ""

    def _edge(self, edge: int) -> tuple[int, int]:
        """Return (source stage, target stage) of an edge; raises RemoteProtocolError for an unknown edge."""
        assert self._plan is not None
        if not 0 <= edge < len(self._plan.edges):
            raise RemoteProtocolError("channel", f"no edge {edge}")
        ends = self._plan.edges[edge]
        return ends.source, ends.target

    def _ends(self, edge: int) -> EdgeEnds:
        """Return both ends of an edge with their generations; raises RemoteProtocolError for an unknown edge."""
        source, target = self._edge(edge)
        assert self._plan is not None
        return source, self._plan.stages[source].generation, target, self._plan.stages[target].generation

    def _stage_name(self, stage: int) -> str:
        assert self._plan is not None
        return self._plan.stages[stage].name

    # ---- links

    def _acknowledged(self, _link: Link, kind: int, body: bytes) -> None:
        assert self._run is not None  # a link is dialled for instances
        take_acknowledgement(self._host, *self._run, self._ends, kind, body)

    def _route_abandoned(self, route: DataRoute, why: str) -> None:
        """Report the instances that an abandoned route stops; the node waits a little for the cause."""
        for running in self._host.running.values():
            uses_route = any(end.deliver in route.senders for end in running.outputs.values())
            if uses_route and not running.reported and not running.broken:
                name = running.instance_name
                self.send(InstanceFailure(name, bounded_text(f"{running.name}: {why}"), is_consequence=True))


def _failed(request: int, error: BaseException) -> RequestFailed:
    """Return the answer to a request that failed."""
    if isinstance(error, OwnProcessNeeded):
        return RequestFailed(request, str(error), needs_own_process=True)
    return RequestFailed(request, bounded_text(describe_error(error)))


def _by_stage(name: InstanceName) -> tuple[int, int]:
    return name.stage, name.index


_FROM_AGENT: Codec[AgentMessage] = Codec(AgentMessage)
_TO_AGENT: Codec[ExecutorMessage] = Codec(ExecutorMessage)


def _send(writer: asyncio.StreamWriter, message: ExecutorMessage) -> None:
    if not writer.is_closing():
        writer.write(frame(FrameKind.CONTROL, _TO_AGENT.encode(message)))


def _take_connection(handover: socket.socket, worker: Worker) -> None:
    """Take one connection that the agent hands over."""
    try:
        packet, descriptors, _, _ = socket.recv_fds(handover, MAX_PACKET, 1)
    except BlockingIOError:
        return
    except OSError:
        descriptors = []
    if not descriptors:  # the agent has closed its end
        asyncio.get_running_loop().remove_reader(handover)
    for descriptor in descriptors:
        connection = socket.socket(fileno=descriptor)
        connection.setblocking(False)
        if packet == CONNECTION:
            worker.accepted_links.take(connection)
        elif (handed := _HANDED_PAIR.decode(packet)).request:
            worker.pairs.receive(connection, handed)
        else:
            worker.accepted_links.take(connection, handed.certificate)


async def run(
    pair: socket.socket,
    crash_reporter: CrashReporter,
    handover: socket.socket | None = None,
    shared: SharedProgram | None = None,
) -> None:
    """Serve one agent until it closes the pair. `shared`: this is one program of a process that several share."""
    reader, writer = await asyncio.open_unix_connection(sock=pair)
    frames = FrameReader(MAX_FRAME_BYTES)
    worker: Worker | None = None
    programs: SharedPrograms | None = None
    reporting: asyncio.Task[None] | None = None

    async def serve(program_pair: socket.socket, connections: socket.socket, program: SharedProgram) -> None:
        await run(program_pair, crash_reporter, connections, program)

    try:
        while data := await reader.read(1 << 18):
            frames.feed(data)
            while (item := frames.next()) is not None:
                message = _FROM_AGENT.decode(item[1])
                if worker is not None:
                    worker.take(message)
                elif isinstance(message, Configure):
                    surroundings = OwnProcess(message, crash_reporter) if shared is None else shared.configure(message)
                    worker = Worker(writer, message, surroundings)
                    if handover is not None:
                        asyncio.get_running_loop().add_reader(handover, _take_connection, handover, worker)
                    reporting = asyncio.create_task(worker.reporter.report_periodically())
                elif isinstance(message, ShareProcess) and handover is not None and shared is None:
                    programs = SharedPrograms(message, crash_reporter, handover, partial(_send, writer), serve)
                    programs.open()
    except (ConnectionError, BrokenPipeError):
        pass
    finally:
        if reporting is not None:
            reporting.cancel()
        if worker is not None:
            worker.close()
            if shared is not None:
                await worker.leave()
        if programs is not None:
            await programs.close()
        writer.close()


def main() -> int:
    """Run the executor process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent decides when this process ends
    crash_reporter = CrashReporter(int(sys.argv[2]) if len(sys.argv) > 2 else -1)
    crash_reporter.arm()
    short_time_slices.request_short_slices()
    pair = socket.socket(fileno=int(sys.argv[1]))
    pair.setblocking(False)
    handover = socket.socket(fileno=int(sys.argv[3])) if len(sys.argv) > 3 else None
    if handover is not None:
        handover.setblocking(False)
    try:
        run_on_uvloop(run(pair, crash_reporter, handover))
    except RuntimeError:  # the loop was stopped before its work was done, and only user code can have stopped it
        crash_reporter.report_reason(
            "user code stopped the event loop of its process (loop.stop()), on which the engine runs"
        )
        os._exit(EXIT_BOUND)
    sys.stdout.flush()
    # The agent has closed the pair: nothing that user code left behind (threads, atexit hooks, processes) may stay.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
