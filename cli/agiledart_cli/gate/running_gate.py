"""Process of a gate: it carries out the effects of `LeaseGate` on disk and in the mesh, and brings it events and views."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from agiledart_cli.gate.gate_disk import GateDisk
from agiledart_cli.gate.gate_file import GateFile
from agiledart_cli.gate.gate_report import MAX_DECISIONS, DecisionLine, encoded, figures_of
from agiledart_cli.gate.lease_use import LeaseUse
from agiledart_cli.gate.mesh_link import MeshLink, MeshView
from agiledart_cli.gate.provider_calls import ProviderCalls
from agiledart_kernel.errors import AgileDartError
from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Completed, Effect, Event, Failed, SetTimer, TimerFired
from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.gate import gate_messages as messages
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.lease_entry import LeaseEntry, LeaseState
from agiledart_provisioning.gate.lease_gate import LeaseGate
from agiledart_provisioning.policies.hosts import Hosts, HostsPolicySettings
from agiledart_provisioning.providers.provider import Provider
from agiledart_provisioning.provisioning_policy import ProvisioningPolicy
from agiledart_provisioning.provisioning_settings import ProvisioningSettings
from agiledart_provisioning.registry import policy_named

VIEW_SECONDS = 10.0
MOST_SECONDS = 60.0
"""Seconds between two looks for which the use of machines is counted."""

MAX_DRAINS = 32
"""Nodes that are drained at one time; further ones wait."""

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
        self._file, self._settings, self._disk, self._mesh = file, settings, disk, mesh
        self._print, self._print_decision, self._now = print_line, print_decision, 0
        early = file.policy == "threshold"
        random = RandomStream(seed, file.name)
        self.machine = LeaseGate(file.name, network, settings, _policy(file, settings), random, releases_early=early)
        self._calls = ProviderCalls(provider, file, settings, disk, mesh, self.machine.prefix, self.step, print_line)
        self._last: deque[DecisionLine] = deque(maxlen=MAX_DECISIONS)
        self._scaled, self._use = disk.scaled(), LeaseUse(disk.use())
        self._used_until, self._use_written = 0, 0
        self._demand, self._faults = "", {"agent": "", "disk": ""}
        self._todo: deque[Event] = deque()
        self._is_stepping, self._not_looked_at = False, ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._records: tuple[LeaseEntry, ...] = ()
        self._draining: set[str] = set()
        self._drains = ThreadPoolExecutor(MAX_DRAINS, "drains")

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
            case messages.WriteEntry(request, entry):
                try:
                    self._disk.write(entry)
                except OSError as error:
                    self._todo.append(Failed(request, error.strerror or str(error)))
                else:
                    self._todo.append(Completed(request))
            case SetTimer(name, when):
                delay = max(0, when - self._wall()) / 1e9
                asyncio.get_running_loop().call_later(delay, self.step, TimerFired(name))
            case messages.LeaseHost():
                self._spawn(self._calls.lease(effect))
            case messages.ListHosts(asked_ns):
                self._spawn(self._calls.list_hosts(asked_ns))
            case messages.ReleaseHost(_, host_id):
                self._spawn(self._calls.release(host_id))
            case messages.DrainLeased(lease_id, node, undo):
                self._spawn(self._drain(lease_id, node, undo=undo))
            case messages.RenewHost(lease_id, node):
                self._spawn(self._renew(lease_id, node))
            case messages.AdoptHost(lease_id, node):
                self._spawn(self._adopt(lease_id, node))
            case messages.ScaleStageTo(name, number):
                self._spawn(self._scale(name, number))
            case messages.BanNode(node, reason):
                self._spawn(self._ban(node, reason))
            case messages.Decision(action, lease_id, why):
                self._decided(action, lease_id, why)

    def _decided(self, action: str, lease_id: str, why: str) -> None:
        if action.startswith("would ") and any((line.action, line.why) == (action, why) for line in self._last):
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
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Say why an action failed: the machine repeats what is still needed."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._print(f"an action of the gate failed: {type(error).__name__}: {error}")

    def _write(self, write: Callable[[], None]) -> None:
        """Write a file beside the ledger; a failure is a fault that the report shows."""
        try:
            write()
        except OSError as error:
            self._faults["disk"] = f"the gate's folder cannot be written: {error.strerror or error}"
            self._print(self._faults["disk"])
        else:
            self._faults["disk"] = ""

    # ---- the mesh

    async def _drain(self, lease_id: str, node: str, *, undo: bool) -> None:
        """Drain a node, once at a time; the list of hosts asks again for a double that is still there.

        A drain lasts for minutes, so drains have threads of their own: looks and renewals do not wait for them.
        """
        drain = partial(self._mesh.drain, node, undo=undo)
        if undo:
            await asyncio.to_thread(drain)
            return
        if node in self._draining:
            return
        self._draining.add(node)
        try:
            why = await asyncio.get_running_loop().run_in_executor(self._drains, drain)
        finally:
            self._draining.discard(node)
        if why:
            self.step(messages.DrainRefused(lease_id, why))

    async def _renew(self, lease_id: str, node: str) -> None:
        if (entry := self.machine.ledger.entries.get(lease_id)) is not None:
            await asyncio.to_thread(self._mesh.renew, lease_id, node, entry)

    async def _adopt(self, lease_id: str, node: str) -> None:
        record = next((entry for entry in self._records if entry.lease_id == lease_id), None)
        if record is not None and await asyncio.to_thread(self._mesh.renew, lease_id, node, record):
            self.step(messages.HostAdopted(record))

    async def _scale(self, name: str, number: int | None) -> None:
        why = await asyncio.to_thread(self._mesh.scale, name, number)
        if why and number is not None:  # one that scales by itself again may have ended meanwhile
            self._print(f"{name} could not be scaled: {why}")
        else:
            changed = self._scaled - {name} if number is None else self._scaled | {name}
            if changed != self._scaled:
                self._scaled = changed
                self._write(partial(self._disk.write_scaled, changed))

    async def _ban(self, node: str, reason: str) -> None:
        if why := await asyncio.to_thread(self._mesh.ban, node, reason):
            self._print(f"{node} could not be banned: {why}")

    # ---- views

    async def _look(self) -> None:
        """Report to the agent, take orders, and give the machine a view of the mesh."""
        fault = "; ".join(filter(None, (self._calls.fault, *self._faults.values())))
        figures = figures_of(
            self.machine.ledger, self._settings, self._file.provider, self.machine.counts, self._last, self._wall(),
            is_paused=self.machine.is_paused, fault=fault, demand=self._demand,
            by_application=self._use.costs(self.machine.ledger.entries.values()),
        )  # fmt: skip
        report, tokens = encoded(figures), self._calls.token_leases
        try:
            view = await asyncio.to_thread(self._mesh.report_and_look, report, self._places(), tokens)
        except AgileDartError as error:
            if not self._faults["agent"]:
                self._print(f"the agent cannot be asked, so nothing is leased: {error}")
            self._faults["agent"] = str(error)
            return
        self._faults["agent"] = ""
        if view.not_looked_at and view.not_looked_at != self._not_looked_at:
            self._print(view.not_looked_at)
        self._not_looked_at = view.not_looked_at
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
            self._write(partial(self._disk.write_use, self._use.use))

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
            self._write(partial(self._disk.set_paused, order == "pause"))
            self.step(messages.SetPaused(order == "pause"))
            return
        live = self.machine.ledger.live()
        wanted = [entry for entry in live if host in ("", entry.lease_id, entry.node, entry.host_id, entry.host_name)]
        if not wanted:
            self._print(f"nothing to release: {f'no live lease has the host {host}' if host else 'no lease is live'}")
        for entry in wanted:
            self.step(messages.ReleaseWanted(entry.lease_id))

    # ---- the run

    async def run(self, end: "asyncio.Future[None]", *, releases: bool) -> None:
        """Run until `end`; then, with `releases`, until every host has ended."""
        self.step(messages.LedgerRead(self._disk.entries()))
        if self._disk.is_paused:
            self.step(messages.SetPaused(True))
        pause = min(VIEW_SECONDS, self._settings.round_ns / SECOND / 2)
        is_releasing = False
        while True:
            await self._look()
            if end.done() and not is_releasing:
                if not releases or not self.machine.ledger.live():
                    break
                is_releasing = True
                self.step(messages.SetPaused(True))
                self.step(messages.ReleaseWanted())
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
        self._drains.shutdown(wait=False, cancel_futures=True)


def _policy(file: GateFile, settings: GateSettings) -> ProvisioningPolicy:
    window_ns = settings.btu_ns if settings.by_second else settings.window_ns
    bounds = ProvisioningSettings(window_s=window_ns / SECOND)
    if file.policy == "hosts":
        return Hosts(bounds, HostsPolicySettings(file.high or 2.0))
    return policy_named(file.policy, bounds)


def _seen(view: MeshView, stages: tuple[messages.StageSeen, ...]) -> messages.ViewSeen:
    return messages.ViewSeen(
        view.nodes,
        view.waiting,
        leads=view.leads,
        live_gates=view.gates,
        records=view.records,
        stages=stages,
    )
