"""Process of a gate: it carries out the effects of `LeaseGate` at the provider, on disk and in the mesh, and brings it events."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from agiledart_cli.gate.gate_disk import GateDisk
from agiledart_cli.gate.gate_file import GateFile
from agiledart_cli.gate.gate_report import MAX_DECISIONS, DecisionLine, figures_of
from agiledart_cli.gate.lease_use import LeaseUse
from agiledart_cli.gate.mesh_link import MeshLink, MeshView
from agiledart_cli.gate.start_data import StartData
from agiledart_kernel.errors import AgileDartError, OperationFailed
from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Completed, Effect, Event, Failed, SetTimer, TimerFired
from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.gate.gate_messages import (
    AdoptHost,
    BanNode,
    CallFailure,
    Decision,
    DrainLeased,
    DrainRefused,
    HostAdopted,
    HostsListed,
    LeaseAnswered,
    LeaseCallFailed,
    LeaseHost,
    LedgerRead,
    ListFailed,
    ListHosts,
    ReleaseAnswered,
    ReleaseHost,
    ReleaseWanted,
    RenewHost,
    ScaleStageTo,
    SetPaused,
    StageSeen,
    ViewSeen,
    WriteEntry,
)
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.lease_entry import LeaseState
from agiledart_provisioning.gate.lease_gate import LeaseGate
from agiledart_provisioning.policies.hosts import Hosts, HostsPolicySettings
from agiledart_provisioning.providers.provider import Provider, ProviderCallError
from agiledart_provisioning.provisioning_policy import ProvisioningPolicy
from agiledart_provisioning.provisioning_settings import ProvisioningSettings
from agiledart_provisioning.registry import policy_named

VIEW_SECONDS = 10.0
CALL_SECONDS = 180.0
"""Time for a provider's answer; then it counts as lost."""

MOST_SECONDS = 60.0
"""Seconds between two looks for which the use of machines is counted."""

USE_WRITTEN_NS = 60 * SECOND
"""Time between two writings of the use of machines."""

NOT_AUDITED = ("would lease", "would scale", "limit", "stays", "provider unreachable")


class RunningGate:
    """A running gate.

    Args:
        print_line: prints a line about what the gate does.
        print_decision: prints a decision; None: it is printed as a line.
    """

    def __init__(
        self,
        file: GateFile,
        settings: GateSettings,
        provider: Provider,
        disk: GateDisk,
        mesh: MeshLink,
        network: str,
        seed: int,
        print_line: Callable[[str], None],
        print_decision: Callable[[DecisionLine], None] | None = None,
    ) -> None:
        self._file, self._settings, self._provider, self._disk, self._mesh = file, settings, provider, disk, mesh
        self._print, self._print_decision, self._now = print_line, print_decision, 0
        early = file.policy == "threshold"
        random = RandomStream(seed, file.name)
        self.machine = LeaseGate(file.name, network, settings, _policy(file, settings), random, releases_early=early)
        self._prefix = self.machine.prefix
        self._tokens: dict[str, str] = {}
        self._token_leases = disk.tokens()
        self._last: deque[DecisionLine] = deque(maxlen=MAX_DECISIONS)
        self._scaled, self._use = disk.scaled(), LeaseUse(disk.use())
        self._used_until, self._use_written = 0, 0
        self._demand, self._faults = "", {"provider": "", "agent": ""}
        self._todo: deque[Event] = deque()
        self._is_stepping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining: set[str] = set()

    # ---- the machine

    def _wall(self) -> int:
        """Return the wall clock in nanoseconds, never running backwards."""
        self._now = max(self._now, time.time_ns())
        return self._now

    def step(self, event: Event) -> None:
        """Let the machine take an event, and carry out what follows."""
        self._todo.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._todo:
                for effect in self.machine.step(self._todo.popleft(), self._wall()):
                    self._carry_out(effect)
        finally:
            self._is_stepping = False

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case WriteEntry(request, entry):
                try:
                    self._disk.write(entry)
                except OSError as error:
                    self._todo.append(Failed(request, error.strerror or str(error)))
                else:
                    self._todo.append(Completed(request))
            case SetTimer(name, when):
                delay = max(0, when - self._wall()) / 1e9
                asyncio.get_running_loop().call_later(delay, self.step, TimerFired(name))
            case LeaseHost():
                self._spawn(self._lease(effect))
            case ListHosts(asked_ns):
                self._spawn(self._list(asked_ns))
            case ReleaseHost(_, host_id):
                self._spawn(self._release(host_id))
            case DrainLeased(lease_id, node, undo):
                self._spawn(self._drain(lease_id, node, undo=undo))
            case RenewHost(lease_id, node):
                self._spawn(self._renew(lease_id, node))
            case AdoptHost(lease_id, node):
                self._spawn(self._adopt(lease_id, node))
            case ScaleStageTo(name, number):
                self._spawn(self._scale(name, number))
            case BanNode(node, reason):
                self._spawn(self._ban(node, reason))
            case Decision(action, lease_id, why):
                self._decided(action, lease_id, why)

    def _decided(self, action: str, lease_id: str, why: str) -> None:
        if action == "would lease" and self._last and (self._last[-1].action, self._last[-1].why) == (action, why):
            return
        self._last.append(DecisionLine(self._wall() / 1e9, action, lease_id, why))
        if self._print_decision is not None:
            self._print_decision(self._last[-1])
        else:
            self._print(f"{action}{f' {lease_id}' if lease_id else ''}: {why}")
        if action not in NOT_AUDITED:
            self._spawn(asyncio.to_thread(self._mesh.note, action, lease_id, why))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- the provider

    async def _lease(self, effect: LeaseHost) -> None:
        lease_id = effect.lease_id
        try:
            token = await asyncio.to_thread(self._token, lease_id)
        except (AgileDartError, OSError) as error:
            self.step(LeaseCallFailed(lease_id, CallFailure.REFUSED, f"no token: {error}"))
            return
        file, settings = self._file, self._settings
        lease: dict[str, str | int] = {
            "lease_id": lease_id,
            "gate": file.name,
            "unit_s": max(1, settings.btu_ns // SECOND),
            "grace_s": max(1, file.grace_ns // SECOND),
            "silence_s": max(1, settings.gone_ns // SECOND),
        }
        data = msgspec.json.encode(StartData(token, file.zone, file.labels, lease)).decode()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                host = await self._provider.lease(effect.host_name, effect.offer, data)
        except ProviderCallError as error:
            self.step(LeaseCallFailed(lease_id, error.failure, error.reason))
        except TimeoutError:
            self.step(LeaseCallFailed(lease_id, CallFailure.LOST, f"no answer in {CALL_SECONDS:.0f} s"))
        else:
            self.step(LeaseAnswered(lease_id, host))

    def _token(self, lease_id: str) -> str:
        """Return the lease's token, the same for all its calls. One that an earlier process has made is revoked."""
        if lease_id in self._tokens:
            return self._tokens[lease_id]
        for token, lease in list(self._token_leases.items()):
            if lease == lease_id:
                try:
                    self._mesh.revoke_token(token)
                except OperationFailed as error:
                    self._print(f"an earlier token of {lease_id} goes on for at most 15 minutes: {error}")
        text, token = self._mesh.create_token()
        self._token_leases = {**self._token_leases, token: lease_id}
        self._disk.write_tokens(self._token_leases)
        self._tokens[lease_id] = text
        return text

    async def _list(self, asked_ns: int) -> None:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                hosts = await self._provider.hosts(self._prefix)
        except (ProviderCallError, TimeoutError) as error:
            self._faults["provider"] = f"the provider cannot be reached: {error}"
            self.step(ListFailed(str(error)))
        else:
            self._faults["provider"] = ""
            self.step(HostsListed(asked_ns, hosts))

    async def _release(self, host_id: str) -> None:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._provider.release(host_id)
        except (ProviderCallError, TimeoutError) as error:
            self._print(f"release of {host_id} failed, and is repeated: {error}")
        else:
            self.step(ReleaseAnswered(host_id))

    # ---- the mesh

    async def _drain(self, lease_id: str, node: str, *, undo: bool) -> None:
        """Drain a node, once at a time; the list of hosts asks again for a double that is still there."""
        if node in self._draining and not undo:
            return
        self._draining.add(node)
        why = await asyncio.to_thread(partial(self._mesh.drain, node, undo=undo))
        self._draining.discard(node)
        if why and not undo:
            self.step(DrainRefused(lease_id, why))

    async def _renew(self, lease_id: str, node: str) -> None:
        if (entry := self.machine.ledger.entries.get(lease_id)) is not None:
            await asyncio.to_thread(self._mesh.renew, lease_id, node, entry)

    async def _adopt(self, lease_id: str, node: str) -> None:
        record = next((entry for entry in self._records if entry.lease_id == lease_id), None)
        if record is not None and await asyncio.to_thread(self._mesh.renew, lease_id, node, record):
            self.step(HostAdopted(record))

    async def _scale(self, name: str, number: int | None) -> None:
        why = await asyncio.to_thread(self._mesh.scale, name, number)
        if why and number is not None:  # one that scales by itself again may have ended meanwhile
            self._print(f"{name} could not be scaled: {why}")
        else:
            changed = self._scaled - {name} if number is None else self._scaled | {name}
            if changed != self._scaled:
                self._scaled = changed
                self._disk.write_scaled(changed)

    async def _ban(self, node: str, reason: str) -> None:
        if why := await asyncio.to_thread(self._mesh.ban, node, reason):
            self._print(f"{node} could not be banned: {why}")

    # ---- views

    _records: tuple[Any, ...] = ()

    async def _look(self) -> None:
        """Report to the agent, take orders, and give the machine a view of the mesh."""
        figures = figures_of(
            self.machine.ledger, self._settings, self._file.provider, self.machine.counts, self._last, self._wall(),
            is_paused=self.machine.is_paused, fault="; ".join(filter(None, self._faults.values())), demand=self._demand,
            by_application=self._use.costs(self.machine.ledger.entries.values()),
        )  # fmt: skip
        report = msgspec.json.encode(figures)
        try:
            view = await asyncio.to_thread(self._mesh.report_and_look, report, self._places(), self._token_leases)
        except AgileDartError as error:
            if not self._faults["agent"]:
                self._print(f"the agent cannot be asked, so nothing is leased: {error}")
            self._faults["agent"] = str(error)
            return
        self._faults["agent"] = ""
        self._records, self._demand = view.records, view.waiting[0] if view.waiting else ""
        for order, host, admin in view.orders:
            self._obey(order, host, admin)
        self._count_use(view)
        # A number that a user gave stays; those of this gate are its own to change.
        own = tuple(stage for stage in view.stages if not stage.keeps_number or stage.name in self._scaled)
        self.step(_seen(view, own))

    def _count_use(self, view: MeshView) -> None:
        """Count the use of leased nodes since the last look; a long silence counts for nothing."""
        now = self._wall()
        seconds = (now - self._used_until) / SECOND
        self._used_until = now
        if seconds <= MOST_SECONDS:
            self._use.add({node.node: node.lease_id for node in view.nodes if node.lease_id}, view.placements, seconds)
        if now - self._use_written > USE_WRITTEN_NS and self._use.use:
            self._use_written = now
            self._disk.write_use(self._use.use)

    def _places(self) -> int:
        """Return the instance places that this gate may still lease, or has asked for."""
        settings, ledger = self._settings, self.machine.ledger
        if settings.mode != "act":
            return 0
        live = ledger.live()
        starting = sum(1 for entry in live if entry.state in (LeaseState.ASKED, LeaseState.STARTING))
        is_closed = self.machine.is_paused or ledger.obstacle_to_lease(self._wall())
        return settings.capacity * (starting + (0 if is_closed else settings.max_hosts - len(live)))

    def _obey(self, order: str, host: str, admin: str) -> None:
        self._print(f"{admin} orders: {order} {host}".rstrip())
        if order in ("pause", "resume"):
            self._disk.set_paused(order == "pause")
            self.step(SetPaused(order == "pause"))
            return
        for entry in self.machine.ledger.live():
            if host in ("", entry.lease_id, entry.node, entry.host_id, entry.host_name):
                self.step(ReleaseWanted(entry.lease_id))

    # ---- the run

    async def run(self, end: "asyncio.Future[None]", *, releases: bool) -> None:
        """Run until `end`; then, with `releases`, until every host has ended."""
        self.step(LedgerRead(self._disk.entries()))
        if self._disk.is_paused:
            self.step(SetPaused(True))
        pause = min(VIEW_SECONDS, self._settings.round_ns / SECOND / 2)
        is_releasing = False
        while True:
            await self._look()
            if end.done() and not is_releasing:
                if not releases or not self.machine.ledger.live():
                    break
                is_releasing = True
                self.step(SetPaused(True))
                self.step(ReleaseWanted())
            if is_releasing and not self.machine.ledger.live():
                break
            waiting: set[asyncio.Future[Any]] = {asyncio.ensure_future(asyncio.sleep(pause))}
            await asyncio.wait(waiting | ({end} if not end.done() else set()), return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
        for name in sorted(self._scaled):
            await self._scale(name, None)
        for task in list(self._tasks):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks, return_exceptions=True)


def _policy(file: GateFile, settings: GateSettings) -> ProvisioningPolicy:
    window_ns = settings.btu_ns if settings.by_second else settings.window_ns
    bounds = ProvisioningSettings(window_s=window_ns / SECOND)
    if file.policy == "hosts":
        return Hosts(bounds, HostsPolicySettings(file.high or 2.0))
    return policy_named(file.policy, bounds)


def _seen(view: MeshView, stages: tuple[StageSeen, ...]) -> ViewSeen:
    return ViewSeen(
        view.nodes,
        view.waiting,
        leads=view.leads,
        live_gates=view.gates,
        records=view.records,
        stages=stages,
    )
