"""One running agent: the composed node, its links, executors and control API, joined together.

`daemon.py` decides when the agent starts and ends; everything here lives on one event loop.
"""

import asyncio
import json
import os
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from agiledart_agent.admission.members import ROW_BYTES
from agiledart_agent.admission.registrar import RegisteredPeerVerifier
from agiledart_agent.admission.renewal import MembershipRenewer
from agiledart_agent.checkpoints.checkpoint_service import CheckpointService
from agiledart_agent.circuits.agent_links import AgentLinks
from agiledart_agent.circuits.dialer import LEAF_MARGIN_SECONDS
from agiledart_agent.control.metrics_port import listen_for_metrics
from agiledart_agent.control.page_process import PageProcess
from agiledart_agent.control.user_service import UserService
from agiledart_agent.driver import Driver
from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.executors.ended_sink_files import finish_remaining_files
from agiledart_agent.executors.executor_process import ExecutorProcess, address_of, hand_over
from agiledart_agent.executors.executor_service import ExecutorService
from agiledart_agent.executors.feed_fetches import FeedFetches
from agiledart_agent.executors.log_ownership_proofs import LogOwnershipProofs
from agiledart_agent.executors.protected_paths import exposes_python, unprotected_reason
from agiledart_agent.fragments.fragment_service import FragmentService
from agiledart_agent.host.default_capacity import default_capacity, executors_in_memory
from agiledart_agent.host.lease_file import lease_terms
from agiledart_agent.host.machine_gauge import MachineGauge
from agiledart_agent.host.processor_speed import processor_speed_permille
from agiledart_agent.identity.identity import Identity
from agiledart_agent.identity.operator_identity import OperatorIdentity
from agiledart_agent.identity.tokens import parse_token
from agiledart_agent.metrics.agent_metrics import AgentMetrics
from agiledart_agent.metrics.metrics_server import MetricsServer
from agiledart_agent.models.model_service import ModelService
from agiledart_agent.paper_preset import with_preset
from agiledart_agent.reaching.reachability_keeper import ReachabilityKeeper
from agiledart_agent.reaching.reaching import Reaching
from agiledart_agent.reaching.ring_entry import RingEntry
from agiledart_agent.ring.join_progress import JoinProgress
from agiledart_agent.ring.peer_addresses import PeerAddressFile
from agiledart_agent.ring.peer_links import PeerLinks
from agiledart_agent.ring.rejoin_monitor import RejoinMonitor
from agiledart_agent.run_store import RunStore
from agiledart_agent.settings import AgentSettings, code_of, split_address
from agiledart_agent.sink_logs.log_services import LogServices
from agiledart_agent.state_files.durable_file import write_durably
from agiledart_agent.state_files.mode_watch import restore_modes
from agiledart_agent.state_files.stored_set import StoredSet
from agiledart_kernel.bans import Banned
from agiledart_kernel.errors import OperationFailed, Refused
from agiledart_kernel.instants import SECOND
from agiledart_kernel.limits import MAX_BANS, MAX_REGISTERED
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observation
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES, VerifiedCommand, verify_command
from agiledart_kernel.version import VERSION
from agiledart_node.context.config import NodeConfig
from agiledart_node.hosting.ended_records import MAX_BYTES as ENDED_BYTES
from agiledart_node.hosting.ended_records import MAX_RECORDS
from agiledart_node.node import Node
from agiledart_node.wire.effects import (
    BansChanged,
    DropSnapshots,
    ForgetPart,
    ForgetRun,
    KeepEndedRecords,
    KeepFile,
    KeyDecision,
    MembershipRenewed,
    RetainSnapshots,
    SignRenewal,
)
from agiledart_node.wire.events import BansFound, ClockRead, EndedRecordsFound, KeyPresented, TokenKnown
from agiledart_overlay.wire.effects import (
    JoinCompleted,
    JoinFailed,
    LeaveCompleted,
    NeighboursChanged,
    PeerFailed,
    PeerLeft,
)
from agiledart_overlay.wire.events import JoinRing, LeaveRing
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.wire.names import RunId
from agiledart_transport.certificates import check_signature
from agiledart_transport.link import Link
from agiledart_transport.local_peer_verifier import LocalPeerVerifier

CLOCK_SECONDS = 10.0
MODES_SECONDS = 5.0
"""Time within which a state directory that users' code has opened is closed again."""

LEAF_CHECK_SECONDS = 3600.0
LEAVE_SECONDS = 12.0
"""Time for the node to give away what it can, and to leave the ring in order."""


def _node_config(settings: AgentSettings) -> NodeConfig:
    cores = settings.cores or os.cpu_count() or 1
    config = NodeConfig(
        ended_ms=settings.ended_days * 86_400_000,
        executors=settings.executors,
        cores=cores,
        labels=settings.label_names,
        speed_permille=processor_speed_permille(settings.state_dir),
        executors_in_memory=executors_in_memory(cores),
        capacity=settings.capacity or default_capacity(cores),
        placement=settings.placement_strategy,
        placement_moves=settings.placement_moves,
        placement_objective=settings.placement_objective,
        recovery=_recovery(settings),
        confines=not unprotected_reason(settings),
        exposes_python=exposes_python(settings),
        max_applications_per_owner=settings.quota_applications,
        scaling_policy=settings.scaling_policy,
        scaling_interval_ns=settings.scaling_interval * SECOND,
        max_instances=settings.scaling_max_instances,
        software=VERSION,
        lease=lease_terms(settings.lease_file),
    )
    return with_preset(config, settings.preset)


def _connect_machine(node: Node) -> None:
    """Give a node the clock and the gauges of this machine."""
    node.autoscaler.clock = time.monotonic_ns
    node.parts.surveying.machine_use = MachineGauge().use


def _recovery(settings: AgentSettings) -> RecoveryConfig:
    m, k = code_of(settings.fragments)
    return RecoveryConfig(checkpoint_interval_ns=settings.checkpoint_interval * SECOND, m=m, k=k)


class Agent:
    """One node of the network.

    Args:
        settings: settings of the agent.
        identity: its key, grants and network.
        log: log of its events.
        operator: user of its control socket.
    """

    def __init__(self, settings: AgentSettings, identity: Identity, log: AgentLog, operator: OperatorIdentity) -> None:
        self._settings, self._identity, self._log = settings, identity, log
        self.joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._without_address = Peer(identity.node_id, identity.incarnation, settings.name)
        self._peer_addresses = PeerAddressFile(settings.state_dir)
        self._banned = Banned(time.time)
        self._verifier = LocalPeerVerifier(identity.network, time.time, banned=self._banned)
        self._registrar = RegisteredPeerVerifier(
            self._verifier, identity, self._meet, self._spawn, self._members_changed, self._key_denied
        )
        self._renewal = MembershipRenewer(
            identity, self._verifier, self._registrar.admit, log, self._feed, self._membership_renewed, operator
        )
        self.driver: Driver | None = None
        self._agent_links = AgentLinks(
            settings, identity, self._registrar, log, self._feed, self.known_peers, self._rtt_ns,
            lambda application, executor: address_of(self._executors.processes, application, executor),
            lambda executor, connection: hand_over(self._executors.processes, executor, connection),
        )  # fmt: skip
        self.relay_service = self._agent_links.relay_service
        self.runs = RunStore(settings.state_dir, identity.node_id.hex, self._feed, self._run_damaged)
        self._log_services = LogServices(
            settings.state_dir,
            lambda: self.me,
            self._feed,
            log,
            lambda *about: self._users.audit_refused_read(*about),
            lambda name, owner: self._log_ownership_proofs.of(name, owner),
            self._agent_links.relay_to,
        )
        self.sink_logs, self.feeds = self._log_services.sink_logs, self._log_services.feeds
        self._keep_state()
        self._log_ownership_proofs = LogOwnershipProofs(
            settings.state_dir, identity.node_id, self.sink_logs.registration.find
        )
        self._users: UserService = UserService(
            settings, identity, log, self, self._feed, self._verify_command, operator
        )
        self._metrics = AgentMetrics(self._users.figures, settings.zone)
        self._page = PageProcess(settings.state_dir)
        self._metrics_server = MetricsServer(
            self._metrics.render, self._users.unready, self._metrics.refused_http, settings.metrics_hosts.split(","),
            self._page.visit if settings.web else None,
        )  # fmt: skip
        feed_fetches = FeedFetches(identity, lambda: self.address, self.sink_logs.registration.find)
        self._executors: ExecutorService = ExecutorService(
            settings, identity, log, self._metrics, self._verifier, self._registrar.admit, self._feed,
            self._agent_links, feed_fetches, self.sink_logs.registration.note_logs_named, self._log_ownership_proofs,
            self.fragments.count_snapshot, self.runs,
        )  # fmt: skip
        self._reaching = Reaching(settings, identity, log)
        links = self._agent_links
        self.reachability = ReachabilityKeeper(links, settings.zone, log, self.known_peers, settings.relay_names)
        self.rejoin_monitor = RejoinMonitor(
            self._peer_addresses, lambda: self._reaching.addresses(self.address), links.greet, self.known_peers,
            self._feed, log,
        )  # fmt: skip
        self._tasks: set[asyncio.Task[Any]] = set()
        self._left = asyncio.Event()

    def _keep_state(self) -> None:
        """Open the stores on this disk: bans, ends, members, fragments of other nodes, checkpoints that outlive their runs."""
        state_dir = self._settings.state_dir
        self._stored_bans = StoredSet(state_dir / "bans", MAX_BANS * MAX_SIGNED_COMMAND_BYTES)
        self._stored_ends = StoredSet(state_dir / "ended", ENDED_BYTES + 5 * MAX_RECORDS + 8)
        self._stored_members = StoredSet(state_dir / "members", MAX_REGISTERED * (ROW_BYTES + 4))
        self._registrar.members.read(self._stored_members.entries())
        self.fragments = FragmentService(
            self._identity.node_id,
            state_dir,
            self._agent_links.dial_fragments,
            self._feed,
            self._log.refused,
            self._stored_bytes,
        )
        self.checkpoints = CheckpointService(
            state_dir,
            self.fragments.client,
            lambda: self.me,
            self._feed,
            lambda text: self._log.warning("checkpoint.failed", text),
        )
        self.models = ModelService(state_dir, self.fragments.client, lambda: self.me, self._feed)

    def _stored_bytes(self, run: RunId, digest: bytes, node: NodeId) -> tuple[Path, int, int] | None:
        """Return the place of bytes that another node may fetch by their hash: snapshots, checkpoints, models."""
        return self.checkpoints.find(run, digest, node) or self.models.find(run.app, digest)

    # ---- life cycle

    def _register_stores(self, driver: Driver) -> None:
        """Have the driver hand effects about stored state to the stores."""
        driver.on(KeepFile, self.runs.keep)
        driver.on(RetainSnapshots, self.runs.keep_snapshots)
        driver.on(DropSnapshots, self.runs.drop_snapshots)
        driver.on(ForgetPart, self.runs.forget_part)
        driver.on(ForgetRun, self._forget_run)
        self.fragments.register(driver)
        self.checkpoints.register(driver)
        self.models.register(driver)

    async def start(self, seeds: list[str]) -> None:
        """Listen, build the node, and enter the ring through these addresses, or create a ring.

        The identity stores the network once that has worked: a first start that fails leaves no network behind.

        Raises:
            OperationFailed: with a text for the user.
        """
        settings = self._settings
        # The listener comes first: its real port stands in the address that peers and executors get.
        await self._agent_links.listen(
            {
                "control": self._users.accept,
                **self._log_services.accepting(),
                "fragments": self.fragments.server.accept,
            }
        )
        if settings.metrics:
            await listen_for_metrics(self._metrics_server, settings.metrics, self._log)
        if settings.web:
            self._page.write_address(self.metrics_address)
        self._agent_links.mapped_address = await self._reaching.start(self.address, self._spawn)
        if not seeds:  # otherwise only once this node is in the ring
            self._identity.keep_network()
        identity = self._identity
        me = Peer(identity.node_id, identity.incarnation, settings.name, self.address, settings.zone, settings.host)
        random = RandomStream(secrets.randbits(64), int(me.node), "node")
        node = Node(
            me,
            _node_config(settings),
            random,
            self._observe,
            lambda signed_command: verify_command(identity.network, signed_command, check_signature),
            secrets.token_bytes(32),
        )
        _connect_machine(node)
        self.driver = Driver(node, self._agent_links.send)
        self._agent_links.open()
        self._register_effects(self.driver)
        self._executors.open(self.driver, split_address(settings.listen)[0], lambda: self.address)
        self._register_stores(self.driver)
        # The node gets the stored state before it enters the ring: it must answer other nodes by its earlier promises.
        self._feed(msgspec.structs.replace(self.runs.stored_runs(), fragments=self.fragments.stored_fragments()))
        self._spawn_all(self._end_run(effect) for effect in self.runs.ending)
        self._feed(ClockRead(int(time.time() * 1000)))
        self._feed(BansFound(self._stored_bans.entries()))
        self._feed(EndedRecordsFound(self._stored_ends.entries()))
        self._spawn(self._feed_clock())
        self._spawn(self._renew_leaf())
        self._spawn(self._watch_modes())
        links = self._agent_links
        self._spawn_all((links.report_congestion_forever(), links.check_forever(), self.reachability.keep_forever()))
        self._spawn(self.relay_service.prober.run_forever())
        await self._users.open(self.driver)
        # A node without the authority's key has joined a network of others, so there must be other nodes.
        self.rejoin_monitor.is_expected = identity.authority is None
        await self._enter_ring(seeds)
        identity.keep_network()
        self._renewal.open()
        self._spawn(self._renewal.check_forever())
        self._spawn(self.rejoin_monitor.check_forever())
        self._log_services.open(self._spawn)
        self._spawn(self.fragments.scrubbing.scrub_forever())

    async def stop(self, *, drain: bool) -> None:
        """Leave the ring, with or without notice, and end everything that was started."""
        if self.driver is not None and drain and self.joined.done():
            self._feed(LeaveRing())
            try:
                await asyncio.wait_for(self._left.wait(), LEAVE_SECONDS)
            except TimeoutError:
                self._log.warning(
                    "ring.leave_timeout", "the ring did not answer in time; leaving without its confirmation"
                )
        if self.driver is not None:
            self.driver.stop()
        await self._users.close()
        await self._executors.close()
        await self.checkpoints.close()
        await self.models.close()
        await self.fragments.close()
        self.runs.close()
        await self._agent_links.close()
        self._users.close_links()
        await self._log_services.close()
        await self._agent_links.stop_listening()
        await self._metrics_server.close()
        await self._page.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def me(self) -> Peer:
        """This node as others know it; without an address before the node is built."""
        return self._without_address if self.driver is None else self.driver.node.me

    @property
    def address(self) -> str:
        """Address under which others reach this agent."""
        return self._agent_links.address

    @property
    def links(self) -> PeerLinks | None:
        """Links to the other nodes of the ring; None before the node is built."""
        return self._agent_links.peers

    @property
    def metrics_address(self) -> str:
        """Address at which /metrics is served; empty: not served."""
        return self._metrics_server.address

    @property
    def executors(self) -> tuple[ExecutorProcess, ...]:
        """Processes of user code that run now."""
        return self._executors.processes

    @property
    def leave_asked(self) -> "asyncio.Future[bool]":
        """Future that ends when a user wants this node to leave. Its result is whether to drain first."""
        return self._users.leave_asked

    def description(self) -> dict[str, object]:
        """Return what this process knows of itself."""
        return self._users.description()

    def known_peers(self) -> tuple[Peer, ...]:
        """Return the nodes of the ring that this node knows to be alive."""
        return self.driver.node.overlay.known_peers() if self.driver is not None else ()

    def _rtt_ns(self, node: NodeId) -> int | None:
        return self.driver.node.overlay.rtt_ns(node) if self.driver is not None else None

    async def _enter_ring(self, seeds: list[str]) -> None:
        progress = JoinProgress(self._log)
        self._spawn(progress.report_until(self.joined))
        entry = RingEntry(
            self._agent_links, self._reaching, self.reachability, self.rejoin_monitor, progress,
            has_token=bool(self._settings.join),
        )  # fmt: skip
        self._feed(JoinRing(await entry.find_members(seeds)))
        await self.joined

    # ---- effects

    def _verify_command(self, signed_command: bytes) -> VerifiedCommand:
        return verify_command(self._identity.network, signed_command, check_signature, self._banned)

    def _register_effects(self, driver: Driver) -> None:
        self._log_services.register(driver)
        driver.on(BansChanged, self._bans_changed)
        driver.on(KeepEndedRecords, lambda effect: self._spawn(self._stored_ends.keep(effect.records)))
        driver.on(KeyDecision, self._registrar.on_key_checked)
        driver.on(SignRenewal, lambda effect: self._spawn(self._renewal.sign(effect)))
        driver.on(MembershipRenewed, self._renewal.on_renewed)
        driver.on(JoinCompleted, self._have_joined)
        driver.on(JoinFailed, self._join_failed)
        driver.on(LeaveCompleted, lambda _: self._left.set())
        driver.on(NeighboursChanged, lambda _: self._remember())
        driver.on(PeerFailed, self._peer_failed)
        driver.on(PeerLeft, lambda e: self._log.info("peer.left", f"{e.peer.name or e.peer.node.short} left the ring"))

    def _bans_changed(self, effect: BansChanged) -> None:
        """Close every link of a banned key or grant. The verifier refuses new ones from now on."""
        self._banned.until = effect.until
        self._spawn(self._stored_bans.keep(effect.signed_commands))
        for link in self._links_of_peers():
            if link.peer.grant.is_banned(self._banned):
                link.close("banned")
        try:
            is_own_grant_banned = self._identity.grant().is_banned(self._banned)
        except Refused:
            return
        if is_own_grant_banned and not self.leave_asked.done():
            text = "This node was banned from its network by an admin. Ask there; to join anew takes another key and token."
            self.leave_asked.set_exception(OperationFailed(text))

    def _links_of_peers(self) -> tuple[Link, ...]:
        """Return the links of agents and users."""
        mine = self.links.links() if self.links is not None else ()
        return (*mine, *self._users.links(), *self._log_services.links())

    def _meet(self, event: KeyPresented) -> bool:
        self._feed(event)
        return self.driver is not None

    def _members_changed(self) -> None:
        self._spawn(self._stored_members.keep(self._registrar.members.rows()))

    def _key_denied(self, key: bytes, reason: str) -> None:
        """Close the links of a key that was admitted for an invalid receipt."""
        for link in self._links_of_peers():
            if key in link.peer.grant.keys:
                link.close(reason)

    def _membership_renewed(self) -> None:
        self._executors.renew()

    def _spawn_all(self, works: Iterable[Any]) -> None:
        for work in works:
            self._spawn(work)

    async def renew(self) -> str:
        """Renew this node's membership now. Return the reason of a failure, or an empty string."""
        return await self._renewal.renew()

    def register_token(self, text: str) -> None:
        """Report a token that was created here, so that the ring's list has it."""
        token = parse_token(text)
        record = token.record
        self._feed(TokenKnown(record.token, record.join_before, record.uses, token.role, token.scope))

    def _feed(self, event: Any) -> None:
        if self.driver is not None:
            self.driver.feed(event)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forget_run(self, effect: ForgetRun) -> None:
        if effect.digests:
            self._spawn(self._end_run(effect))
        else:
            self.runs.forget(effect)

    async def _end_run(self, effect: ForgetRun) -> None:
        await self.runs.begin_to_forget(effect)
        for text in await finish_remaining_files(self._settings, effect):
            self._log.warning("sink.commit_failed", text, application=effect.application, version=effect.version)
        self.runs.forget(effect)

    def _observe(self, observation: Observation) -> None:
        self._metrics.observed(observation)
        self._log.observed(observation)

    def _have_joined(self, effect: JoinCompleted) -> None:
        if not self.joined.done():
            self.joined.set_result(None)

    def _join_failed(self, effect: JoinFailed) -> None:
        counter = self._settings.state_dir / "incarnation"
        remedy = self.reachability.probable_cause_text
        if "incarnation" in effect.reason:
            remedy = f" Stop the other agent; if there is none:  rm {counter}*   and start again."
        failure = OperationFailed(f"Could not join the ring: {effect.reason}.{remedy}")
        if not self.joined.done():
            self.joined.set_exception(failure)
        elif not self.leave_asked.done():
            self._log.error("ring.refused", str(failure))
            self.leave_asked.set_exception(failure)

    def _run_damaged(self, text: str) -> None:
        self._log.warning("run.damaged", f"  {text}")

    def _peer_failed(self, effect: PeerFailed) -> None:
        name = effect.peer.name or effect.peer.node.short
        self._log.warning("peer.failed", f"{name} is gone ({effect.reason})", peer=effect.peer.node.hex)

    def _remember(self) -> None:
        peers = self.known_peers()
        if peers:
            self._identity.touch_network()
        self._peer_addresses.save(peer.address for peer in peers)

    async def _feed_clock(self) -> None:
        while True:
            self._feed(ClockRead(int(time.time() * 1000)))
            await asyncio.sleep(CLOCK_SECONDS)

    async def _watch_modes(self) -> None:
        """Close the state directory again where users' code has opened it to other users."""
        while True:
            for path in await asyncio.to_thread(restore_modes, self._settings.state_dir):
                self._log.warning(
                    "state.opened",
                    f"{path} was open to other users of this machine, and is closed again. Something that runs as "
                    "this agent's user opened it: look at the applications here, and change keys that others may have read: "
                    "agiledart identity rotate",
                )
            await asyncio.sleep(MODES_SECONDS)

    async def _renew_leaf(self) -> None:
        """Present a fresh TLS leaf before the old one expires, and make executors do so. Existing links are not touched."""
        while True:
            await asyncio.sleep(LEAF_CHECK_SECONDS)
            try:
                self._executors.renew(self._identity.wall_seconds() + LEAF_MARGIN_SECONDS)
            except (
                OperationFailed,
                Refused,
            ) as error:  # the clock is behind, or the own membership has ended: the agent tries again
                self._log.warning(
                    "executors.renewal_failed", f"the credentials of executors could not be renewed: {error}"
                )
            self._agent_links.renew_leaf()


def write_agent_json(path: Path, description: dict[str, object]) -> None:
    """Write the agent's addresses atomically: a reader sees the whole file or none."""
    write_durably(path, f"{json.dumps(description, indent=1)}\n".encode(), 0o644)
