"""User service of an agent: answers of the node over the control API, tokens, and what only this process knows of itself."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, cast

from agiledart_agent.audit.audit_lines import audit_line_of, is_audited, refused, refused_log_read_line
from agiledart_agent.audit.audit_trail import AuditTrail
from agiledart_agent.checkpoints.checkpoint_service import CheckpointService
from agiledart_agent.circuits.relay_service import RelayService
from agiledart_agent.control.control_api import ControlApi, ControlPeer
from agiledart_agent.driver import Driver, now
from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.executors.executor_process import ExecutorProcess
from agiledart_agent.fragments.fragment_service import FragmentService
from agiledart_agent.identity.identity import Identity
from agiledart_agent.identity.operator_identity import OperatorIdentity
from agiledart_agent.identity.tokens import create_token
from agiledart_agent.metrics.gate_figures import gate_figures
from agiledart_agent.metrics.metric_declarations import NodeFigures, RecoveryFigures, SinkLogFigures
from agiledart_agent.metrics.sink_log_sizes import SinkLogSizes
from agiledart_agent.models.model_service import ModelService
from agiledart_agent.reaching.reachability_keeper import ReachabilityKeeper
from agiledart_agent.ring.peer_links import PeerLinks
from agiledart_agent.ring.rejoin_monitor import RejoinMonitor
from agiledart_agent.run_store import RunStore
from agiledart_agent.settings import AgentSettings
from agiledart_agent.sink_logs.feed_server import FeedServer
from agiledart_agent.sink_logs.sink_log_server import SinkLogServer
from agiledart_kernel.errors import AgileDartError, OperationFailed, RemoteProtocolError
from agiledart_kernel.grants import Role, decode_link
from agiledart_kernel.machine import Event
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import LogOwnership, Principal, gate_token_refusal
from agiledart_node.context.node_context import NotAllowed
from agiledart_node.node import Node
from agiledart_node.records.command_verifier import check_signed_command, command_terms, why_refused
from agiledart_node.records.signatures import VerifyCommand
from agiledart_node.wire.audit_messages import AuditLine, ReadAudit
from agiledart_node.wire.commands import (
    VERB_BY_COMMAND,
    CreateToken,
    Info,
    Nodes,
    RenewUserMembership,
    ShutDownAgent,
    Status,
)
from agiledart_node.wire.control_messages import ControlRequest
from agiledart_node.wire.effects import EndAgent, Progressed, RefusedRequest, Replied
from agiledart_node.wire.events import UserRequest
from agiledart_node.wire.transfer_commands import ReadCheckpoint, UploadCheckpoint, UploadModel
from agiledart_transport.link import ORDINARY_ENDS, Link, LinkHandler, kind_of


class AgentParts(Protocol):
    """Parts of the agent that its users see. The agent may have started only some of them."""

    relay_service: RelayService
    joined: "asyncio.Future[None]"

    @property
    def me(self) -> Peer: ...
    @property
    def address(self) -> str: ...
    @property
    def metrics_address(self) -> str: ...

    rejoin_monitor: RejoinMonitor
    reachability: ReachabilityKeeper

    @property
    def driver(self) -> Driver | None: ...
    @property
    def links(self) -> PeerLinks | None: ...
    @property
    def sink_logs(self) -> SinkLogServer: ...
    @property
    def feeds(self) -> FeedServer: ...
    @property
    def fragments(self) -> FragmentService: ...
    @property
    def runs(self) -> RunStore: ...
    @property
    def checkpoints(self) -> CheckpointService: ...
    @property
    def models(self) -> ModelService: ...
    @property
    def executors(self) -> tuple[ExecutorProcess, ...]: ...
    def register_token(self, text: str) -> None: ...
    async def renew(self) -> str: ...


class UserService:
    """Service for the users of one agent.

    Args:
        feed: takes events for the node.
        verify: verifies signed commands.
        operator: the user of the control socket.
    """

    def __init__(
        self,
        settings: AgentSettings,
        identity: Identity,
        log: AgentLog,
        parts: AgentParts,
        feed: Callable[[Event], None],
        verify: VerifyCommand,
        operator: OperatorIdentity,
    ) -> None:
        self._verify, self._operator = verify, operator
        self._settings, self._identity, self._log, self._parts, self._feed = settings, identity, log, parts, feed
        self._log_sizes = SinkLogSizes(settings.state_dir)
        self._control = ControlApi(self._asked, log.refused, operator.principal, self._turned_away)
        self._clients: dict[Link, ControlPeer] = {}
        self._extended: dict[int, type] = {}  # requests to whose answers the agent adds what only it knows
        self._open: dict[
            int, tuple[AuditLine, bool]
        ] = {}  # requests: the audit line, and whether it is written also when permitted
        self._works: set[asyncio.Future[None]] = set()
        self._renewals: set[asyncio.Future[str]] = set()
        self._audit = AuditTrail(settings.state_dir, log, feed)
        self.leave_asked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def open(self, driver: Driver) -> None:
        """Accept requests, and send the node's answers."""
        driver.on(Replied, self._reply)
        driver.on(Progressed, lambda e: self._control.progress(e.request, e.text))
        driver.on(RefusedRequest, lambda e: self._refuse(e.request, e.text, e.exit_code, e.reason))
        driver.on(ReadAudit, self._audit.read)
        driver.on(EndAgent, lambda e: self._leave(drain=True))
        self._audit.open()
        await self._control.listen(self._settings.state_dir / "control.sock")

    async def close(self) -> None:
        """Accept no more requests on this machine."""
        for renewal in self._renewals:
            renewal.cancel()
        for work in self._works:
            work.cancel()
        await self._control.close()
        await self._audit.close()

    def links(self) -> tuple[Link, ...]:
        """Return the links of users on other machines."""
        return tuple(self._clients)

    def close_links(self) -> None:
        """Close the links of users on other machines."""
        for link in self.links():
            link.close("done")

    def accept(self, link: Link) -> LinkHandler:
        """Accept a user on another machine."""
        grant = link.peer.grant
        requester = f"{grant.role} {grant.key.hex()[:16]}"  # its key, not a name that it gives itself
        client = ControlPeer(Principal.of(grant), requester, link.send, origin=link.remote)
        self._clients[link] = client
        return LinkHandler(lambda _, kind, body: self._control.receive(client, body), self._client_closed)

    def _client_closed(self, link: Link, reason: str) -> None:
        if client := self._clients.pop(link, None):
            self._control.forget(client)
        if reason not in ORDINARY_ENDS:
            self._log.refused(reason, link.remote)

    # ---- requests

    def _asked(self, request: int, asked: ControlRequest, client: ControlPeer) -> None:
        command, signed_command = asked.command, asked.signed_command
        self._open[request] = (
            audit_line_of(command, client.principal, client.requester, client.origin),
            is_audited(command),
        )
        try:
            terms = command_terms(command)
            # A client of the socket has no key of its own: the operator's key signs for it.
            if client.is_local:
                signed_command = self._operator.sign(terms, self._common_ms()) if terms is not None else b""
            # The agent carries out these two itself; the node verifies all other commands.
            if isinstance(command, CreateToken | ShutDownAgent) and terms is not None:
                wall_ms = self._common_ms()
                check_signed_command(self._verify, signed_command, terms, key=client.principal.key, wall_ms=wall_ms)
        except OperationFailed as error:  # no key here that may sign this command
            self._refuse(request, str(error))
            return
        except RemoteProtocolError as error:
            self._refuse(request, why_refused(VERB_BY_COMMAND[type(command)], error), reason="command")
            return
        match command:
            case CreateToken():
                self._create_token(request, command, client.principal)
            case ShutDownAgent():
                self._answer(request, {"leaving": True, "drain": not command.now})
                self._leave(drain=not command.now)
            case RenewUserMembership(chain=()):
                self._renew(request, client)
            case ReadCheckpoint():
                self._later(request, self._parts.checkpoints.read(command, client.principal))
            case UploadCheckpoint():
                self._later(request, self._parts.checkpoints.upload(command, client.principal))
            case UploadModel():
                self._later(request, self._parts.models.upload(command))
            case _:
                if isinstance(command, Info | Nodes | Status):
                    self._extended[request] = type(command)
                self._feed(UserRequest(request, command, client.requester, client.principal, signed_command))

    def _later(self, request: int, work: Coroutine[Any, None, dict[str, object]]) -> None:
        """Answer a request when its work is done."""

        async def answered() -> None:
            try:
                self._answer(request, await work)
            except NotAllowed as error:
                self._refuse(request, error.text, reason=error.reason)
            except OperationFailed as error:
                self._refuse(request, str(error))

        self._works.add(task := asyncio.ensure_future(answered()))
        task.add_done_callback(self._works.discard)

    def _leave(self, *, drain: bool) -> None:
        if not self.leave_asked.done():
            self.leave_asked.set_result(drain)

    def _turned_away(self, asked: ControlRequest, client: ControlPeer, reason: str, text: str) -> None:
        """Audit a request of a client without any right to ask."""
        self._audit.note(
            refused(audit_line_of(asked.command, client.principal, client.requester, client.origin), reason, text)
        )

    def audit_refused_read(self, principal: Principal, origin: str, log: LogOwnership, reason: str, text: str) -> None:
        """Audit a requester that may not read a log."""
        self._audit.note(refused_log_read_line(principal, origin, log, reason, text))

    def _answer(self, request: int, body: object) -> None:
        """Answer a permitted request that is done."""
        line, is_audited_when_allowed = self._open.pop(request)
        if is_audited_when_allowed:
            self._audit.note(line)
        self._control.answer(request, body)

    def _refuse(self, request: int, text: str, exit_code: int = 1, reason: str = "") -> None:
        """Refuse a request: it was not permitted (with a reason), or it failed."""
        self._extended.pop(request, None)
        line, is_audited_when_allowed = self._open.pop(request)
        if reason:
            self._log.refused(reason, line.requester)
        if reason or is_audited_when_allowed:
            self._audit.note(refused(line, reason, text))
        self._control.refuse(request, text, exit_code, reason)

    def _common_ms(self) -> int:
        """Return the time of our signatures: our clock's, or that of most nodes when ours is far off."""
        wall_ms = int(time.time() * 1_000)
        driver = self._parts.driver
        return wall_ms if driver is None else driver.node.clocks.common_ms(wall_ms)

    def _create_token(self, request: int, command: CreateToken, principal: Principal) -> None:
        if why := gate_token_refusal(principal, command.role, command.uses, command.expires, command.operator):
            self._refuse(
                request,
                "A provisioner makes tokens for one agent, of at most 15 minutes, without an operator.",
                reason=why,
            )
            return
        try:
            token = create_token(
                self._identity.issuer(),
                now_seconds=self._common_ms() // 1_000,
                role=cast(Role, command.role),
                uses=command.uses,
                expires=command.expires,
                member_for=command.member_for,
                addresses=self._parts.reachability.token_addresses,
                scope=command.scope,
                quota=command.quota,
                operator=command.operator,
            )
        except AgileDartError as error:
            self._refuse(request, str(error))
            return
        self._parts.register_token(token)
        self._answer(
            request, {"token": token, "role": command.role, "uses": command.uses, "expires_seconds": command.expires}
        )

    def _renew(self, request: int, client: ControlPeer) -> None:
        """Renew this agent's own membership now."""
        if client.principal.role != "admin" and not client.is_local:
            self._refuse(request, "Only an admin may renew an agent's own membership.", reason="role")
            return

        def done(work: "asyncio.Task[str]") -> None:
            if work.cancelled():
                return
            if reason := work.result():
                self._refuse(request, f"This node's membership could not be renewed: {reason}.")
            else:
                self._answer(request, {"until": decode_link(self._identity.chain[-1]).not_after, "chain": []})

        self._renewals.add(work := asyncio.ensure_future(self._parts.renew()))
        work.add_done_callback(self._renewals.discard)
        work.add_done_callback(done)

    def _reply(self, effect: Replied) -> None:
        body = dict(effect.body)
        command_type = self._extended.pop(effect.request, None)
        if command_type is Info:
            body |= self.description()
        elif command_type is Nodes:
            body["refused"] = dict(self._log.refusals)
            keys, kinds = self._keys_of_nodes(), self._kinds_of_links()
            body["nodes"] = [
                {**row, "key": keys.get(row["node_id"], ""), **kinds.get(row["node_id"], {})} for row in body["nodes"]
            ]
        if command_type in (Nodes, Status):
            body["isolation_warning"] = self._parts.rejoin_monitor.alone
        self._answer(effect.request, body)

    def _kinds_of_links(self) -> dict[str, dict[str, str]]:
        """Return node id → kind and relay of the link to that node."""
        links = self._parts.links.used if self._parts.links is not None else ()
        return {link.peer.node_id.hex: {"kind": kind_of(link), "relay": link.relay} for link in links}

    def _keys_of_nodes(self) -> dict[str, str]:
        """Return node id → key, for the nodes that have proven their key to us."""
        links = self._parts.links
        keys = {
            link.peer.node_id.hex: link.peer.public_key.hex() for link in (links.links() if links is not None else ())
        }
        return keys | {self._identity.node_id.hex: self._identity.public_key.hex()}

    # ---- this process

    def unready(self) -> str:
        """Return why this node should get no work; empty when it may."""
        driver = self._parts.driver
        if not self._parts.joined.done():
            return "not in the ring yet"
        if driver is None or driver.node.is_leaving:
            return "leaving"
        return "draining" if driver.node.is_draining else ""

    def figures(self) -> NodeFigures:
        """Return the figures of this process at this moment, for a scrape."""
        parts = self._parts
        node = parts.driver.node if parts.driver is not None else None
        links, sink_logs = parts.links, parts.sink_logs
        return NodeFigures(
            unready=self.unready(),
            overlay=node.overlay.statistics() if node is not None else None,
            scheduled=node.schedulers.served if node is not None else None,
            waiting=len(node.schedulers.waiting) if node is not None else 0,
            links=links.count if links is not None else 0,
            links_by_kind=Counter(kind_of(link) for link in links.used) if links is not None else {},
            reservations=len(parts.reachability.relays),
            alone=bool(parts.rejoin_monitor.alone),
            clock_off_seconds=(node.clocks.skew_ms(node.me.node) or 0) / 1_000 if node is not None else None,
            scaling_scores=node.autoscaler.scores() if node is not None else (),
            scaling_instances=node.autoscaler.instances() if node is not None else (),
            placement_objectives=node.parts.replacement_service.objectives() if node is not None else (),
            placements_wanted=node.parts.replacement_service.wanted() if node is not None else (),
            placement_bound_distances=tuple(node.parts.plan_solver.bound_distances.items()) if node is not None else (),
            placement_moves=tuple(node.parts.replacement_service.moves.items()) if node is not None else (),
            mopa_messages=node.parts.mopa_hosting.sent if node is not None else {},
            planner_seconds=node.parts.plan_solver.seconds if node is not None else 0.0,
            plans=dict(node.parts.plan_solver.outcomes) if node is not None else {},
            gates=gate_figures(node.parts.gate_reports.reports()) if node is not None else (),
            circuits=parts.relay_service.circuits,
            relayed_bytes=parts.relay_service.bytes,
            relay_refusals=Counter(parts.relay_service.refused),
            dropped=Counter(links.dropped if links is not None else ())
            + Counter(node.dropped if node is not None else ()),
            refusals=self._log.refusals,
            sink_logs=SinkLogFigures(
                readers=sink_logs.readers,
                answers=sink_logs.answered,
                rows_sent=sink_logs.rows_sent,
                bytes_sent=sink_logs.bytes_sent,
                batches_left_out=sink_logs.batches_left_out,
                bytes_left_out=sink_logs.bytes_left_out,
                rewritten=sink_logs.columns.rewritten,
                writers=parts.feeds.writers,
                feed_answers=parts.feeds.answered,
                rows_published=parts.feeds.rows_published,
                disk=self._log_sizes.look(),
            ),
            recovery=self._recovery(node),
            executors=tuple((e.application, e.process.pid) for e in parts.executors),
        )

    def _recovery(self, node: Node | None) -> RecoveryFigures:
        fragments = self._parts.fragments
        return RecoveryFigures(
            commit_ages=node.recovery_service.status.commit_ages(now()) if node is not None else (),
            missing=node.recovery_service.status.missing() if node is not None else (),
            snapshots=fragments.snapshots,
            snapshot_bytes=fragments.snapshot_bytes,
            snapshot_pause_ns=fragments.snapshot_pause_ns,
            snapshot_longest_ns=fragments.snapshot_longest_ns,
            rebuilt=fragments.rebuilt,
            fragments=fragments.store.count,
            fragment_bytes=fragments.store.held_bytes,
            damaged=fragments.scrubbing.damaged,
            lacking=node.recovery_service.lacking if node is not None else 0,
            traffic={"out": fragments.client.bytes_out, "in": fragments.client.bytes_in},
            answers=fragments.server.answered,
            refused_files=self._parts.runs.refused,
        )

    def description(self) -> dict[str, object]:
        """Return what this process knows of itself, for `agent.json` and `Info`."""
        parts = self._parts
        return {
            "pid": os.getpid(),
            "name": self._settings.name,
            "node_id": parts.me.node.hex,
            "peer_id": self._identity.peer_id,
            "incarnation": parts.me.incarnation,
            "address": parts.address,
            "metrics": parts.metrics_address,
            "control": str(self._settings.state_dir / "control.sock"),
            "isolation_warning": parts.rejoin_monitor.alone,
            "reachability": parts.reachability.document(),
            "network": self._identity.network.hex(),
            "refusals": dict(self._log.refusals),
            "dropped_messages": dict(parts.links.dropped) if parts.links is not None else {},
            "executors": [
                {
                    "pid": e.process.pid,
                    "application": e.application,
                    "slot": e.slot,
                    "is_shared": e.shared is not None,
                }
                for e in parts.executors
            ],
        }
