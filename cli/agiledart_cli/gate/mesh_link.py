"""A gate's view of the mesh, and its requests to it: signed commands over the control API of the agent beside it. Calls block."""

import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agiledart_cli.gate.gate_report import LeaseLine
from agiledart_cli.gate.stage_observer import StageObserver, not_looked_at
from agiledart_control.control_client import ControlClient, connect
from agiledart_control.errors import CommandRefusedError
from agiledart_kernel.bans import MAX_SECONDS
from agiledart_kernel.errors import AgileDartError, OperationFailed
from agiledart_kernel.registrations import closed_token_target
from agiledart_node.wire.commands import (
    WAITING_FOR_CAPACITY,
    CreateToken,
    DrainNode,
    Info,
    ListApplications,
    Nodes,
    ScaleStage,
    SetBan,
    Tokens,
)
from agiledart_node.wire.lease_messages import NoteLease, RenewHostLease, ReportGate, ShowProvisioning
from agiledart_provisioning.gate.gate_messages import NodeSeen, StageSeen
from agiledart_provisioning.gate.lease_entry import LeaseEntry, LeaseState

BUSY_SAMPLES = 5
TOKEN_SECONDS = 900
MEMBER_SECONDS = 30 * 86_400
DRAIN_SECONDS = 300.0

_ENTRY = msgspec.json.Decoder(LeaseEntry)


class _Leases(msgspec.Struct):
    """Part of a gate's report that other gates read."""

    leases: list[LeaseLine] = []


_LEASES = msgspec.json.Decoder(_Leases)
OVER = tuple(state.value for state in LeaseState if state.is_over)


@dataclass(frozen=True, slots=True)
class MeshView:
    """State of the mesh, as the agent beside the gate knows it.

    Attributes:
        waiting: reasons why work waits for capacity.
        stages: that the policy scales; empty for `hosts`.
        placements: application → stage → nodes of its instances, of running applications.
        records: leases of other gates, from their hosts.
        not_looked_at: running applications whose stages were not looked at, in words; empty: there are none.
    """

    nodes: tuple[NodeSeen, ...]
    waiting: tuple[str, ...]
    stages: tuple[StageSeen, ...]
    placements: dict[str, dict[str, list[str]]]
    leads: bool
    gates: frozenset[str]
    orders: tuple[tuple[str, str, str], ...]
    records: tuple[LeaseEntry, ...]
    not_looked_at: str = ""


@dataclass
class MeshLink:
    """Requests of one gate.

    Args:
        agent, identity: as `--agent` and `--identity`.
        gate, zone: name of the gate, and the zone whose nodes count; empty: all nodes.
        scales: the policy of the gate scales stages.
        wall_ns: the wall clock.
    """

    agent: str | None
    identity: str | None
    gate: str
    zone: str
    scales: bool = False
    wall_ns: Callable[[], int] = time.time_ns
    _ids: dict[str, str] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)
    _busy: dict[str, deque[float]] = field(default_factory=dict)
    _measures: StageObserver = field(default_factory=StageObserver)

    def client(self) -> ControlClient:
        """Connect to the agent. Raises NoAgentError, OperationFailed, ConfigurationError."""
        return connect(self.agent, self.identity)

    def network(self) -> str:
        """Return the network's id, hex. Raises OperationFailed: this identity may not do a gate's work."""
        with self.client() as client:
            network = str(client.ask(Info())["network"])
            try:
                client.ask(Tokens())
            except CommandRefusedError as error:
                raise OperationFailed(
                    f"A gate makes join tokens and drains nodes; this identity may not: {error} Use the agent that founded the "
                    "network, or a token:  agiledart token create --role provisioner"
                ) from None
        return network

    def report_and_look(self, report: bytes, places: int, lease_of_token: dict[str, str]) -> MeshView:
        """Report to the agent, and look at the mesh.

        Args:
            places: instance places that the gate may still lease.
            lease_of_token: hash of a token → its lease.
        """
        with self.client() as client:
            answer = client.ask(ReportGate(self.gate, self.zone, report, places))
            rows = [row for row in client.ask(Nodes())["nodes"] if row["answers"] and self.zone in ("", row["zone"])]
            has_leased = any(row["lease"] for row in rows)
            tokens = client.ask(Tokens())["tokens"] if has_leased or lease_of_token else []
            applications = client.ask(ListApplications())["applications"]
            running = [row["name"] for row in applications if row["state"] == "running"]
            reports = client.ask(ShowProvisioning())["gates"] if answer["gates"] else []
            stages, lacking = self._measures.look(client, running, scales=self.scales)
        lease_of_key = {
            member["key"]: lease_of_token[token["token"]]
            for token in tokens
            if token["token"] in lease_of_token
            for member in token["members"]
        }
        self._ids = {row["name"]: row["node_id"] for row in rows}
        self._keys = {row["name"]: row["key"] for row in rows}
        self._busy = {name: samples for name, samples in self._busy.items() if name in self._ids}
        return MeshView(
            tuple(self._seen(row, lease_of_key.get(row["key"], "")) for row in rows),
            (
                *(
                    f"{row['name']} waits for capacity"
                    for row in applications
                    if row["state"] == "deploying" and row["reason"].startswith(WAITING_FOR_CAPACITY)
                ),
                *lacking,
            ),
            stages,
            {row["name"]: row["placement"] for row in applications if row["state"] == "running"},
            bool(answer["leads"]),
            frozenset((*answer["gates"], self.gate)),
            tuple((order, host, admin) for order, host, admin in answer["orders"]),
            (*filter(None, (self._record(row["lease"]) for row in rows if row["lease"])), *self._ended(reports)),
            not_looked_at(len(running)),
        )

    def _seen(self, row: dict[str, Any], token_lease: str) -> NodeSeen:
        lease = row["lease"] or {}
        name, instances = row["name"], row["instances"] or 0
        if row["busy"] is not None:
            self._busy.setdefault(name, deque(maxlen=BUSY_SAMPLES)).append(row["busy"])
        takes_work = not (row["is_draining"] or row["is_leaving"])
        return NodeSeen(
            name,
            instances,
            row["capacity"] if takes_work or lease else instances,
            lease.get("lease_id", ""),
            token_lease,
            lease.get("gate", ""),
            self.wall_ns() - round(lease.get("silent_s", 0.0) * 1e9),
            bool(lease.get("is_empty", False) and lease.get("is_accepted", False)),
            tuple(self._busy.get(name, ())),
            lease.get("host_id", ""),
        )

    def _record(self, lease: dict[str, Any]) -> LeaseEntry | None:
        """Return the lease that a host of another gate has from it."""
        if not lease["entry"]:
            return None
        try:
            entry = _ENTRY.decode(lease["entry"])
        except msgspec.MsgspecError:
            return None
        return entry if entry.gate != self.gate else None

    def _ended(self, reports: list[dict[str, Any]]) -> list[LeaseEntry]:
        """Return the leases which other gates adopted and which are over: no host has a record of them any more."""
        ended: list[LeaseEntry] = []
        for row in reports:
            with contextlib.suppress(msgspec.MsgspecError):
                lines = _LEASES.decode(row["report"]).leases if row["gate"] != self.gate else []
                ended += [
                    LeaseEntry(
                        line.lease_id, row["gate"], line.host_name, "", 0, 1, 0, LeaseState(line.state), line.first_unit,
                        line.units, line.host_id, line.node, line.term,
                    )
                    for line in lines
                    if line.term > 1 and line.state in OVER
                ]  # fmt: skip
        return ended

    def renew(self, lease_id: str, node: str, entry: LeaseEntry) -> bool:
        """Renew the lease of a node, or adopt it. Return whether the node accepts this gate."""
        if node not in self._ids:
            return False
        document = msgspec.json.encode(entry)
        with contextlib.suppress(AgileDartError), self.client() as client:
            answer = client.ask(RenewHostLease(self._ids[node], lease_id, self.gate, document))
            return bool(answer["lease"]["gate"] == self.gate)
        return False

    def scale(self, stage: str, number: int | None) -> str:
        """Give a stage, `APP/STAGE`, a number of instances; None: it scales by itself again. Return why not; empty: it is begun."""
        application, _, name = stage.partition("/")
        try:
            with self.client() as client:
                client.ask(ScaleStage(application, name, number or 0, wait=False, is_auto=number is None))
        except AgileDartError as error:
            return str(error)
        return ""

    def drain(self, node: str, *, undo: bool) -> str:
        """Empty a node, or have it take work again. Return why not; empty: it is done."""
        if node not in self._ids:
            return "it does not answer"
        try:
            with self.client() as client:
                client.ask(DrainNode(self._ids[node], stay=not undo, undo=undo), timeout=DRAIN_SECONDS)
        except AgileDartError as error:
            return str(error)
        return ""

    def ban(self, node: str, reason: str) -> str:
        """Ban the key of a node. Return why not; empty: it is done."""
        key = self._keys.get(node, "")
        if not key:
            return "its key is not known here"
        try:
            with self.client() as client:
                client.ask(SetBan(key, self.wall_ns() // 10**9 + MAX_SECONDS, reason[:96]))
        except AgileDartError as error:
            return str(error)
        return ""

    def create_token(self) -> tuple[str, str]:
        """Return a join token for one agent within 15 minutes, and its hash. Raises OperationFailed."""
        from agiledart_agent.identity.tokens import parse_token

        with self.client() as client:
            answer = client.ask(CreateToken(uses=1, expires=TOKEN_SECONDS, member_for=MEMBER_SECONDS))
        text = str(answer["token"])
        return text, parse_token(text).record.token.hex()

    def revoke_token(self, token: str) -> None:
        """Have a token admit no further member. Raises OperationFailed."""
        target = closed_token_target(bytes.fromhex(token)).hex()
        with self.client() as client:
            client.ask(SetBan(target, self.wall_ns() // 10**9 + MAX_SECONDS, "the gate began anew"))

    def note(self, action: str, lease_id: str, why: str) -> None:
        """Have the agent write a decision into its audit."""
        with contextlib.suppress(OperationFailed), self.client() as client:
            client.ask(NoteLease(self.gate, action, lease_id, why[:1_000]))
