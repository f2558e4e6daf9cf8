"""The executor process: user code of one application, next to its agent but apart from it.

    python -m agiledart_executor.worker FD WORDS

FD is one end of a socket pair to the agent, WORDS the writing end of a pipe for last words. The first message says who we
are; then instances are launched, linked and run. The process ends when the pair closes. It imports neither the overlay
nor cryptography nor a metrics library: it must stay small.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path

from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_dataflow.user_code.user_errors import NO_RECORD, sayable, user_code_error
from agiledart_executor import short_turns
from agiledart_executor.asking_judge import AskingJudge
from agiledart_executor.asking_ways import AskingWays
from agiledart_executor.collector import collect_rarely
from agiledart_executor.confining import confine_to
from agiledart_executor.data_links import DataPort, EdgeEnds, LinkEnd, Sender, take_acknowledgement
from agiledart_executor.data_way import DataWay
from agiledart_executor.elements import run_folder
from agiledart_executor.epochs import Epochs
from agiledart_executor.host import InstanceHost
from agiledart_executor.latency_log import LatencyKeeping, LatencyLog
from agiledart_executor.launching import Launchable, make_ready
from agiledart_executor.local_channel import local_output
from agiledart_executor.messages import (
    AgentMessage,
    BeginEpoch,
    Bound,
    CommitEpoch,
    Configure,
    EndInput,
    ExecutorMessage,
    Finished,
    InstanceBroke,
    InstanceName,
    Launch,
    Launched,
    LaunchFailed,
    Link,
    OpenTap,
    PeerRefused,
    Report,
    StartReading,
    Verdict,
    Way,
)
from agiledart_executor.running_instance import InputEnd, OutputEnd, Running
from agiledart_executor.tapping import Tapping
from agiledart_executor.user_code.bounds import bind_process
from agiledart_executor.user_code.last_words import EXIT_BOUND, LastWords
from agiledart_executor.user_code.watchdog import Call, Watchdog
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.errors import AgileDartError, OperationFailed, RemoteProtocolError
from agiledart_kernel.frames import DATA_PROTOCOL, DataHeader, FrameKind, FrameReader, Hello, frame
from agiledart_kernel.limits import HELLO_TIMEOUT_SECONDS, MAX_FRAME_BYTES
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_transport import framed
from agiledart_transport.circuits import Via
from agiledart_transport.contexts import client_context, server_context
from agiledart_transport.detour import direct_or_around
from agiledart_transport.event_loop import run_on_uvloop
from agiledart_transport.framed import LinkHandler
from agiledart_transport.links import connect
from agiledart_transport.listener import Listener, Room, serve

REPORT_SECONDS = 0.5
"""How often figures go to the agent; also the sign of life."""

MAX_MESSAGE_CHARS = 4_000
"""What a user's exception may say at most: it stands in the application's record."""

DIAL_TRIES = 4
"""Attempts to reach an executor that said it listens; each waits for some seconds."""

HEAD_START = 0.3
"""Of the time that a dial has, for the direct way alone."""

MAX_LINKS_OF_EXECUTOR = 3
"""Links that another executor may have here: the one that it uses, the one that it goes over to, and one for what was cut."""

_PART: Codec[DeploymentPart] = Codec(DeploymentPart)


class Worker:
    """One executor.

    Args:
        writer: to the agent.
        configuration: the agent's first message.
        words: for what can be said no other way.
    """

    def __init__(self, writer: asyncio.StreamWriter, configuration: Configure, words: LastWords) -> None:
        self._writer, self._configuration = writer, configuration
        self._host = InstanceHost(self._finished, self._broke)
        self._judge = AskingJudge(self.tell)
        self._asking_ways = AskingWays(self.tell)
        self._client_tls = client_context(configuration.credentials)
        self._hello = Hello(
            protocol_min=DATA_PROTOCOL,
            service="data",
            chain=configuration.chain,
            incarnation=configuration.incarnation,
            name=configuration.node_name,
        )
        self._listener: Listener | None = None
        self._opening: dict[str, asyncio.Task[DataWay]] = {}
        self._ways: dict[str, DataWay] = {}
        self._accepted_links: dict[bytes, list[framed.Link]] = {}
        self._code: Launchable | None = None
        self._plan: StagePlan | None = None
        self._run: tuple[int, int] | None = None  # number of the application, life of its plan
        self._nodes: dict[tuple[int, int], NodeId] = {}
        self._port: DataPort | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._launching = asyncio.Lock()
        self._tapping: Tapping | None = None
        self._epochs: Epochs | None = None
        self._unlinked: list[tuple[DeploymentPart, Running]] = []  # downstream first
        self._root = Path.cwd()
        self._building = self._is_confined = False
        bind_process(configuration.bounds)
        self._watchdog = Watchdog(configuration.application, configuration.bounds, self._busy_with, words)

    # ---- the agent

    def tell(self, message: ExecutorMessage) -> None:
        """Queue a message to the agent."""
        if not self._writer.is_closing():
            self._writer.write(frame(FrameKind.CONTROL, _TO_AGENT.encode(message)))

    def take(self, message: AgentMessage) -> None:
        """A message from the agent."""
        match message:
            case Launch():
                self._spawn(self._launch(message))
            case Link():
                self._spawn(self._link_all(message))
            case StartReading():
                self._host.start_reading()
            case EndInput():
                self._host.end_input()
            case BeginEpoch():
                self._host.begin_epoch(message.epoch)
            case CommitEpoch():
                self._commit(message.epoch)
            case Verdict():
                self._judge.answered(message)
            case Way():
                self._asking_ways.answered(message)
            case OpenTap():
                if self._tapping is None and self._code is not None:
                    code = self._code
                    self._tapping = Tapping(code.steps, code.row_type, time.time_ns)
                if self._tapping is not None:
                    self._tapping.open(message.step, time.monotonic())
            case Configure():
                raise RemoteProtocolError("form", "configured twice")

    def _commit(self, epoch: int) -> None:
        for running in self._host.running.values():
            if self._epochs is not None and not running.broken:
                try:
                    self._epochs.commit(running, epoch)
                except OperationFailed as error:
                    self._host.fail(running, f"{running.name}: {error}")

    def _busy_with(self) -> Call | None:
        """For the watching thread: the user's code that runs just now."""
        if self._building:
            return Call("the builder", -1)
        running = self._host.current
        return None if running is None else Call(running.name, self._host.calls)

    def close(self) -> None:
        """What sinks were given so far goes to their files."""
        self._watchdog.stop()
        if self._epochs is not None:
            self._epochs.close()
        for way in self._ways.values():
            way.close()
        self._host.close()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def report_for_ever(self) -> None:
        """Send figures twice a second: an agent that hears nothing knows that user code does not return.

        At whole and half seconds of the wall clock: so figures of different nodes are of one moment, as far as their clocks agree.
        """
        while True:
            for way in self._ways.values():
                way.look()
            reports = []
            for running in self._host.running.values():
                running.release_marks()
                if running.latencies is not None:
                    running.latencies.hand_over()
                if running.instance is not None:
                    _show(running.instance.reports.take())
                    if (notes := getattr(running.writer, "take_notes", None)) is not None:
                        _show([f"{running.name}: {note}" for note in notes()])
                elif running.source is not None:
                    _show(running.source.tell())
                report = running.report()
                try:
                    encode(report)
                except (TypeError, ValueError, OverflowError) as error:  # an event time beyond 64 bits, for example
                    self._host.fail(running, f"{running.name}: its figures cannot be told: {error}")
                else:
                    reports.append((InstanceName(running.stage, running.index), report))
            self.tell(Report(tuple(reports)))
            if self._tapping is not None:
                for sampled in self._tapping.turn(self._host.running.values(), time.monotonic()):
                    self.tell(sampled)
            await asyncio.sleep(REPORT_SECONDS - time.time() % REPORT_SECONDS)

    def _finished(self, running: Running) -> None:
        if self._epochs is not None:
            self._epochs.at_end(running)
        if running.instance is not None:
            _show(running.instance.reports.take() + running.instance.reports.rest())
        elif running.source is not None:
            _show(running.source.tell(at_end=True))
        if running.latencies is not None:
            self._spawn(self._finish(running, running.latencies))
        else:
            self.tell(Finished(InstanceName(running.stage, running.index), running.report()))

    async def _finish(self, running: Running, latencies: LatencyLog) -> None:
        await latencies.ended()
        self.tell(Finished(InstanceName(running.stage, running.index), running.report()))

    def _broke(self, running: Running, message: str) -> None:
        if running.source is not None:
            _show(running.source.tell())
        self.tell(InstanceBroke(InstanceName(running.stage, running.index), _message(message)))

    # ---- launching

    async def _launch(self, launch: Launch) -> None:
        try:
            part = _PART.decode(launch.part)
            async with self._launching:
                await self._make_ready(part, launch)
        except BaseException as error:  # noqa: BLE001  a builder may raise anything; unanswered, its user would wait
            self.tell(LaunchFailed(launch.request, _message(_in_words(error))))
            return
        assert self._listener is not None
        port = self._listener.address.rpartition(":")[2]
        configuration = self._configuration
        host = f"[{configuration.advertised}]" if ":" in configuration.advertised else configuration.advertised
        self.tell(Launched(launch.request, f"{host}:{port}/{configuration.node_id.hex}"))

    async def _make_ready(self, part: DeploymentPart, launch: Launch) -> None:
        if self._code is None:
            told = self._configuration
            if not self._is_confined:
                confine_to(part, self._root, told.home, told.closed, has_latencies=told.latency_log_bytes > 0)
                self._is_confined = True
                self._watchdog.start()  # a thread: they are confined with the one that starts them
            keeping = LatencyKeeping(told.latency_log_bytes, told.latency_log_days * 86_400_000)
            self._building = True
            try:
                self._code = make_ready(part, keeping)
            finally:
                self._building = False
            bounds = told.bounds.with_users(self._code.program.topology.limits)
            self._watchdog.set_bounds(bounds)
            self.tell(Bound(bounds))
            self._plan = self._code.plan
            self._run = part.number, part.life
            self._nodes = {place: peer.node for place, peer in part.places().items()}
            self._port = DataPort(
                part.number,
                part.life,
                self._host,
                self._code.codecs,
                self._ends,
                lambda edge, index: self._nodes.get((self._edge(edge)[0], index), NodeId(0)),
                lambda edge: self._stage_name(self._edge(edge)[0]),
            )
            collect_rarely()
        if part.by_epoch and self._epochs is None:
            told = self._configuration
            folder = run_folder(self._root, told.application, told.version)
            self._epochs = Epochs(folder, part.number, part.life, self._code.steps, self.tell)
            self._host.on_barrier = self._epochs.at_barrier
        if self._listener is None:
            self._listener = await self._listen()
        addresses = part.known_addresses()
        since = launch.since
        for name in sorted(
            launch.instances, key=_by_stage, reverse=True
        ):  # downstream first: a channel needs its target
            stage, index = name.stage, name.index
            keep = None if since is None or self._epochs is None else self._epochs.kept_ends(stage, index, since)
            running = await self._code.open_instance(
                stage, index, by_epoch=part.by_epoch, restores=since is not None, keep=keep
            )
            if self._epochs is not None:
                if since is None:
                    self._epochs.opened(running)
                else:
                    self._epochs.restore(running, since)
            for edge, source in self._code.plan.inputs(stage, index):
                running.inputs[edge, source] = InputEnd()
            if since is None:
                await self._join(part, running, addresses)
            else:
                self._unlinked.append((part, running))

    async def _join(self, part: DeploymentPart, running: Running, addresses: Mapping[tuple[int, int], str]) -> None:
        """Join the outputs of an instance with what they lead to; from now on it takes part."""
        assert self._code is not None
        for way in self._code.plan.outgoing(running.stage):
            for target in self._code.plan.targets(way.index, running.index):
                where = addresses.get((way.target, target))
                out = await self._output(part, running, way.index, target, where)
                running.outputs[way.index, target] = out
        self._host.add(running)

    async def _link_all(self, link: Link) -> None:
        addresses = {(name.stage, name.index): address for name, address in link.addresses}
        try:
            async with self._launching:
                for part, running in self._unlinked:
                    await self._join(part, running, addresses)
                self._unlinked.clear()
        except BaseException as error:  # noqa: BLE001  as in `_launch`
            self.tell(LaunchFailed(link.request, _message(_in_words(error))))
            return
        self.tell(Launched(link.request, ""))

    def _edge(self, edge: int) -> tuple[int, int]:
        """(source stage, target stage); raises RemoteProtocolError for an edge that is none."""
        assert self._plan is not None
        if not 0 <= edge < len(self._plan.edges):
            raise RemoteProtocolError("channel", f"no edge {edge}")
        found = self._plan.edges[edge]
        return found.source, found.target

    def _ends(self, edge: int) -> EdgeEnds:
        """Both ends of an edge with their terms; raises RemoteProtocolError for an edge that is none."""
        source, target = self._edge(edge)
        assert self._plan is not None
        return source, self._plan.stages[source].term, target, self._plan.stages[target].term

    def _stage_name(self, stage: int) -> str:
        assert self._plan is not None
        return self._plan.stages[stage].name

    async def _output(
        self, part: DeploymentPart, running: Running, edge: int, target: int, where: str | None
    ) -> OutputEnd:
        assert self._code is not None
        lazy = self._code.plan.edges[edge].lazy_marks
        local = self._host.running.get((self._edge(edge)[1], target))
        if local is not None:
            return local_output(self._host, running, local, (edge, target), self._code.codecs[edge], lazy_marks=lazy)
        if where is None:
            raise OperationFailed(f"{running.name}: the place of instance {target} downstream is not known")
        way = await self._way(where, self._nodes.get((self._edge(edge)[1], target), NodeId(0)))
        _, source_term, _, target_term = self._ends(edge)
        header = DataHeader(
            application=part.number,
            life=part.life,
            edge=edge,
            source=running.index,
            source_term=source_term,
            target=target,
            target_term=target_term,
            epoch=0,
            frame=0,
            sequence=0,
            rows=0,
            schema=edge,
        )
        sender = Sender(way.link, header, self._code.codecs[edge], running.name)
        way.senders.append(sender)
        end = LinkEnd(sender, lazy_marks=lazy)
        end.trouble, end.passage = (lambda: way.waits_for), (lambda: way.goes_by)
        return end

    # ---- links

    async def _listen(self) -> Listener:
        return await serve(
            self._configuration.host,
            0,
            context=server_context(self._configuration.credentials),
            hello=lambda _: self._hello,
            judge=self._judge,
            services=("data",),
            on_link=self._accepted,
            on_refused=lambda reason, remote: self.tell(PeerRefused(reason, remote)),
            room=Room(for_agents=0),
        )

    def _accepted(self, link: framed.Link) -> LinkHandler:
        assert self._port is not None
        link.cork = self._host.cork
        of_key = self._accepted_links.setdefault(link.peer.grant.key, [])
        of_key.append(link)
        if len(of_key) > MAX_LINKS_OF_EXECUTOR:
            of_key[0].abort("stalled")  # that way was cut before its end could be told
        return LinkHandler(self._port.data, self._accepted_ended, before=self._host.gather, after=self._host.turn)

    def _accepted_ended(self, link: framed.Link, reason: str) -> None:
        """Its channels go on when their upstream ends have dialled again. What a peer did wrong is counted."""
        key = link.peer.grant.key
        self._accepted_links[key].remove(link)
        if not self._accepted_links[key]:
            del self._accepted_links[key]
        if reason not in framed.ORDINARY_ENDS:
            self.tell(PeerRefused(reason, link.remote))

    async def _way(self, where: str, node: NodeId) -> DataWay:
        """The way to the executor at `host:port/id` on this node, dialled once."""
        if where not in self._opening:
            self._opening[where] = asyncio.create_task(self._open_way(where, node))
        try:
            return await asyncio.shield(self._opening[where])
        except (OSError, ValueError, RemoteProtocolError) as error:
            self._opening.pop(where, None)
            raise OperationFailed(f"no data link to {where.partition('/')[0]}: {error}") from None

    async def _open_way(self, where: str, node: NodeId) -> DataWay:
        link = await self._dial(where, node)
        name = link.peer.hello.name or link.remote
        told = self._configuration
        random = RandomStream(told.incarnation, "redialling", told.node_id.hex, where)
        way = DataWay(
            link,
            name,
            lambda timeout, directly: self._dial_once(where, node, timeout, directly=directly),
            told.path_patience,
            random,
            self._no_way,
        )
        self._ways[where] = way
        return way

    async def _dial(self, where: str, node: NodeId) -> framed.Link:
        """Dial until it works: on a small board many processes start at once, and some answer late."""
        for left in range(DIAL_TRIES - 1, -1, -1):
            try:
                return await self._dial_once(where, node)
            except OSError:
                if not left:
                    raise
        raise AssertionError("unreachable")

    async def _dial_once(
        self, where: str, node: NodeId, timeout: float = HELLO_TIMEOUT_SECONDS, *, directly: bool = False
    ) -> framed.Link:
        """A link there: directly, or by way of others when nothing comes back and that will do."""

        async def direct() -> framed.Link:
            return await self._connect(where, timeout)

        async def around() -> framed.Link:
            executor = NodeId.from_hex(where.partition("/")[2])
            async with asyncio.timeout(timeout):
                return await self._connect(where, timeout, await self._asking_ways.ask(node, executor))

        return await (direct() if directly else direct_or_around(direct, around, HEAD_START * timeout))

    async def _connect(self, where: str, timeout: float, via: Via | None = None) -> framed.Link:
        address, _, node = where.partition("/")
        link = await connect(
            address,
            service="data",
            context=self._client_tls,
            hello=self._hello,
            judge=self._judge,
            expect=NodeId.from_hex(node) if node else None,
            on_frame=self._acknowledged,
            on_closed=lambda link, reason: self._with_way(where, lambda way: way.closed(link, reason)),
            on_echo=lambda link, body: self._with_way(where, lambda way: way.echoed(link, body)),
            on_writable=lambda _: self._host.wake_all(),
            before=self._host.gather,
            after=self._host.turn,
            via=via,
            timeout=timeout,
        )
        link.cork = self._host.cork
        return link

    def _acknowledged(self, _link: framed.Link, kind: int, body: bytes) -> None:
        assert self._run is not None  # a link is dialled for instances
        take_acknowledgement(self._host, *self._run, self._ends, kind, body)

    def _with_way(self, where: str, call: Callable[[DataWay], None]) -> None:
        """Tell a way about one of its links."""
        if (way := self._ways.get(where)) is not None:
            call(way)

    def _no_way(self, way: DataWay, why: str) -> None:
        """Say which instances cannot go on; the node waits a little for the cause."""
        for running in self._host.running.values():
            leads_there = any(end.deliver in way.senders for end in running.outputs.values())
            if leads_there and not running.reported and not running.broken:
                name = InstanceName(running.stage, running.index)
                self.tell(InstanceBroke(name, _message(f"{running.name}: {why}"), is_consequence=True))


def _by_stage(name: InstanceName) -> tuple[int, int]:
    return name.stage, name.index


def _in_words(error: BaseException) -> str:
    if isinstance(error, AgileDartError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    return str(user_code_error("the builder", None, error, NO_RECORD))


def _show(texts: list[str]) -> None:
    """What users are told of records that their error policies let go, into the application's logs."""
    if texts:
        text = sayable("\n".join(texts))
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _message(text: str) -> str:
    """Bounded, its end kept, as it can travel."""
    if len(text) > MAX_MESSAGE_CHARS:
        text = f"{text[: MAX_MESSAGE_CHARS // 2]} … {text[-MAX_MESSAGE_CHARS // 2 :]}"
    return sayable(text)


_FROM_AGENT: Codec[AgentMessage] = Codec(AgentMessage)
_TO_AGENT: Codec[ExecutorMessage] = Codec(ExecutorMessage)


async def run(pair: socket.socket, words: LastWords) -> None:
    """Serve one agent until it closes the pair."""
    reader, writer = await asyncio.open_unix_connection(sock=pair)
    frames = FrameReader(MAX_FRAME_BYTES)
    worker: Worker | None = None
    reporting: asyncio.Task[None] | None = None
    try:
        while data := await reader.read(1 << 18):
            frames.feed(data)
            while (item := frames.next()) is not None:
                message = _FROM_AGENT.decode(item[1])
                if worker is not None:
                    worker.take(message)
                elif isinstance(message, Configure):
                    worker = Worker(writer, message, words)
                    reporting = asyncio.create_task(worker.report_for_ever())
    except (ConnectionError, BrokenPipeError):
        pass
    finally:
        if reporting is not None:
            reporting.cancel()
        if worker is not None:
            worker.close()


def main() -> int:
    """Entry point of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent says when to end
    words = LastWords(int(sys.argv[2]) if len(sys.argv) > 2 else -1)
    words.arm()
    short_turns.ask()
    pair = socket.socket(fileno=int(sys.argv[1]))
    pair.setblocking(False)
    try:
        run_on_uvloop(run(pair, words))
    except RuntimeError:  # of a loop that was stopped before its work was done; nothing of ours stops it
        words.say("user code stopped the event loop of its process (loop.stop()), on which the engine runs")
        os._exit(EXIT_BOUND)
    sys.stdout.flush()
    # The agent has let go of us: nothing that user code left behind (threads, atexit hooks, processes) may stay.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
