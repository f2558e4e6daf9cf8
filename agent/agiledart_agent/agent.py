"""One running agent: the composed node, its links, executors and control API, joined together.

`daemon.py` decides when it starts and ends; everything here lives on one event loop.
"""

import asyncio
import json
import os
import secrets
import socket
import ssl
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

from agiledart_agent.addresses import WILDCARDS, holder_of_port, outward_address
from agiledart_agent.control_api import Client, ControlApi
from agiledart_agent.driver import Driver
from agiledart_agent.executor_pool import ExecutorEvents, ExecutorPool, LaunchError
from agiledart_agent.identity import Identity, make_executor_pass
from agiledart_agent.logs import AgentLog, PrintedLines
from agiledart_agent.metrics import AgentMetrics, NodeFigures, SinkLogFigures, bytes_below
from agiledart_agent.metrics_server import MetricsServer
from agiledart_agent.peer_links import PeerLinks
from agiledart_agent.ring_memory import RingMemory
from agiledart_agent.settings import AgentSettings, split_address
from agiledart_agent.sink_log_server import SinkLogServer
from agiledart_agent.taps import FORGET_SECONDS, Taps
from agiledart_agent.tokens import create_token
from agiledart_dataflow.formation_messages import LogLine
from agiledart_dataflow.stages import StagePlan
from agiledart_executor.messages import Configure, InstanceBroke, InstanceName, JudgePeer, Verdict
from agiledart_executor.sink_log.layout import logs_in
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.errors import AgileDartError, OperationFailed, RemoteProtocolError
from agiledart_kernel.frames import Hello, decode_hello
from agiledart_kernel.grants import Grant, Role
from agiledart_kernel.machine import Completed, Failed, LinkLost, Message, Received, Send
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observe import Observation
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.commands import Command, CreateToken, Info, Leave, Nodes
from agiledart_node.config import NodeConfig
from agiledart_node.effects import (
    DrainSources,
    PrepareExecutors,
    Progressed,
    ReadLogs,
    ReadTap,
    RefusedRequest,
    Replied,
    StartInstances,
    StartSources,
    StopInstances,
)
from agiledart_node.events import (
    Asked,
    ClockRead,
    InstanceFailed,
    InstanceFinished,
    InstanceReported,
)
from agiledart_node.node import NODE_CODEC, Node
from agiledart_node.sinks import SinkFound
from agiledart_overlay.effects import Joined, JoinFailed, Left, NeighboursChanged, PeerFailed, PeerLeft
from agiledart_overlay.events import JoinRing, LeaveRing
from agiledart_transport.contexts import client_context, load_credentials, server_context
from agiledart_transport.framed import Link, LinkHandler
from agiledart_transport.links import Listener, connect, format_address, serve
from agiledart_transport.local_judge import LocalJudge

_PLAN: Codec[StagePlan] = Codec(StagePlan)
EXECUTOR_GRANT_HOURS = 24 * 30
CLOCK_SECONDS = 30.0
LEAF_CHECK_SECONDS = 3600.0
LEAF_MARGIN_SECONDS = 3 * 86_400
SEED_SECONDS = 3.0
SEED_TRIES = 3


class Agent:
    """One node of the network.

    Args:
        settings: what it was told.
        identity: its key, grants and network.
        log: where it says what happens.
    """

    def __init__(self, settings: AgentSettings, identity: Identity, log: AgentLog) -> None:
        self._settings, self._identity, self._log = settings, identity, log
        self._memory = RingMemory(settings.state_dir)
        self._printed = PrintedLines()
        self._taps = Taps()
        self._judge = LocalJudge(identity.network, time.time)
        self._executor_grants: dict[str, Grant] = {}
        self._credentials = identity.credentials()
        self._client_tls: ssl.SSLContext = client_context(self._credentials)
        self._server_tls: ssl.SSLContext = server_context(self._credentials)
        self._listener: Listener | None = None
        self._links: PeerLinks | None = None
        self._driver: Driver | None = None
        self._pool: ExecutorPool | None = None
        self._control = ControlApi(self._asked, self._log.refused)
        self._clients: dict[Link, Client] = {}
        self._sink_logs = SinkLogServer(
            settings.state_dir,
            lambda: self.me,
            self._feed,
            self._log.refused,
            lambda text: self._log.warning("log.trim", text),
        )
        self._metrics = AgentMetrics(self._figures, settings.zone)
        self._metrics_server = MetricsServer(self._metrics.render, self._unready, self._metrics.refused_http)
        self._extended: dict[int, type] = {}  # requests to whose answers the agent adds what only it knows
        self._tasks: set[asyncio.Task[Any]] = set()
        self._left = asyncio.Event()
        self.joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.leave_asked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.me = Peer(identity.node_id, identity.incarnation, settings.name)

    # ---- life

    async def start(self, seeds: list[str]) -> None:
        """Listen, build the node and enter the ring that these addresses know, or found one.

        Raises:
            OperationFailed: in the user's words.
        """
        settings = self._settings
        await self._listen()
        if settings.metrics:
            await self._metrics_server.listen(*split_address(settings.metrics, "agent.metrics"))
        host, _ = split_address(self.address)
        self.me = Peer(self._identity.node_id, self._identity.incarnation, settings.name, self.address, settings.zone)
        random = RandomStream(secrets.randbits(64), int(self.me.node), "node")
        node = Node(self.me, NodeConfig(executors=settings.executors), random, self._observe)
        self._driver = Driver(node, self._send)
        self._links = PeerLinks(NODE_CODEC, self._dial, self._receive, self._lost)
        listen_host = split_address(settings.listen)[0]
        self._pool = ExecutorPool(
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
            ),
            lambda app, version, number: self._configure(app, version, number, listen_host, host),
            str(settings.state_dir),
        )
        self._register_effects()
        self._spawn(self._tell_time())
        self._spawn(self._renew_leaf())
        await self._control.listen(settings.state_dir / "control.sock")
        await self._enter_ring(seeds)
        self._spawn(self._sink_logs.note_for_ever())
        self._spawn(self._sink_logs.trim_for_ever())

    async def stop(self, *, drain: bool) -> None:
        """Leave the ring, with or without telling it, and end everything that was started."""
        if self._driver is not None and drain and self.joined.done():
            self._feed(LeaveRing())
            try:
                await asyncio.wait_for(self._left.wait(), 6.0)
            except TimeoutError:
                self._log.warning("ring.leave", "the ring did not answer in time; leaving all the same")
        if self._driver is not None:
            self._driver.stop()
        await self._control.close()
        if self._pool is not None:
            await self._pool.close()
        if self._links is not None:
            await self._links.close()
        for link in list(self._clients):
            link.close("done")
        await self._sink_logs.close()
        if self._listener is not None:
            await self._listener.close()
        await self._metrics_server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def address(self) -> str:
        """Under which others reach this agent."""
        assert self._listener is not None
        if self._settings.advertise:
            return self._settings.advertise
        host, port = split_address(self._listener.address)
        return format_address(outward_address() if host in WILDCARDS else host, port)

    def known_peers(self) -> tuple[Peer, ...]:
        """The nodes of the ring that this one knows to be alive."""
        return self._driver.node.overlay.known_peers() if self._driver is not None else ()

    async def _listen(self) -> None:
        host, port = split_address(self._settings.listen, "agent.listen")
        try:
            self._listener = await serve(
                host,
                port,
                context=self._server_tls,
                hello=lambda _: self._hello(),
                judge=self._judge,
                services=("overlay", "control", "sink_log"),
                on_link=self._accepted,
                on_refused=self._log.refused,
            )
        except socket.gaierror:
            raise OperationFailed(
                f"There is no address {host} here. Give --listen an address of this machine."
            ) from None
        except OSError as error:
            holder = holder_of_port(port)
            if holder or error.errno == 98:
                whose = f" ({holder})" if holder else ""
                raise OperationFailed(
                    f"Port {port} is in use by another process{whose}. "
                    f"Give --listen {host}:0 for any free one, or stop the other."
                ) from None
            raise OperationFailed(f"Cannot listen on {host}:{port}: {error.strerror}.") from None

    async def _enter_ring(self, seeds: list[str]) -> None:
        peers: list[Peer] = []
        reasons: list[str] = []
        for attempt in range(SEED_TRIES if seeds else 0):
            found = await asyncio.gather(*(self._greet(seed) for seed in seeds))
            peers = [peer for peer in found if isinstance(peer, Peer)]
            reasons = [reason for reason in found if isinstance(reason, str)]
            if peers or (self._settings.join and reasons):
                break
            if attempt + 1 < SEED_TRIES:
                await asyncio.sleep(0.5 * (attempt + 1))
        if seeds and not peers:
            if self._settings.join:
                raise OperationFailed(f"Could not join: {'; '.join(reasons)}.")
            self._log.warning("ring.alone", "no node of the known ring answers; this one waits for the others to come")
        self._feed(JoinRing(tuple(peers)))
        await self.joined

    async def _greet(self, address: str) -> Peer | str:
        """The node at an address, with a link to it, or why there is none."""
        assert self._links is not None
        if address == self.address:
            return "this is our own address"
        try:
            link = await self._connect(address, None, SEED_SECONDS)
        except (OSError, ValueError, RemoteProtocolError) as error:
            return f"{address}: {error}"
        self._links.adopt(link)
        return link.peer.as_peer()

    # ---- links

    def _hello(self) -> Hello:
        identity = self._identity
        return Hello(
            service="overlay",
            chain=identity.chain,
            incarnation=identity.incarnation,
            name=self._settings.name,
            address=self.address,
            zone=self._settings.zone,
        )

    async def _connect(self, address: str, expect: NodeId | None, timeout: float) -> Link:
        assert self._links is not None
        return await connect(
            address,
            service="overlay",
            context=self._client_tls,
            hello=self._hello(),
            judge=self._judge,
            expect=expect,
            on_frame=self._links.frame,
            on_closed=self._link_closed,
            timeout=timeout,
        )

    async def _dial(self, peer: Peer) -> Link:
        return await self._connect(peer.address, peer.node, SEED_SECONDS)

    def _accepted(self, link: Link) -> LinkHandler:
        if link.service == "control":
            who = f"{link.peer.hello.name or link.remote} ({link.peer.grant.role})"
            client = Client(link.peer.grant.role, who, link.send)
            self._clients[link] = client
            return LinkHandler(lambda _, kind, body: self._control.receive(client, body), self._client_closed)
        if link.service == "sink_log":
            return self._sink_logs.accept(link)
        assert self._links is not None
        links = self._links
        asyncio.get_running_loop().call_soon(lambda: None if link.closed else links.adopt(link))
        return LinkHandler(links.frame, self._link_closed)

    def _client_closed(self, link: Link, reason: str) -> None:
        if client := self._clients.pop(link, None):
            self._control.forget(client)

    def _link_closed(self, link: Link, reason: str) -> None:
        if self._links is not None:
            self._links.closed(link)
        if reason not in ("done", "lost", "peer closed", "leaving"):
            self._log.refused(reason, link.remote)

    def _send(self, effect: Send) -> None:
        if self._links is not None:
            self._links.send(effect.to, effect.message)

    def _receive(self, sender: Peer, message: Message) -> None:
        self._feed(Received(sender, message))

    def _lost(self, node: NodeId) -> None:
        self._feed(LinkLost(node))

    # ---- effects

    def _register_effects(self) -> None:
        driver, pool = self._driver, self._pool
        assert driver is not None
        assert pool is not None
        driver.on(Replied, self._reply)
        driver.on(Progressed, lambda e: self._control.progress(e.request, e.text))
        driver.on(RefusedRequest, self._refuse)
        driver.on(PrepareExecutors, self._prepare_executors)
        driver.on(StartInstances, lambda e: self._spawn(self._start_instances(e)))
        driver.on(StartSources, lambda e: pool.start_sources(e.application, e.version))
        driver.on(DrainSources, lambda e: pool.drain_sources(e.application, e.version))
        driver.on(StopInstances, self._stop_instances)
        driver.on(ReadLogs, self._read_logs)
        driver.on(ReadTap, self._read_tap)
        driver.on(SinkFound, self._sink_logs.found)
        driver.on(Joined, self._have_joined)
        driver.on(JoinFailed, self._join_failed)
        driver.on(Left, lambda _: self._left.set())
        driver.on(NeighboursChanged, lambda _: self._remember())
        driver.on(PeerFailed, self._peer_failed)
        driver.on(PeerLeft, lambda e: self._log.info("peer.left", f"{e.peer.name or e.peer.node.short} left the ring"))

    def _feed(self, event: Any) -> None:
        if self._driver is not None:
            self._driver.feed(event)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _observe(self, observation: Observation) -> None:
        self._metrics.observed(observation)
        self._log.observed(observation)

    def _have_joined(self, effect: Joined) -> None:
        if not self.joined.done():
            self.joined.set_result(None)

    def _join_failed(self, effect: JoinFailed) -> None:
        if not self.joined.done():
            self.joined.set_exception(OperationFailed(f"Could not join the ring: {effect.reason}."))

    def _peer_failed(self, effect: PeerFailed) -> None:
        name = effect.peer.name or effect.peer.node.short
        self._log.warning("peer.failed", f"{name} is gone ({effect.reason})", peer=effect.peer.node.hex)

    def _remember(self) -> None:
        self._memory.save(peer.address for peer in self.known_peers())

    async def _tell_time(self) -> None:
        while True:
            self._feed(ClockRead(int(time.time() * 1000)))
            await asyncio.sleep(CLOCK_SECONDS)

    async def _renew_leaf(self) -> None:
        """Show a fresh TLS leaf before the old one ends; links that exist are not touched."""
        while True:
            await asyncio.sleep(LEAF_CHECK_SECONDS)
            if self._credentials.expires - time.time() < LEAF_MARGIN_SECONDS:
                self._credentials = self._identity.credentials()
                for context in (self._client_tls, self._server_tls):
                    load_credentials(context, self._credentials)

    # ---- executors

    async def _start_instances(self, effect: StartInstances) -> None:
        assert self._pool is not None
        part = effect.part
        labels = {stage.index: stage.name for stage in _PLAN.decode(part.plan).stages}
        self._metrics.applications.started(part.application)
        slots: dict[int, list[InstanceName]] = {}
        for placed in part.instances:
            slots.setdefault(placed.executor, []).append(InstanceName(placed.stage, placed.index))
        try:
            addresses = await self._pool.launch(
                part.application, part.version, part.number, slots, encode(part), labels
            )
        except (LaunchError, AgileDartError, OSError) as error:
            self._feed(Failed(effect.request, f"{error} (on {self._settings.name})"))
            return
        self._sink_logs.note_logs()  # a sink may just have begun one
        self._feed(
            Completed(effect.request, {(name.stage, name.index): address for name, address in addresses.items()})
        )

    def _prepare_executors(self, effect: PrepareExecutors) -> None:
        assert self._pool is not None
        part = effect.part
        self._spawn(self._pool.prepare(part.application, part.version, part.number, effect.slots, encode(part)))

    def _stop_instances(self, effect: StopInstances) -> None:
        assert self._pool is not None
        self._pool.stop(effect.application, effect.version)
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
        self._feed(InstanceFailed(application, version, where.stage, where.index, message, broke.is_consequence))

    def _configure(self, application: str, version: int, number: int, host: str, advertised: str) -> Configure:
        """Papers of a new executor: a key of its own, a grant for one application, a certificate. Never the node's
        key.
        """
        papers = make_executor_pass(self._identity, application, EXECUTOR_GRANT_HOURS)
        self._executor_grants[application] = papers.grant
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
        )

    def _judge_for_executor(self, asked: JudgePeer, application: str) -> Verdict:
        try:
            hello = decode_hello(asked.hello)
            own = self._executor_grants[application]
            peer = self._judge.verify(asked.certificate, hello, asked.service, serves=asked.serves, own=own)
        except RemoteProtocolError as error:
            return Verdict(asked.request, refused=error.reason)
        return Verdict(asked.request, peer=encode(peer))

    # ---- users

    def _asked(self, request: int, command: Command, who: str) -> None:
        match command:
            case CreateToken():
                self._create_token(request, command)
            case Leave():
                self._control.answer(request, {"leaving": True, "drain": not command.now})
                if not self.leave_asked.done():
                    self.leave_asked.set_result(not command.now)
            case _:
                if isinstance(command, Info | Nodes):
                    self._extended[request] = type(command)
                self._feed(Asked(request, command, who))

    def _create_token(self, request: int, command: CreateToken) -> None:
        try:
            token = create_token(
                self._identity.issuer(),
                now_seconds=int(time.time()),
                role=cast(Role, command.role),
                uses=command.uses,
                expires=command.expires,
                member_for=command.member_for,
                addresses=(self.address,),
                scope=command.scope,
            )
        except AgileDartError as error:
            self._control.refuse(request, str(error))
            return
        self._control.answer(
            request, {"token": token, "role": command.role, "uses": command.uses, "expires_seconds": command.expires}
        )

    def _reply(self, effect: Replied) -> None:
        body = dict(effect.body)
        asked = self._extended.pop(effect.request, None)
        if asked is Info:
            body |= self.description()
        elif asked is Nodes:
            body["refused"] = dict(self._log.refusals)
        self._control.answer(effect.request, body)

    def _refuse(self, effect: RefusedRequest) -> None:
        self._extended.pop(effect.request, None)
        self._control.refuse(effect.request, effect.text, effect.exit_code)

    def _figures(self) -> NodeFigures:
        """For a scrape: this process at this moment."""
        node = self._driver.node if self._driver is not None else None
        links = self._links
        return NodeFigures(
            unready=self._unready(),
            overlay=node.overlay.statistics() if node is not None else None,
            links=links.count if links is not None else 0,
            dropped=Counter(links.dropped if links is not None else ())
            + Counter(node.dropped if node is not None else ()),
            refusals=self._log.refusals,
            sink_logs=SinkLogFigures(
                readers=self._sink_logs.readers,
                answers=self._sink_logs.answered,
                rows_sent=self._sink_logs.rows_sent,
                bytes_sent=self._sink_logs.bytes_sent,
                disk=tuple((log.application, bytes_below(str(at))) for at, log in logs_in(self._settings.state_dir)),
            ),
            executors=tuple(
                (e.application, e.process.pid) for e in (self._pool.processes if self._pool is not None else ())
            ),
        )

    def _unready(self) -> str:
        """Why this node should get no work; empty when it may."""
        if not self.joined.done():
            return "not in the ring yet"
        return "leaving" if self._driver is None or self._driver.node.is_leaving else ""

    def description(self) -> dict[str, object]:
        """What this process knows of itself, for `agent.json` and `Info`."""
        return {
            "pid": os.getpid(),
            "name": self._settings.name,
            "node_id": self.me.node.hex,
            "peer_id": self._identity.peer_id,
            "incarnation": self.me.incarnation,
            "address": self.address,
            "metrics": self._metrics_server.address,
            "control": str(self._settings.state_dir / "control.sock"),
            "network": self._identity.network.hex(),
            "refusals": dict(self._log.refusals),
            "dropped_messages": dict(self._links.dropped) if self._links is not None else {},
            "executors": [
                {"pid": e.process.pid, "application": e.application, "slot": e.slot}
                for e in (self._pool.processes if self._pool is not None else ())
            ],
        }

    def _read_tap(self, effect: ReadTap) -> None:
        assert self._pool is not None
        told = self._taps.read((effect.application, effect.version, effect.step), effect.after)
        if not told.refused:
            self._pool.open_tap(effect.application, effect.version, effect.step)
        self._feed(Completed(effect.request, told))
        asyncio.get_running_loop().call_later(FORGET_SECONDS + 1.0, self._taps.forget_old)

    def _read_logs(self, effect: ReadLogs) -> None:
        lines = self._printed.after(effect.application, effect.after, effect.limit)
        self._feed(
            Completed(effect.request, tuple(LogLine(number, int(at * 1000), "", text) for number, at, text in lines))
        )


def write_agent_json(path: Path, description: dict[str, object]) -> None:
    """Say where the agent is, atomically: who sees the file sees all of it."""
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(description, indent=1) + "\n")
    os.replace(temporary, path)
